//! Tests of drops and limits, which can keep every call from its endpoints.

use crowfly_testkit::builders::{ClusterBuilder, EndpointsBuilder, endpoint};
use envoy_types::pb::{
    envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
    google::protobuf::UInt32Value,
};

use super::*;

#[test]
fn drops_and_second_addresses_are_told() {
    let dual = endpoint("10.0.0.1:80").also_at("[::1]:80").weight(3);
    let list = endpoints("top")
        .locality("eu/a", 2, [dual])
        .drop("overload", 125_000);
    let resources = to_top().with(cluster("top")).with(list);
    let text = explained(&resources, &every_call()).to_string();
    for expected in [
        "! 12.5 % of calls are to be dropped (overload)",
        "locality eu/a, weight 2",
        "10.0.0.1:80 or [::1]:80, weight 3, health unknown",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

/// A cluster with at most this many open calls.
fn limited(name: &str, max_requests: u32) -> ClusterBuilder {
    cluster(name).edit(|cluster| {
        let thresholds = Thresholds {
            max_requests: Some(UInt32Value {
                value: max_requests,
            }),
            ..Thresholds::default()
        };
        cluster.circuit_breakers = Some(CircuitBreakers {
            thresholds: vec![thresholds],
            ..CircuitBreakers::default()
        });
    })
}

fn dropping(name: &str, per_million: u32) -> EndpointsBuilder {
    let list = endpoints(name).locality("eu/a", 1, ["10.0.0.1:80"]);
    list.drop("overload", per_million)
}

/// gRFC A32: the limit of a cluster is shown, and one of 0 lets no call through.
#[test]
fn a_limit_is_shown_and_one_of_zero_is_where_it_ends() {
    let resources = leaf(to_top(), "top");
    let explanation = explained(&resources.clone().with(limited("top", 7)), &every_call());
    assert!(explanation.reachable);
    let text = explanation.to_string();
    assert!(text.contains("round_robin, limit 7\n"), "{text}");

    let explanation = explained(&resources.with(limited("top", 0)), &every_call());
    let why = "every call is dropped (limit 0)";
    assert_stops(&explanation, "cluster top", why);
    let raise = "raise max_requests in its circuit_breakers";
    assert_eq!(next(&explanation), raise);
}

/// gRFC A27: a category that drops every call ends the call there, and one that drops a part of
/// them is shown.
#[test]
fn drops_of_every_call_are_where_it_ends() {
    let with = |per_million| {
        let resources = to_top().with(cluster("top"));
        explained(&resources.with(dropping("top", per_million)), &every_call())
    };
    let explanation = with(1_000_000);
    let why = "every call is dropped (category overload)";
    assert_stops(&explanation, "cluster top", why);
    assert_eq!(explanation.clusters[0].uses, None);

    let explanation = with(125_000);
    assert!(explanation.reachable);
    let text = explanation.to_string();
    assert!(
        text.ends_with("priority 0: 1 endpoint, after 12.5 % are dropped"),
        "{text}"
    );
}

/// gRFC A56: a leaf that drops every call is READY, so calls do not fail over to the next leaf.
#[test]
fn a_leaf_that_drops_every_call_hides_those_after_it() {
    let both = || {
        let resources = to_top().with(cluster("top").aggregate(["first", "second"]));
        leaf(resources, "second").with(cluster("first"))
    };
    let drops = endpoints("first").drop("overload", 1_000_000);
    let explanation = explained(&both().with(drops), &every_call());
    let why = "every call is dropped (category overload)";
    assert_stops(&explanation, "cluster first", why);

    // A leaf without endpoints fails, even if it would drop a part of its calls.
    let drops = endpoints("first").drop("overload", 500_000);
    let explanation = explained(&both().with(drops), &every_call());
    let uses = explanation.clusters[0].uses.as_ref().unwrap();
    assert_eq!((&*uses.cluster, uses.dropped_per_million), ("second", 0));
}
