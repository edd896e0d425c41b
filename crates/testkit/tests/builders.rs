//! What the builders make is what the model reads; what they break, it refuses.

use crowfly_model::grpc::endpoints::Health;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_model::{Features, ResourceType};
use crowfly_testkit::builders::{Resource, cluster, endpoint, endpoints, listener, routes};
use envoy_types::pb::envoy::config::core::v3::HealthStatus;

#[test]
fn whole_resources_are_valid_and_keep_their_names() {
    valid::<Listener>(&listener("l").rds("r"));
    valid::<Listener>(&listener("l").routes(routes("r").host("*").route("/", "c")));
    valid::<Listener>(&listener("l").socket());
    valid::<RouteConfig>(&routes("r").hosts(&["a", "*.b"]).exact("/s/m", "c"));
    valid::<Cluster>(&cluster("c"));
    valid::<Cluster>(&cluster("c").eds("e"));
    valid::<Endpoints>(&endpoints("e"));
}

#[test]
fn broken_resources_are_refused_and_keep_their_names() {
    invalid::<Listener>(&listener("l").rds("r").invalid());
    invalid::<RouteConfig>(&routes("r").invalid());
    invalid::<Cluster>(&cluster("c").invalid());
    invalid::<Endpoints>(&endpoints("e").invalid());
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

fn valid<R: ResourceType>(resource: &impl Resource) {
    let decoded = R::parse(&resource.any().value, &Features::ALL);
    assert_eq!(resource.any().type_url, R::TYPE_URL);
    assert_eq!(decoded.name, Some(resource.name()));
    assert!(decoded.value.is_ok(), "{:?}", decoded.value);
}

fn invalid<R: ResourceType>(resource: &impl Resource) {
    let decoded = R::parse(&resource.any().value, &Features::ALL);
    assert_eq!(decoded.name, Some(resource.name()));
    assert!(decoded.value.is_err(), "{:?}", decoded.value);
}
