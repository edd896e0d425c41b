//! A server that sends one GOAWAY without a warning before it, as some proxies do.
//!
//! Its HTTP/2 frames are written by hand, because a server library warns its clients first.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// HPACK: `:status: 200` of the static table, and a literal.
const HEAD: &[u8] = b"\x88\x00\x0ccontent-type\x10application/grpc";
/// HPACK: a literal.
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";
/// A gRPC message: a string in field 1.
const MESSAGE: &[u8] = b"\0\0\0\0\x03\x0a\x01a";

/// Takes this many calls on each connection, and passes over those that come after.
pub(crate) struct SendsAway {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
    _accepting: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    taken: AtomicUsize,
    passed_over: AtomicUsize,
}

impl SendsAway {
    /// Starts a server that sends GOAWAY after so many calls. With 0 calls, each connection is
    /// closed as soon as it is ready.
    pub(crate) async fn after(calls: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let mut accepting = JoinSet::new();
        let counting = Arc::clone(&counts);
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                counting.connections.fetch_add(1, Ordering::SeqCst);
                let counts = Arc::clone(&counting);
                // An error is that the client closed first.
                connections.spawn(async move { serve(tcp, calls, &counts).await.ok() });
            }
        });
        Self {
            address,
            counts,
            _accepting: accepting,
        }
    }

    /// The number of connections that were made.
    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// The number of calls that the server took. It answers all of them.
    pub(crate) fn taken(&self) -> usize {
        self.counts.taken.load(Ordering::SeqCst)
    }

    /// The number of calls that came after GOAWAY.
    pub(crate) fn passed_over(&self) -> usize {
        self.counts.passed_over.load(Ordering::SeqCst)
    }
}

async fn serve(mut tcp: TcpStream, calls: usize, counts: &Counts) -> io::Result<()> {
    tcp.read_exact(&mut [0; 24]).await?;
    tcp.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut left = calls;
    let mut last = 0;
    let mut unanswered = 0;
    let mut is_ready = false;
    while left > 0 || unanswered > 0 || !is_ready {
        let Frame { kind, flags, id } = read_frame(&mut tcp).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => {
                tcp.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
            }
            SETTINGS => is_ready = true,
            HEADERS if left > 0 => {
                counts.taken.fetch_add(1, Ordering::SeqCst);
                left -= 1;
                unanswered += 1;
                last = id;
                if left == 0 {
                    let payload = [id.to_be_bytes(), [0; 4]].concat();
                    tcp.write_all(&frame(GOAWAY, 0, 0, &payload)).await?;
                }
            }
            HEADERS => {
                counts.passed_over.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 && id <= last {
            unanswered -= 1;
            tcp.write_all(&answer(id)).await?;
        }
    }
    // What still comes is read: with unread data, closing would cost the client the last answers.
    tcp.shutdown().await?;
    loop {
        let frame = read_frame(&mut tcp).await?;
        if frame.kind == HEADERS {
            counts.passed_over.fetch_add(1, Ordering::SeqCst);
        }
    }
}

struct Frame {
    kind: u8,
    flags: u8,
    id: u32,
}

async fn read_frame(tcp: &mut TcpStream) -> io::Result<Frame> {
    let mut head = [0; 9];
    tcp.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let length = u32::from_be_bytes([0, a, b, c]);
    let mut payload = vec![0; length as usize];
    tcp.read_exact(&mut payload).await?;
    if kind == PING && flags & ACK == 0 {
        tcp.write_all(&frame(PING, ACK, 0, &payload)).await?;
    }
    let id = u32::from_be_bytes(id);
    Ok(Frame { kind, flags, id })
}

fn answer(id: u32) -> Vec<u8> {
    let frames = [
        frame(HEADERS, END_HEADERS, id, HEAD),
        frame(DATA, 0, id, MESSAGE),
        frame(HEADERS, END_HEADERS | END_STREAM, id, TRAILERS),
    ];
    frames.concat()
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [a, b, c, kind, flags];
    [&head[..], &id.to_be_bytes(), payload].concat()
}
