//! The state of a channel.
//!
//! Programs wait for READY by it, so it must follow the configuration and the backends.

use crowfly::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crowfly::{Bootstrap, Channel};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoints, routes};
use envoy_types::pb::envoy::config::cluster::v3::cluster::LbPolicy;
use tokio::net::TcpListener;

use crate::backend::Backend;
use crate::support::{call, channel, payments, reaches};

/// A channel without a configuration is CONNECTING. With one it has the state of its backends. If
/// it cannot have one, it has failed.
#[tokio::test]
async fn the_state_follows_configuration_and_backends() {
    let mut a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let mut watch = channel.watch_state();
    assert_eq!((channel.state(), watch.state()), (Connecting, Connecting));
    reaches(&mut watch, Ready).await;
    assert_eq!(call(&channel).await.unwrap(), "a");

    server.set(&payments(&[&a]).without("payments"));
    reaches(&mut watch, TransientFailure).await;
    call(&channel).await.unwrap_err();
    server.set(&payments(&[&a]));
    reaches(&mut watch, Ready).await;

    a.stop().await;
    reaches(&mut watch, TransientFailure).await;
    assert_eq!(channel.state(), TransientFailure);
    call(&channel).await.unwrap_err();
    a.restart();
    reaches(&mut watch, Ready).await;

    drop(channel);
    assert_eq!(watch.changed().await, None);
}

/// READY before CONNECTING before TRANSIENT_FAILURE: the best of the clusters that calls may go to.
#[tokio::test]
async fn the_state_is_that_of_the_best_cluster() {
    let dead = Backend::start("dead").await.kill().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let a = Backend::start("a").await;
    let with = |good: &str| {
        payments(&[&a])
            .with(
                routes("payments-routes")
                    .host("*")
                    .route("/dead.", "dead")
                    .route("/", good),
            )
            .with(cluster("dead"))
            .with(endpoints("dead").locality("eu/a", 1, [dead]))
            .with(cluster("silent"))
            .with(endpoints("silent").locality("eu/a", 1, [silent.local_addr().unwrap()]))
    };
    let server = ResourceServer::start(&with("dead"));
    let channel = channel(&server);
    let mut watch = channel.watch_state();
    reaches(&mut watch, TransientFailure).await;
    server.set(&with("silent"));
    reaches(&mut watch, Connecting).await;
    server.set(&with("payments-cluster"));
    reaches(&mut watch, Ready).await;
}

/// A control plane that cannot be reached, and a channel that cannot work.
#[tokio::test]
async fn a_channel_without_a_control_plane_has_failed() {
    let server = ResourceServer::stopped(&Resources::new());
    let unreachable = channel(&server);
    reaches(&mut unreachable.watch_state(), TransientFailure).await;

    let bootstrap = Bootstrap::builder("127.0.0.1:1").unwrap().build();
    let good = Channel::builder("xds:///payments").bootstrap(bootstrap);
    assert_eq!(good.build().unwrap().state(), Connecting);
}

/// A cluster whose policy waits for the first call does not wait for it when it is told not to.
#[tokio::test]
async fn a_lazy_cluster_connects_when_asked_to() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let lazy = cluster("payments-cluster")
        .eds("payments-eds")
        .edit(|cluster| cluster.lb_policy = LbPolicy::RingHash as i32);
    let server = ResourceServer::start(&payments(&[&a, &b]).with(lazy));
    let channel = channel(&server);
    let mut watch = channel.watch_state();
    reaches(&mut watch, Idle).await;
    assert_eq!(a.connections() + b.connections(), 0);
    channel.request_connection();
    reaches(&mut watch, Ready).await;
    assert_eq!(a.connections() + b.connections(), 1);
}
