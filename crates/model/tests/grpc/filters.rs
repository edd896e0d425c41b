//! Tests of HTTP filters: chains, overrides, and the two together (gRFC A39). The configuration of
//! a filter comes from up to four places, of which the nearest counts.

use crowfly_model::grpc::{
    Listener, RouteConfig,
    filter::{
        EffectiveConfig, EffectiveFilter, FilterChain, FilterConfig, FilterOverrides, Overrides,
        SetBy,
    },
    listener::ListenerKind,
    route as model,
};
use envoy_types::pb::{
    envoy::{
        config::route::v3::{
            FilterConfig as Wrapper, RouteAction, RouteConfiguration, WeightedCluster,
            route::Action, route_action::ClusterSpecifier, weighted_cluster::ClusterWeight,
        },
        extensions::filters::{
            http::{
                fault::v3::HttpFault,
                rbac::v3::{Rbac, RbacPerRoute},
                router::v3::Router,
            },
            network::http_connection_manager::v3::{HttpConnectionManager, HttpFilter},
        },
    },
    google::protobuf::{Any, UInt32Value},
};

use crate::{
    accept,
    messages::{any, filter, listener, manager, route, route_config, typed_struct},
    reject,
};

/// A fault filter that can be told from others by its limit.
pub(crate) fn limited(limit: u32) -> Any {
    any(&HttpFault {
        max_active_faults: Some(UInt32Value { value: limit }),
        ..HttpFault::default()
    })
}

pub(crate) fn unknown() -> Any {
    Any {
        type_url: "type.googleapis.com/x.Fancy".to_owned(),
        value: vec![],
    }
}

fn optional(mut filter: HttpFilter) -> HttpFilter {
    filter.is_optional = true;
    filter
}

/// A manager with these filters before its router.
fn manager_with(filters: Vec<HttpFilter>) -> HttpConnectionManager {
    let mut manager = manager();
    manager.http_filters.splice(0..0, filters);
    manager
}

fn chain(filters: Vec<HttpFilter>) -> FilterChain {
    let parsed = accept::<Listener>(&listener(&manager_with(filters)));
    match parsed.kind {
        ListenerKind::Api(api) => api.filters,
        ListenerKind::Socket => panic!("expected an API listener"),
    }
}

fn limit_of(config: &FilterConfig) -> Option<u32> {
    match config {
        FilterConfig::Fault(fault) => fault.max_active,
        other => panic!("expected a fault, got {other}"),
    }
}

/// S3-01: the filters before the router are kept in their order, with their names; one kind may be there twice.
#[test]
fn a_chain_has_its_filters_in_order() {
    assert!(chain(vec![]).is_empty());
    let chain = chain(vec![filter("b", limited(1)), filter("a", limited(2))]);
    let filters: Vec<_> = chain
        .iter()
        .map(|filter| (filter.name.as_str(), limit_of(&filter.config)))
        .collect();
    assert_eq!(filters, [("b", Some(1)), ("a", Some(2))]);
}

/// S3-02: an optional filter that is unknown, or for servers only, leaves the chain, and a tool can tell.
#[test]
fn optional_filters_are_left_out() {
    let filters = vec![
        optional(filter("x", unknown())),
        filter("fault", limited(1)),
        optional(filter("rbac", any(&Rbac::default()))),
    ];
    let parsed = accept::<Listener>(&listener(&manager_with(filters)));
    let wishes: Vec<_> = parsed.unsupported.iter().map(ToString::to_string).collect();
    assert_eq!(
        wishes,
        [
            "api_listener.api_listener.http_filters[0].typed_config: \
             left out: x.Fancy is optional, and not supported",
            "api_listener.api_listener.http_filters[2].typed_config: left out: \
             envoy.extensions.filters.http.rbac.v3.RBAC is optional, and for servers",
        ]
    );
    let ListenerKind::Api(api) = parsed.kind else {
        panic!("expected an API listener");
    };
    let names: Vec<_> = api.filters.iter().map(|filter| &*filter.name).collect();
    assert_eq!(names, ["fault"]);
}

/// S3-01, S3-02: a chain that is not one is refused, each with the path of the filter.
#[test]
fn bad_chains_are_nacked() {
    let cases: [(&str, Vec<HttpFilter>, &[&str]); 6] = [
        (
            "a filter last",
            vec![
                filter("router", any(&Router::default())),
                filter("fault", limited(1)),
            ],
            &["[0]: expected the router last in the chain, got it here"],
        ),
        (
            "no router",
            vec![filter("fault", limited(1))],
            &[": expected a router as the last filter, got none"],
        ),
        (
            "names",
            vec![
                filter("", limited(1)),
                filter("router", limited(1)),
                filter("router", any(&Router::default())),
            ],
            &[
                "[0].name: expected a non-empty string, got none",
                "[2].name: expected a unique name, got \"router\" again",
            ],
        ),
        (
            "unknown",
            vec![
                filter("x", unknown()),
                filter("router", any(&Router::default())),
            ],
            &["[0].typed_config: expected a supported filter, got x.Fancy"],
        ),
        (
            "for servers",
            vec![
                filter("rbac", any(&Rbac::default())),
                filter("router", any(&Router::default())),
            ],
            &["[0].typed_config: expected a filter for clients, \
               got envoy.extensions.filters.http.rbac.v3.RBAC"],
        ),
        (
            "the type of an override",
            vec![
                filter("rbac", any(&RbacPerRoute::default())),
                filter("router", any(&Router::default())),
            ],
            &["[0].typed_config: expected a supported filter, \
               got envoy.extensions.filters.http.rbac.v3.RBACPerRoute"],
        ),
    ];
    for (what, filters, expected) in cases {
        let mut manager = manager();
        manager.http_filters = filters;
        let path = "api_listener.api_listener.http_filters";
        let expected: Vec<_> = expected.iter().map(|e| format!("{path}{e}")).collect();
        assert_eq!(reject::<Listener>(&listener(&manager)), expected, "{what}");
    }
}

/// The name in the map with the override for it.
type Entry = (&'static str, Any);

fn wrapped(config: Option<Any>, is_optional: bool, disabled: bool) -> Any {
    any(&Wrapper {
        config,
        is_optional,
        disabled,
    })
}

fn host_with(entries: Vec<Entry>) -> RouteConfiguration {
    let mut proto = route_config();
    proto.virtual_hosts[0].typed_per_filter_config = map(entries);
    proto
}

fn map(entries: Vec<Entry>) -> std::collections::HashMap<String, Any> {
    let entries = entries.into_iter();
    entries.map(|(name, any)| (name.to_owned(), any)).collect()
}

fn overrides(entries: Vec<Entry>) -> FilterOverrides {
    accept::<RouteConfig>(&host_with(entries)).virtual_hosts[0]
        .filters
        .clone()
}

/// S5-08: an override may name a filter that no chain has, be in a wrapper, and be of a filter for servers; what is
/// optional and unknown is left out.
#[test]
fn overrides_are_read_without_a_chain() {
    let proto = host_with(vec![
        ("a", limited(1)),
        ("b", wrapped(Some(limited(2)), false, false)),
        ("c", wrapped(None, false, true)),
        ("d", wrapped(Some(unknown()), false, true)),
        ("e", wrapped(Some(unknown()), true, false)),
        ("f", wrapped(None, true, false)),
        ("g", any(&RbacPerRoute::default())),
    ]);
    let parsed = accept::<RouteConfig>(&proto);
    let overrides = &parsed.virtual_hosts[0].filters;
    let seen = ["a", "b", "c", "d", "e", "f", "g"].map(|name| {
        overrides.get(name).map(|entry| {
            let limit = entry.config.as_ref().and_then(limit_of);
            (entry.disabled, limit)
        })
    });
    assert_eq!(
        seen,
        [
            Some((false, Some(1))),
            Some((false, Some(2))),
            Some((true, None)),
            Some((true, None)),
            None,
            None,
            None,
        ]
    );
    let wishes: Vec<_> = parsed.unsupported.iter().map(ToString::to_string).collect();
    let path = "virtual_hosts[0].typed_per_filter_config";
    assert_eq!(
        wishes,
        [
            format!("{path}[e].config: left out: x.Fancy is optional, and not supported"),
            format!("{path}[f]: left out: it is optional and has no config"),
            format!(
                "{path}[g]: left out: \
                 envoy.extensions.filters.http.rbac.v3.RBACPerRoute is for servers"
            ),
        ]
    );
}

/// gRFC A39: an override of an unknown type, or of a type that only chains have, is refused with its path.
#[test]
fn bad_overrides_are_nacked() {
    let router = "envoy.extensions.filters.http.router.v3.Router";
    let mut proto = host_with(vec![
        ("", limited(1)),
        ("a", unknown()),
        ("b", wrapped(Some(unknown()), false, false)),
        ("c", wrapped(None, false, false)),
        ("d", any(&Router::default())),
        ("e", any(&Rbac::default())),
        (
            "f",
            typed_struct(
                "xds.type.v3.TypedStruct",
                "envoy.extensions.filters.http.fault.v3.HTTPFault",
                &[],
            ),
        ),
        ("g", Any::default()),
    ]);
    let mut bad_route = route("", "payments");
    bad_route.typed_per_filter_config = map(vec![("a", unknown())]);
    proto.virtual_hosts[0].routes = vec![bad_route];
    let expected = [
        "typed_per_filter_config[]: expected the name of a filter, got none",
        "typed_per_filter_config[a]: expected the override of a supported filter, got x.Fancy",
        "typed_per_filter_config[b].config: \
         expected the override of a supported filter, got x.Fancy",
        "typed_per_filter_config[c].config: expected a configuration, got none",
        &format!(
            "typed_per_filter_config[d]: expected the override of a supported filter, got {router}"
        ),
        "typed_per_filter_config[e]: expected the override of a supported filter, \
         got envoy.extensions.filters.http.rbac.v3.RBAC",
        "typed_per_filter_config[f]: expected envoy.extensions.filters.http.fault.v3.HTTPFault, \
         got it as a TypedStruct",
        "typed_per_filter_config[g]: \
         expected a type_url such as type.googleapis.com/NAME, got \"\"",
        "routes[0].typed_per_filter_config[a]: \
         expected the override of a supported filter, got x.Fancy",
    ];
    let expected = expected.map(|error| format!("virtual_hosts[0].{error}"));
    assert_eq!(reject::<RouteConfig>(&proto), expected);
}

/// S5-08: the entry of a weighted cluster has overrides too, with errors at their path. An entry of weight 0 is not there.
#[test]
fn weighted_clusters_have_overrides() {
    let entry = |weight, config| ClusterWeight {
        name: "payments".to_owned(),
        weight: Some(UInt32Value { value: weight }),
        typed_per_filter_config: map(vec![("a", config)]),
        ..ClusterWeight::default()
    };
    let split = |clusters| {
        let mut proto = route_config();
        let weighted = WeightedCluster {
            clusters,
            ..WeightedCluster::default()
        };
        let action = RouteAction {
            cluster_specifier: Some(ClusterSpecifier::WeightedClusters(weighted)),
            ..RouteAction::default()
        };
        proto.virtual_hosts[0].routes[0].action = Some(Action::Route(action));
        proto
    };
    let parsed = accept::<RouteConfig>(&split(vec![entry(0, unknown()), entry(1, limited(3))]));
    let model::RouteAction::Forward(forward) = &parsed.virtual_hosts[0].routes[0].action else {
        panic!("expected a route that forwards");
    };
    let filters = &forward.clusters.weighted(0).unwrap().filters;
    let config = filters.get("a").and_then(|entry| entry.config.as_ref());
    assert_eq!(config.and_then(limit_of), Some(3));

    assert_eq!(
        reject::<RouteConfig>(&split(vec![entry(1, limited(3)), entry(1, unknown())])),
        [
            "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[1]\
             .typed_per_filter_config[a]: expected the override of a supported filter, got x.Fancy"
        ]
    );
}

/// gRFC A28: a route that is left out is left out with all of its errors.
#[test]
fn a_skipped_route_has_no_bad_override() {
    let mut proto = route_config();
    let mut skipped = route("", "payments");
    skipped.typed_per_filter_config = map(vec![("a", unknown())]);
    if let Some(matcher) = &mut skipped.r#match {
        matcher.query_parameters = vec![Default::default()];
    }
    proto.virtual_hosts[0].routes.insert(0, skipped);
    accept::<RouteConfig>(&proto);
}

/// The filters in force: each with the limit that tells it apart, and the place that set it.
fn in_force<'a>(
    chain: &'a FilterChain,
    host: &'a FilterOverrides,
    route: &'a FilterOverrides,
    cluster: Option<&'a FilterOverrides>,
) -> Vec<(&'a str, Option<u32>, SetBy)> {
    let overrides = Overrides {
        host,
        route,
        cluster,
    };
    let filters = chain.effective(overrides);
    let limit = |filter: &EffectiveFilter<'_>| match filter.config {
        EffectiveConfig::Fault(fault) => fault.max_active,
        other => panic!("expected a fault, got {other}"),
    };
    filters
        .map(|filter| (filter.name, limit(&filter), filter.set_by))
        .collect()
}

/// S5-08: the override of the weighted cluster beats that of the route, and that the one of the virtual host; each
/// replaces the whole configuration of its filter, and of no other.
#[test]
fn the_most_specific_override_counts() {
    let chain = chain(vec![
        filter("one", limited(10)),
        filter("two", limited(20)),
        filter("three", limited(30)),
        filter("four", limited(40)),
    ]);
    let host = overrides(vec![
        ("one", limited(11)),
        ("two", limited(21)),
        ("three", limited(31)),
        ("nobody", limited(1)),
    ]);
    let route = overrides(vec![("one", limited(12)), ("two", limited(22))]);
    let cluster = overrides(vec![("one", any(&HttpFault::default()))]);
    assert_eq!(
        in_force(&chain, &host, &route, Some(&cluster)),
        [
            ("one", None, SetBy::WeightedCluster),
            ("two", Some(22), SetBy::Route),
            ("three", Some(31), SetBy::VirtualHost),
            ("four", Some(40), SetBy::Listener),
        ]
    );
    let none = FilterOverrides::default();
    assert_eq!(
        in_force(&chain, &none, &none, None)[0],
        ("one", Some(10), SetBy::Listener)
    );
}

/// `disabled` follows the most specific override too, as in Envoy and gRPC C-core: any override enables a filter that
/// the chain disables, and one that disables it wins over less specific ones.
#[test]
fn filters_are_disabled_and_enabled() {
    let mut off = filter("off", limited(1));
    off.disabled = true;
    let chain = chain(vec![off, filter("on", limited(2))]);
    let none = FilterOverrides::default();
    let names = |host: &FilterOverrides, route: &FilterOverrides| -> Vec<_> {
        let filters = in_force(&chain, host, route, None).into_iter();
        filters
            .map(|(name, limit, _)| (name.to_owned(), limit))
            .collect()
    };
    let only_on = [("on".to_owned(), Some(2))];
    assert_eq!(names(&none, &none), only_on);

    let enabled = overrides(vec![("off", limited(5))]);
    let both = [("off".to_owned(), Some(5)), ("on".to_owned(), Some(2))];
    assert_eq!(names(&enabled, &none), both);

    let disabled = overrides(vec![
        ("off", wrapped(None, false, true)),
        ("on", wrapped(Some(limited(9)), false, true)),
    ]);
    assert_eq!(names(&enabled, &disabled), []);
    let enabled_on = overrides(vec![("on", limited(7))]);
    assert_eq!(names(&disabled, &enabled_on), [("on".to_owned(), Some(7))]);
}

/// The router cannot be disabled, which a tool can tell.
#[test]
fn the_router_stays() {
    let mut manager = manager();
    manager.http_filters[0].disabled = true;
    let parsed = accept::<Listener>(&listener(&manager));
    assert_eq!(
        parsed.unsupported[0].to_string(),
        "api_listener.api_listener.http_filters[0].disabled: \
         ignored: the router cannot be disabled"
    );
}

/// The result depends on the message alone: maps have no order.
#[test]
fn errors_of_a_map_have_one_order() {
    let entries = || {
        ["e", "d", "c", "b", "a"]
            .map(|name| (name, unknown()))
            .to_vec()
    };
    let errors = reject::<RouteConfig>(&host_with(entries()));
    for _ in 0..20 {
        assert_eq!(reject::<RouteConfig>(&host_with(entries())), errors);
    }
}

/// A filter in force says what it does and who set it.
#[test]
fn filters_in_force_can_be_read() {
    let chain = chain(vec![filter("fault", limited(10))]);
    let none = FilterOverrides::default();
    let overrides = Overrides {
        host: &none,
        route: &none,
        cluster: None,
    };
    let texts: Vec<_> = chain.effective(overrides).map(|f| f.to_string()).collect();
    assert_eq!(texts, ["fault: no faults (set by the listener)"]);
}
