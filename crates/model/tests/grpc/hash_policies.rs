//! Tests of the hashes that routes give to calls (gRFC A42). The values are published ones of
//! xxHash, because all clients must hash alike.

use crowfly_model::grpc::{
    RouteConfig,
    route::{HashPolicies, RouteAction},
};
use envoy_types::pb::envoy::{
    config::route::v3::{
        RouteConfiguration,
        route::Action,
        route_action::{
            HashPolicy,
            hash_policy::{
                ConnectionProperties, Cookie, FilterState, Header, PolicySpecifier, QueryParameter,
            },
        },
    },
    r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher},
};

use crate::{Case, accept, check_rejections, messages::route_config};

const CHANNEL: u64 = 0x8000_0000_0000_0003;

/// XXH64 with seed 0, as the project of xxHash publishes it.
const EMPTY: u64 = 0xef46_db37_51d8_e999;
const A: u64 = 0xd24e_c4f1_a98c_6e5b;
const ABC: u64 = 0x44bc_2cf5_ad77_0999;

/// S5-10: gRFC A42: a header is hashed whole, and several values are one with commas in between. A header that
/// is absent gives no hash, and an empty one does.
#[test]
fn hash_of_a_header() {
    let by_user = policies(vec![header("X-User")]);
    let hash = |headers: &[(&str, &str)]| by_user.hash(headers, CHANNEL);
    assert_eq!(hash(&[]), None);
    assert_eq!(hash(&[("x-other", "a")]), None);
    assert_eq!(hash(&[("x-user", "")]), Some(EMPTY));
    assert_eq!(hash(&[("x-user", "a")]), Some(A));
    assert_eq!(hash(&[("x-user", "abc")]), Some(ABC));
    let two = hash(&[("x-user", "a"), ("x-other", "b"), ("x-user", "c")]);
    assert_eq!(two, hash(&[("x-user", "a,c")]));
    assert_ne!(two, hash(&[("x-user", "ac")]));
}

/// S5-10: gRFC A42 and A28: binary headers and headers of the transport are not seen, and `content-type` is the
/// same for every call.
#[test]
fn hash_of_headers_that_routes_do_not_see() {
    let headers = [
        ("x-user-bin", "a"),
        ("grpc-timeout", "1S"),
        ("content-type", "application/grpc+proto"),
    ];
    for name in ["x-user-bin", "grpc-timeout"] {
        assert_eq!(
            policies(vec![header(name)]).hash(&headers[..], CHANNEL),
            None
        );
    }
    let by_type = policies(vec![header("content-type")]);
    let other = [("content-type", "other")];
    let hash = by_type.hash(&headers[..], CHANNEL);
    assert!(hash.is_some() && hash == by_type.hash(&other[..], CHANNEL));
}

/// S5-10: gRFC A42: hashes are combined in order, and a terminal policy is the last one if there is a hash by
/// then.
#[test]
fn hashes_of_several_policies() {
    let headers = [("a", "a"), ("abc", "abc")];
    let terminal = |mut policy: HashPolicy| {
        policy.terminal = true;
        policy
    };
    for (list, expected) in [
        (vec![], None),
        (vec![header("none")], None),
        (vec![channel_id()], Some(CHANNEL)),
        // Rotated, not shifted: the highest bit becomes the lowest.
        (vec![channel_id(), header("a")], Some(7 ^ A)),
        (
            vec![header("a"), channel_id()],
            Some(A.rotate_left(1) ^ CHANNEL),
        ),
        (
            vec![header("a"), header("none"), header("abc")],
            Some(A.rotate_left(1) ^ ABC),
        ),
        (vec![header("a"), header("a")], Some(A.rotate_left(1) ^ A)),
        (vec![terminal(header("a")), header("abc")], Some(A)),
        (vec![terminal(header("none")), header("abc")], Some(ABC)),
        (
            vec![header("a"), terminal(header("none")), header("abc")],
            Some(A),
        ),
        (
            vec![header("a"), terminal(header("abc")), header("a")],
            Some(A.rotate_left(1) ^ ABC),
        ),
    ] {
        let what = format!("{list:?}");
        assert_eq!(
            policies(list).hash(&headers[..], CHANNEL),
            expected,
            "{what}"
        );
    }
}

/// S5-10: gRFC A42: the value of a header is rewritten before it is hashed.
#[test]
fn hash_of_a_rewritten_header() {
    let by_tenant = policies(vec![rewritten(r"^([a-z]+)-\d+$", r"\1")]);
    let hash = |value: &str| by_tenant.hash(&[("x-user", value)][..], CHANNEL);
    assert_eq!(hash("abc-17"), Some(ABC));
    assert_eq!(hash("abc-18"), Some(ABC));
    assert_eq!(hash("abc"), Some(ABC));
    assert_ne!(hash("abd-17"), Some(ABC));

    // A substitution that RE2 refuses changes nothing.
    let unchanged = policies(vec![rewritten("a", r"\1")]);
    assert_eq!(unchanged.hash(&[("x-user", "abc")][..], CHANNEL), Some(ABC));
}

/// S5-10: gRFC A42: other policies give no hash, which is no error but is said.
#[test]
fn other_policies_give_no_hash() {
    let specifiers = [
        Some(PolicySpecifier::Cookie(Cookie::default())),
        Some(PolicySpecifier::ConnectionProperties(
            ConnectionProperties { source_ip: true },
        )),
        Some(PolicySpecifier::QueryParameter(QueryParameter::default())),
        Some(PolicySpecifier::FilterState(FilterState {
            key: "other".to_owned(),
        })),
        None,
    ];
    let others = specifiers.map(|policy_specifier| HashPolicy {
        terminal: true,
        policy_specifier,
    });
    let hidden = header("x-bin");
    let list: Vec<_> = others.into_iter().chain([hidden, header("a")]).collect();
    let mut proto = route_config();
    list.clone_into(field(&mut proto));
    let config = accept::<RouteConfig>(&proto);
    assert_eq!(policies(list).hash(&[("a", "a")][..], CHANNEL), Some(A));
    let at = "virtual_hosts[0].routes[0].route.hash_policy";
    let expected = [
        format!("{at}[0]: gives no hash: cookie is not supported (gRFC A42)"),
        format!("{at}[1]: gives no hash: connection_properties is not supported (gRFC A42)"),
        format!("{at}[2]: gives no hash: query_parameter is not supported (gRFC A42)"),
        format!(
            "{at}[3]: gives no hash: other filter states than io.grpc.channel_id are not supported \
             (gRFC A42)"
        ),
        format!("{at}[4]: gives no hash: a policy of an unknown kind is not supported (gRFC A42)"),
        format!(
            "{at}[5].header.header_name: gives no hash: it is no header that routes see (gRFC A28)"
        ),
    ];
    let said: Vec<String> = config.unsupported.iter().map(ToString::to_string).collect();
    assert_eq!(said, expected);
}

#[test]
fn what_is_nacked() {
    let cases: &[Case<RouteConfiguration>] = &[
        (
            "no name",
            |p| *field(p) = vec![header("")],
            &[
                "virtual_hosts[0].routes[0].route.hash_policy[0].header.header_name: \
                 expected a non-empty string, got none",
            ],
        ),
        (
            "no pattern",
            |p| *field(p) = vec![channel_id(), rewritten("", "")],
            &[
                "virtual_hosts[0].routes[0].route.hash_policy[1].header.regex_rewrite.pattern.regex: \
                 expected a non-empty string, got none",
            ],
        ),
        (
            "a pattern that does not compile",
            |p| *field(p) = vec![rewritten("(", "")],
            &[
                "virtual_hosts[0].routes[0].route.hash_policy[0].header.regex_rewrite.pattern.regex: \
                 expected RE2 syntax, got \"(\": unclosed group",
            ],
        ),
    ];
    check_rejections::<RouteConfig, _>(route_config, cases);
}

fn policies(list: Vec<HashPolicy>) -> HashPolicies {
    let mut proto = route_config();
    *field(&mut proto) = list;
    let config = accept::<RouteConfig>(&proto);
    match &config.virtual_hosts[0].routes[0].action {
        RouteAction::Forward(forward) => forward.hash_policies.clone(),
        RouteAction::NonForwarding => panic!("the route forwards"),
    }
}

fn header(name: &str) -> HashPolicy {
    of(PolicySpecifier::Header(Header {
        header_name: name.to_owned(),
        regex_rewrite: None,
    }))
}

fn rewritten(pattern: &str, substitution: &str) -> HashPolicy {
    of(PolicySpecifier::Header(Header {
        header_name: "x-user".to_owned(),
        regex_rewrite: Some(RegexMatchAndSubstitute {
            pattern: Some(RegexMatcher {
                regex: pattern.to_owned(),
                ..RegexMatcher::default()
            }),
            substitution: substitution.to_owned(),
        }),
    }))
}

fn channel_id() -> HashPolicy {
    of(PolicySpecifier::FilterState(FilterState {
        key: "io.grpc.channel_id".to_owned(),
    }))
}

fn of(specifier: PolicySpecifier) -> HashPolicy {
    HashPolicy {
        policy_specifier: Some(specifier),
        ..HashPolicy::default()
    }
}

fn field(proto: &mut RouteConfiguration) -> &mut Vec<HashPolicy> {
    match &mut proto.virtual_hosts[0].routes[0].action {
        Some(Action::Route(action)) => &mut action.hash_policy,
        other => panic!("expected a route action, got {other:?}"),
    }
}
