//! No bytes make a parser panic, and no result breaks what its type promises.
//!
//! Random bytes rarely get past the decoder, so most cases are valid messages with a few bytes
//! changed, which reach deep into the parsers.

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Cluster, ClusterConfig, Endpoints, Listener, RouteConfig,
        cluster::{Children, ClusterKind, EndpointSource},
    },
};
use envoy_types::pb::envoy::{
    config::route::v3::{
        HeaderMatcher, Route, RouteConfiguration, RouteMatch,
        header_matcher::HeaderMatchSpecifier as Specifier, route_match::PathSpecifier,
    },
    extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier,
    r#type::{
        matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
        v3::Int64Range,
    },
};
use proptest::{prelude::*, sample::Index};
use prost::Message;

use crate::{
    messages::{
        aggregate, assignment, cluster, listener, logical_dns, manager, route, route_config,
        virtual_host,
    },
    route_for,
};

/// Changes to make: where, and to which byte.
type Changes = Vec<(Index, u8)>;

fn changes() -> impl Strategy<Value = Changes> {
    proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6)
}

fn mutate(message: &impl Message, changes: &Changes) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    for (at, byte) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes
}

fn all_routes() -> RouteConfiguration {
    let mut config = route_config();
    let routes = vec![route("/a.A/M", "a"), matching(), route("", "b")];
    config
        .virtual_hosts
        .push(virtual_host("x", &["*.x", "x.*", "x"], routes));
    config
}

/// A route with a matcher of each kind.
fn matching() -> Route {
    let regex = |pattern: &str| RegexMatcher {
        regex: pattern.to_owned(),
        ..RegexMatcher::default()
    };
    let text = StringMatcher {
        ignore_case: true,
        match_pattern: Some(MatchPattern::SafeRegex(regex("[a&&b]{1,2}"))),
    };
    let kinds = [
        Specifier::StringMatch(text),
        Specifier::RangeMatch(Int64Range { start: 1, end: 9 }),
        Specifier::PresentMatch(false),
    ];
    let headers = kinds.into_iter().map(|kind| HeaderMatcher {
        name: "x-h".to_owned(),
        header_match_specifier: Some(kind),
        ..HeaderMatcher::default()
    });
    let mut route = route("", "c");
    route.r#match = Some(RouteMatch {
        path_specifier: Some(PathSpecifier::SafeRegex(regex("/[[:alpha:]]*(a|b)"))),
        headers: headers.collect(),
        ..RouteMatch::default()
    });
    route
}

fn parse_endpoints(bytes: &[u8]) {
    let Ok(endpoints) = Endpoints::parse(bytes, &Features::ALL).value else {
        return;
    };
    assert!(!endpoints.name.is_empty());
    assert!(endpoints.drops.iter().all(|d| d.per_million <= 1_000_000));
    for localities in &endpoints.priorities {
        assert!(!localities.is_empty());
        assert!(localities.is_sorted_by(|a, b| a.id < b.id));
        let sum: u64 = localities.iter().map(|l| u64::from(l.weight.get())).sum();
        assert!(sum <= u64::from(u32::MAX));
        for endpoint in localities.iter().flat_map(|l| &l.endpoints) {
            assert!(!endpoint.addresses.is_empty());
        }
    }
}

fn parse_cluster(bytes: &[u8]) {
    let Ok(cluster) = Cluster::parse(bytes, &Features::ALL).value else {
        return;
    };
    assert!(!cluster.name.is_empty());
    match cluster.kind {
        ClusterKind::Aggregate(aggregate) => match aggregate.children {
            Children::Inline(list) => {
                assert!(!list.clusters.is_empty());
                assert!(list.clusters.iter().all(|name| !name.is_empty()));
            }
            Children::Resource(name) => assert!(!name.is_empty()),
        },
        ClusterKind::Leaf(leaf) => {
            if let EndpointSource::Dns(name) = leaf.source {
                assert!(!name.host.is_empty());
            }
        }
    }
}

fn parse_routes(bytes: &[u8], authority: &str, path: &str) {
    let Ok(config) = RouteConfig::parse(bytes, &Features::ALL).value else {
        return;
    };
    assert!(config.virtual_hosts.iter().all(|h| !h.domains.is_empty()));
    if let Some(host) = config.virtual_host(authority) {
        assert!(host.domains.iter().any(|domain| domain.matches(authority)));
        if let Some(route) = route_for(host, path) {
            assert!(route.condition.path.matches(path));
        }
    }
}

proptest! {
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = Listener::parse(&bytes, &Features::ALL);
        parse_cluster(&bytes);
        let _ = ClusterConfig::parse(&bytes, &Features::ALL);
        parse_endpoints(&bytes);
        parse_routes(&bytes, "a.x", "/a.A/M");
    }

    #[test]
    fn mutated_listeners(changes in changes(), inline: bool) {
        let mut manager = manager();
        if inline {
            manager.route_specifier = Some(RouteSpecifier::RouteConfig(all_routes()));
        }
        let _ = Listener::parse(&mutate(&listener(&manager), &changes), &Features::ALL);
    }

    #[test]
    fn mutated_clusters(changes in changes()) {
        for valid in [cluster(), aggregate(), logical_dns()] {
            parse_cluster(&mutate(&valid, &changes));
        }
    }

    #[test]
    fn mutated_routes(changes in changes(), authority in ".{0,8}", path in "/.{0,8}") {
        parse_routes(&mutate(&all_routes(), &changes), &authority, &path);
    }

    #[test]
    fn mutated_endpoints(changes in changes()) {
        parse_endpoints(&mutate(&assignment(), &changes));
    }
}
