//! Retry policies (gRFC A6, A44) over real sockets.
//!
//! The backends fail by a script, so that a test decides which attempt succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crowfly::ConnectionLost;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{cluster, endpoints, routes};
use envoy_types::pb::envoy::config::route::v3::route::Action;
use h2::Reason;
use http::Response;
use tonic::{Code, Request};

use crate::backend::Backend;
use crate::support::{
    PATH, call, call_when_ready, channel, payments, policy, retrying, send, start,
};

/// The codes of gRPC that the tests use.
const UNAVAILABLE: i32 = 14;
const INTERNAL: i32 = 13;
const RESOURCE_EXHAUSTED: i32 = 8;

/// S5-07: each attempt has the whole request and the number of attempts before it, and so does the response
/// (gRFC A6).
#[tokio::test]
async fn a_call_is_sent_until_it_is_answered() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let channel = channel(&server);
    let caller = tokio::spawn(async move {
        let mut grpc = tonic::client::Grpc::new(channel);
        let codec = tonic_prost::ProstCodec::<String, String>::default();
        let request = Request::new("the whole request".to_owned());
        grpc.unary(request, PATH.parse().unwrap(), codec).await
    });
    for previous in [None, Some(1)] {
        let mut held = a.next_call().await;
        assert_eq!(held.previous_attempts(), previous);
        assert_eq!(held.text().await, "the whole request");
        held.end_in_head(UNAVAILABLE);
    }
    let mut held = a.next_call().await;
    assert_eq!(held.previous_attempts(), Some(2));
    assert_eq!(held.text().await, "the whole request");
    held.answer();
    let response = caller.await.unwrap().unwrap();
    assert_eq!(
        response
            .metadata()
            .get("grpc-previous-rpc-attempts")
            .unwrap(),
        "2"
    );
    assert_eq!(response.into_inner(), "a");
}

/// S5-07: the last failure is the call's, and says how many attempts there were.
#[tokio::test]
async fn a_call_ends_with_its_last_attempt() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable,internal"));
    let channel = channel(&server);
    let caller = start(&channel);
    for (code, text) in [
        (UNAVAILABLE, "one"),
        (INTERNAL, "two"),
        (UNAVAILABLE, "three%21"),
    ] {
        let held = a.next_call().await;
        held.end_in_head_with(code, &[("grpc-message", text), ("which", text)]);
    }
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let note = "three! (after 3 attempts; the retry policy allows 3)";
    assert_eq!(status.message(), note);
    assert_eq!(status.metadata().get("which").unwrap(), "three%21");
    assert_eq!(
        status.metadata().get("grpc-previous-rpc-attempts").unwrap(),
        "2"
    );
}

/// S5-07: a status that the policy does not list ends the call, at the first attempt or later.
#[tokio::test]
async fn a_status_that_is_not_listed_is_not_repeated() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "internal"));
    let channel = channel(&server);
    let caller = start(&channel);
    a.next_call().await.end_in_head(UNAVAILABLE);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, ""));

    let caller = start(&channel);
    a.next_call().await.end_in_head(INTERNAL);
    a.next_call().await.end_in_head(5);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let note = "after 2 attempts; the retry policy does not list this status";
    assert_eq!(status.message(), note);
}

/// S5-07: the policy of a route stands in place of the one of its virtual host (gRFC A44).
#[tokio::test]
async fn a_route_beats_its_virtual_host() {
    let a = Backend::scripted("a", |_| Some(UNAVAILABLE)).await;
    let routes = routes("payments-routes").host("*");
    let routes = routes
        .exact("/test.Echo/Own", "payments-cluster")
        .route("/", "payments-cluster")
        .edit(|config| {
            let host = &mut config.virtual_hosts[0];
            host.retry_policy = Some(policy(2, "unavailable"));
            if let Some(Action::Route(action)) = &mut host.routes[0].action {
                action.retry_policy = Some(policy(4, "unavailable"));
            }
        });
    let server = ResourceServer::start(&payments(&[&a]).with(routes));
    let channel = channel(&server);
    for (path, attempts) in [("/test.Echo/Own", 4), ("/test.Echo/Other", 2)] {
        let request = Request::new("hello".to_owned());
        let status = send(&channel, path, request).await.unwrap_err();
        let note = format!("after {attempts} attempts; the retry policy allows {attempts}");
        assert_eq!(status.message(), note);
    }
}

/// gRFC A6: a call has five attempts at most, even if the resource asks for more.
#[tokio::test]
async fn a_call_has_five_attempts_at_most() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let a = Backend::scripted("a", move |_| {
        count.fetch_add(1, SeqCst);
        Some(UNAVAILABLE)
    });
    let a = a.await;
    let server = ResourceServer::start(&retrying(&[&a], 9, "unavailable"));
    let status = call(&channel(&server)).await.unwrap_err();
    assert_eq!(
        status.message(),
        "after 5 attempts; the retry policy allows 5"
    );
    assert_eq!(calls.load(SeqCst), 5);
}

/// gRFC A6: a retry is picked anew, so that another backend can take it.
#[tokio::test]
async fn a_retry_goes_to_another_backend() {
    let (a, b) = tokio::join!(
        Backend::scripted("a", |_| Some(UNAVAILABLE)),
        Backend::start("b")
    );
    let server = ResourceServer::start(&retrying(&[&a, &b], 2, "unavailable"));
    let channel = channel(&server);
    // The first call may come before the second connection.
    let _ = call(&channel).await;
    tokio::join!(a.has_open(1), b.has_open(1));
    while call(&channel).await.is_err() {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        assert_eq!(call(&channel).await.unwrap(), "b");
    }
}

/// Backends fail every attempt but the third, with any listed status: no call of many fails.
#[tokio::test]
async fn no_call_fails_if_no_third_attempt_does() {
    const CALLS: usize = 600;
    let codes = [1, 4, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE];
    let script = move |previous| (previous < 2).then(|| fastrand::choice(codes).unwrap());
    let (a, b, c) = tokio::join!(
        Backend::scripted("a", script),
        Backend::scripted("b", script),
        Backend::scripted("c", script),
    );
    let conditions = "cancelled,deadline-exceeded,internal,resource-exhausted,unavailable";
    let server = ResourceServer::start(&retrying(&[&a, &b, &c], 3, conditions));
    let channel = channel(&server);
    let calls: Vec<_> = (0..CALLS).map(|_| start(&channel)).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// gRFC A6: failures of the stream and of the connection are judged by their status codes.
#[tokio::test]
async fn other_failures_have_a_status_too() {
    let mut a = Backend::holding("a").await;
    let conditions = "unavailable,resource-exhausted";
    let server = ResourceServer::start(&retrying(&[&a], 4, conditions));
    let channel = channel(&server);
    let caller = start(&channel);
    let held = a.next_call().await;
    held.reset_with(Reason::ENHANCE_YOUR_CALM);
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), Some(1));
    let page = Response::builder().status(503).body("no backend");
    held.answer_with(&page.unwrap());
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), Some(2));
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

/// gRFC A6: a connection that is lost under a call is UNAVAILABLE, which a policy may list.
#[tokio::test]
async fn a_lost_connection_is_repeated_by_a_policy_alone() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let caller = start(&channel);
    let _held = a.next_call().await;
    a.stop().await;
    let status = caller.await.unwrap().unwrap_err();
    assert!(ConnectionLost::find(&status).is_some(), "{status:?}");

    a.restart();
    server.set(&retrying(&[&a], 2, "unavailable"));
    let caller = tokio::spawn({
        let channel = channel.clone();
        async move {
            loop {
                // Until the policy has arrived.
                match call_when_ready(&channel).await {
                    Err(status) if ConnectionLost::find(&status).is_some() => {}
                    result => return result,
                }
            }
        }
    });
    loop {
        let held = a.next_call().await;
        if held.previous_attempts().is_some() {
            held.answer();
            break;
        }
        a.stop().await;
        a.restart();
    }
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

/// gRFC A6: a stream that is refused again goes to the policy. The transparent retry does not count.
#[tokio::test]
async fn a_second_refusal_is_for_the_policy() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 2, "unavailable"));
    let channel = channel(&server);
    a.refuse(1);
    let caller = start(&channel);
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), None);
    held.refuse();
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), Some(1));
    held.refuse();
    let status = caller.await.unwrap().unwrap_err();
    let message = status.message();
    assert!(message.contains("refused the stream"), "{message}");
    assert!(
        message.contains("(after 2 attempts; the retry policy allows 2)"),
        "{message}"
    );
}

/// gRFC A6: a call is not retried once its response has begun, with any status at its end.
#[tokio::test]
async fn a_response_that_began_is_not_repeated() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let channel = channel(&server);
    let caller = start(&channel);
    a.next_call().await.answer_and_end(UNAVAILABLE);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, ""));

    // The next call is the first one to come.
    let caller = start(&channel);
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), None);
    held.answer();
    caller.await.unwrap().unwrap();
}

/// gRFC A6: a pick that fails is an attempt that failed UNAVAILABLE.
#[tokio::test]
async fn a_failed_pick_follows_the_policy() {
    let dead = Backend::start("dead").await.kill().await;
    let unreachable = endpoints("payments-eds").locality("eu/a", 1, [dead]);
    for (conditions, said) in [("unavailable", true), ("internal", false)] {
        let resources = retrying(&[], 3, conditions).with(unreachable.clone());
        let server = ResourceServer::start(&resources);
        let status = call(&channel(&server)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let note = "(after 3 attempts; the retry policy allows 3)";
        assert_eq!(status.message().contains(note), said, "{status}");
    }
}

/// gRFC A6: the status of a server is retried, even if it is the one of a deadline.
#[tokio::test]
async fn a_deadline_of_the_server_is_a_status_like_any_other() {
    let a = Backend::scripted("a", |previous| (previous == 0).then_some(4)).await;
    let server = ResourceServer::start(&retrying(&[&a], 2, "deadline-exceeded"));
    assert_eq!(call(&channel(&server)).await.unwrap(), "a");
}

/// gRFC A31: a retry stays on the cluster of its call, even if the routes have changed.
#[tokio::test]
async fn a_retry_stays_on_its_cluster() {
    let (mut a, b) = tokio::join!(Backend::holding("a"), Backend::start("b"));
    let server = ResourceServer::start(&retrying(&[&a], 2, "unavailable"));
    let channel = channel(&server);
    let caller = start(&channel);
    let held = a.next_call().await;
    let elsewhere = retrying(&[&a], 2, "unavailable")
        .with(routes("payments-routes").host("*").route("/", "other"))
        .with(cluster("other").eds("other-eds"))
        .with(endpoints("other-eds").locality("eu/a", 1, [b.address]));
    server.set(&elsewhere);
    loop {
        let next = start(&channel);
        tokio::select! {
            // The routes have not changed yet.
            held = a.next_call() => held.answer(),
            answer = next => {
                assert_eq!(answer.unwrap().unwrap(), "b");
                break;
            }
        }
    }
    held.end_in_head(UNAVAILABLE);
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), Some(1));
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

/// A program that hands on the metadata of a call to itself does not hand on its attempts, as in gRPC C-core.
#[tokio::test]
async fn the_attempts_of_another_call_are_not_handed_on() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let caller = tokio::spawn(async move {
        let mut request = Request::new("hello".to_owned());
        let metadata = request.metadata_mut();
        metadata.insert("grpc-previous-rpc-attempts", "7".parse().unwrap());
        send(&channel, PATH, request).await
    });
    let held = a.next_call().await;
    assert_eq!(held.previous_attempts(), None);
    held.answer();
    caller.await.unwrap().unwrap();
}
