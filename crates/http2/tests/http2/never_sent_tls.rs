//! Tests of calls on a TLS connection that broke, at every byte of the TLS records.
//!
//! TLS may pass on any part of a write that fails. A call counts as never sent (gRFC A6), and is
//! repeated without limit, only if the server has seen nothing of it.

use std::io::Read;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use crowfly_http2::{Client, Config, ConnectionTask, Error, StreamError};
use rcgen::generate_simple_self_signed;
use rustls_pki_types::PrivateKeyDer;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};

use crate::frames::{self, Frame, HEADERS};
use crate::raw::{Call, PREFACE, post};
use crate::wire::{Flag, Wire};

const CALLS: usize = 4;

/// How a connection comes to its end, and what it carries until then.
#[derive(Clone, Copy)]
struct Case {
    /// True if TLS holds back the first call before the socket takes anything again.
    is_held_back: bool,
    /// The length of the body of each request.
    body: usize,
    /// The distance of the places where the connection breaks.
    step: usize,
}

/// A6: with records of any size, and with TLS that already holds something.
#[test]
fn calls_that_the_server_saw_over_tls_never_count_as_never_sent() {
    let keys = Keys::new();
    let mut outcomes = Outcomes::default();
    for max_fragment in [None, Some(64)] {
        for is_held_back in [false, true] {
            let small = Case {
                is_held_back,
                body: 30,
                step: 1,
            };
            let large = Case {
                body: 20_000,
                step: 1_013,
                ..small
            };
            for case in [small, large] {
                break_everywhere(&keys, max_fragment, case, &mut outcomes);
            }
        }
    }
    assert!(outcomes.never_sent > 1_000, "hardly a call is repeated");
    assert!(outcomes.seen > 1_000, "hardly a call arrives");
}

#[derive(Default)]
struct Outcomes {
    never_sent: usize,
    seen: usize,
}

/// Breaks one connection after another, each a little later, until all calls have arrived.
fn break_everywhere(keys: &Keys, max_fragment: Option<usize>, case: Case, outcomes: &mut Outcomes) {
    for room in (0..).step_by(case.step) {
        let mut pair = Pair::connected(keys, max_fragment);
        let mut calls = pair.break_after(room, case);
        let seen = pair.streams_seen();
        for (number, call) in calls.iter_mut().enumerate() {
            let is_seen = seen.contains(&(2 * number as u32 + 1));
            let is_never_sent = matches!(call.poll(), Poll::Ready(Err(StreamError::NeverSent(_))));
            assert!(!(is_seen && is_never_sent), "call {number} at byte {room}");
            outcomes.seen += usize::from(is_seen);
            outcomes.never_sent += usize::from(is_never_sent);
        }
        if seen.len() == CALLS && pair.has_room() {
            return;
        }
    }
}

/// A client, and a server that only listens.
struct Pair {
    wire: Wire,
    client: Client,
    driver: Pin<Box<dyn Future<Output = Result<(), Error>>>>,
    task: Flag,
    server: ServerConnection,
    /// The bytes from the wire that the server has taken.
    taken: usize,
    plain: Vec<u8>,
}

impl Pair {
    fn connected(keys: &Keys, max_fragment: Option<usize>) -> Self {
        let wire = Wire::default();
        let mut config = ClientConfig::clone(&keys.client);
        config.max_fragment_size = max_fragment;
        let mut server = ServerConnection::new(keys.server.clone()).unwrap();
        let mut taken = 0;
        let name = "host".try_into().unwrap();
        let mut handshake = pin!(TlsConnector::from(Arc::new(config)).connect(name, wire.clone()));
        let stream = loop {
            let polled = crate::raw::now(|cx| handshake.as_mut().poll(cx));
            serve(&wire, &mut server, &mut taken);
            if let Poll::Ready(stream) = polled {
                break stream.unwrap();
            }
        };
        let (client, connection) = ConnectionTask::new(stream, Config::default(), |_| {});
        let mut pair = Self {
            wire,
            client,
            driver: Box::pin(connection),
            task: Flag::new(),
            server,
            taken,
            plain: Vec::new(),
        };
        pair.run();
        std::io::Write::write_all(&mut pair.server.writer(), &frames::settings(&[])).unwrap();
        pair.listen();
        pair.run();
        pair.listen();
        pair
    }

    /// Polls the connection for as long as something wakes it.
    fn run(&mut self) {
        let waker = self.task.waker();
        while self.task.take() {
            let mut cx = Context::from_waker(&waker);
            if self.driver.as_mut().poll(&mut cx).is_ready() {
                self.driver = Box::pin(std::future::pending());
            }
        }
    }

    /// The server takes what came.
    fn listen(&mut self) {
        let plain = serve(&self.wire, &mut self.server, &mut self.taken);
        self.plain.extend(plain);
    }

    /// The socket takes this many bytes of some calls, and then fails.
    fn break_after(&mut self, room: usize, case: Case) -> Vec<Call> {
        self.wire.lock().room = if case.is_held_back { 0 } else { room };
        self.wire.lock().is_broken = !case.is_held_back;
        let mut calls = vec![self.call(case.body)];
        if case.is_held_back {
            self.run();
        }
        calls.extend((1..CALLS).map(|_| self.call(case.body)));
        self.run();
        self.wire
            .change(|ends| (ends.room, ends.is_broken) = (room, true));
        self.run();
        self.listen();
        calls
    }

    fn call(&self, body: usize) -> Call {
        let (response, mut request) = self.client.open(&post(), false).unwrap();
        // The connection may be over already.
        let _ = request.send_data(Bytes::from(vec![7; body]), true);
        Call { response, request }
    }

    /// The streams of which the server has seen anything.
    fn streams_seen(&self) -> Vec<u32> {
        let mut rest = &self.plain[PREFACE.len()..];
        let mut seen = Vec::new();
        while let Some(head) = rest.first_chunk::<9>() {
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if head[3] == HEADERS {
                seen.push(stream);
            }
            match Frame::parse(rest) {
                Some((_, len)) => rest = &rest[len..],
                None => break,
            }
        }
        seen
    }

    /// True if all was written before the socket would have failed.
    fn has_room(&self) -> bool {
        self.wire.lock().room > 0
    }
}

/// One exchange between TLS of the server and the wire; what the server has read.
fn serve(wire: &Wire, server: &mut ServerConnection, taken: &mut usize) -> Vec<u8> {
    let mut plain = Vec::new();
    let output = wire.lock().output[*taken..].to_vec();
    let mut rest = &output[..];
    while !rest.is_empty() {
        let len = server.read_tls(&mut rest).unwrap();
        server.process_new_packets().unwrap();
        assert!(len > 0);
        // The end of the connection is not the end of TLS: that there is no more is no error.
        let _ = server.reader().read_to_end(&mut plain);
    }
    *taken += output.len();
    let mut answer = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut answer).unwrap();
    }
    wire.change(|ends| ends.input.extend(answer));
    plain
}

struct Keys {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Keys {
    fn new() -> Self {
        let made = generate_simple_self_signed(["host".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        Self {
            client: client.into(),
            server: server.into(),
        }
    }
}
