//! Tests of the conditions of routes: each kind of matcher, by tables of cases from the gRFCs. A
//! condition that is read wrongly sends calls to another cluster.

mod wrong;

use crowfly_model::grpc::RouteConfig;
use crowfly_model::grpc::route::{CallHead, Condition};
use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::RuntimeFractionalPercent,
            route::v3::{
                self as pb, HeaderMatcher, RouteMatch,
                header_matcher::HeaderMatchSpecifier::{self as Specifier, *},
                route_match::PathSpecifier,
            },
        },
        r#type::{
            matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
            v3::{FractionalPercent, Int64Range, fractional_percent::DenominatorType},
        },
    },
    google::protobuf::BoolValue,
};

use crate::{
    accept,
    messages::{route, route_config},
};

type Headers = [(&'static str, &'static str)];

/// S5-02: a regular expression is about the whole path, in its own case (gRFC A28).
#[test]
fn a_regex_is_about_the_whole_path() {
    for (pattern, path, expected) in [
        ("/a\\.A/M", "/a.A/M", true),
        ("/a\\.A/M", "/a.A/Mx", false),
        ("a\\.A/M", "/a.A/M", false),
        ("/a\\.A/(Get|List)", "/a.A/List", true),
        // An alternative does not escape the anchors.
        ("/b|/a\\.A/M", "/a.A/M", true),
        ("/a|M", "/a.A/M", false),
        (".*", "/a.A/M", true),
        ("/A\\.A/.*", "/a.A/M", false),
        ("(?i)/A\\.A/.*", "/a.A/M", true),
        ("", "/a.A/M", false),
    ] {
        for case_sensitive in [true, false] {
            let condition = condition(|m| {
                m.path_specifier = Some(PathSpecifier::SafeRegex(regex(pattern)));
                m.case_sensitive = Some(BoolValue {
                    value: case_sensitive,
                });
            });
            let found = condition.is_met_by(&CallHead::of_path(path));
            assert_eq!(found, expected, "{pattern} on {path}");
        }
    }
}

/// S5-02, gRFC A28, A63: each kind of condition on a header, with the values that meet it.
#[test]
fn header_conditions_by_kind() {
    let range = |start, end| RangeMatch(Int64Range { start, end });
    let text = str::to_owned;
    #[expect(deprecated, reason = "servers still send the fields")]
    check_values(vec![
        (ExactMatch(text("ab")), &["ab"], &["AB", "abc", "", "ab,ab"]),
        (ExactMatch(text("")), &[""], &["a"]),
        (
            PrefixMatch(text("ab")),
            &["ab", "abc"],
            &["a", "ABc", "xab"],
        ),
        (
            SuffixMatch(text("ab")),
            &["ab", "xab"],
            &["b", "abx", "xAB"],
        ),
        (ContainsMatch(text("ab")), &["ab", "xaby"], &["a b", "xABy"]),
        // The proto forbids an empty text; gRPC C-core takes it for what it says.
        (ContainsMatch(text("")), &["", "x"], &[]),
        (PrefixMatch(text("")), &["", "x"], &[]),
        (SafeRegexMatch(regex("a+")), &["a", "aa"], &["ab", "", "A"]),
        (PresentMatch(true), &["", "x"], &[]),
        (PresentMatch(false), &[], &["", "x"]),
        (
            range(-10, 0),
            &["-10", "-1", "-010"],
            &["0", "+0", "-11", "10.9", "-1a", "", " -1", "-1,-2", "x"],
        ),
        (range(0, 10), &["0", "+5", "-0", "007"], &["10", "+ 5", "+"]),
        (
            range(i64::MIN, i64::MAX),
            &["-9223372036854775808", "9223372036854775806"],
            &[
                "9223372036854775807",
                "9223372036854775808",
                "99999999999999999999",
            ],
        ),
        (range(5, 5), &[], &["5", "4"]),
    ]);
}

/// S5-02, gRFC A63: the same by string matchers, which may ignore case.
#[test]
fn string_matchers_may_ignore_case() {
    let text = str::to_owned;
    check_values(vec![
        (
            string(false, MatchPattern::Exact(text("Ab"))),
            &["Ab"],
            &["ab", "AB"],
        ),
        (
            string(true, MatchPattern::Exact(text("Ab"))),
            &["Ab", "ab", "AB"],
            &["abc"],
        ),
        (
            string(true, MatchPattern::Prefix(text("Ab"))),
            &["aBc"],
            &["xab"],
        ),
        (
            string(true, MatchPattern::Suffix(text("Ab"))),
            &["xaB"],
            &["abx", "b"],
        ),
        (
            string(true, MatchPattern::Contains(text("Ab"))),
            &["xaBy", "ab"],
            &["a-b", ""],
        ),
        (
            string(true, MatchPattern::SafeRegex(regex("Ab"))),
            &["Ab"],
            // gRFC A63: ignore_case is ignored for a regex.
            &["ab"],
        ),
    ]);
}

/// Checks conditions with values that meet them and values that do not; an inverted condition says the opposite.
fn check_values(cases: Vec<(Specifier, &[&'static str], &[&'static str])>) {
    for (specifier, matching, other) in cases {
        for (values, expected) in [(matching, true), (other, false)] {
            for value in values {
                let what = format!("{specifier:?} on {value:?}");
                let headers = &[("x-h", *value)][..];
                assert_eq!(
                    meets(header("x-h", specifier.clone()), headers),
                    expected,
                    "{what}"
                );
                assert_eq!(
                    meets(inverted("x-h", specifier.clone()), headers),
                    !expected,
                    "{what}"
                );
            }
        }
    }
}

/// S5-02: an absent header meets no condition but one on its presence, inverted or not (gRPC C-core, gRPC-Go).
#[test]
fn an_absent_header_meets_only_conditions_on_presence() {
    #[expect(deprecated, reason = "servers still send the fields")]
    let on_value = [
        ExactMatch(String::new()),
        ExactMatch("a".to_owned()),
        PrefixMatch("a".to_owned()),
        SuffixMatch("a".to_owned()),
        ContainsMatch("a".to_owned()),
        SafeRegexMatch(regex(".*")),
        RangeMatch(Int64Range { start: 0, end: 9 }),
        string(false, MatchPattern::Exact(String::new())),
    ];
    for specifier in on_value {
        for mut matcher in [header("x-h", specifier.clone()), inverted("x-h", specifier)] {
            assert!(!meets(matcher.clone(), &[]), "{matcher:?}");
            matcher.treat_missing_header_as_empty = true;
            assert!(!meets(matcher.clone(), &[]), "{matcher:?}");
        }
    }
    for (expected, invert, is_met) in [
        (true, false, false),
        (true, true, true),
        (false, false, true),
        (false, true, false),
    ] {
        let mut matcher = header("x-h", PresentMatch(expected));
        matcher.invert_match = invert;
        assert_eq!(meets(matcher.clone(), &[]), is_met, "{matcher:?}");
        assert_eq!(
            meets(matcher.clone(), &[("x-h", "")]),
            !is_met,
            "{matcher:?}"
        );
    }
}

/// S5-09, gRFC A28: a binary header counts as absent, even for a condition on its presence; so do the headers of
/// the transport. The content type is always gRPC's.
#[test]
fn binary_and_transport_headers_count_as_absent() {
    for name in [
        "x-id-bin",
        "X-Id-BIN",
        ":path",
        ":authority",
        "te",
        "user-agent",
        "grpc-timeout",
    ] {
        let headers = [(name, "a")];
        assert!(!meets(header(name, PresentMatch(true)), &headers), "{name}");
        assert!(meets(header(name, PresentMatch(false)), &headers), "{name}");
        assert!(!meets(header(name, exact("a")), &headers), "{name}");
        assert!(!meets(inverted(name, exact("b")), &headers), "{name}");
    }
    for headers in [&[][..], &[("content-type", "application/grpc+proto")]] {
        assert!(meets(
            header("content-type", exact("application/grpc")),
            headers
        ));
        assert!(!meets(
            header("content-type", exact("application/grpc+proto")),
            headers
        ));
        assert!(!meets(header("content-type", PresentMatch(false)), headers));
    }
    assert!(meets(header("x-bin-", exact("a")), &[("x-bin-", "a")]));
}

/// gRFC A28: several values of a header are one value, joined by commas.
#[test]
fn several_values_are_joined_by_commas() {
    let headers = [("x-h", "a"), ("x-other", "o"), ("x-h", ""), ("x-h", "b")];
    assert!(meets(header("x-h", exact("a,,b")), &headers));
    assert!(!meets(header("x-h", exact("a")), &headers));
    assert!(meets(inverted("x-h", exact("a")), &headers));
    let across = string(false, MatchPattern::SafeRegex(regex("a,.*b")));
    assert!(meets(header("x-h", across), &headers));
    let long: &'static str = "v".repeat(300).leak();
    let joined = format!("{long},{long}");
    assert!(meets(
        header("x-h", exact(&joined)),
        &[("x-h", long), ("x-h", long)]
    ));
}

/// HTTP: the names of headers have no case.
#[test]
fn names_of_headers_have_no_case() {
    assert!(meets(header("X-User", exact("a")), &[("x-user", "a")]));
    assert!(meets(header("x-user", exact("a")), &[("X-USER", "a")]));
}

/// All conditions of a route must be met, and the first that is not is the reason.
#[test]
fn the_reason_names_the_first_condition_that_is_not_met() {
    let condition = condition(|m| {
        m.path_specifier = Some(PathSpecifier::Prefix("/a.A/".to_owned()));
        m.headers = vec![
            header("x-user", exact("ann")),
            inverted("x-tier", exact("gold")),
            header("x-id", RangeMatch(Int64Range { start: 1, end: 5 })),
            header("x-debug", PresentMatch(false)),
            header("x-bin", PresentMatch(true)),
        ];
        m.runtime_fraction = Some(share(25, DenominatorType::Hundred));
    });
    let why = |path, headers: &Headers| {
        let call = CallHead { path, headers };
        let mismatch = condition.mismatch(&call);
        mismatch.map(|mismatch| mismatch.to_string())
    };
    let ann = ("x-user", "ann");
    let silver = ("x-tier", "silver");
    for (path, headers, expected) in [
        ("/b.B/M", &[ann][..], "the path does not begin with it"),
        ("/A.a/M", &[ann], "the path differs in case"),
        (
            "/a.A/M",
            &[],
            "header x-user is absent, expected exact \"ann\"",
        ),
        (
            "/a.A/M",
            &[("x-user", "bob")],
            "header x-user is \"bob\", expected exact \"ann\"",
        ),
        (
            "/a.A/M",
            &[ann, ("x-tier", "gold")],
            "header x-tier is \"gold\", expected not exact \"gold\"",
        ),
        (
            "/a.A/M",
            &[ann, silver, ("x-id", "5")],
            "header x-id is \"5\", expected range [1, 5)",
        ),
        (
            "/a.A/M",
            &[ann, silver, ("x-id", "4"), ("x-debug", "")],
            "header x-debug is \"\", expected absent",
        ),
        (
            "/a.A/M",
            &[ann, silver, ("x-id", "4"), ("x-bin", "a")],
            "header x-bin counts as absent, expected present",
        ),
    ] {
        assert_eq!(why(path, headers).as_deref(), Some(expected));
    }
}

/// gRFC A28: the default of a runtime fraction counts; more than the denominator is every call. Large numbers do
/// not wrap.
#[test]
fn shares_of_calls() {
    use DenominatorType::{Hundred, Million, TenThousand};
    for (numerator, denominator, millionths) in [
        (0, Hundred, 0),
        (10, Hundred, 100_000),
        (100, Hundred, 1_000_000),
        (101, Hundred, 1_000_000),
        (u32::MAX, Hundred, 1_000_000),
        (1, TenThousand, 100),
        (1, Million, 1),
        (u32::MAX, Million, 1_000_000),
    ] {
        let condition = condition(|m| m.runtime_fraction = Some(share(numerator, denominator)));
        let found = condition.fraction.unwrap().millionths();
        assert_eq!(found, millionths, "{numerator} of {denominator:?}");
    }
    let without_default = RuntimeFractionalPercent::default();
    assert_eq!(
        condition(|m| m.runtime_fraction = Some(without_default)).fraction,
        None
    );
}

/// The condition of a route for everything, with these changes.
fn condition(edit: impl FnOnce(&mut RouteMatch)) -> Condition {
    let mut proto = route_config();
    edit(matcher(&mut proto));
    let config = accept::<RouteConfig>(&proto);
    config.virtual_hosts[0].routes[0].condition.clone()
}

fn meets(matcher: HeaderMatcher, headers: &Headers) -> bool {
    let condition = condition(|m| m.headers = vec![matcher]);
    let path = "/a.A/M";
    let is_met = condition.is_met_by(&CallHead { path, headers });
    let mismatch = condition.mismatch(&CallHead { path, headers });
    assert_eq!(is_met, mismatch.is_none(), "{condition:?} on {headers:?}");
    is_met
}

fn matcher(proto: &mut pb::RouteConfiguration) -> &mut RouteMatch {
    let routes = &mut proto.virtual_hosts[0].routes;
    routes[0]
        .r#match
        .get_or_insert_with(|| route("", "").r#match.unwrap())
}

fn header(name: &str, specifier: Specifier) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(specifier),
        ..HeaderMatcher::default()
    }
}

fn inverted(name: &str, specifier: Specifier) -> HeaderMatcher {
    HeaderMatcher {
        invert_match: true,
        ..header(name, specifier)
    }
}

fn exact(text: &str) -> Specifier {
    string(false, MatchPattern::Exact(text.to_owned()))
}

fn string(ignore_case: bool, pattern: MatchPattern) -> Specifier {
    StringMatch(StringMatcher {
        ignore_case,
        match_pattern: Some(pattern),
    })
}

fn regex(pattern: &str) -> RegexMatcher {
    RegexMatcher {
        regex: pattern.to_owned(),
        ..RegexMatcher::default()
    }
}

fn share(numerator: u32, denominator: DenominatorType) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator,
            denominator: denominator.into(),
        }),
        ..RuntimeFractionalPercent::default()
    }
}
