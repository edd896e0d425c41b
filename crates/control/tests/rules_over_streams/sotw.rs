//! State of the world.

use std::fs;

use crowfly_control::{ControlPlane, Options, Ports};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DiscoveryRequest, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use crate::support::{
    AdsClient, CLUSTER, ENDPOINTS, LISTENER, ROUTES, any_port, get_json, service,
};
use crate::{FENCE, mortal, plane, serving};

/// A client of no kind that the server knows.
const PLAIN: &str = "x";
const GRPC: &str = "gRPC C-core";
const ENVOY: &str = "envoy";

/// Asks for names on a new stream as a client that has a version.
async fn resume(client: &AdsClient, version: &str, names: &[&str]) {
    let request = DiscoveryRequest {
        node: Some(Node {
            user_agent_name: ENVOY.to_owned(),
            ..Node::default()
        }),
        type_url: CLUSTER.to_owned(),
        version_info: version.to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        ..DiscoveryRequest::default()
    };
    client.send(request).await;
}

/// Asserts that the server has nothing to say.
async fn silent(client: &mut AdsClient) {
    client
        .send(DiscoveryRequest {
            type_url: FENCE.to_owned(),
            ..DiscoveryRequest::default()
        })
        .await;
    let response = client.next().await;
    assert_eq!(response.type_url, FENCE, "{response:?}");
    client.ack(&response, &[]).await;
}

/// The names in a response: the first field of each resource, which is short.
fn names(response: &DiscoveryResponse) -> Vec<&str> {
    fn name(any: &Any) -> &str {
        let length = usize::from(any.value[1]);
        std::str::from_utf8(&any.value[2..2 + length]).unwrap()
    }
    response.resources.iter().map(name).collect()
}

/// P-01: an answer is not outdated by a response of another type, and each response has a new nonce.
#[tokio::test]
async fn nonces_are_of_a_type() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (LISTENER, "l", 1)]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &["a"]).await;
    let endpoints = client.next().await;
    client.subscribe(PLAIN, LISTENER, &["l"]).await;
    let listener = client.next().await;
    client.ack(&endpoints, &["a"]).await;

    plane.set_snapshot(serving(&[(ENDPOINTS, "a", 2), (LISTENER, "l", 1)]));

    let changed = client.next().await;
    assert_eq!(changed.type_url, ENDPOINTS);
    let nonces = [&endpoints, &listener, &changed].map(|response| &response.nonce);
    assert!(nonces[0] != nonces[1] && nonces[0] != nonces[2] && nonces[1] != nonces[2]);
}

/// P-02: a request with a stale nonce is not answered, and its names do not count.
#[tokio::test]
async fn a_stale_request_is_void() {
    let of = |number| [(ENDPOINTS, "a", number), (ENDPOINTS, "b", number)];
    let plane = plane(&of(1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &["a"]).await;
    let first = client.next().await;
    client.ack(&first, &["a"]).await;
    plane.set_snapshot(serving(&of(2)));
    let second = client.next().await;

    // If this list counted, `a` would be forgotten and sent again.
    client.ack(&first, &["b"]).await;
    silent(&mut client).await;
    client.ack(&second, &["a"]).await;
    silent(&mut client).await;

    plane.set_snapshot(serving(&of(3)));
    assert_eq!(names(&client.next().await), ["a"]);
}

/// P-04: the admin port shows a request with an error as a refusal, and no other.
#[tokio::test]
async fn an_error_makes_a_refusal() {
    let plane = ControlPlane::with_snapshot(
        serving(&[(ENDPOINTS, "a", 1), (LISTENER, "l", 1)]),
        any_port(),
        Some(any_port()),
    );
    let plane = plane.await.unwrap();
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &["a"]).await;
    let refused = client.next().await;
    client.nack(&refused, &["a"], "no").await;
    client.subscribe(PLAIN, LISTENER, &["l"]).await;
    let accepted = client.next().await;
    client.ack(&accepted, &["l"]).await;
    silent(&mut client).await;
    let shown = get_json(plane.admin_addr().unwrap(), "/clients").await;
    let types = &shown["clients"][0]["types"];
    assert_eq!(types[ENDPOINTS]["last_nack"]["message"], "no");
    assert_eq!(types[LISTENER]["acked_version"], accepted.version_info);
    assert!(types[LISTENER]["last_nack"].is_null());
}

/// P-05: a refused version is not sent again; the next one is.
#[tokio::test]
async fn what_was_refused_is_not_repeated() {
    let of = |number| [(ENDPOINTS, "a", number)];
    let plane = plane(&of(1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &["a"]).await;
    let refused = client.next().await;
    client.nack(&refused, &["a"], "no").await;
    silent(&mut client).await;
    plane.set_snapshot(serving(&of(2)));
    let changed = client.next().await;
    assert_ne!(changed.version_info, refused.version_info);
    assert_eq!(names(&changed), ["a"]);
}

/// P-06: names in a NACK count.
#[tokio::test]
async fn names_in_a_nack_are_taken() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (ENDPOINTS, "b", 1)]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &["a"]).await;
    let first = client.next().await;
    client.nack(&first, &["a", "b"], "no").await;
    assert_eq!(names(&client.next().await), ["b"]);
}

/// P-08: the node of the first request counts for the whole stream.
#[tokio::test]
async fn the_node_comes_once() {
    let plane = plane(&[]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(GRPC, CLUSTER, &["gone"]).await;
    assert_eq!(client.next().await.resource_errors.len(), 1);
    client
        .send(DiscoveryRequest {
            type_url: ENDPOINTS.to_owned(),
            resource_names: vec!["gone".to_owned()],
            ..DiscoveryRequest::default()
        })
        .await;
    let response = client.next().await;
    assert_eq!(response.type_url, ENDPOINTS);
    assert_eq!(response.resource_errors.len(), 1, "only gRPC is told");
}

/// P-10: a route or endpoint that goes is not told, because absence says nothing. It is sent when it is back.
#[tokio::test]
async fn routes_and_endpoints_go_in_silence() {
    let named = [(ENDPOINTS, "a", 1), (ROUTES, "a", 1)];
    let plane = plane(&named).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    for (type_url, name, _) in named {
        client.subscribe(PLAIN, type_url, &[name]).await;
        let response = client.next().await;
        client.ack(&response, &[name]).await;
    }
    silent(&mut client).await;

    plane.set_snapshot(serving(&[(FENCE, "fence", 1)]));
    let response = client.next().await;
    assert_eq!(response.type_url, FENCE, "{response:?}");
    client.ack(&response, &[]).await;
    silent(&mut client).await;

    plane.set_snapshot(serving(&named));
    for (type_url, name, _) in named {
        let response = client.next().await;
        assert_eq!(
            (&*response.type_url, names(&response)),
            (type_url, vec![name])
        );
    }
}

/// P-11, P-12: a name that is added is sent under an unchanged version, and again after it left.
#[tokio::test]
async fn an_added_name_is_sent() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (ENDPOINTS, "b", 1)]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &["a"]).await;
    let mut response = client.next().await;
    for _ in 0..2 {
        client.ack(&response, &["a"]).await;
        client.ack(&response, &["a", "b"]).await;
        let added = client.next().await;
        assert_eq!(names(&added), ["b"]);
        assert_eq!(added.version_info, response.version_info);
        response = added;
    }
}

/// P-14, P-29: a client that named a part of what there is gets clusters, endpoints, listeners and routes in this order.
#[tokio::test]
async fn named_resources_come_in_order() {
    let plane = plane(&[]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    for type_url in [ROUTES, LISTENER, ENDPOINTS, CLUSTER] {
        client.subscribe(PLAIN, type_url, &["a"]).await;
    }
    for _ in [LISTENER, CLUSTER] {
        let none = client.next().await;
        client.ack(&none, &["a"]).await;
    }
    silent(&mut client).await;

    let order = [CLUSTER, ENDPOINTS, LISTENER, ROUTES];
    let all = order.map(|type_url| [(type_url, "a", 1), (type_url, "other", 1)]);
    plane.set_snapshot(serving(&all.concat()));

    for type_url in order {
        let response = client.next().await;
        assert_eq!(
            (&*response.type_url, &*names(&response)),
            (type_url, &["a"][..])
        );
    }
}

/// P-29: a cluster that routes no longer use is left out when the routes are sent, and not before.
#[tokio::test]
async fn clusters_are_removed_last() {
    let of = |name| [(CLUSTER, name, 1), (ROUTES, "r", u32::from(name == "new"))];
    let plane = plane(&of("old")).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, CLUSTER, &[]).await;
    let first = client.next().await;
    client.ack(&first, &[]).await;
    client.subscribe(PLAIN, ROUTES, &["r"]).await;
    let first = client.next().await;
    client.ack(&first, &["r"]).await;

    plane.set_snapshot(serving(&of("new")));
    for (type_url, expected, wanted) in [
        (CLUSTER, &["new", "old"][..], &[][..]),
        (ROUTES, &["r"], &["r"]),
        (CLUSTER, &["new"], &[]),
    ] {
        let response = client.next().await;
        let said = (&*response.type_url, &*names(&response));
        assert_eq!(said, (type_url, expected));
        client.ack(&response, wanted).await;
    }
}

/// A resource with a time to live reaches an Envoy with it, and is renewed without its body before the time is over (xDS
/// protocol: TTL).
#[tokio::test]
async fn a_time_to_live_is_sent_and_renewed() {
    let plane = ControlPlane::with_snapshot(mortal(ENDPOINTS, "a"), any_port(), None);
    let plane = plane.await.unwrap();
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(ENVOY, ENDPOINTS, &["a"]).await;
    for has_body in [true, false, false] {
        let response = client.next().await;
        let [any] = &response.resources[..] else {
            panic!("one resource, got {response:?}");
        };
        let wrapper = Resource::decode(any.value.as_slice()).unwrap();
        assert_eq!((&*wrapper.name, wrapper.ttl.unwrap().seconds), ("a", 1));
        assert_eq!(wrapper.resource.is_some(), has_body);
        client.ack(&response, &["a"]).await;
    }
}

/// P-15: an empty list asks for everything at first, and for nothing after a name.
#[tokio::test]
async fn an_empty_list_after_a_name_means_nothing() {
    let of = |number| [(ENDPOINTS, "a", number), (ENDPOINTS, "b", number)];
    let plane = plane(&of(1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &[]).await;
    let all = client.next().await;
    assert_eq!(names(&all), ["a", "b"]);
    client.ack(&all, &["a"]).await;
    client.ack(&all, &[]).await;
    silent(&mut client).await;
    let [a, b] = of(2);
    plane.set_snapshot(serving(&[a, b, (FENCE, "fence", 1)]));
    let response = client.next().await;
    assert_eq!(response.type_url, FENCE, "endpoints would come first");
}

/// P-16: a wildcard ends with a list that does not have it.
#[tokio::test]
async fn a_list_without_the_star_ends_the_wildcard() {
    let of = |number| [(CLUSTER, "a", number), (CLUSTER, "b", number)];
    let plane = plane(&of(1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, CLUSTER, &["*", "a"]).await;
    let all = client.next().await;
    assert_eq!(names(&all), ["a", "b"]);
    client.ack(&all, &["a"]).await;
    plane.set_snapshot(serving(&of(2)));
    assert_eq!(names(&client.next().await), ["a"]);
}

/// P-17: an empty list asks for nothing of a type for which the server says so.
#[tokio::test]
async fn an_empty_list_means_nothing_where_the_server_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("control.yaml");
    fs::write(&config, service("payments", 1)).unwrap();
    let options = Options {
        named_only: [ENDPOINTS.to_owned()].into(),
        ..Options::new(config, Ports::new(any_port()))
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &[]).await;
    silent(&mut client).await;
    client.subscribe(PLAIN, CLUSTER, &[]).await;
    assert_eq!(names(&client.next().await), ["payments"]);
}

/// P-18: a name that a wildcard has too is sent once.
#[tokio::test]
async fn no_name_is_sent_twice() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (ENDPOINTS, "b", 1)]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(PLAIN, ENDPOINTS, &["a", "*", "a"]).await;
    assert_eq!(names(&client.next().await), ["a", "b"]);
}

/// P-21: gRPC is told of a missing name at once, and an Envoy is not.
#[tokio::test]
async fn a_missing_name_is_told_to_those_who_understand() {
    let plane = plane(&[]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(GRPC, ENDPOINTS, &["gone"]).await;
    let response = client.next().await;
    let [error] = &response.resource_errors[..] else {
        panic!("one error, got {response:?}");
    };
    assert_eq!(error.resource_name.as_ref().unwrap().name, "gone");
    assert_eq!(error.error_detail.as_ref().unwrap().code, 5);

    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(ENVOY, ENDPOINTS, &["gone"]).await;
    silent(&mut client).await;
}

/// P-28: the first wildcard is answered, although there is nothing.
#[tokio::test]
async fn the_first_wildcard_is_answered() {
    let plane = plane(&[]).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(ENVOY, CLUSTER, &[]).await;
    let response = client.next().await;
    assert_eq!((&*response.type_url, names(&response).len()), (CLUSTER, 0));
}

/// P-30: a changed cluster is followed by its endpoints, which are the same.
#[tokio::test]
async fn endpoints_follow_their_cluster() {
    let of = |number| [(CLUSTER, "a", number), (ENDPOINTS, "a", 1)];
    let plane = plane(&of(1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(ENVOY, CLUSTER, &[]).await;
    let response = client.next().await;
    client.ack(&response, &[]).await;
    client.subscribe(ENVOY, ENDPOINTS, &["a"]).await;
    let response = client.next().await;
    client.ack(&response, &["a"]).await;
    plane.set_snapshot(serving(&of(2)));
    assert_eq!(client.next().await.type_url, CLUSTER);
    let again = client.next().await;
    assert_eq!((&*again.type_url, &*names(&again)), (ENDPOINTS, &["a"][..]));
}

/// P-31: an Envoy that refused a part of a response and comes back to the version before is sent everything.
#[tokio::test]
async fn what_was_applied_of_a_refused_response_is_taken_back() {
    let of = |number| [(CLUSTER, "a", number), (CLUSTER, "b", number)];
    let plane = plane(&of(1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(ENVOY, CLUSTER, &[]).await;
    let first = client.next().await;
    client.ack(&first, &[]).await;
    plane.set_snapshot(serving(&of(2)));
    let second = client.next().await;
    client
        .nack(&second, &[], "b is bad, and a is applied")
        .await;
    silent(&mut client).await;

    drop(client);
    plane.set_snapshot(serving(&of(1)));
    let mut client = AdsClient::open(plane.listen_addr()).await;
    resume(&client, &first.version_info, &[]).await;
    assert_eq!(client.next().await.resources, first.resources);
}
