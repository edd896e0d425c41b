//! Tests of route configurations: virtual hosts, and routes that are left out or refused (gRFC
//! A28).

use crowfly_model::grpc::{
    RouteConfig,
    route::{DomainPattern, PathMatcher, RouteAction},
};
use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::TypedExtensionConfig,
            route::v3::{
                self as pb, CookieMatcher, DirectResponseAction, FilterAction, NonForwardingAction,
                QueryParameterMatcher, RedirectAction, route::Action,
                route_action::ClusterSpecifier, route_match, route_match::PathSpecifier,
            },
        },
        r#type::matcher::v3::{FilterStateMatcher, MetadataMatcher},
    },
    google::protobuf::BoolValue,
};

use crate::{
    Case, accept, check_rejections,
    messages::{route, route_config, virtual_host},
    reject, route_for,
};

/// S5-01: exact, suffix, prefix, `*`; the longest of a kind; case does not count.
#[test]
fn best_virtual_host() {
    let mut proto = route_config();
    proto.virtual_hosts = [
        ("any", &["*"][..]),
        ("prefix", &["api.*"]),
        ("long prefix", &["api.example.*"]),
        ("suffix", &["*.com"]),
        ("long suffix", &["*.example.com", "*-x.example.org"]),
        ("exact", &["other.net", "API.Example.com"]),
        ("late exact", &["api.example.com"]),
    ]
    .into_iter()
    .map(|(name, domains)| virtual_host(name, domains, vec![]))
    .collect();

    let cases = [
        ("api.example.com", "exact"),
        ("api.EXAMPLE.com", "exact"),
        ("other.net", "exact"),
        ("api.example.org", "long prefix"),
        ("api.Example.org:50051", "long prefix"),
        ("api.net", "prefix"),
        ("web.example.com", "long suffix"),
        ("a-x.example.org", "long suffix"),
        // A suffix beats a longer prefix.
        ("api.example.net.com", "suffix"),
        // `*` stands for at least one character.
        (".com", "any"),
        ("api.", "any"),
        ("-x.example.org", "any"),
        ("", "any"),
        ("elsewhere:80", "any"),
    ];
    for order in ["as listed", "reversed"] {
        let config = accept::<RouteConfig>(&proto);
        for (authority, expected) in cases {
            let host = config.virtual_host(authority).unwrap();
            // Of two equal patterns the first wins.
            let expected = match (order, expected, authority) {
                ("reversed", "exact", name) if name != "other.net" => "late exact",
                _ => expected,
            };
            assert_eq!(host.name, expected, "{authority:?}, {order}");
        }
        proto.virtual_hosts.reverse();
    }
}

#[test]
fn no_virtual_host() {
    let mut proto = route_config();
    proto.virtual_hosts[0].domains = vec!["a.com".to_owned()];
    let config = accept::<RouteConfig>(&proto);
    assert!(config.virtual_host("b.com").is_none());

    proto.virtual_hosts.clear();
    let config = accept::<RouteConfig>(&proto);
    assert!(config.virtual_host("a.com").is_none());
}

#[test]
fn domain_patterns_print_as_written() {
    for text in ["*", "**", "*.x", "x.*", "x**", "x.y:80"] {
        assert_eq!(text.parse::<DomainPattern>().unwrap().to_string(), text);
    }
}

#[test]
fn what_is_nacked() {
    let cases: &[Case<pb::RouteConfiguration>] = &[
        (
            "name",
            |p| p.name.clear(),
            &["name: expected a non-empty string, got none"],
        ),
        (
            "no domain",
            |p| p.virtual_hosts[0].domains.clear(),
            &["virtual_hosts[0].domains: expected at least one domain, got none"],
        ),
        (
            "bad domains, all of them told",
            |p| {
                p.virtual_hosts[0].domains = ["ok", "", "a*b", "a**b"].map(str::to_owned).to_vec();
            },
            &[
                "virtual_hosts[0].domains[1]: expected a domain, got an empty string",
                "virtual_hosts[0].domains[2]: expected `*` only first or last, got \"a*b\"",
                "virtual_hosts[0].domains[3]: expected `*` only first or last, got \"a**b\"",
            ],
        ),
        (
            "no match",
            |p| p.virtual_hosts[0].routes[0].r#match = None,
            &["virtual_hosts[0].routes[0].match: expected a match, got none"],
        ),
        (
            "no path specifier, no cluster name",
            |p| {
                p.virtual_hosts[0].routes = vec![route("", "c"), route("", "")];
                matcher(&mut p.virtual_hosts[0].routes[1]).path_specifier = None;
            },
            &[
                "virtual_hosts[0].routes[1].match: expected prefix, path or safe_regex, got none",
                "virtual_hosts[0].routes[1].route.cluster: expected a non-empty string, got none",
            ],
        ),
    ];
    check_rejections::<RouteConfig, _>(route_config, cases);
}

/// S3-04: a route whose condition or cluster choice is not supported is left out and named, and the
/// routes after it work.
#[test]
fn unsupported_routes_are_skipped() {
    type Spoil = fn(&mut pb::Route);
    let cases: &[(&str, Spoil)] = &[
        ("match.query_parameters", |r| {
            matcher(r).query_parameters = vec![QueryParameterMatcher::default()];
        }),
        ("match.query_parameters", |r| {
            matcher(r).query_parameters = vec![QueryParameterMatcher::default()];
            matcher(r).path_specifier = None;
        }),
        ("route.cluster_header", |r| {
            set_cluster(r, Some(ClusterSpecifier::ClusterHeader("x".to_owned())));
        }),
        ("route.cluster_specifier_plugin", |r| {
            let plugin = ClusterSpecifier::ClusterSpecifierPlugin("x".to_owned());
            set_cluster(r, Some(plugin));
        }),
        ("a route action without a known cluster specifier", |r| {
            set_cluster(r, None);
        }),
    ];
    for (what, spoil) in cases {
        let mut spoiled = route("", "wrong");
        spoiled.name = "beta users".to_owned();
        spoil(&mut spoiled);
        let mut proto = route_config();
        proto.virtual_hosts[0].routes = vec![route("/a.A/", "first"), spoiled, route("", "last")];

        let config = accept::<RouteConfig>(&proto);
        let host = &config.virtual_hosts[0];
        assert_eq!(
            cluster_of(route_for(host, "/a.A/M")),
            Some("first"),
            "{what}"
        );
        assert_eq!(
            cluster_of(route_for(host, "/b.B/M")),
            Some("last"),
            "{what}"
        );
        let skipped: Vec<_> = host.skipped.iter().map(ToString::to_string).collect();
        assert_eq!(
            skipped,
            [format!("routes[1] (beta users): {what} is not supported")]
        );
    }
}

/// gRFC A28: a matcher that gRPC does not read is ignored, and the route stands by its path alone.
#[test]
fn ignored_conditions_leave_the_route() {
    let cases: [fn(&mut pb::RouteMatch); 4] = [
        |m| m.tls_context = Some(route_match::TlsContextMatchOptions::default()),
        |m| m.dynamic_metadata = vec![MetadataMatcher::default()],
        |m| m.filter_state = vec![FilterStateMatcher::default()],
        |m| m.cookies = vec![CookieMatcher::default()],
    ];
    for (i, add) in cases.into_iter().enumerate() {
        let mut proto = route_config();
        proto.virtual_hosts[0].routes = vec![route("/a.A/", "narrow"), route("", "wide")];
        add(matcher(&mut proto.virtual_hosts[0].routes[0]));
        let config = accept::<RouteConfig>(&proto);
        let host = &config.virtual_hosts[0];
        assert_eq!(
            cluster_of(route_for(host, "/a.A/M")),
            Some("narrow"),
            "case {i}"
        );
        assert_eq!(host.skipped, [], "case {i}");
    }
}

/// gRFC A28: any other path specifier is a NACK.
#[test]
fn other_path_specifiers_are_nacked() {
    let cases = [
        (
            PathSpecifier::ConnectMatcher(route_match::ConnectMatcher {}),
            "connect_matcher",
        ),
        (
            PathSpecifier::PathSeparatedPrefix("/a".to_owned()),
            "path_separated_prefix",
        ),
        (
            PathSpecifier::PathMatchPolicy(TypedExtensionConfig::default()),
            "path_match_policy",
        ),
    ];
    for (specifier, name) in cases {
        let mut proto = route_config();
        matcher(&mut proto.virtual_hosts[0].routes[0]).path_specifier = Some(specifier);
        assert_eq!(
            reject::<RouteConfig>(&proto),
            [format!(
                "virtual_hosts[0].routes[0].match: expected prefix, path or safe_regex, got {name}"
            )]
        );
    }
}

/// gRFC A27: a `*` is a wildcard as the first or the last character, and elsewhere a character like
/// any other, as in C-core.
#[test]
fn a_second_star_stands_for_itself() {
    let cases = [
        ("**", "a*", true),
        ("**", "ab", false),
        ("*a*", "xa*", true),
        ("*a*", "xab", false),
        ("a**", "a*b", true),
        ("a**", "abb", false),
    ];
    for (domain, authority, matches) in cases {
        let mut proto = route_config();
        proto.virtual_hosts[0].domains = vec![domain.to_owned()];
        let config = accept::<RouteConfig>(&proto);
        let found = config.virtual_host(authority).is_some();
        assert_eq!(found, matches, "{domain} for {authority}");
    }
}

/// Every call of a gRPC client is a gRPC call, so this is no condition.
#[test]
fn match_on_grpc_is_met() {
    let mut proto = route_config();
    matcher(&mut proto.virtual_hosts[0].routes[0]).grpc =
        Some(route_match::GrpcRouteMatchOptions {});
    let config = accept::<RouteConfig>(&proto);
    assert!(route_for(&config.virtual_hosts[0], "/a.A/M").is_some());
}

/// gRFC A28: a path that no call can have takes its route out, not the resource.
#[test]
fn paths_that_never_match_are_skipped() {
    let cases = [
        (PathSpecifier::Prefix(String::new()), true),
        (PathSpecifier::Prefix("/".to_owned()), true),
        (PathSpecifier::Prefix("/a.A".to_owned()), true),
        (PathSpecifier::Prefix("/a.A/".to_owned()), true),
        (PathSpecifier::Prefix("/a.A/M".to_owned()), true),
        (PathSpecifier::Prefix("a.A".to_owned()), false),
        (PathSpecifier::Prefix("//".to_owned()), false),
        (PathSpecifier::Prefix("/a.A/M/".to_owned()), false),
        (PathSpecifier::Path("/a.A/M".to_owned()), true),
        (PathSpecifier::Path(String::new()), false),
        (PathSpecifier::Path("a.A/M".to_owned()), false),
        (PathSpecifier::Path("/a.A".to_owned()), false),
        (PathSpecifier::Path("/a.A/".to_owned()), false),
        (PathSpecifier::Path("//M".to_owned()), false),
        (PathSpecifier::Path("/a.A/M/x".to_owned()), false),
    ];
    for (specifier, usable) in cases {
        let mut proto = route_config();
        matcher(&mut proto.virtual_hosts[0].routes[0]).path_specifier = Some(specifier.clone());
        let config = accept::<RouteConfig>(&proto);
        let host = &config.virtual_hosts[0];
        assert_eq!(host.routes.len(), usize::from(usable), "{specifier:?}");
        assert_eq!(host.skipped.len(), usize::from(!usable), "{specifier:?}");
    }
}

/// S5-02 (part): paths and prefixes, with and without regard to case.
#[test]
fn path_matching() {
    let prefix = |text: &str, case_sensitive| PathMatcher::Prefix {
        text: text.to_owned(),
        case_sensitive,
    };
    let exact = |text: &str, case_sensitive| PathMatcher::Exact {
        text: text.to_owned(),
        case_sensitive,
    };
    let cases = [
        (prefix("", true), "/a.A/M", true),
        (prefix("/a.A/", true), "/a.A/M", true),
        (prefix("/a.A/", true), "/a.a/M", false),
        (prefix("/a.A/", false), "/A.a/M", true),
        (prefix("/a.A/M", true), "/a.A", false),
        (prefix("/é", true), "/e", false),
        (exact("/a.A/M", true), "/a.A/M", true),
        (exact("/a.A/M", true), "/a.A/Mx", false),
        (exact("/a.A/M", true), "/a.A/m", false),
        (exact("/a.A/M", false), "/A.A/m", true),
    ];
    for (matcher, path, expected) in cases {
        assert_eq!(matcher.matches(path), expected, "{matcher:?} on {path}");
    }
}

#[test]
fn case_sensitive_unless_said_otherwise() {
    let mut proto = route_config();
    proto.virtual_hosts[0].routes = vec![route("/a.A/", "c")];
    let config = accept::<RouteConfig>(&proto);
    assert!(route_for(&config.virtual_hosts[0], "/A.A/M").is_none());

    matcher(&mut proto.virtual_hosts[0].routes[0]).case_sensitive =
        Some(BoolValue { value: false });
    let config = accept::<RouteConfig>(&proto);
    assert!(route_for(&config.virtual_hosts[0], "/A.A/M").is_some());
}

/// S5-04 (part): actions that are no forwarding are kept as such, and hide the routes after them.
#[test]
fn other_actions_are_not_forwarding() {
    let actions = [
        Some(Action::Redirect(RedirectAction::default())),
        Some(Action::DirectResponse(DirectResponseAction::default())),
        Some(Action::FilterAction(FilterAction::default())),
        Some(Action::NonForwardingAction(NonForwardingAction {})),
        None,
    ];
    for action in actions {
        let mut proto = route_config();
        proto.virtual_hosts[0].routes.insert(0, route("/a.A/", "c"));
        proto.virtual_hosts[0].routes[0].action = action.clone();
        let config = accept::<RouteConfig>(&proto);
        let route = route_for(&config.virtual_hosts[0], "/a.A/M").unwrap();
        assert_eq!(route.action, RouteAction::NonForwarding, "{action:?}");
    }
}

fn matcher(route: &mut pb::Route) -> &mut pb::RouteMatch {
    route.r#match.as_mut().unwrap()
}

fn set_cluster(route: &mut pb::Route, specifier: Option<ClusterSpecifier>) {
    let Some(Action::Route(action)) = &mut route.action else {
        panic!("expected a route action");
    };
    action.cluster_specifier = specifier;
}

fn cluster_of(route: Option<&crowfly_model::grpc::route::Route>) -> Option<&str> {
    route?.action.clusters().next()
}
