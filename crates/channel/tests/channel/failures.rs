//! Failures of the control plane and of backends.
//!
//! Calls must go on with the last good configuration, or fail with the resource and the reason.

use crowfly::ConnectionLost;
use crowfly_testkit::builders::{Resources, cluster, endpoints};
use crowfly_testkit::{NODE_ID, ResourceServer};
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call, call_when_ready, channel, payments, spread, spread_until};

/// S1-18: a control plane that cannot be reached fails calls with its address, the reason and the
/// node. A call that waits for ready waits for the control plane to come.
#[tokio::test]
async fn an_unreachable_control_plane_is_named_and_heals() {
    let a = Backend::start("a").await;
    let mut server = ResourceServer::stopped(&payments(&[&a]));
    let channel = channel(&server);
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let message = status.message();
    assert!(message.contains("listener payments"), "{message}");
    assert!(message.contains(&server.address().to_string()), "{message}");
    assert!(message.contains(NODE_ID), "{message}");

    server.restart();
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
}

/// S1-17: the control plane goes away and comes back with another version; no call fails.
#[tokio::test]
async fn the_control_plane_restarts_under_traffic() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let mut server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.stop().await;
    assert_eq!(spread(&channel, 20).await["a"], 20);
    server.set(&payments(&[&b]));
    server.restart();
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;
}

/// S1-04: a bad resource is NACKed with its path and reason while the last good one serves on.
#[tokio::test]
async fn a_bad_update_is_nacked_and_traffic_goes_on() {
    let a = Backend::start("a").await;
    let mut server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&payments(&[&a]).with(endpoints("payments-eds").invalid()));
    let reason = server.next_nack().await;
    assert!(
        reason.contains("endpoints payments-eds: endpoints[0]"),
        "{reason}"
    );
    assert_eq!(spread(&channel, 10).await["a"], 10);
}

/// A cluster that is in trouble from the start fails its calls with the reason.
#[tokio::test]
async fn an_invalid_cluster_fails_calls_with_its_field() {
    let resources = payments(&[]).with(cluster("payments-cluster").invalid());
    let server = ResourceServer::start(&resources);
    let status = call(&channel(&server)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let message = status.message();
    assert!(
        message.contains("cluster payments-cluster: invalid"),
        "{message}"
    );
    assert!(message.contains(NODE_ID), "{message}");
}

/// S3-13: endpoints without localities are no error of the resource, but calls say so.
#[tokio::test]
async fn no_localities_fails_calls_with_that_text() {
    let resources = payments(&[]).with(endpoints("payments-eds"));
    let server = ResourceServer::start(&resources);
    let status = call(&channel(&server)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("payments-eds: no localities"),
        "{status}"
    );
}

/// S1-11: a deleted listener fails calls; when it comes back they work again.
#[tokio::test]
async fn a_deleted_listener_fails_calls_until_it_is_back() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.set(&payments(&[&a]).without("payments"));
    let status = loop {
        if let Err(status) = call(&channel).await {
            break status;
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status
            .message()
            .contains("listener payments: does not exist"),
        "{status}"
    );
    server.set(&payments(&[&a]));
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
}

/// Backends that refuse connections: the status has the address and the reason.
#[tokio::test]
async fn unreachable_backends_fail_calls_with_the_connect_error() {
    let dead = Backend::start("dead").await.kill().await;
    let server = ResourceServer::start(&Resources::service("payments", [dead]));
    let status = call(&channel(&server)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let message = status.message();
    assert!(message.contains("cluster payments-cluster"), "{message}");
    assert!(message.contains(&dead.to_string()), "{message}");
    assert!(message.to_lowercase().contains("refused"), "{message}");
    assert!(message.contains(NODE_ID), "{message}");
}

/// A call whose connection dies under it is not repeated, and can be told from other failures.
#[tokio::test]
async fn a_call_lost_in_flight_is_recognisable() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { call(&channel).await });
    let held = a.next_call().await;
    let address = a.kill().await;
    drop(held);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let lost = ConnectionLost::find(&status).expect("a lost connection");
    assert_eq!(lost.address(), address);
}
