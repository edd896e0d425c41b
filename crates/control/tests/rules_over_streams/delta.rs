//! The incremental variant.

use crowfly_control::ControlPlane;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::support::delta::{DeltaClient, answer, names, subscribe};
use crate::support::{CLUSTER, ENDPOINTS, LISTENER, ROUTES, any_port};
use crate::{FENCE, mortal, plane, serving};

fn unsubscribe(type_url: &str, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        resource_names_unsubscribe: names.iter().map(ToString::to_string).collect(),
        ..subscribe("x", type_url, &[])
    }
}

/// Asserts that the server has nothing to say.
async fn silent(client: &mut DeltaClient) {
    client.send(subscribe("x", FENCE, &["*"])).await;
    let response = client.next().await;
    assert_eq!(response.type_url, FENCE, "{response:?}");
}

/// P-01: each response has a new nonce, and answers may come in any order.
#[tokio::test]
async fn answers_come_in_any_order() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (LISTENER, "l", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    let endpoints = client.next().await;
    client.send(subscribe("x", LISTENER, &["l"])).await;
    let listener = client.next().await;
    assert_ne!(endpoints.nonce, listener.nonce);
    client.send(answer(&listener, None)).await;
    client.send(answer(&endpoints, None)).await;
    silent(&mut client).await;
    plane.set_snapshot(serving(&[(ENDPOINTS, "a", 2), (LISTENER, "l", 1)]));
    let changed = client.next().await;
    assert_eq!(names(&changed), ["a"]);
    assert!(![endpoints.nonce, listener.nonce].contains(&changed.nonce));
}

/// P-03: names in a request count, although its nonce is stale.
#[tokio::test]
async fn a_stale_nonce_does_not_void_names() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (ENDPOINTS, "b", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    let first = client.next().await;
    client.send(answer(&first, None)).await;
    client
        .send(DeltaDiscoveryRequest {
            response_nonce: first.nonce,
            ..subscribe("x", ENDPOINTS, &["b"])
        })
        .await;
    assert_eq!(names(&client.next().await), ["b"]);
}

/// P-05: a refused version is not sent again; the next one is.
#[tokio::test]
async fn what_was_refused_is_not_repeated() {
    let of = |number| [(ENDPOINTS, "a", number)];
    let plane = plane(&of(1)).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    let refused = client.next().await;
    client.send(answer(&refused, Some("no"))).await;
    silent(&mut client).await;
    plane.set_snapshot(serving(&of(2)));
    let changed = client.next().await;
    assert_eq!(names(&changed), ["a"]);
    assert_ne!(changed.resources[0].version, refused.resources[0].version);
}

/// P-06: names in a NACK count.
#[tokio::test]
async fn names_in_a_nack_are_taken() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (ENDPOINTS, "b", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    let refused = client.next().await;
    client
        .send(DeltaDiscoveryRequest {
            resource_names_subscribe: vec!["b".to_owned()],
            ..answer(&refused, Some("no"))
        })
        .await;
    assert_eq!(names(&client.next().await), ["b"]);
}

/// P-07: an ACK is not answered.
#[tokio::test]
async fn an_ack_is_not_answered() {
    let plane = plane(&[(ENDPOINTS, "a", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    let response = client.next().await;
    client.send(answer(&response, None)).await;
    silent(&mut client).await;
}

/// P-08: the node of the first request counts for the whole stream: an Envoy is told times to live.
#[tokio::test]
async fn the_node_comes_once() {
    let plane = ControlPlane::with_snapshot(mortal(ENDPOINTS, "a"), any_port(), None);
    let plane = plane.await.unwrap();
    for (agent, is_told) in [("envoy", true), ("x", false)] {
        let mut client = DeltaClient::open(plane.listen_addr()).await;
        client.send(subscribe(agent, CLUSTER, &["gone"])).await;
        assert_eq!(client.next().await.removed_resources, ["gone"]);
        client
            .send(DeltaDiscoveryRequest {
                node: None,
                ..subscribe(agent, ENDPOINTS, &["a"])
            })
            .await;
        let response = client.next().await;
        assert_eq!(response.resources[0].ttl.is_some(), is_told, "{agent}");
    }
}

/// P-12: a name that is unsubscribed is not sent any more, and again after it is subscribed to.
#[tokio::test]
async fn a_name_that_left_and_returned_is_sent_again() {
    let of = |number| [(ENDPOINTS, "a", number), (ENDPOINTS, "b", number)];
    let plane = plane(&of(1)).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["a", "b"])).await;
    assert_eq!(names(&client.next().await), ["a", "b"]);
    client.send(unsubscribe(ENDPOINTS, &["a"])).await;
    silent(&mut client).await;
    plane.set_snapshot(serving(&of(2)));
    assert_eq!(names(&client.next().await), ["b"]);
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    assert_eq!(names(&client.next().await), ["a"]);
}

/// P-18: a name that a wildcard has too is sent once.
#[tokio::test]
async fn no_name_is_sent_twice() {
    let plane = plane(&[(ENDPOINTS, "a", 1), (ENDPOINTS, "b", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client
        .send(subscribe("x", ENDPOINTS, &["a", "*", "a"]))
        .await;
    assert_eq!(names(&client.next().await), ["a", "b"]);
    silent(&mut client).await;
}

/// P-15, P-16: a wildcard by an empty first request stays beside names, and ends when `*` is unsubscribed.
#[tokio::test]
async fn a_legacy_wildcard_ends_with_the_star() {
    let of = |number| [(ENDPOINTS, "a", 1), (ENDPOINTS, "b", number)];
    let plane = plane(&of(1)).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &[])).await;
    assert_eq!(names(&client.next().await), ["a", "b"]);
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    assert_eq!(names(&client.next().await), ["a"]);
    plane.set_snapshot(serving(&of(2)));
    assert_eq!(names(&client.next().await), ["b"]);

    client.send(unsubscribe(ENDPOINTS, &["*"])).await;
    silent(&mut client).await;
    plane.set_snapshot(serving(&[(ENDPOINTS, "a", 2), (ENDPOINTS, "b", 3)]));
    assert_eq!(names(&client.next().await), ["a"]);
}

/// P-15: an empty request after a name asks for nothing.
#[tokio::test]
async fn an_empty_request_after_a_name_asks_for_nothing() {
    let of = |number| [(ENDPOINTS, "a", number), (ENDPOINTS, "b", number)];
    let plane = plane(&of(1)).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["a"])).await;
    assert_eq!(names(&client.next().await), ["a"]);
    client.send(subscribe("x", ENDPOINTS, &[])).await;
    silent(&mut client).await;
    plane.set_snapshot(serving(&of(2)));
    assert_eq!(names(&client.next().await), ["a"]);
}

/// P-22: a name that is subscribed to again is sent again.
#[tokio::test]
async fn a_repeated_subscription_is_answered() {
    let plane = plane(&[(ENDPOINTS, "a", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    for _ in 0..2 {
        client.send(subscribe("x", ENDPOINTS, &["a"])).await;
        let response = client.next().await;
        assert_eq!(names(&response), ["a"]);
        client.send(answer(&response, None)).await;
    }
}

/// P-23: a name that is unsubscribed beside a wildcard is answered, by the resource or by its absence.
#[tokio::test]
async fn to_leave_a_name_beside_a_wildcard_is_answered() {
    let plane = plane(&[(ENDPOINTS, "a", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client
        .send(subscribe("x", ENDPOINTS, &["*", "a", "gone"]))
        .await;
    assert_eq!(names(&client.next().await), ["a"]);
    assert_eq!(client.next().await.removed_resources, ["gone"]);
    client.send(unsubscribe(ENDPOINTS, &["a"])).await;
    assert_eq!(names(&client.next().await), ["a"]);
    client.send(unsubscribe(ENDPOINTS, &["gone"])).await;
    assert_eq!(client.next().await.removed_resources, ["gone"]);
}

/// P-24: to unsubscribe from what was not subscribed to does nothing, beside a wildcard too.
#[tokio::test]
async fn a_superfluous_unsubscription_is_ignored() {
    let plane = plane(&[(ENDPOINTS, "a", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["*"])).await;
    client.next().await;
    client.send(unsubscribe(ENDPOINTS, &["a", "never"])).await;
    silent(&mut client).await;
}

/// P-25: a client that comes back by name is sent what differs from what it says it has, and told what is gone.
#[tokio::test]
async fn a_reconnect_by_name_brings_only_the_differences() {
    let all = ["same", "changed", "gone", "new"];
    let before = [
        (ENDPOINTS, "same", 1),
        (ENDPOINTS, "changed", 1),
        (ENDPOINTS, "gone", 1),
    ];
    let plane = plane(&before).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &all[..3])).await;
    let first = client.next().await;
    let has = first.resources.into_iter().map(|of| (of.name, of.version));

    drop(client);
    let after = [
        (ENDPOINTS, "same", 1),
        (ENDPOINTS, "changed", 2),
        (ENDPOINTS, "new", 1),
    ];
    plane.set_snapshot(serving(&after));
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client
        .send(DeltaDiscoveryRequest {
            initial_resource_versions: has.collect(),
            ..subscribe("x", ENDPOINTS, &all)
        })
        .await;
    assert_eq!(names(&client.next().await), ["changed", "new"]);
    assert_eq!(client.next().await.removed_resources, ["gone"]);
    silent(&mut client).await;
}

/// P-27: the version of the whole type is not the version of a resource.
#[tokio::test]
async fn the_system_version_is_for_people() {
    let plane = plane(&[(ENDPOINTS, "a", 1)]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", ENDPOINTS, &["*"])).await;
    let first = client.next().await;
    let version = first.resources[0].version.clone();
    for (claimed, expected) in [(first.system_version_info, &["a"][..]), (version, &[])] {
        let mut client = DeltaClient::open(plane.listen_addr()).await;
        client
            .send(DeltaDiscoveryRequest {
                initial_resource_versions: [("a".to_owned(), claimed)].into(),
                ..subscribe("x", ENDPOINTS, &["*"])
            })
            .await;
        assert_eq!(names(&client.next().await), expected);
    }
}

/// P-28: the first wildcard is answered, although there is nothing.
#[tokio::test]
async fn the_first_wildcard_is_answered() {
    let plane = plane(&[]).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    client.send(subscribe("x", CLUSTER, &[])).await;
    let response = client.next().await;
    assert_eq!(
        (&*response.type_url, response.resources.len()),
        (CLUSTER, 0)
    );
}

/// P-29: what is new comes in the order of the types, and clusters and endpoints are removed last.
#[tokio::test]
async fn clusters_and_endpoints_are_removed_last() {
    let order = [CLUSTER, ENDPOINTS, LISTENER, ROUTES];
    let of = |name| order.map(|type_url| (type_url, name, 1));
    let plane = plane(&of("old")).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    for type_url in order {
        client.send(subscribe("x", type_url, &["*"])).await;
        assert_eq!(client.next().await.type_url, type_url);
    }
    plane.set_snapshot(serving(&of("new")));
    for (type_url, new, removed) in [
        (CLUSTER, &["new"][..], &[][..]),
        (ENDPOINTS, &["new"], &[]),
        (LISTENER, &["new"], &["old"]),
        (ROUTES, &["new"], &["old"]),
        (CLUSTER, &[], &["old"]),
        (ENDPOINTS, &[], &["old"]),
    ] {
        let response = client.next().await;
        assert_eq!((&*response.type_url, &*names(&response)), (type_url, new));
        assert_eq!(response.removed_resources, removed);
    }
}

/// P-30: a changed cluster is followed by its endpoints, which are the same.
#[tokio::test]
async fn endpoints_follow_their_cluster() {
    let of = |number| [(CLUSTER, "a", number), (ENDPOINTS, "a", 1)];
    let plane = plane(&of(1)).await;
    let mut client = DeltaClient::open(plane.listen_addr()).await;
    for type_url in [CLUSTER, ENDPOINTS] {
        client.send(subscribe("x", type_url, &["a"])).await;
        assert_eq!(names(&client.next().await), ["a"]);
    }
    plane.set_snapshot(serving(&of(2)));
    for type_url in [CLUSTER, ENDPOINTS] {
        let response = client.next().await;
        assert_eq!(
            (&*response.type_url, &*names(&response)),
            (type_url, &["a"][..])
        );
    }
}
