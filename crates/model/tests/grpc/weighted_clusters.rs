//! Tests of routes that split their calls among clusters (gRFC A28). The shares must be exact,
//! because operators move traffic by them.

use crowfly_model::ResourceType;
use crowfly_model::grpc::{
    RouteConfig,
    route::{ClusterChoice, RouteAction, WeightedClusters},
};
use envoy_types::pb::{
    envoy::config::route::v3::{
        self as pb, WeightedCluster,
        route::Action,
        route_action::ClusterSpecifier,
        weighted_cluster::{ClusterWeight, RandomValueSpecifier},
    },
    google::protobuf::UInt32Value,
};
use proptest::prelude::*;

use crate::{Case, accept, check_rejections, messages::route_config};

/// S3-03: weights must sum up to a u32 above 0, and each entry needs a name and a weight. Errors have the path of
/// the entry.
#[test]
fn wrong_weights_are_nacked() {
    let cases: &[Case<pb::RouteConfiguration>] = &[
        (
            "no clusters",
            |p| split(p).clusters.clear(),
            &["virtual_hosts[0].routes[0].route.weighted_clusters: \
               expected a cluster with a weight above 0, got none"],
        ),
        (
            "a sum of 0",
            |p| split(p).clusters = vec![entry("a", Some(0)), entry("b", Some(0))],
            &["virtual_hosts[0].routes[0].route.weighted_clusters: \
               expected a cluster with a weight above 0, got none"],
        ),
        (
            "a sum above u32",
            |p| split(p).clusters = vec![entry("a", Some(u32::MAX)), entry("b", Some(1))],
            &["virtual_hosts[0].routes[0].route.weighted_clusters: \
               expected weights of at most 4294967295 together, got more"],
        ),
        (
            "entries without a name and without a weight",
            |p| split(p).clusters = vec![entry("", Some(1)), entry("b", None), entry("", Some(0))],
            &[
                "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[0].name: \
                 expected a non-empty string, got none",
                "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[1].weight: \
                 expected a weight, got none",
                "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[2].name: \
                 expected a non-empty string, got none",
            ],
        ),
    ];
    check_rejections::<RouteConfig, _>(splitting, cases);
}

/// S3-03: an entry with a weight of 0 is left out, and the greatest sum is accepted.
#[test]
fn a_weight_of_zero_takes_its_cluster_out() {
    let mut proto = splitting();
    split(&mut proto).clusters = vec![
        entry("none", Some(0)),
        entry("a", Some(u32::MAX - 1)),
        entry("b", Some(1)),
    ];
    let clusters = parsed(&proto);
    let names: Vec<_> = clusters
        .entries()
        .iter()
        .map(|entry| &*entry.name)
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(clusters.choose(0), 0);
    assert_eq!(clusters.choose(u64::MAX), 1);
}

/// A cluster may be in several entries, because each may have filters of its own.
#[test]
fn a_cluster_may_be_in_several_entries() {
    let mut proto = splitting();
    split(&mut proto).clusters = vec![entry("a", Some(1)), entry("a", Some(1))];
    let clusters = parsed(&proto);
    assert_eq!(clusters.entries().len(), 2);
    assert_eq!([clusters.choose(0), clusters.choose(u64::MAX)], [0, 1]);
}

/// gRFC A28: what a split asks for besides weights is ignored and recorded. A total that is the sum is no wish.
#[test]
fn other_fields_of_a_split_are_recorded() {
    let wishes = |proto: &pb::RouteConfiguration| -> Vec<String> {
        let config = accept::<RouteConfig>(proto);
        let wishes = RouteConfig::unsupported(&config);
        wishes.iter().map(ToString::to_string).collect()
    };
    let mut proto = splitting();
    set_total(&mut proto, 4);
    assert_eq!(wishes(&proto), Vec::<String>::new());

    set_total(&mut proto, 100);
    let split = split(&mut proto);
    split.runtime_key_prefix = "x".to_owned();
    split.random_value_specifier = Some(RandomValueSpecifier::HeaderName("x".to_owned()));
    let at = "virtual_hosts[0].routes[0].route.weighted_clusters";
    assert_eq!(
        wishes(&proto),
        [
            format!("{at}.total_weight: ignored: the weights are shares of their sum, 4"),
            format!("{at}.runtime_key_prefix: ignored: the weights count (gRFC A28)"),
            format!("{at}.header_name: ignored: each call draws at random (gRFC A28)"),
        ]
    );
}

proptest! {
    /// gRFC A28: each entry has the share of its weight. The draws at the borders of the shares show it exactly.
    #[test]
    fn each_entry_has_its_share(weights in prop::collection::vec(1_u32..50, 1..8)) {
        let mut proto = splitting();
        let entries = weights.iter().map(|weight| entry("a", Some(*weight)));
        split(&mut proto).clusters = entries.collect();
        let clusters = parsed(&proto);
        let total: u32 = weights.iter().sum();
        let mut begin = 0;
        for (place, weight) in weights.iter().enumerate() {
            let end = begin + weight;
            prop_assert_eq!(clusters.choose(first_draw(begin, total)), place);
            if end < total {
                prop_assert_eq!(clusters.choose(first_draw(end, total) - 1), place);
            }
            begin = end;
        }
        prop_assert_eq!(clusters.choose(u64::MAX), weights.len() - 1);
    }
}

/// The first of the draws that are `point / total` of all or more.
fn first_draw(point: u32, total: u32) -> u64 {
    (u128::from(point) << 64).div_ceil(u128::from(total)) as u64
}

/// One route that splits its calls 3 to 1.
fn splitting() -> pb::RouteConfiguration {
    let mut proto = route_config();
    let weighted = WeightedCluster {
        clusters: vec![entry("a", Some(3)), entry("b", Some(1))],
        ..WeightedCluster::default()
    };
    let Some(Action::Route(action)) = &mut proto.virtual_hosts[0].routes[0].action else {
        panic!("expected a route action");
    };
    action.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(weighted));
    proto
}

fn split(proto: &mut pb::RouteConfiguration) -> &mut WeightedCluster {
    let Some(Action::Route(action)) = &mut proto.virtual_hosts[0].routes[0].action else {
        panic!("expected a route action");
    };
    match &mut action.cluster_specifier {
        Some(ClusterSpecifier::WeightedClusters(split)) => split,
        other => panic!("expected weighted clusters, got {other:?}"),
    }
}

#[expect(deprecated, reason = "servers still send the field")]
fn set_total(proto: &mut pb::RouteConfiguration, value: u32) {
    split(proto).total_weight = Some(UInt32Value { value });
}

fn entry(name: &str, weight: Option<u32>) -> ClusterWeight {
    ClusterWeight {
        name: name.to_owned(),
        weight: weight.map(|value| UInt32Value { value }),
        ..ClusterWeight::default()
    }
}

fn parsed(proto: &pb::RouteConfiguration) -> WeightedClusters {
    let config = accept::<RouteConfig>(proto);
    match &config.virtual_hosts[0].routes[0].action {
        RouteAction::Forward(forward) => match &forward.clusters {
            ClusterChoice::Weighted(clusters) => clusters.clone(),
            other => panic!("expected weighted clusters, got {other:?}"),
        },
        other => panic!("expected a route that forwards, got {other:?}"),
    }
}
