//! Channels with several control planes: fallback, federation and delta.
//!
//! Another server may take over at any time, and no call may fail for it.

use std::time::Duration;

use crowfly::{Bootstrap, Channel};
use crowfly_model::bootstrap::{AuthorityConfig, ServerConfig, ServerFeature};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call, call_when_ready, payments, spread, spread_until};

/// gRFC A47: a target with an authority asks that authority's servers for a listener whose name
/// they understand; calls still carry the service's name.
#[tokio::test]
async fn a_target_with_an_authority_is_served_by_its_servers() {
    let mut a = Backend::holding("a").await;
    let elsewhere = ResourceServer::start(&Resources::new());
    let name = "xdstp://traffic.example/envoy.config.listener.v3.Listener/payments";
    let traffic = ResourceServer::start(
        &payments(&[&a])
            .without("payments")
            .with(listener(name).rds("xdstp://traffic.example/routes/payments"))
            .with(
                routes("xdstp://traffic.example/routes/payments")
                    .host("payments")
                    .route("/", "xdstp://traffic.example/cluster/payments"),
            )
            .with(
                cluster("xdstp://traffic.example/cluster/payments")
                    .eds("xdstp://traffic.example/eds/payments?b=1&a=2"),
            )
            .with(
                endpoints("xdstp://traffic.example/eds/payments?a=2&b=1").locality(
                    "eu/a",
                    1,
                    [a.address],
                ),
            ),
    );
    let authority = AuthorityConfig::builder().server(traffic.address().to_string().as_str());
    let bootstrap = Bootstrap::builder(elsewhere.address().to_string().as_str())
        .unwrap()
        .authority("traffic.example", authority)
        .unwrap()
        .build();
    let channel = Channel::builder("xds://traffic.example/payments")
        .bootstrap(bootstrap.clone())
        .build()
        .unwrap();
    let caller = tokio::spawn(async move { call(&channel).await });
    let held = tokio::time::timeout(Duration::from_secs(20), a.next_call());
    let held = held.await.expect("the call arrives");
    let sent_to = held.request.uri().authority().unwrap().clone();
    assert_eq!(sent_to.as_str(), "payments");
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");

    let unknown = Channel::builder("xds://other.example/payments").bootstrap(bootstrap);
    let error = unknown.build().unwrap_err().to_string();
    assert!(error.contains("other.example"), "{error}");
}

/// S1-31: with the first control plane down from the start the second serves; when the first is back
/// it takes over, and no call fails.
#[tokio::test]
async fn the_second_control_plane_serves_until_the_first_is_back() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let mut first = ResourceServer::stopped(&payments(&[&a]));
    let second = ResourceServer::start(&payments(&[&b]));
    let bootstrap = Bootstrap::builder(first.address().to_string().as_str())
        .unwrap()
        .server(second.address().to_string().as_str())
        .unwrap()
        .build();
    let channel = Channel::builder("xds:///payments")
        .bootstrap(bootstrap)
        .build()
        .unwrap();
    assert_eq!(call_when_ready(&channel).await.unwrap(), "b");
    first.restart();
    spread_until(&channel, 3, |answers| answers.get("a") == Some(&3)).await;
}

/// A channel whose control plane speaks delta: updates, and a restart, without a failed call.
#[tokio::test]
async fn a_channel_works_over_delta() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let mut server = ResourceServer::start(&payments(&[&a]));
    let config = ServerConfig::builder(server.address().to_string()).feature(ServerFeature::Delta);
    let bootstrap = Bootstrap::builder(config).unwrap().build();
    let channel = Channel::builder("xds:///payments")
        .bootstrap(bootstrap)
        .build()
        .unwrap();
    assert_eq!(call(&channel).await.unwrap(), "a");
    server.stop().await;
    assert_eq!(spread(&channel, 10).await["a"], 10);
    server.set(&payments(&[&b]));
    server.restart();
    spread_until(&channel, 3, |answers| answers.get("b") == Some(&3)).await;
    server.set(&payments(&[&b]).without("payments"));
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
}
