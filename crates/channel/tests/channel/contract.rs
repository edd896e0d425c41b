//! Promises that a caller can rely on, such as those in the docs of the crate `crowfly`.

use crowfly::{Bootstrap, Channel};
use crowfly_testkit::builders::{listener, routes};
use crowfly_testkit::{NODE_ID, ResourceServer};
use envoy_types::pb::envoy::config::route::v3::{QueryParameterMatcher, RouteMatch};
use http_body_util::BodyExt;
use tonic::{Code, Request};
use tower_service::Service;

use crate::backend::Backend;
use crate::support::{PATH, call, channel, payments, send};

/// A call sent before the first configuration waits for it.
#[tokio::test]
async fn a_call_waits_for_the_first_configuration() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]).without("payments-eds"));
    let channel = channel(&server);
    let early = tokio::spawn({
        let channel = channel.clone();
        async move { call(&channel).await }
    });
    server.set(&payments(&[&a]));
    assert_eq!(early.await.unwrap().unwrap(), "a");
}

/// `:authority` is the target's name, or what the builder says; it chooses the virtual host too.
#[tokio::test]
async fn the_authority_is_the_targets_name_unless_overridden() {
    let mut a = Backend::holding("a").await;
    let resources = payments(&[&a]).with(
        routes("payments-routes")
            .host("payments")
            .route("/", "payments-cluster")
            .host("billing.example.com")
            .route("/", "payments-cluster"),
    );
    let server = ResourceServer::start(&resources);
    let overridden = Channel::builder("xds:payments")
        .bootstrap(server.bootstrap())
        .authority("billing.example.com")
        .build()
        .unwrap();
    for (channel, expected) in [
        (channel(&server), "payments"),
        (overridden, "billing.example.com"),
    ] {
        let caller = tokio::spawn(async move { call(&channel).await });
        let held = a.next_call().await;
        let uri = held.request.uri();
        assert_eq!(uri.authority().unwrap().as_str(), expected);
        assert_eq!(uri.path(), "/test.Echo/Call");
        let agent = held.request.headers()["user-agent"].to_str().unwrap();
        assert!(agent.starts_with("grpc-rust-crowfly/"), "{agent}");
        held.answer();
        caller.await.unwrap().unwrap();
    }
}

/// Dropping the last clone of a channel lets open calls finish.
#[tokio::test]
async fn open_calls_outlive_the_channel() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let mut channel = channel(&server);
    let request = http::Request::post(PATH)
        .body(tonic::body::Body::empty())
        .unwrap();
    let response = tokio::spawn(channel.call(request));
    let mut held = a.next_call().await;
    let mut rest = held.begin();
    let body = response.await.unwrap().unwrap().into_body();
    drop(channel);
    // The driver is gone, and with it all that held the connection but for this call.
    rest.send_data("still here".into(), true).unwrap();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "still here");
}

/// S2-04: without a bootstrap only this channel fails, and its calls say why.
#[tokio::test]
async fn a_bad_bootstrap_fails_calls_but_not_connect() {
    // No test of this binary sets the variables.
    let channel = Channel::connect("xds:///payments").unwrap();
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("GRPC_XDS_BOOTSTRAP"), "{status}");

    let error = Channel::builder("xds:///payments").build().unwrap_err();
    assert!(error.to_string().contains("GRPC_XDS_BOOTSTRAP"), "{error}");
}

#[tokio::test]
async fn a_malformed_target_is_an_error_at_once() {
    let error = Channel::connect("http://payments").unwrap_err();
    assert!(error.to_string().contains("xds:///payments"), "{error}");
    let error = Channel::builder("xds:///payments")
        .bootstrap(Bootstrap::builder("127.0.0.1:1").unwrap().build())
        .authority("not an authority")
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("`not an authority`"), "{error}");
}

/// S3-04: a route with a condition that is not understood is never matched without it. The routes
/// after it work, and the error of an unroutable call names the skipped route.
#[tokio::test]
async fn a_route_with_an_unknown_condition_is_skipped_and_named() {
    let a = Backend::start("a").await;
    let resources = payments(&[&a]).with(
        routes("payments-routes")
            .host("*")
            .route("/", "payments-cluster")
            .exact("/test.Echo/Call", "payments-cluster")
            .edit(|config| {
                let route = &mut config.virtual_hosts[0].routes[0];
                route.name = "canary".into();
                route
                    .r#match
                    .get_or_insert_with(RouteMatch::default)
                    .query_parameters = vec![QueryParameterMatcher::default()];
            }),
    );
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");

    let request = Request::new("hello".to_owned());
    let status = send(&channel, "/test.Echo/Other", request)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status
            .message()
            .contains("no route matches /test.Echo/Other"),
        "{status}"
    );
    assert!(status.message().contains("canary"), "{status}");
}

/// Routes inside the listener work without RDS.
#[tokio::test]
async fn inline_routes_work() {
    let a = Backend::start("a").await;
    let inline = routes("inline").host("*").route("/", "payments-cluster");
    let resources = payments(&[&a])
        .without("payments-routes")
        .with(listener("payments").routes(inline));
    let server = ResourceServer::start(&resources);
    assert_eq!(call(&channel(&server)).await.unwrap(), "a");
}

/// Every failure names the resource, the reason and the node.
#[tokio::test]
async fn a_socket_listener_fails_calls_with_its_name() {
    let resources = payments(&[]).with(listener("payments").socket());
    let server = ResourceServer::start(&resources);
    let status = call(&channel(&server)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let message = status.message();
    assert!(
        message.contains("listener payments: is a socket listener"),
        "{message}"
    );
    assert!(message.contains(NODE_ID), "{message}");
}
