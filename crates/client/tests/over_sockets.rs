//! Tests of the client over real sockets, against a server that says what the test tells it to.
//! They cover what the tests without I/O of the protocol cannot: streams, waits and their ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod support;

use std::sync::Arc;

use crowfly_client::XdsClient;
use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{cluster, listener};
use crowfly_testkit::{AdsServer, NODE_ID, response};
use crowfly_xds::TroubleReason;
use tonic::Status;

use support::{ambient, error, value};

/// S1-01, S1-02, S1-04: the first request, the ACK and the NACK as a server sees them.
#[tokio::test]
async fn requests_on_the_wire() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut watch = client.watch::<Cluster>("a").unwrap();

    let first = server.next_request().await;
    let node = first.node.unwrap();
    assert_eq!(node.id, NODE_ID);
    assert_eq!(node.user_agent_name, "crowfly");
    assert!(
        node.client_features
            .contains(&"xds.config.resource-in-sotw".to_owned())
    );
    assert_eq!(first.type_url, Cluster::TYPE_URL);
    assert_eq!(first.resource_names, ["a"]);
    assert_eq!(
        (first.version_info.as_str(), first.response_nonce.as_str()),
        ("", "")
    );

    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    let ack = server.next_request().await;
    assert_eq!(
        (ack.version_info.as_str(), ack.response_nonce.as_str()),
        ("v1", "n1")
    );
    assert_eq!((ack.node, ack.error_detail), (None, None));
    watch.next().await.unwrap();

    server.send(response::<Cluster>(
        "v2",
        "n2",
        [cluster("a").invalid().any()],
    ));
    let nack = server.next_request().await;
    assert_eq!(
        (nack.version_info.as_str(), nack.response_nonce.as_str()),
        ("v1", "n2")
    );
    let message = nack.error_detail.unwrap().message;
    assert!(message.contains("cluster a: lb_policy"), "{message}");
}

/// S1-17: the stream after a cut connection begins with the version and the names.
#[tokio::test]
async fn next_stream_takes_up_where_the_last_one_ended() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut a = client.watch::<Cluster>("a").unwrap();
    let _b = client.watch::<Cluster>("b").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    assert_eq!(value(&mut a).await.name, "a");

    server.stop().await;
    server.restart();
    server.next_stream().await;

    let first = server.next_request().await;
    assert_eq!(first.node.unwrap().id, NODE_ID);
    assert_eq!(first.resource_names, ["a", "b"]);
    assert_eq!(
        (first.version_info.as_str(), first.response_nonce.as_str()),
        ("v1", "")
    );
}

/// S1-17: a stream that ends after a response is nobody's error, and is followed by the next at
/// once.
#[tokio::test]
async fn end_of_a_good_stream_is_no_event() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut watch = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>(
        "v1",
        "n1",
        [cluster("a").eds("one").any()],
    ));
    assert_eq!(value(&mut watch).await.eds_name(), Some("one"));

    for status in [Status::ok(""), Status::unavailable("moving")] {
        server.close_stream(status);
        server.next_stream().await;
        server.next_request().await;
        server.send(response::<Cluster>(
            "v1",
            "n1",
            [cluster("a").eds("one").any()],
        ));
    }
    server.next_request().await;
    server.send(response::<Cluster>(
        "v2",
        "n2",
        [cluster("a").eds("two").any()],
    ));

    let next = value(&mut watch).await;
    assert_eq!(
        next.eds_name(),
        Some("two"),
        "there was nothing to tell in between"
    );
}

/// S1-03, S1-04, S1-05, S1-11: a watch tells of errors, resources, trouble around them and its
/// end, each once and in order (gRFC A88).
#[tokio::test]
async fn watch_tells_what_happens_in_order() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut watch = client.watch::<Listener>("a").unwrap();
    server.next_request().await;

    let good = |routes: &str| listener("a").rds(routes).any();
    let bad = listener("a").rds("r").invalid().any();
    let sent = [
        vec![bad.clone()],
        vec![good("r")],
        vec![bad],
        vec![good("r")],
        vec![],
    ];
    for (number, resources) in sent.into_iter().enumerate() {
        let number = number.to_string();
        server.send(response::<Listener>(&number, &number, resources));
    }

    assert!(matches!(
        error(&mut watch).await.reason,
        TroubleReason::Invalid(_)
    ));
    assert_eq!(value(&mut watch).await.name, "a");
    let trouble = ambient(&mut watch).await.unwrap();
    assert!(
        matches!(trouble.reason, TroubleReason::Invalid(_)),
        "{trouble}"
    );
    assert_eq!(ambient(&mut watch).await, None);
    let gone = error(&mut watch).await;
    assert_eq!(
        gone.to_string(),
        "listener a: does not exist: the server deleted it [node test-node]"
    );
}

/// S1-18, S1-37: a server that cannot be reached is an error with its address, the reason and the
/// node; when the server appears, the watch heals.
#[tokio::test]
async fn unreachable_server_is_an_error_until_it_appears() {
    let mut server = AdsServer::stopped();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut watch = client.watch::<Cluster>("a").unwrap();

    let error = error(&mut watch).await;
    assert!(matches!(error.reason, TroubleReason::Connectivity(_)));
    let text = error.to_string();
    let start = format!(
        "cluster a: xDS server: cannot connect to {}: ",
        server.address()
    );
    assert!(text.starts_with(&start), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    assert!(text.ends_with("[node test-node]"), "{text}");

    server.restart();
    server.next_request().await;
    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    assert_eq!(value(&mut watch).await.name, "a");
}

/// S1-18: a stream that the server ends before it said anything is an error with the server's
/// reason; what is in use stays in use.
#[tokio::test]
async fn silent_stream_is_an_error_with_the_reason() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut known = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    value(&mut known).await;
    let mut unknown = client.watch::<Endpoints>("e").unwrap();
    server.close_stream(Status::unavailable("moving"));
    server.next_stream().await;

    server.close_stream(Status::permission_denied("who are you?"));

    let text = error(&mut unknown).await.to_string();
    assert!(text.starts_with("endpoints e: xDS server: "), "{text}");
    assert!(text.contains("PermissionDenied: who are you?"), "{text}");
    let trouble = ambient(&mut known).await.unwrap();
    assert!(trouble.to_string().contains("who are you?"), "{trouble}");
}

/// S1-08: the end of a watch asks for the rest; the end of the last ends the stream.
#[tokio::test]
async fn end_of_a_watch_ends_its_subscription() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let a = client.watch::<Cluster>("a").unwrap();
    let b = client.watch::<Cluster>("b").unwrap();
    assert_eq!(server.next_request().await.resource_names, ["a", "b"]);

    drop(a);
    assert_eq!(server.next_request().await.resource_names, ["b"]);
    drop(b);
    server.stream_end().await;
}

/// S1-09: two watchers share one subscription; the second is given what is known at once, the
/// resource first and then the trouble around it, and nothing is sent for it.
#[tokio::test]
async fn watchers_of_one_resource_share_a_subscription() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut first = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    server.send(response::<Cluster>(
        "v2",
        "n2",
        [cluster("a").invalid().any()],
    ));
    let held = value(&mut first).await;
    assert!(ambient(&mut first).await.is_some());
    server.next_request().await;
    server.next_request().await;

    let mut second = client.clone().watch::<Cluster>("a").unwrap();
    assert!(Arc::ptr_eq(&value(&mut second).await, &held));
    assert!(ambient(&mut second).await.is_some());
    drop(first);

    // The next thing that the server hears is about the next update.
    server.send(response::<Cluster>(
        "v3",
        "n3",
        [cluster("a").eds("new").any()],
    ));
    let ack = server.next_request().await;
    assert_eq!(ack.response_nonce, "n3");
    assert_eq!(ack.resource_names, ["a"]);
    assert_eq!(value(&mut second).await.eds_name(), Some("new"));
}

/// S1-22: a watch that begins as the last one ends is given what is known: the server, which sees
/// no change, would not send it again.
#[tokio::test]
async fn watch_that_replaces_the_last_one_keeps_the_resource() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut first = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    let held = value(&mut first).await;
    server.next_request().await;

    // Nothing is awaited in between, so the client learns of both together.
    drop(first);
    let mut second = client.watch::<Cluster>("a").unwrap();

    assert!(Arc::ptr_eq(&value(&mut second).await, &held));
    assert_eq!(server.next_request().await.resource_names, ["a"]);
}

/// A client without handles and watches ends its stream.
#[tokio::test]
async fn stream_ends_with_the_last_handle() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let watch = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;

    drop(client);
    drop(watch);

    server.stream_end().await;
}
