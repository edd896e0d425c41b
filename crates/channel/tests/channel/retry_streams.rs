//! Retries of streaming calls (gRFC A6).
//!
//! The messages of a client stream are sent again from the first one, so the channel keeps them
//! until the response begins.

use std::future::Future;

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use futures_channel::mpsc::{self, UnboundedSender};
use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::backend::{Backend, Held};
use crate::support::{PATH, channel, retrying};

const UNAVAILABLE: i32 = 14;

/// gRFC A6: a stream goes on while its attempts fail. Each attempt has all messages so far.
#[tokio::test]
async fn a_client_stream_is_sent_again_and_goes_on() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let call = StreamingCall::start(&channel(&server));
    call.send("one");
    let mut held = a.next_call().await;
    received(&mut held, &["one"]).await;
    held.end_in_head(UNAVAILABLE);

    let mut held = a.next_call().await;
    received(&mut held, &["one"]).await;
    call.send("two");
    received(&mut held, &["two"]).await;
    held.end_in_head(UNAVAILABLE);

    let mut held = a.next_call().await;
    assert_eq!(held.previous_attempts(), Some(2));
    received(&mut held, &["one", "two"]).await;
    call.send("three");
    received(&mut held, &["three"]).await;
    let response = call.response;
    drop(call.requests);
    assert_eq!(held.next_message().await, None);
    held.answer();
    let mut response = response.await.unwrap().unwrap().into_inner();
    assert_eq!(response.message().await.unwrap().unwrap(), "a");
    assert_eq!(response.message().await.unwrap(), None);
}

/// gRFC A6: the end of the requests is part of what is sent again.
#[tokio::test]
async fn the_end_of_a_stream_is_sent_again() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 2, "unavailable"));
    let StreamingCall { requests, response } = StreamingCall::start(&channel(&server));
    for text in ["one", "two"] {
        requests.unbounded_send(text.to_owned()).unwrap();
    }
    drop(requests);
    for attempt in 1..=2 {
        let mut held = a.next_call().await;
        received(&mut held, &["one", "two"]).await;
        assert_eq!(held.next_message().await, None);
        match attempt {
            1 => held.end_in_head(UNAVAILABLE),
            _ => held.answer(),
        }
    }
    response.await.unwrap().unwrap();
}

/// gRFC A6: a server may answer before it has read all that is sent again.
#[tokio::test]
async fn a_retry_is_answered_before_all_of_it_is_sent() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let call = StreamingCall::start(&channel(&server));
    for text in ["one", "two", "three"] {
        call.send(text);
    }
    let mut held = a.next_call().await;
    received(&mut held, &["one", "two", "three"]).await;
    held.end_in_head(UNAVAILABLE);
    let mut held = a.next_call().await;
    received(&mut held, &["one"]).await;
    // It would be retried, but for the message before it.
    held.answer_and_end(UNAVAILABLE);
    let mut response = call.response.await.unwrap().unwrap().into_inner();
    assert_eq!(response.message().await.unwrap().unwrap(), "a");
    let status = response.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, ""));
}

/// gRFC A6: a stream that outgrows the buffer goes on with the attempt that it has, which is the last one.
#[tokio::test]
async fn a_stream_that_outgrows_the_buffer_goes_on() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
    let channel = builder.retry_buffer_size(30).build().unwrap();
    let call = StreamingCall::start(&channel);
    call.send("one");
    let mut held = a.next_call().await;
    received(&mut held, &["one"]).await;
    held.end_in_head(UNAVAILABLE);

    let mut held = a.next_call().await;
    let long = "x".repeat(100);
    call.send(&long);
    call.send("three");
    received(&mut held, &["one", &long, "three"]).await;
    held.end_in_head(UNAVAILABLE);
    let status = call.response.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let note = "after 2 attempts; the request outgrew the retry buffer";
    assert_eq!(status.message(), note);
}

/// gRFC A6: the headers of a response commit the call, even before its first message. Then not even a refused
/// stream is repeated.
#[tokio::test]
async fn a_stream_whose_response_began_is_not_repeated() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let channel = channel(&server);
    for is_refused in [false, true] {
        let call = StreamingCall::start(&channel);
        let mut held = a.next_call().await;
        assert_eq!(held.previous_attempts(), None);
        let mut responses = held.begin();
        let mut response = call.response.await.unwrap().unwrap().into_inner();
        if is_refused {
            responses.send_reset(h2::Reason::REFUSED_STREAM);
        } else {
            let trailers = [status(UNAVAILABLE)].into_iter().collect();
            responses.send_trailers(trailers).unwrap();
        }
        let status = response.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(!status.message().contains("attempt"), "{status}");
    }
}

/// gRFC A6: a caller that gives up ends the call, also between two attempts.
#[tokio::test]
async fn a_stream_can_be_given_up() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&retrying(&[&a], 3, "unavailable"));
    let call = StreamingCall::start(&channel(&server));
    call.send("one");
    a.next_call().await.end_in_head(UNAVAILABLE);
    let mut held = a.next_call().await;
    call.response.abort();
    assert_eq!(held.reset().await, h2::Reason::CANCEL);
    // The channel takes no more messages.
    while !call.requests.is_closed() {
        tokio::task::yield_now().await;
    }
}

/// A call whose requests and responses are streams.
struct StreamingCall {
    requests: UnboundedSender<String>,
    response: JoinHandle<Result<Response<Streaming<String>>, Status>>,
}

impl StreamingCall {
    fn start(channel: &Channel) -> Self {
        let (requests, stream) = mpsc::unbounded();
        Self {
            requests,
            response: tokio::spawn(streaming(channel, stream)),
        }
    }

    fn send(&self, text: &str) {
        self.requests.unbounded_send(text.to_owned()).unwrap();
    }
}

fn streaming(
    channel: &Channel,
    requests: mpsc::UnboundedReceiver<String>,
) -> impl Future<Output = Result<Response<Streaming<String>>, Status>> + use<> {
    let mut grpc = Grpc::new(channel.clone());
    async move {
        let codec = ProstCodec::<String, String>::default();
        let request = Request::new(requests);
        grpc.streaming(request, PATH.parse().unwrap(), codec).await
    }
}

/// Checks the next messages of a call.
async fn received(held: &mut Held, messages: &[&str]) {
    for message in messages {
        assert_eq!(held.next_message().await.as_deref(), Some(*message));
    }
}

fn status(code: i32) -> (http::HeaderName, http::HeaderValue) {
    (http::HeaderName::from_static("grpc-status"), code.into())
}
