//! The model reads what the builders make, and refuses what they break.
//!
//! Other tests rely on both, and would test nothing with a builder that is wrong.

use std::sync::Arc;

use crowfly_model::grpc::cluster::{Children, ClusterKind, DnsName, EndpointSource};
use crowfly_model::grpc::endpoints::Health;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_model::{Features, ResourceType};
use crowfly_testkit::builders::{
    ClusterBuilder, Resource, Resources, cluster, cluster_config, endpoint, endpoints, listener,
    routes,
};
use crowfly_testkit::wrapped;
use envoy_types::pb::envoy::config::core::v3::HealthStatus;

#[test]
fn whole_resources_are_valid_and_keep_their_names() {
    valid::<Listener>(&listener("l").rds("r"));
    valid::<Listener>(&listener("l").routes(routes("r").host("*").route("/", "c")));
    valid::<Listener>(&listener("l").socket());
    valid::<RouteConfig>(&routes("r").hosts(&["a", "*.b"]).exact("/s/m", "c"));
    valid::<Cluster>(&cluster("c"));
    valid::<Cluster>(&cluster("c").eds("e"));
    valid::<Cluster>(&cluster("c").aggregate(["a", "b"]));
    valid::<Cluster>(&cluster("c").aggregate_resource("list"));
    valid::<Cluster>(&cluster("c").logical_dns("host", 80));
    valid::<Endpoints>(&endpoints("e"));
}

#[test]
fn broken_resources_are_refused_and_keep_their_names() {
    invalid::<Listener>(&listener("l").rds("r").invalid());
    invalid::<RouteConfig>(&routes("r").invalid());
    invalid::<Cluster>(&cluster("c").invalid());
    invalid::<Cluster>(&cluster("c").aggregate(["a"]).invalid());
    invalid::<Cluster>(&cluster("c").aggregate_resource("list").invalid());
    invalid::<Cluster>(&cluster("c").logical_dns("host", 80).invalid());
    invalid::<Endpoints>(&endpoints("e").invalid());
}

#[test]
fn clusters_say_what_they_stand_for() {
    let kind = |resource: ClusterBuilder| {
        let decoded = Cluster::parse(&resource.any().value, &Features::ALL);
        decoded.value.unwrap().kind
    };
    let children = |kind: ClusterKind| match kind {
        ClusterKind::Aggregate(aggregate) => aggregate.children,
        ClusterKind::Leaf(leaf) => panic!("expected an aggregate, got {leaf:?}"),
    };

    let clusters = vec!["a".to_owned(), "b".to_owned()];
    let inline = Children::Inline(Arc::new(ClusterConfig { clusters }));
    assert_eq!(children(kind(cluster("c").aggregate(["a", "b"]))), inline);
    let resource = Children::Resource("list".to_owned());
    assert_eq!(
        children(kind(cluster("c").aggregate_resource("list"))),
        resource
    );
    let ClusterKind::Leaf(leaf) = kind(cluster("c").logical_dns("host", 80)) else {
        panic!("expected a leaf");
    };
    let host = "host".to_owned();
    assert_eq!(leaf.source, EndpointSource::Dns(DnsName { host, port: 80 }));
}

/// A cluster list is named by its wrapper, on the wire and in a snapshot.
#[test]
fn cluster_list_travels_in_a_wrapper() {
    let list = cluster_config("list").clusters(["a", "b"]);

    let decoded = ClusterConfig::parse(&list.any().value, &Features::ALL);
    assert_eq!(decoded.name, None);
    assert_eq!(decoded.value.unwrap().clusters, ["a", "b"]);
    assert_eq!(list.in_sotw(), wrapped("list", list.any()));
    assert_eq!(cluster("c").in_sotw(), cluster("c").any());

    let snapshot = Resources::new().with(list).with(cluster("c")).snapshot();
    let is_wrapped = |type_url, name| snapshot.resource(type_url, name).unwrap().wrapped;
    assert!(is_wrapped(ClusterConfig::TYPE_URL, "list"));
    assert!(!is_wrapped(Cluster::TYPE_URL, "c"));

    let broken = cluster_config("list").clusters(["a"]).invalid();
    let decoded = ClusterConfig::parse(&broken.any().value, &Features::ALL);
    assert!(decoded.value.is_err());
}

#[test]
fn endpoints_say_priority_locality_weight_and_health() {
    let resource = endpoints("e")
        .locality("eu/a", 3, ["127.0.0.1:1"])
        .priority(1)
        .locality(
            "eu/b/c",
            1,
            [endpoint("127.0.0.1:2").also_at("127.0.0.1:3").weight(5)],
        )
        .locality(
            "eu/d",
            1,
            [endpoint("127.0.0.1:4").health(HealthStatus::Draining)],
        )
        .drop("lb", 20);

    let parsed = Endpoints::parse(&resource.any().value, &Features::ALL)
        .value
        .unwrap();

    let [first, second] = &parsed.priorities[..] else {
        panic!("expected two priorities, got {parsed:?}");
    };
    assert_eq!(first[0].id.to_string(), "eu/a");
    assert_eq!(first[0].weight.get(), 3);
    assert_eq!(second[0].id.to_string(), "eu/b/c");
    assert_eq!(second[0].endpoints[0].weight.get(), 5);
    assert_eq!(second[0].endpoints[0].addresses.len(), 2);
    assert_eq!(second[1].endpoints[0].health, Health::Draining);
    assert_eq!(parsed.drops[0].per_million, 20);
}

fn valid<R: ResourceType<Context = Features>>(resource: &impl Resource) {
    let decoded = R::parse(&resource.any().value, &Features::ALL);
    assert_eq!(resource.any().type_url, R::TYPE_URL);
    assert_eq!(decoded.name, Some(resource.name()));
    assert!(decoded.value.is_ok(), "{:?}", decoded.value);
}

fn invalid<R: ResourceType<Context = Features>>(resource: &impl Resource) {
    let decoded = R::parse(&resource.any().value, &Features::ALL);
    assert_eq!(decoded.name, Some(resource.name()));
    assert!(decoded.value.is_err(), "{:?}", decoded.value);
}
