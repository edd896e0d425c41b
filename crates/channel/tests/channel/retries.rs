//! Transparent retries (gRFC A6): calls that may be repeated without a policy, and calls that may
//! not.
//!
//! A call that a server may have acted on must not be repeated, because it could act twice.

use crowfly_testkit::ResourceServer;
use tonic::{Code, Request};

use crate::backend::Backend;
use crate::support::{PATH, call, channel, payments, send, spread, spread_until};

/// GOAWAY with an open call: the next call goes elsewhere without an error, and the open one ends.
#[tokio::test]
async fn goaway_moves_new_calls_while_the_open_one_finishes() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let open = tokio::spawn({
        let channel = channel.clone();
        async move { call(&channel).await }
    });
    let held = a.next_call().await;

    let b = Backend::start("b").await;
    server.set(&payments(&[&a, &b]));
    // Not `spread`: every other call is held by `a`.
    while b.connections() == 0 {
        tokio::task::yield_now().await;
    }
    a.go_away();
    let answers = after_goaway(&mut a, &channel).await;
    assert!(answers > 0, "calls go to b");
    held.answer();
    assert_eq!(open.await.unwrap().unwrap(), "a");
}

/// Calls until `a` has said GOAWAY and connected anew; what `a` gets until then, it answers.
async fn after_goaway(a: &mut Backend, channel: &crowfly::Channel) -> usize {
    let mut to_b = 0;
    for _ in 0..20 {
        let calling = call(channel);
        tokio::pin!(calling);
        let answer = loop {
            tokio::select! {
                answer = &mut calling => break answer,
                held = a.next_call() => held.answer(),
            }
        };
        to_b += usize::from(answer.unwrap() == "b");
    }
    to_b
}

/// A backend that drains every connection, again and again, fails no call.
#[tokio::test]
async fn draining_backends_fail_no_call() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let server = ResourceServer::start(&payments(&[&a, &b]));
    let channel = channel(&server);
    spread_until(&channel, 2, |answers| answers.len() == 2).await;
    for _ in 0..10 {
        a.go_away();
        let answers = spread(&channel, 20).await;
        assert_eq!(answers.values().sum::<usize>(), 20);
    }
}

/// A stream that the server refused unseen is tried once more, with the whole request.
#[tokio::test]
async fn a_refused_call_is_tried_once_more() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    a.refuse(1);
    let caller = tokio::spawn(async move {
        let request = Request::new("the whole request".to_owned());
        send(&channel, PATH, request).await
    });
    let mut held = a.next_call().await;
    assert_eq!(held.text().await, "the whole request");
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
}

#[tokio::test]
async fn a_call_refused_twice_fails() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    a.refuse(2);
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("refused the stream"), "{status}");
    assert_eq!(call(&channel).await.unwrap(), "a");
}
