//! Tests of the driver: it publishes new routes or pickers only if a configuration changes them.
//!
//! Calls read the published values, so a needless one would cost every call that waits.

use std::sync::Arc;

use crowfly_testkit::builders::{Resources, listener, routes};
use crowfly_testkit::{Reserved, ResourceServer};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use super::Channel;
use crate::routing::{Router, Routing};

/// The addresses of `payments`.
fn payments(addresses: &[&Reserved]) -> Resources {
    Resources::service("payments", addresses.iter().map(|port| port.address))
}

fn channel(server: &ResourceServer) -> Channel {
    let builder = Channel::builder("xds:///payments");
    builder.bootstrap(server.bootstrap()).build().unwrap()
}

/// Calls until a call fails with this text.
async fn fails_with(channel: &Channel, text: &str) {
    loop {
        let mut grpc = Grpc::new(channel.clone());
        let (path, codec) = ("/test.Echo/Call", ProstCodec::<String, String>::default());
        let request = tonic::Request::new(String::new());
        let called = grpc.unary(request, path.parse().unwrap(), codec).await;
        if called.unwrap_err().message().contains(text) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Calls until there is a failure for this address.
async fn reaches_for(channel: &Channel, port: &Reserved) {
    fails_with(channel, &port.address.to_string()).await;
}

/// The routing that calls use at this moment.
fn published(channel: &Channel) -> Arc<Routing> {
    Arc::clone(&channel.context.routing.load())
}

fn router(routing: &Routing) -> &Router {
    match routing {
        Routing::Ready(router) => router,
        other => panic!("expected a router, got {other:?}"),
    }
}

/// gRFC A74: a configuration that differs in endpoints alone changes the pickers, and not the
/// routes. No table is compiled, and no other router is published.
#[tokio::test]
async fn an_endpoint_change_leaves_the_routes_as_they_are() {
    let (a, b) = (Reserved::new(), Reserved::new());
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    reaches_for(&channel, &a).await;
    let before = published(&channel);

    server.set(&payments(&[&b]));
    reaches_for(&channel, &b).await;
    assert!(Arc::ptr_eq(&before, &published(&channel)));

    // Other routes to the same cluster are compiled.
    let other = routes("payments-routes").host("*");
    let other = other.route("/test.", "payments-cluster");
    server.set(&payments(&[&a]).with(other));
    reaches_for(&channel, &a).await;
    let after = published(&channel);
    assert!(!router(&before).has_routes_of(router(&after)));
}

/// gRFC A88: an ambient error of the listener becomes part of the errors of calls. The routes are not
/// compiled again for it, nor when another virtual host changes.
#[tokio::test]
async fn other_notes_and_other_virtual_hosts_leave_the_table() {
    let a = Reserved::new();
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    reaches_for(&channel, &a).await;
    let before = published(&channel);

    server.set(&payments(&[&a]).with(listener("payments").invalid()));
    fails_with(&channel, "listener payments: invalid").await;
    let noted = published(&channel);
    assert!(!Arc::ptr_eq(&before, &noted));
    assert!(router(&before).has_routes_of(router(&noted)));

    let both = routes("payments-routes")
        .host("*")
        .route("/", "payments-cluster");
    let both = both.host("other").route("/", "elsewhere");
    let b = Reserved::new();
    server.set(&payments(&[&b]).with(both));
    reaches_for(&channel, &b).await;
    assert!(router(&before).has_routes_of(router(&published(&channel))));
}
