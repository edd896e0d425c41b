//! Tests of conditions that are wrong, or have parts without effect.
//!
//! Each is told with its path, because a control plane has to find it among thousands of routes.

use crowfly_model::grpc::RouteConfig;
use crowfly_model::{Features, ResourceType};
use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::RuntimeFractionalPercent,
            route::v3::{
                self as pb, HeaderMatcher, header_matcher::HeaderMatchSpecifier::*,
                route_match::PathSpecifier,
            },
        },
        r#type::{
            matcher::v3::{
                RegexMatcher, StringMatcher,
                regex_matcher::{EngineType, GoogleRe2},
                string_matcher::MatchPattern,
            },
            v3::{Int64Range, fractional_percent::DenominatorType},
        },
    },
    google::protobuf::{BoolValue, UInt32Value},
    xds::core::v3::TypedExtensionConfig,
};

use super::{header, matcher, regex, share, string};
use crate::{Case, accept, check_rejections, messages::route_config};

/// gRFC A28: a matcher that is wrong or not known refuses the resource, with its path. All errors are told.
#[test]
fn wrong_matchers_are_nacked() {
    let cases: &[Case<pb::RouteConfiguration>] = &[
        (
            "a header matcher without a kind",
            |p| matcher(p).headers = vec![HeaderMatcher::default()],
            &["virtual_hosts[0].routes[0].match.headers[0]: \
               expected a known condition on the header, got none"],
        ),
        (
            "regular expressions",
            |p| {
                let m = matcher(p);
                m.path_specifier = Some(PathSpecifier::SafeRegex(regex("a(")));
                #[expect(deprecated, reason = "servers still send the field")]
                let old = SafeRegexMatch(regex("*"));
                let new = string(false, MatchPattern::SafeRegex(regex("[z-a]")));
                m.headers = vec![header("x", old), header("x", new)];
            },
            &[
                "virtual_hosts[0].routes[0].match.safe_regex.regex: \
                 expected RE2 syntax, got \"a(\": unclosed group",
                "virtual_hosts[0].routes[0].match.headers[0].safe_regex_match.regex: \
                 expected RE2 syntax, got \"*\": repetition operator missing expression",
                "virtual_hosts[0].routes[0].match.headers[1].string_match.safe_regex.regex: \
                 expected RE2 syntax, got \"[z-a]\": invalid character class range, the start \
                 must be <= the end",
            ],
        ),
        (
            "a range that ends before it begins",
            |p| {
                let range = RangeMatch(Int64Range { start: 2, end: 1 });
                matcher(p).headers = vec![header("x", range)];
            },
            &["virtual_hosts[0].routes[0].match.headers[0].range_match: \
               expected an end of at least 2, got 1"],
        ),
        (
            "string matchers without a kind, and of a kind that is not known",
            |p| {
                let custom = MatchPattern::Custom(TypedExtensionConfig::default());
                let none = StringMatch(StringMatcher::default());
                matcher(p).headers = vec![header("x", none), header("x", string(false, custom))];
            },
            &[
                "virtual_hosts[0].routes[0].match.headers[0].string_match: \
                 expected exact, prefix, suffix, contains or safe_regex, got none",
                "virtual_hosts[0].routes[0].match.headers[1].string_match: \
                 expected exact, prefix, suffix, contains or safe_regex, got custom",
            ],
        ),
        (
            "a denominator that is not known",
            |p| {
                let mut share = share(1, DenominatorType::Million);
                share.default_value.as_mut().unwrap().denominator = 7;
                matcher(p).runtime_fraction = Some(share);
            },
            &[
                "virtual_hosts[0].routes[0].match.runtime_fraction.default_value.denominator: \
               expected HUNDRED, TEN_THOUSAND or MILLION, got 7",
            ],
        ),
    ];
    check_rejections::<RouteConfig, _>(route_config, cases);
}

/// gRFC A28: a route whose path can never match is left out, errors of its headers included.
#[test]
fn a_path_that_never_matches_hides_other_errors() {
    let mut proto = route_config();
    let m = matcher(&mut proto);
    m.path_specifier = Some(PathSpecifier::Prefix("a".to_owned()));
    m.headers = vec![HeaderMatcher::default()];
    let config = accept::<RouteConfig>(&proto);
    assert_eq!(config.virtual_hosts[0].skipped.len(), 1);
}

/// gRFC A28, A63: parts of a condition that have no effect are recorded, and the route stands.
#[test]
fn parts_without_effect_are_recorded() {
    let mut proto = route_config();
    let m = matcher(&mut proto);
    #[expect(deprecated, reason = "servers still send the fields")]
    let engine = EngineType::GoogleRe2(GoogleRe2 {
        max_program_size: Some(UInt32Value { value: 100 }),
    });
    m.path_specifier = Some(PathSpecifier::SafeRegex(RegexMatcher {
        engine_type: Some(engine),
        ..regex(".*")
    }));
    m.case_sensitive = Some(BoolValue { value: false });
    let mut missing = header(
        "x-id-bin",
        string(true, MatchPattern::SafeRegex(regex("a"))),
    );
    missing.treat_missing_header_as_empty = true;
    m.headers = vec![missing];
    m.runtime_fraction = Some(RuntimeFractionalPercent {
        runtime_key: "canary".to_owned(),
        default_value: None,
    });
    let config = accept::<RouteConfig>(&proto);
    assert_eq!(config.virtual_hosts[0].routes.len(), 1);
    let found = RouteConfig::unsupported(&config);
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    let expected = [
        "case_sensitive: ignored for a regex (gRFC A28)",
        "safe_regex.google_re2.max_program_size: ignored: another limit holds (gRFC A28)",
        "headers[0].string_match.ignore_case: ignored for a regex (gRFC A63)",
        "headers[0].name: x-id-bin counts as absent: routes do not see it (gRFC A28)",
        "headers[0].treat_missing_header_as_empty: \
         ignored: an absent header meets no condition on its value (gRFC A28)",
        "runtime_fraction.runtime_key: ignored: default_value counts (gRFC A28)",
        "runtime_fraction.default_value: not set: every call is taken",
    ];
    let expected = expected.map(|wish| format!("virtual_hosts[0].routes[0].match.{wish}"));
    assert_eq!(found, expected);
}

/// A regular expression that would take much memory is refused, and not compiled for long.
#[test]
fn the_size_of_a_regex_is_limited() {
    let mut proto = route_config();
    // RE2 allows a count up to 1,000, also of groups within groups.
    let huge = "a{1000}".repeat(200);
    matcher(&mut proto).path_specifier = Some(PathSpecifier::SafeRegex(regex(&huge)));
    let bytes = prost::Message::encode_to_vec(&proto);
    let error = RouteConfig::parse(&bytes, &Features::ALL)
        .value
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("it takes more than 1048576 bytes"),
        "{error}"
    );
}
