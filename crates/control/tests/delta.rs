//! Incremental ADS over a real socket, as a client without a library would see it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod support;

use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message;
use support::delta::{DeltaClient, answer, names, subscribe};
use support::{
    CLUSTER, CLUSTER_CONFIG, ENDPOINTS, LISTENER, cluster_lists, get_json, plane, service,
    services, snapshot, soon,
};
use tonic::Code;

/// Of many resources only the one that changed is sent, and what is gone is removed.
#[tokio::test]
async fn only_what_changed_is_sent() {
    let plane = plane(&services(&[("a", 1), ("b", 1), ("c", 1)])).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["*"])).await;
    let first = client.next().await;
    assert_eq!(names(&first), ["a", "b", "c"]);
    client.send(answer(&first, None)).await;

    plane.set_snapshot(snapshot(&services(&[("a", 1), ("b", 2)])));
    let second = client.next().await;
    assert_eq!(names(&second), ["b"]);
    let third = client.next().await;
    assert_eq!(names(&third), [""; 0]);
    assert_eq!(third.removed_resources, ["c"]);
}

/// P-19, P-20: the name is in `removed_resources`, and stays subscribed.
#[tokio::test]
async fn a_name_that_does_not_exist_is_reported_at_once() {
    let plane = plane("").await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["payments"])).await;
    assert_eq!(client.next().await.removed_resources, ["payments"]);
    plane.set_snapshot(snapshot(&service("payments", 1)));
    assert_eq!(names(&client.next().await), ["payments"]);
}

/// P-25, P-26: on a new stream, and it may be to another replica, a client is sent only what it has not.
#[tokio::test]
async fn a_reconnect_brings_only_the_differences() {
    let before = services(&[("a", 1), ("b", 1), ("c", 1)]);
    let first_replica = plane(&before).await;
    let mut client = DeltaClient::open(first_replica.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["*"])).await;
    let first = client.next().await;
    let has = first.resources.into_iter().map(|r| (r.name, r.version));

    let other_replica = plane(&services(&[("a", 1), ("b", 2)])).await;
    let mut client = DeltaClient::open(other_replica.listen_addr()).await;
    client
        .send(DeltaDiscoveryRequest {
            initial_resource_versions: has.collect(),
            ..subscribe("x", ENDPOINTS, &["*"])
        })
        .await;
    assert_eq!(names(&client.next().await), ["b"]);
    assert_eq!(client.next().await.removed_resources, ["c"]);
}

/// One snapshot serves both kinds of client: Envoy has no use for gRPC's API listeners, and is not
/// told that they are gone either.
#[tokio::test]
async fn envoys_are_not_sent_api_listeners() {
    let ingress = format!(
        "resources: [{{ \"@type\": {LISTENER}, name: ingress, address: {{ pipe: {{ path: /in }} }} }}]\n"
    );
    let plane = plane(&format!("{}{ingress}", service("payments", 1))).await;
    for (agent, expected) in [
        ("envoy", &["ingress"][..]),
        ("gRPC C-core", &["ingress", "payments"]),
    ] {
        let mut client = DeltaClient::open(plane.listen_addr()).await;
        client.send(subscribe(agent, LISTENER, &[])).await;
        let response = client.next().await;
        assert_eq!(names(&response), expected, "{agent}");
        assert_eq!(response.removed_resources, [""; 0], "{agent}");
    }
}

/// gRFC A99: the lists of aggregates.
#[tokio::test]
async fn lists_of_clusters_are_named_by_their_wrappers() {
    let plane = plane(&cluster_lists()).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    let wanted = ["payments", "raw"];
    client.send(subscribe("x", CLUSTER_CONFIG, &wanted)).await;
    let response = client.next().await;
    assert_eq!(names(&response), wanted);
    let lists = response.resources.into_iter().map(|resource| {
        let list = resource.resource.unwrap();
        assert_eq!(list.type_url, CLUSTER_CONFIG);
        ClusterConfig::decode(list.value.as_slice())
            .unwrap()
            .clusters
    });
    let expected = [["payments/endpoints", "other"], ["other", "payments"]];
    assert_eq!(lists.collect::<Vec<_>>(), expected);

    // Whose list is no longer a resource, has no use for one.
    plane.set_snapshot(snapshot(
        "services: [{ name: payments, fallback: [other] }, { name: other }]",
    ));
    assert_eq!(client.next().await.removed_resources, wanted);
}

/// P-04: what a client accepted and refused is seen on the admin port, whichever variant it speaks.
#[tokio::test]
async fn the_admin_port_shows_incremental_clients() {
    let plane = plane(&service("payments", 1)).await;
    let admin = plane.admin_addr().unwrap();
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["payments"])).await;
    let first = client.next().await;
    client.send(answer(&first, None)).await;
    client.send(subscribe("x", CLUSTER, &["payments"])).await;
    let second = client.next().await;
    client.send(answer(&second, Some("cluster: no"))).await;
    // Once this is answered, so is what came before it.
    client.send(subscribe("x", LISTENER, &["payments"])).await;
    while client.next().await.type_url != LISTENER {}

    let shown = get_json(admin, "/clients").await;
    let shown = &shown["clients"][0];
    assert_eq!(shown["protocol"], "delta");
    assert_eq!(shown["node"]["id"], "node-1");
    let endpoints = &shown["types"][ENDPOINTS];
    assert_eq!(endpoints["acked_version"], first.system_version_info);
    let clusters = &shown["types"][CLUSTER];
    assert_eq!(clusters["state"], "nacked");
    assert_eq!(clusters["last_nack"]["message"], "cluster: no");
    let refused = &clusters["last_nack"]["version"];
    assert_eq!(*refused, second.system_version_info);
}

#[tokio::test]
async fn a_request_without_a_type_is_an_error() {
    let plane = plane("").await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(DeltaDiscoveryRequest::default()).await;
    let status = client.try_next().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

/// Both variants end with UNAVAILABLE, so that clients look for another server.
#[tokio::test]
async fn shutdown_ends_incremental_streams() {
    let plane = plane(&service("payments", 1)).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["payments"])).await;
    client.next().await;
    let ended = async {
        let status = client.try_next().await.unwrap_err();
        drop(client);
        status
    };
    let (status, ()) = tokio::join!(ended, soon(plane.shutdown()));
    assert_eq!(status.code(), Code::Unavailable);
}

/// A resource with a time to live reaches an Envoy with it, and is renewed without its body before
/// the time is over (xDS protocol: TTL).
#[tokio::test]
async fn a_time_to_live_is_sent_and_renewed() {
    let url = "type.googleapis.com/envoy.config.core.v3.RuntimeUInt32";
    let resource = format!("{{ \"@type\": {url}, default_value: 7 }}");
    let text = format!("resources: [{{ name: limits, ttl: 1s, resource: {resource} }}]");
    let plane = plane(&text).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("envoy", url, &["limits"])).await;
    let first = client.next().await;
    client.send(answer(&first, None)).await;
    let second = client.next().await;
    for (response, has_body) in [(&first, true), (&second, false)] {
        let [limits] = &response.resources[..] else {
            panic!("one resource, got {response:?}");
        };
        assert_eq!(limits.ttl.unwrap().seconds, 1);
        assert_eq!(limits.resource.is_some(), has_body);
        assert_eq!(limits.version, first.resources[0].version);
    }
}

/// A time to live that would flood clients with heartbeats is refused.
#[test]
fn a_time_to_live_is_at_least_a_second() {
    let file = crowfly_control::ConfigFile {
        path: "mesh.yaml".into(),
        text: "resources: [{ name: a, ttl: 10ms, resource: {} }]".to_owned(),
    };
    let error = crowfly_control::Catalog::read(&[file]).unwrap_err();
    let expected = "mesh.yaml:1:29: resources[0].ttl: expected at least 1s, got 10ms";
    assert_eq!(error.to_string(), expected);
}
