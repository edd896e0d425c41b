//! The spread of calls over backends, which follows the configuration.
//!
//! A change of the configuration must move calls without failing one.

use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, endpoint, endpoints};
use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use tokio::net::TcpListener;

use crate::backend::Backend;
use crate::support::{call, call_when_ready, channel, payments, spread, spread_until};

/// S10-01: round_robin is even once all backends are connected.
#[tokio::test]
async fn calls_are_spread_evenly() {
    let (a, b, c) = three().await;
    let server = ResourceServer::start(&payments(&[&a, &b, &c]));
    let channel = channel(&server);
    spread_until(&channel, 3, |answers| answers.len() == 3).await;
    let answers = spread(&channel, 30).await;
    assert!(answers.values().all(|count| *count == 10), "{answers:?}");
}

/// S7-01: backends are added, removed and replaced; no call fails, and a connection that stays in
/// use is not made again.
#[tokio::test]
async fn backends_come_and_go_without_a_failed_call() {
    let (a, b, c) = three().await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    spread_until(&channel, 1, |answers| answers.contains_key("a")).await;

    server.set(&payments(&[&a, &b]));
    spread_until(&channel, 2, |answers| answers.len() == 2).await;
    server.set(&payments(&[&a, &c]));
    spread_until(&channel, 2, |answers| answers.contains_key("c")).await;
    server.set(&payments(&[&a]));
    spread_until(&channel, 4, |answers| answers.len() == 1).await;

    assert_eq!(a.connections(), 1);
}

/// S7-02: locality weights are respected, and follow the configuration.
#[tokio::test]
async fn locality_weights_move_traffic() {
    let (a, b, _) = three().await;
    let weighted = |weight_a, weight_b| {
        payments(&[]).with(
            endpoints("payments-eds")
                .locality("eu/a", weight_a, [a.address])
                .locality("eu/b", weight_b, [b.address]),
        )
    };
    let server = ResourceServer::start(&weighted(1, 1));
    let channel = channel(&server);
    spread_until(&channel, 20, |answers| answers.len() == 2).await;
    // With one million to one, fifty calls in a row to `b` are all but certain, and were all but
    // impossible before.
    server.set(&weighted(1, 1_000_000));
    spread_until(&channel, 50, |answers| answers.get("b") == Some(&50)).await;
    server.set(&weighted(1_000_000, 1));
    spread_until(&channel, 50, |answers| answers.get("a") == Some(&50)).await;
}

/// S7-03: an unhealthy backend gets no calls; when all are, calls are UNAVAILABLE, and heal.
#[tokio::test]
async fn unhealthy_backends_are_left_out() {
    let (a, b, _) = three().await;
    let health = |of_a, of_b| {
        let a = endpoint(&a.address.to_string()).health(of_a);
        let b = endpoint(&b.address.to_string()).health(of_b);
        Resources::service("payments", [a, b])
    };
    let server = ResourceServer::start(&health(HealthStatus::Unhealthy, HealthStatus::Healthy));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "b");
    assert_eq!(a.connections(), 0);

    server.set(&health(HealthStatus::Unhealthy, HealthStatus::Unhealthy));
    let status = loop {
        if let Err(status) = call(&channel).await {
            break status;
        }
    };
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains("payments-eds"), "{status}");

    server.set(&health(HealthStatus::Healthy, HealthStatus::Unhealthy));
    assert_eq!(call_when_ready(&channel).await.unwrap(), "a");
}

/// A backend that accepts connections and never speaks never becomes READY: calls go to the others.
#[tokio::test]
async fn a_silent_backend_gets_no_calls() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let a = Backend::start("a").await;
    let addresses = [silent.local_addr().unwrap(), a.address];
    let server = ResourceServer::start(&Resources::service("payments", addresses));
    let channel = channel(&server);
    let (_connection, _) = silent.accept().await.unwrap();
    assert_eq!(spread(&channel, 10).await["a"], 10);
    let tree = channel.tree().await;
    assert!(
        tree.contains(&format!("{} CONNECTING", addresses[0])),
        "{tree}"
    );
    assert!(tree.contains(&format!("{} READY", addresses[1])), "{tree}");
}

/// A backend with two addresses is reached at the second if the first refuses (gRFC A61).
#[tokio::test]
async fn the_next_address_of_a_backend_is_tried() {
    let dead = Backend::start("dead").await.kill().await;
    let a = Backend::start("a").await;
    let two = endpoint(&dead.to_string()).also_at(&a.address.to_string());
    let server = ResourceServer::start(&Resources::service("payments", [two]));
    assert_eq!(call(&channel(&server)).await.unwrap(), "a");
}

async fn three() -> (Backend, Backend, Backend) {
    tokio::join!(
        Backend::start("a"),
        Backend::start("b"),
        Backend::start("c")
    )
}
