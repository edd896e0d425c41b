//! Time limits that a configuration sets for calls, by the route or by the listener (gRFC A31).
//!
//! The channel keeps them itself, because a server may not end a call in time.

use std::time::Duration;

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{ListenerBuilder, Resources, RoutesBuilder, listener, routes};
use envoy_types::pb::envoy::config::core::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::config::route::v3::route_action::MaxStreamDuration;
use envoy_types::pb::google::protobuf;
use h2::Reason;
use tonic::{Code, Request, Status};

use crate::backend::{Backend, Held};
use crate::support::{PATH, call, call_within, channel, pass, payments, send};

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(200);

/// The time that a route sets: `grpc_timeout_header_max` and `max_stream_duration`.
type RouteLimits = (Option<Duration>, Option<Duration>);

/// S5-06: the table of gRFC A31, with the listener's default for routes that set nothing. A server hears of
/// the shortest of the times that count.
#[tokio::test]
async fn a_server_is_told_of_the_shortest_time() {
    let mut a = Backend::holding("a").await;
    let (zero, ten) = (Some(Duration::ZERO), Some(10 * SECOND));
    let twenty = Some(20 * SECOND);
    let thirty = Some(30 * SECOND);
    let unset: RouteLimits = (None, None);
    for (application, listener, route, effective) in [
        (None, None, unset, None),
        (None, None, (None, zero), None),
        (None, None, (None, ten), ten),
        (None, ten, unset, ten),
        (None, zero, unset, None),
        (None, ten, (None, zero), None),
        (None, ten, (None, twenty), twenty),
        (None, ten, (zero, ten), None),
        (None, thirty, (ten, twenty), ten),
        (twenty, None, unset, twenty),
        (twenty, None, (None, zero), twenty),
        (twenty, None, (None, ten), ten),
        (twenty, ten, unset, ten),
        (twenty, ten, (zero, ten), twenty),
        (twenty, None, (ten, None), ten),
        (twenty, None, (thirty, None), twenty),
        (ten, twenty, unset, ten),
    ] {
        let what = format!("{application:?}, {listener:?}, {route:?}");
        let server = ResourceServer::start(&limited(&a, listener, route));
        let channel = channel(&server);
        let caller = tokio::spawn(async move { call_for(&channel, application).await });
        let held = a.next_call().await;
        let left = timeout_of(&held);
        held.answer();
        assert_eq!(caller.await.unwrap().unwrap(), "a", "{what}");
        match (left, effective) {
            (None, None) => {}
            // There is room for a slow machine, which is less than the steps between the times.
            (Some(left), Some(time)) => {
                assert!(left <= time && left > time - 9 * SECOND, "{what}: {left:?}");
            }
            (left, _) => panic!("{what}: expected {effective:?}, got {left:?}"),
        }
    }
}

/// S5-06: the channel keeps the time itself, and the error says whose limit it was. The stream is reset.
#[tokio::test]
async fn the_time_of_a_route_ends_a_call() {
    for (listener, route, setter) in [
        (None, (None, Some(SHORT)), "the 200ms that the route allows"),
        (
            Some(SHORT),
            (None, None),
            "the 200ms that the listener allows",
        ),
    ] {
        let mut a = Backend::holding("a").await;
        let server = ResourceServer::start(&limited(&a, listener, route));
        let channel = channel(&server);
        let other = channel.clone();
        let caller = tokio::spawn(async move { call(&other).await });
        let mut held = a.next_call().await;
        let status = caller.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        let expected = format!("{setter} for a call ended while waiting for a response");
        assert!(status.message().contains(&expected), "{status}");
        assert_eq!(held.reset().await, Reason::CANCEL);

        // A shorter time of the caller is the caller's.
        let caller = tokio::spawn(async move { call_within(&channel, SHORT / 2).await });
        let _held = a.next_call().await;
        let status = caller.await.unwrap().unwrap_err();
        let expected = "the call's 100ms ended while waiting for a response";
        assert!(status.message().contains(expected), "{status}");
    }
}

/// gRFC A31: the time counts from the start of the call, although the route is not known then.
#[tokio::test]
async fn the_time_of_a_route_counts_from_the_start_of_the_call() {
    let mut a = Backend::holding("a").await;
    let resources = limited(&a, None, (None, Some(30 * SECOND)));
    let server = ResourceServer::start(&resources.clone().without("payments-eds"));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { call(&channel).await });
    tokio::task::yield_now().await;
    pass(10 * SECOND).await;
    server.set(&resources);
    let held = a.next_call().await;
    let left = timeout_of(&held).expect("a timeout");
    assert!(left <= 20 * SECOND, "{left:?}");
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

/// S5-06: a new default of the listener applies although the routes are the same.
#[tokio::test]
async fn a_changed_default_of_the_listener_applies() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(told(&mut a, &channel).await, None);

    for time in [Some(20 * SECOND), None] {
        server.set(&limited(&a, time, (None, None)));
        let applied = async { while told(&mut a, &channel).await.is_some() != time.is_some() {} };
        let applied = tokio::time::timeout(60 * SECOND, applied).await;
        applied.expect("the default is told");
    }
}

/// The timeout that a backend is told of.
async fn told(backend: &mut Backend, channel: &Channel) -> Option<Duration> {
    let channel = channel.clone();
    let caller = tokio::spawn(async move { call(&channel).await });
    let held = backend.next_call().await;
    let told = timeout_of(&held);
    held.answer();
    caller.await.unwrap().unwrap();
    told
}

async fn call_for(channel: &Channel, timeout: Option<Duration>) -> Result<String, Status> {
    let mut request = Request::new("hello".to_owned());
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    send(channel, PATH, request).await
}

/// The service `payments` with these times in listener and route.
fn limited(backend: &Backend, listener: Option<Duration>, route: RouteLimits) -> Resources {
    payments(&[backend])
        .with(limited_listener(listener))
        .with(limited_routes(route))
}

fn limited_listener(time: Option<Duration>) -> ListenerBuilder {
    listener("payments").rds("payments-routes").edit(|manager| {
        manager.common_http_protocol_options = Some(HttpProtocolOptions {
            max_stream_duration: time.map(proto),
            ..HttpProtocolOptions::default()
        });
    })
}

fn limited_routes((header_max, max): RouteLimits) -> RoutesBuilder {
    let all = routes("payments-routes")
        .host("*")
        .route("/", "payments-cluster");
    all.edit_action(|action| {
        action.max_stream_duration = Some(MaxStreamDuration {
            grpc_timeout_header_max: header_max.map(proto),
            max_stream_duration: max.map(proto),
            ..MaxStreamDuration::default()
        });
    })
}

fn proto(time: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: time.as_secs().try_into().unwrap(),
        nanos: time.subsec_nanos().try_into().unwrap(),
    }
}

/// The timeout in the head of a request.
fn timeout_of(held: &Held) -> Option<Duration> {
    let value = held.request.headers().get("grpc-timeout")?;
    let (digits, unit) = value.to_str().unwrap().split_at(value.len() - 1);
    let value: u64 = digits.parse().unwrap();
    Some(match unit {
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        other => panic!("an unexpected unit: {other}"),
    })
}
