//! A gRPC backend that does what a test tells it to, down to the HTTP/2 frame.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Answers every unary call with its own name.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    calls: mpsc::UnboundedReceiver<Held>,
    server: tokio::task::JoinHandle<()>,
}

struct Shared {
    name: String,
    holds: bool,
    held: mpsc::UnboundedSender<Held>,
    /// How many of the next calls to refuse.
    refusals: AtomicUsize,
    connections: AtomicUsize,
    go_away: watch::Sender<()>,
}

impl Backend {
    /// A backend that answers at once.
    pub(crate) async fn start(name: &str) -> Self {
        Self::new(name, false).await
    }

    /// A backend whose calls wait for the test: see [`next_call`](Self::next_call).
    pub(crate) async fn holding(name: &str) -> Self {
        Self::new(name, true).await
    }

    /// The next call that came, unanswered.
    pub(crate) async fn next_call(&mut self) -> Held {
        self.calls.recv().await.unwrap()
    }

    /// Sends GOAWAY on every connection; open calls go on.
    pub(crate) fn go_away(&self) {
        self.shared.go_away.send_replace(());
    }

    /// Refuses the next `count` calls with REFUSED_STREAM.
    pub(crate) fn refuse(&self, count: usize) {
        self.shared.refusals.store(count, Ordering::SeqCst);
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Cuts every connection at once, and listens no more.
    pub(crate) async fn kill(self) -> SocketAddr {
        self.server.abort();
        let _ = self.server.await;
        self.address
    }

    async fn new(name: &str, holds: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (held, calls) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            holds,
            held,
            refusals: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            go_away: watch::Sender::new(()),
        });
        let server = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            calls,
            server,
        }
    }
}

/// A call that the backend has and has not answered.
pub(crate) struct Held {
    pub(crate) request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    name: String,
}

impl Held {
    /// Answers it.
    pub(crate) fn answer(mut self) {
        let response = Response::builder().header("content-type", "application/grpc");
        let mut body = self
            .respond
            .send_response(response.body(()).unwrap(), false)
            .unwrap();
        body.send_data(message(&self.name), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        body.send_trailers(trailers).unwrap();
    }

    /// Sends the head of the response only; the rest never comes.
    pub(crate) fn begin(&mut self) -> h2::SendStream<Bytes> {
        let response = Response::builder().header("content-type", "application/grpc");
        self.respond
            .send_response(response.body(()).unwrap(), false)
            .unwrap()
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
    while let Ok((tcp, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(serve(tcp, Arc::clone(&shared)));
    }
}

async fn serve(tcp: TcpStream, shared: Arc<Shared>) {
    let mut told = shared.go_away.subscribe();
    let Ok(mut connection) = server::handshake(tcp).await else {
        return;
    };
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else { return };
                shared.take(request, respond);
            }
            Ok(()) = told.changed() => connection.graceful_shutdown(),
        }
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
        let call = Held {
            request,
            respond,
            name: self.name.clone(),
        };
        if self.holds {
            let _ = self.held.send(call);
        } else {
            call.answer();
        }
    }
}

fn message(text: &str) -> Bytes {
    let encoded = text.to_owned().encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(encoded.len()).unwrap());
    framed.put_slice(&encoded);
    framed.freeze()
}
