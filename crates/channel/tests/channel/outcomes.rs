//! Every way in which an attempt ends, as a policy hears it.
//!
//! Retries, load reports and outlier detection act on the outcome, so there must be one for each
//! attempt.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use crowfly::policy::{
    CallContext, CallOutcome, CustomPolicy, Endpoint, PolicyRegistry, ReadySet, Selection, Selector,
};
use crowfly::{Channel, ConnectionLost};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, custom_policy};
use futures_util::stream::once;
use h2::Reason;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::backend::Backend;
use crate::support::{PATH, apart, call, call_within, payments, policy, retrying_routes};

const SHORT: Duration = Duration::from_millis(200);

/// gRPC's HTTP/2 protocol, Trailers-Only: the status counts, although tonic does not read the body
/// of such a response.
#[tokio::test]
async fn a_status_in_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call();
    a.next_call().await.end_in_head(7);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(heard.outcomes().await, [CallOutcome::Status(7)]);
}

#[tokio::test]
async fn a_status_in_the_trailers() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    for status in [0, 5] {
        let caller = heard.call();
        a.next_call().await.answer_and_end(status);
        assert_eq!(caller.await.unwrap().is_ok(), status == 0);
    }
    let expected = [CallOutcome::OK, CallOutcome::Status(5)];
    assert_eq!(heard.outcomes().await, expected);
}

/// gRPC's HTTP/2 protocol: a response that just ends has the status UNKNOWN.
#[tokio::test]
async fn no_status_at_all() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call();
    a.next_call().await.answer_without_status();
    // Tonic decides what the caller sees of it.
    let _ = caller.await.unwrap();
    let unknown = CallOutcome::Status(Code::Unknown.into());
    assert_eq!(heard.outcomes().await, [unknown]);
}

#[tokio::test]
async fn an_answer_that_is_not_grpc() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call();
    let page = Response::builder().status(503).body("no backend");
    a.next_call().await.answer_with(&page.unwrap());
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let unavailable = CallOutcome::Status(Code::Unavailable.into());
    assert_eq!(heard.outcomes().await, [unavailable]);
}

/// gRPC's HTTP/2 protocol: the code of RST_STREAM stands for a status.
#[tokio::test]
async fn a_reset_by_the_server() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call();
    let held = a.next_call().await;
    held.reset_with(Reason::ENHANCE_YOUR_CALM);
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let exhausted = CallOutcome::Status(Code::ResourceExhausted.into());
    assert_eq!(heard.outcomes().await, [exhausted]);
}

#[tokio::test]
async fn the_deadline_before_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call_within(SHORT);
    let _held = a.next_call().await;
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(heard.outcomes().await, [CallOutcome::DeadlineExceeded]);
}

#[tokio::test]
async fn the_deadline_after_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call_within(SHORT);
    let mut held = a.next_call().await;
    let _unfinished = held.begin();
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(heard.outcomes().await, [CallOutcome::DeadlineExceeded]);
}

#[tokio::test]
async fn a_connection_lost_before_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call();
    let _held = a.next_call().await;
    a.kill().await;
    let status = caller.await.unwrap().unwrap_err();
    assert!(ConnectionLost::find(&status).is_some(), "{status:?}");
    assert_eq!(heard.outcomes().await, [CallOutcome::ConnectionLost]);
}

#[tokio::test]
async fn a_connection_lost_after_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let reading = tokio::spawn(responses(&heard.channel));
    let mut held = a.next_call().await;
    let _unfinished = held.begin();
    let mut response = reading.await.unwrap().unwrap();
    a.kill().await;
    let status = response.message().await.unwrap_err();
    assert!(ConnectionLost::find(&status).is_some(), "{status:?}");
    assert_eq!(heard.outcomes().await, [CallOutcome::ConnectionLost]);
}

/// gRFC A6: a call of which no byte was written when its connection ended goes elsewhere. Each attempt
/// has its own outcome: the connection may be picked again until the balancer knows that it is gone.
#[tokio::test]
async fn a_connection_lost_before_a_byte_was_written() {
    let (mut a, b) = tokio::join!(Backend::holding_one("a"), Backend::start("b"));
    let heard = Heard::start(&[&a]);
    let written = heard.call();
    let _held = a.next_call().await;
    let unwritten = heard.call();
    while !heard.channel.tree().await.contains("1 waiting") {
        tokio::task::yield_now().await;
    }
    heard.server.set(&heard_by(&[&a, &b]));
    b.has_open(1).await;
    a.stop().await;
    let lost = written.await.unwrap().unwrap_err();
    assert!(ConnectionLost::find(&lost).is_some(), "{lost:?}");
    assert_eq!(unwritten.await.unwrap().unwrap(), "b");

    let mut outcomes = heard.outcomes().await;
    outcomes.sort_by_key(|outcome| format!("{outcome:?}"));
    let never_sent = outcomes.iter();
    let never_sent = never_sent.filter(|outcome| **outcome == CallOutcome::NeverSent);
    assert!(never_sent.count() > 0, "{outcomes:?}");
    outcomes.dedup_by(|one, other| *one == CallOutcome::NeverSent && one == other);
    let expected = [
        CallOutcome::ConnectionLost,
        CallOutcome::NeverSent,
        CallOutcome::OK,
    ];
    assert_eq!(outcomes, expected);
}

/// gRFC A6: a refused call is tried once more, and both attempts are heard.
#[tokio::test]
async fn a_refused_stream() {
    let a = Backend::start("a").await;
    let heard = Heard::start(&[&a]);
    a.refuse(1);
    assert_eq!(heard.call().await.unwrap().unwrap(), "a");
    a.refuse(2);
    heard.call().await.unwrap().unwrap_err();
    let [refused, ok] = [CallOutcome::Refused, CallOutcome::OK];
    assert_eq!(heard.outcomes().await, [refused, ok, refused, refused]);
}

/// gRFC A6: each attempt that a retry policy makes has its own outcome.
#[tokio::test]
async fn attempts_by_a_retry_policy() {
    let mut a = Backend::holding("a").await;
    let routes = retrying_routes(policy(3, "unavailable,internal"));
    let heard = Heard::with(&heard_by(&[&a]).with(routes));
    let caller = heard.call();
    a.next_call().await.end_in_head(14);
    a.next_call().await.end_in_head(13);
    a.next_call().await.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
    let [unavailable, internal] = [14, 13].map(CallOutcome::Status);
    assert_eq!(
        heard.outcomes().await,
        [unavailable, internal, CallOutcome::OK]
    );
}

/// gRFC A6: a caller that gives up between two attempts leaves nothing behind.
#[tokio::test]
async fn a_caller_that_gives_up_between_attempts() {
    let mut a = Backend::holding("a").await;
    let slow = apart(policy(3, "unavailable"), Duration::from_secs(3600));
    let heard = Heard::with(&heard_by(&[&a]).with(retrying_routes(slow)));
    let caller = heard.call();
    let mut held = a.next_call().await;
    let _text = held.text().await;
    held.end_in_head(14);
    // The attempt is over when its connection has no stream.
    while heard.channel.tree().await.contains("in flight") {
        tokio::task::yield_now().await;
    }
    caller.abort();
    assert_eq!(heard.outcomes().await, [CallOutcome::Status(14)]);
}

#[tokio::test]
async fn a_caller_that_gives_up_before_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let caller = heard.call();
    let mut held = a.next_call().await;
    caller.abort();
    assert_eq!(held.reset().await, Reason::CANCEL);
    assert_eq!(heard.outcomes().await, [CallOutcome::Cancelled]);
}

#[tokio::test]
async fn a_caller_that_gives_up_after_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let reading = tokio::spawn(responses(&heard.channel));
    let mut held = a.next_call().await;
    let mut unfinished = held.begin();
    drop(reading.await.unwrap().unwrap());
    let reset = poll_fn(|cx| unfinished.poll_reset(cx)).await;
    assert_eq!(reset.unwrap(), Reason::CANCEL);
    assert_eq!(heard.outcomes().await, [CallOutcome::Cancelled]);
}

/// The status is in the trailers, which a caller that drops the body never reads.
#[tokio::test]
async fn a_response_that_is_not_read_to_its_end() {
    let a = Backend::start("a").await;
    let heard = Heard::start(&[&a]);
    let mut response = responses(&heard.channel).await.unwrap();
    assert_eq!(response.message().await.unwrap().unwrap(), "a");
    drop(response);
    assert_eq!(heard.outcomes().await, [CallOutcome::Cancelled]);
}

/// The limit is that of tonic's codec, above the channel: it drops the response, and no status is read.
#[tokio::test]
async fn a_message_over_the_limit() {
    let a = Backend::start("a long name").await;
    let heard = Heard::start(&[&a]);
    let mut grpc = Grpc::new(heard.channel.clone()).max_decoding_message_size(4);
    let codec = ProstCodec::<String, String>::default();
    let request = Request::new("hello".to_owned());
    let response = grpc.unary(request, PATH.parse().unwrap(), codec).await;
    assert_eq!(response.unwrap_err().code(), Code::OutOfRange);
    drop(grpc);
    assert_eq!(heard.outcomes().await, [CallOutcome::Cancelled]);
}

#[tokio::test]
async fn a_request_body_that_fails_before_the_head() {
    let a = Backend::start("a").await;
    let heard = Heard::start(&[&a]);
    let (fail, failing) = failing_body();
    fail.send(()).unwrap();
    let mut channel = heard.channel.clone();
    let status = channel.call(request(failing)).await.unwrap_err();
    assert_eq!(status.message(), "no more input");
    drop(channel);
    assert_eq!(heard.outcomes().await, [CallOutcome::Cancelled]);
}

#[tokio::test]
async fn a_request_body_that_fails_after_the_head() {
    let mut a = Backend::holding("a").await;
    let heard = Heard::start(&[&a]);
    let (fail, failing) = failing_body();
    let mut channel = heard.channel.clone();
    let calling = tokio::spawn(channel.call(request(failing)));
    let mut held = a.next_call().await;
    let _unfinished = held.begin();
    let response = calling.await.unwrap().unwrap();
    fail.send(()).unwrap();
    let status = response.into_body().collect().await.unwrap_err();
    assert_eq!(status.message(), "no more input");
    drop(channel);
    assert_eq!(heard.outcomes().await, [CallOutcome::Cancelled]);
}

/// RFC 9113, section 8.2.2: no other endpoint could take such a request, so it is not repeated.
#[tokio::test]
async fn a_request_that_http2_cannot_carry() {
    let a = Backend::start("a").await;
    let heard = Heard::start(&[&a]);
    let mut request = request(Body::empty());
    let connection = request.headers_mut();
    connection.insert("connection", "close".parse().unwrap());
    let mut channel = heard.channel.clone();
    let status = channel.call(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    drop(channel);
    assert_eq!(heard.outcomes().await, [CallOutcome::Invalid]);
}

/// A channel whose policy writes down how attempts end.
struct Heard {
    channel: Channel,
    server: ResourceServer,
    picks: Arc<AtomicUsize>,
    outcomes: mpsc::UnboundedReceiver<CallOutcome>,
}

impl Heard {
    fn start(backends: &[&Backend]) -> Self {
        Self::with(&heard_by(backends))
    }

    fn with(resources: &Resources) -> Self {
        let server = ResourceServer::start(resources);
        let (told, outcomes) = mpsc::unbounded_channel();
        let picks = Arc::<AtomicUsize>::default();
        let policy = Hears {
            picks: Arc::clone(&picks),
            told,
        };
        let read = move |_: &serde_json::Value| Ok::<_, Infallible>(policy.clone());
        let registry = PolicyRegistry::new().with("test.Hears", read);
        let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
        Self {
            channel: builder.policies(&registry).build().unwrap(),
            server,
            picks,
            outcomes,
        }
    }

    /// Calls in the background.
    fn call(&self) -> JoinHandle<Result<String, Status>> {
        let channel = self.channel.clone();
        tokio::spawn(async move { call(&channel).await })
    }

    fn call_within(&self, timeout: Duration) -> JoinHandle<Result<String, Status>> {
        let channel = self.channel.clone();
        tokio::spawn(async move { call_within(&channel, timeout).await })
    }

    /// All outcomes, one for each pick. The channel is closed first, so that no more can come.
    async fn outcomes(mut self) -> Vec<CallOutcome> {
        drop(self.channel);
        let mut outcomes = Vec::new();
        let all = async {
            while let Some(outcome) = self.outcomes.recv().await {
                outcomes.push(outcome);
            }
        };
        let all = tokio::time::timeout(Duration::from_secs(60), all).await;
        all.expect("the channel ends");
        assert_eq!(self.picks.load(SeqCst), outcomes.len(), "{outcomes:?}");
        outcomes
    }
}

/// Sends every call to the first endpoint that is READY.
#[derive(Clone, Debug)]
struct Hears {
    picks: Arc<AtomicUsize>,
    told: mpsc::UnboundedSender<CallOutcome>,
}

impl CustomPolicy for Hears {
    fn name(&self) -> &str {
        "test.Hears"
    }

    fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
        Arc::new(self.clone())
    }
}

impl Selector for Hears {
    fn pick<'a>(&self, _: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let Some(first) = ready.get(0) else {
            return Selection::Queue;
        };
        self.picks.fetch_add(1, SeqCst);
        Selection::Send(first)
    }

    fn finished(&self, _: usize, outcome: CallOutcome) {
        self.told.send(outcome).expect("the test listens");
    }
}

fn heard_by(backends: &[&Backend]) -> Resources {
    let cluster = cluster("payments-cluster").eds("payments-eds");
    payments(backends).with(cluster.policies([custom_policy("test.Hears", &json!({}))]))
}

/// Calls, and has the response message by message.
fn responses(channel: &Channel) -> impl Future<Output = Result<Streaming<String>, Status>> + use<> {
    let mut grpc = Grpc::new(channel.clone());
    async move {
        let codec = ProstCodec::<String, String>::default();
        let request = Request::new("hello".to_owned());
        let response = grpc.server_streaming(request, PATH.parse().unwrap(), codec);
        Ok(response.await?.into_inner())
    }
}

fn request(body: Body) -> http::Request<Body> {
    let request = http::Request::post(PATH).header("content-type", "application/grpc");
    request.body(body).unwrap()
}

/// A body that has nothing to send, and fails when it is told to.
fn failing_body() -> (oneshot::Sender<()>, Body) {
    let (fail, failing) = oneshot::channel();
    let frame = async move {
        // The body fails at a message, or when the sender is dropped.
        let _ = failing.await;
        Err::<Frame<Bytes>, _>(Status::aborted("no more input"))
    };
    (fail, Body::new(StreamBody::new(once(frame))))
}
