//! The limits of retries by policy (gRFC A6), over real sockets.
//!
//! The server, the throttle of the channel, the settings of the program, drops and the deadline can
//! each end retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crowfly::{BuildError, Channel, ChannelBuilder};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::endpoints;
use envoy_types::pb::envoy::config::route::v3::{route::Action, route_action::ClusterSpecifier};
use tonic::{Code, Request};

use crate::backend::{Backend, Held};
use crate::limits::limited;
use crate::support::{
    PATH, apart, call, call_within, channel, payments, policy, retrying, retrying_routes, send,
    start,
};

const UNAVAILABLE: i32 = 14;

/// gRFC A6: a delay that the server asks for takes the place of the backoff, which is an hour here.
#[tokio::test]
async fn a_server_can_ask_for_a_delay() {
    let mut a = Backend::holding("a").await;
    let slow = apart(policy(2, "unavailable"), HOUR);
    let server = ResourceServer::start(&payments(&[&a]).with(retrying_routes(slow)));
    let channel = channel(&server);
    let caller = start(&channel);
    pushed_back(a.next_call().await, &["5"]);
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), Some(1));
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

/// gRFC A6: a negative or unreadable delay forbids the retry, and so do two of them (grpc-go).
#[tokio::test]
async fn a_server_can_forbid_a_retry() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let channel = channel(&server);
    for values in [&["-1"][..], &["xxx"], &["100", "10"]] {
        let caller = start(&channel);
        let held = a.next_call().await;
        assert_eq!(held.previous_attempts(), None);
        pushed_back(held, values);
        let status = caller.await.unwrap().unwrap_err();
        let note = "after 1 attempt; the server asked for no retry";
        assert_eq!((status.code(), status.message()), (Code::Unavailable, note));
    }
}

/// gRFC A6: the throttle of a channel, with the sequence of grpc-go's `TestRetryThrottling`.
#[tokio::test]
async fn a_channel_with_too_many_failures_is_throttled() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let a = Backend::scripted("a", move |_| {
        let answered = [0, 3, 6, 10, 11, 12, 13, 14, 16, 18];
        (!answered.contains(&count.fetch_add(1, SeqCst))).then_some(UNAVAILABLE)
    });
    let a = a.await;
    let server = ResourceServer::start(&retrying(&[&a], 4, "unavailable"));
    let channel = builder(&server).retry_throttling(10, 0.5).build().unwrap();
    let sequence = [
        (true, 1),
        (true, 4),   // 8.5 tokens
        (true, 7),   // 7
        (false, 9),  // 5: the first attempt was repeated, the second not
        (false, 10), // 4
        (true, 11),
        (true, 12),
        (true, 13),
        (true, 14),
        (true, 15), // 6.5
        (true, 17), // 6
        (false, 18),
        (true, 19),
    ];
    for (step, (answered, seen)) in sequence.into_iter().enumerate() {
        match call(&channel).await {
            Ok(_) => assert!(answered, "call {step}"),
            Err(status) => {
                assert!(!answered, "call {step}: {status}");
                let message = status.message();
                assert!(message.contains("retries are throttled"), "{message}");
            }
        }
        assert_eq!(calls.load(SeqCst), seen, "call {step}");
    }
}

/// gRFC A6: failures count for the throttle even after the response began.
#[tokio::test]
async fn a_response_that_fails_late_counts_for_the_throttle() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 2, "unavailable"));
    let channel = builder(&server).retry_throttling(4, 1.0).build().unwrap();
    let caller = start(&channel);
    a.next_call().await.answer_and_end(UNAVAILABLE);
    caller.await.unwrap().unwrap_err();
    // 3 of 4 tokens are left. One more failure leaves half of them.
    let caller = start(&channel);
    a.next_call().await.end_in_head(UNAVAILABLE);
    let status = caller.await.unwrap().unwrap_err();
    assert!(status.message().contains("throttled"), "{status}");
}

/// gRFC A6: settings out of range are errors of the program.
#[tokio::test]
async fn a_throttle_that_makes_no_sense_is_refused() {
    let server = ResourceServer::start(&payments(&[]));
    for (max_tokens, token_ratio) in [(0, 0.1), (1001, 0.1), (10, 0.0), (10, -0.5)] {
        let builder = builder(&server).retry_throttling(max_tokens, token_ratio);
        let error = builder.build().unwrap_err();
        assert!(matches!(error, BuildError::RetryThrottling(_)), "{error}");
    }
}

/// gRFC A6: a program can turn policies off. A call that no server has acted on is still repeated.
#[tokio::test]
async fn a_program_can_turn_policies_off() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let channel = builder(&server).retry_policies(false).build().unwrap();
    a.refuse(1);
    let caller = start(&channel);
    a.next_call().await.end_in_head(UNAVAILABLE);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, ""));
}

/// gRFC A6: a request that is larger than the buffer is sent whole, but once.
#[tokio::test]
async fn a_request_that_outgrows_the_buffer_is_sent_once() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let channel = builder(&server).retry_buffer_size(200).build().unwrap();
    for (length, fits) in [(100, true), (500, false)] {
        let text = "x".repeat(length);
        let caller = tokio::spawn({
            let (channel, request) = (channel.clone(), Request::new(text.clone()));
            async move { send(&channel, PATH, request).await }
        });
        let mut held = a.next_call().await;
        assert_eq!(held.text().await, text);
        held.end_in_head(UNAVAILABLE);
        if fits {
            let mut held = a.next_call().await;
            assert_eq!(held.text().await, text);
            held.answer();
            assert_eq!(caller.await.unwrap().unwrap(), "a");
        } else {
            let status = caller.await.unwrap().unwrap_err();
            let note = "after 1 attempt; the request outgrew the retry buffer";
            assert_eq!(status.message(), note);
        }
    }
}

/// gRFC A6: drops are never retried, neither those of a category nor those of a limit (S9-04).
#[tokio::test]
async fn a_drop_is_never_retried() {
    let all = endpoints("payments-eds").drop("overload", 1_000_000);
    let server = ResourceServer::start(&retrying(&[], 3, "unavailable").with(all));
    let status = call(&channel(&server)).await.unwrap_err();
    assert!(status.message().contains("category overload"), "{status}");
    assert!(!status.message().contains("attempt"), "{status}");

    let mut a = Backend::holding("a").await;
    let routes = retrying_routes(policy(3, "unavailable")).edit(|config| {
        if let Some(Action::Route(action)) = &mut config.virtual_hosts[0].routes[0].action {
            let name = "one-at-once-with-retries".to_owned();
            action.cluster_specifier = Some(ClusterSpecifier::Cluster(name));
        }
    });
    let limited = limited("one-at-once-with-retries", 1);
    let server = ResourceServer::start(&payments(&[&a]).with(routes).with(limited));
    let channel = channel(&server);
    let open = start(&channel);
    let held = a.next_call().await;
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!status.message().contains("attempt"), "{status}");
    held.answer();
    open.await.unwrap().unwrap();
}

/// gRFC A6: the deadline covers all attempts and the waits between them. It is not retried, even if the
/// policy lists it.
#[tokio::test]
async fn the_deadline_covers_all_attempts() {
    let mut a = Backend::holding("a").await;
    let slow = apart(policy(3, "unavailable,deadline-exceeded"), HOUR);
    let server = ResourceServer::start(&payments(&[&a]).with(retrying_routes(slow)));
    let channel = channel(&server);
    let caller = tokio::spawn({
        let channel = channel.clone();
        async move { call_within(&channel, SHORT).await }
    });
    let held = a.next_call().await;
    held.end_in_head_with(UNAVAILABLE, &[("grpc-message", "down")]);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let text = "ended while waiting for another attempt: Unavailable: down";
    assert!(status.message().contains(text), "{status}");

    server.set(&retrying(&[&a], 3, "unavailable,deadline-exceeded"));
    let caller = tokio::spawn({
        let channel = channel.clone();
        async move { call_within(&channel, SHORT).await }
    });
    let _silent = a.next_call().await;
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(!status.message().contains("attempts"), "{status}");
}

fn pushed_back(held: Held, values: &[&str]) {
    let fields = values
        .iter()
        .map(|value| ("grpc-retry-pushback-ms", *value));
    held.end_in_head_with(UNAVAILABLE, &fields.collect::<Vec<_>>());
}

fn builder(server: &ResourceServer) -> ChannelBuilder {
    Channel::builder("xds:///payments").bootstrap(server.bootstrap())
}

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(300);
