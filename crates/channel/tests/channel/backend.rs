//! A gRPC backend that does what a test tells it to, down to the HTTP/2 frame.
//!
//! An ordinary server cannot refuse a stream, send GOAWAY or leave out a status at a chosen moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use crowfly_testkit::Reserved;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The path of health checks (gRFC A17).
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Answers every unary call with its own name.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    calls: mpsc::UnboundedReceiver<Held>,
    watches: mpsc::UnboundedReceiver<Held>,
    server: tokio::task::JoinHandle<()>,
    port: Reserved,
}

struct Shared {
    name: String,
    holds: bool,
    script: Option<Script>,
    held: mpsc::UnboundedSender<Held>,
    /// Takes the calls of [`WATCH`], which no backend answers by itself.
    watched: mpsc::UnboundedSender<Held>,
    /// The number of next calls to refuse.
    refusals: AtomicUsize,
    connections: AtomicUsize,
    open: watch::Sender<usize>,
    go_away: watch::Sender<()>,
    cut: watch::Sender<()>,
    /// The number of calls that a connection has before GOAWAY is sent on it.
    calls_each: AtomicUsize,
    /// The number of calls that a connection may have open.
    at_once: u32,
    drain: watch::Sender<()>,
}

/// The status in the head of the response to a call, by the number of attempts before it; `None` if the
/// call is answered.
type Script = Box<dyn Fn(u32) -> Option<i32> + Send + Sync>;

impl Backend {
    /// A backend that answers at once.
    pub(crate) async fn start(name: &str) -> Self {
        Self::new(name, false, None, u32::MAX).await
    }

    /// A backend that answers at once, or fails at once if the script says so. The script is told the
    /// `grpc-previous-rpc-attempts` of each call, 0 if there are none.
    pub(crate) async fn scripted(
        name: &str,
        script: impl Fn(u32) -> Option<i32> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, false, Some(Box::new(script)), u32::MAX).await
    }

    /// A backend whose calls wait for the test: see [`next_call`](Self::next_call).
    pub(crate) async fn holding(name: &str) -> Self {
        Self::new(name, true, None, u32::MAX).await
    }

    /// A backend whose calls wait for the test, with a MAX_CONCURRENT_STREAMS of 1.
    pub(crate) async fn holding_one(name: &str) -> Self {
        Self::new(name, true, None, 1).await
    }

    /// The next call that came, unanswered.
    pub(crate) async fn next_call(&mut self) -> Held {
        self.calls.recv().await.unwrap()
    }

    /// The next health check that came, unanswered.
    pub(crate) async fn next_watch(&mut self) -> Held {
        let next = tokio::time::timeout(PATIENCE, self.watches.recv()).await;
        next.expect("the client asks for health").unwrap()
    }

    /// The number of health checks that came and that the test has not taken.
    pub(crate) fn unseen_watches(&self) -> usize {
        self.watches.len()
    }

    /// Sends GOAWAY on every connection; open calls go on.
    pub(crate) fn go_away(&self) {
        self.shared.go_away.send_replace(());
    }

    /// Cuts every connection, and goes on listening.
    pub(crate) fn cut(&self) {
        self.shared.cut.send_replace(());
    }

    /// Sends GOAWAY on every connection after so many calls.
    pub(crate) fn go_away_after(&self, calls: usize) {
        self.shared.calls_each.store(calls, Ordering::SeqCst);
    }

    /// Refuses the next `count` calls with REFUSED_STREAM.
    pub(crate) fn refuse(&self, count: usize) {
        self.shared.refusals.store(count, Ordering::SeqCst);
    }

    /// The number of calls that are still to be refused.
    pub(crate) fn refusals_left(&self) -> usize {
        self.shared.refusals.load(Ordering::SeqCst)
    }

    /// The number of connections that were made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits until this many connections are open.
    pub(crate) async fn has_open(&self, count: usize) {
        let mut open = self.shared.open.subscribe();
        let reached = open.wait_for(|open| *open == count);
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        reached.expect("connections open or close").unwrap();
    }

    /// Cuts every connection at once. No server will listen at its address any more.
    pub(crate) async fn kill(mut self) -> SocketAddr {
        self.stop().await;
        self.port.refusing()
    }

    /// Cuts every connection at once, and listens no more. It may come back.
    pub(crate) async fn stop(&mut self) {
        self.server.abort();
        self.ended().await;
    }

    /// Listens no more, and sends its clients away; no call is lost. It may come back.
    pub(crate) async fn drain(&mut self) {
        self.shared.drain.send_replace(());
        self.ended().await;
    }

    async fn ended(&mut self) {
        let ended = tokio::time::timeout(PATIENCE, &mut self.server).await;
        // An error is that it was aborted.
        let _ = ended.expect("the server ends");
    }

    /// Comes back.
    pub(crate) fn restart(&mut self) {
        assert!(self.server.is_finished(), "it was stopped");
        self.server = tokio::spawn(accept(self.port.listen(), Arc::clone(&self.shared)));
    }

    async fn new(name: &str, holds: bool, script: Option<Script>, at_once: u32) -> Self {
        let port = Reserved::new();
        let (held, calls) = mpsc::unbounded_channel();
        let (watched, watches) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            holds,
            script,
            held,
            watched,
            refusals: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            open: watch::Sender::new(0),
            go_away: watch::Sender::new(()),
            cut: watch::Sender::new(()),
            calls_each: AtomicUsize::new(usize::MAX),
            at_once,
            drain: watch::Sender::new(()),
        });
        let server = tokio::spawn(accept(port.listen(), Arc::clone(&shared)));
        Self {
            address: port.address,
            shared,
            calls,
            watches,
            server,
            port,
        }
    }
}

/// A call that the backend has and has not answered.
pub(crate) struct Held {
    pub(crate) request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    name: String,
    /// The part of the request that came and was not read.
    unread: BytesMut,
}

impl Held {
    /// Answers it.
    pub(crate) fn answer(self) {
        self.answer_and_end(0);
    }

    /// Answers with a message, and then with this status in the trailers.
    pub(crate) fn answer_and_end(mut self, status: i32) {
        let mut body = self.begin();
        body.send_data(message(&self.name), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.into());
        body.send_trailers(trailers).unwrap();
    }

    /// Answers with this status in the head of a response that has nothing else (Trailers-Only).
    pub(crate) fn end_in_head(self, status: i32) {
        self.end_in_head_with(status, &[]);
    }

    /// Does so with more fields in the head.
    pub(crate) fn end_in_head_with(mut self, status: i32, fields: &[(&str, &str)]) {
        let mut response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let response = response.body(()).unwrap();
        self.respond.send_response(response, true).unwrap();
    }

    /// Answers with a message and no status at all.
    pub(crate) fn answer_without_status(mut self) {
        let message = message(&self.name);
        self.begin().send_data(message, true).unwrap();
    }

    /// Refuses it as if it had not been seen.
    pub(crate) fn refuse(self) {
        self.reset_with(Reason::REFUSED_STREAM);
    }

    /// Resets it.
    pub(crate) fn reset_with(mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }

    /// Answers with something that is not gRPC.
    pub(crate) fn answer_with(mut self, response: &Response<&'static str>) {
        let mut head = Response::new(());
        *head.status_mut() = response.status();
        *head.headers_mut() = response.headers().clone();
        let mut body = self.respond.send_response(head, false).unwrap();
        body.send_data(Bytes::from_static(response.body().as_bytes()), true)
            .unwrap();
    }

    /// Sends the head of the response only; the rest never comes.
    pub(crate) fn begin(&mut self) -> h2::SendStream<Bytes> {
        let response = Response::builder().header("content-type", "application/grpc");
        self.respond
            .send_response(response.body(()).unwrap(), false)
            .unwrap()
    }

    /// The number of attempts before this one, as the client says; `None` if it says nothing.
    pub(crate) fn previous_attempts(&self) -> Option<u32> {
        let value = self.request.headers().get("grpc-previous-rpc-attempts")?;
        Some(value.to_str().unwrap().parse().unwrap())
    }

    /// The next message of the request; `None` at its end.
    pub(crate) async fn next_message(&mut self) -> Option<String> {
        const PREFIX: usize = 5;
        loop {
            if let Some(length) = self.unread.get(1..PREFIX) {
                let length = u32::from_be_bytes(length.try_into().unwrap());
                let end = PREFIX + usize::try_from(length).unwrap();
                if self.unread.len() >= end {
                    let message = self.unread.split_to(end);
                    return Some(String::decode(&message[PREFIX..]).unwrap());
                }
            }
            let body = self.request.body_mut();
            let data = body.data().await?.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            self.unread.extend_from_slice(&data);
        }
    }

    /// The text of the request.
    pub(crate) async fn text(&mut self) -> String {
        let body = self.request.body_mut();
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            bytes.extend_from_slice(&data);
        }
        String::decode(&bytes[5..]).unwrap()
    }

    /// Waits for the client to reset the call.
    pub(crate) async fn reset(&mut self) -> Reason {
        std::future::poll_fn(|cx| self.respond.poll_reset(cx))
            .await
            .unwrap()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut drained = shared.drain.subscribe();
    loop {
        tokio::select! {
            Ok((tcp, _)) = listener.accept() => {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(tcp, Arc::clone(&shared)));
            }
            _ = drained.changed() => break,
        }
    }
    drop(listener);
    shared.go_away.send_replace(());
    connections.join_all().await;
}

async fn serve(tcp: TcpStream, shared: Arc<Shared>) {
    let _open = Open::new(&shared.open);
    let mut told = shared.go_away.subscribe();
    let mut cut = shared.cut.subscribe();
    let mut settings = server::Builder::new();
    settings.max_concurrent_streams(shared.at_once);
    let Ok(mut connection) = settings.handshake(tcp).await else {
        return;
    };
    let mut calls = 0;
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else { return };
                shared.take(request, respond);
                calls += 1;
                if calls == shared.calls_each.load(Ordering::SeqCst) {
                    connection.graceful_shutdown();
                }
            }
            Ok(()) = told.changed() => connection.graceful_shutdown(),
            Ok(()) = cut.changed() => return,
        }
    }
}

/// A connection that is open, for as long as this lives.
struct Open<'a>(&'a watch::Sender<usize>);

impl<'a> Open<'a> {
    fn new(open: &'a watch::Sender<usize>) -> Self {
        open.send_modify(|count| *count += 1);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Shared {
    fn take(&self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let refuse = self
            .refusals
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if refuse.is_ok() {
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        }
        // A client that has given the call up by now wants no answer.
        let mut unwatched = Context::from_waker(Waker::noop());
        if !self.holds && respond.poll_reset(&mut unwatched).is_ready() {
            return;
        }
        let call = Held {
            request,
            respond,
            name: self.name.clone(),
            unread: BytesMut::new(),
        };
        if call.request.uri().path() == WATCH {
            let _ = self.watched.send(call);
            return;
        }
        if self.holds {
            let _ = self.held.send(call);
            return;
        }
        let script = self.script.as_ref();
        match script.and_then(|script| script(call.previous_attempts().unwrap_or(0))) {
            Some(status) => call.end_in_head(status),
            None => call.answer(),
        }
    }
}

fn message(text: &str) -> Bytes {
    framed(&text.to_owned().encode_to_vec())
}

/// A message as gRPC frames it.
pub(crate) fn framed(encoded: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(encoded.len()).unwrap());
    framed.put_slice(encoded);
    framed.freeze()
}

/// The port of a killed backend stays taken. Otherwise the kernel could give it to a backend of
/// another test, which would answer for the killed one.
#[tokio::test]
async fn the_port_of_a_killed_backend_is_given_to_nobody() {
    let dead = Backend::start("dead").await.kill().await;
    let taken = tokio::net::TcpSocket::new_v4().unwrap().bind(dead);
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}
