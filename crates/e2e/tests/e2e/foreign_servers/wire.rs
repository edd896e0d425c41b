//! The PINGs between a channel and a server, as events that a test can await.
//!
//! Neither side reports its PINGs, so the test reads the frames between them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crowfly_e2e::process::PATIENCE;

/// The time in which a PING that is due is sent. One that takes longer is awaited by the next look.
const SENT: Duration = Duration::from_millis(200);

/// Passes everything on between a server and the connections to it, one after the other.
pub(super) struct Wire {
    pub(super) address: SocketAddr,
    /// Marked when the channel has sent a PING, and when the server has answered one.
    sent: watch::Receiver<()>,
    answered: watch::Receiver<()>,
    _passing: JoinSet<io::Result<()>>,
}

/// The PINGs from one moment on.
pub(super) struct Pings {
    sent: watch::Receiver<()>,
    answered: watch::Receiver<()>,
}

impl Wire {
    pub(super) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mark_sent, sent) = watch::channel(());
        let (mark_answered, answered) = watch::channel(());
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            loop {
                let (client, _) = listener.accept().await?;
                let server = TcpStream::connect(to).await?;
                // A connection that breaks is no reason to refuse the next one.
                let _ = pass_on(client, server, &mark_sent, &mark_answered).await;
            }
        });
        Self {
            address,
            sent,
            answered,
            _passing: passing,
        }
    }

    /// The PINGs from now on.
    pub(super) fn pings(&self) -> Pings {
        let (mut sent, mut answered) = (self.sent.clone(), self.answered.clone());
        sent.mark_unchanged();
        answered.mark_unchanged();
        Pings { sent, answered }
    }
}

impl Pings {
    /// Waits for the answer to the next PING. Returns false if none is sent.
    pub(super) async fn answered(&mut self) -> bool {
        let Ok(sent) = timeout(SENT, self.sent.changed()).await else {
            return false;
        };
        sent.expect("an open wire");
        let answered = timeout(PATIENCE, self.answered.changed()).await;
        answered.expect("an answer").expect("an open wire");
        true
    }
}

async fn pass_on(
    client: TcpStream,
    server: TcpStream,
    sent: &watch::Sender<()>,
    answered: &watch::Sender<()>,
) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let asks = Frames::after(PREFACE, PING);
    let answers = Frames::after(0, PING_ACK);
    tokio::select! {
        ended = copy(from_client, to_server, asks, sent) => ended,
        ended = copy(from_server, to_client, answers, answered) => ended,
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut frames: Frames,
    mark: &watch::Sender<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    while let length @ 1.. = from.read(&mut buffer).await? {
        to.write_all(&buffer[..length]).await?;
        if frames.have(&buffer[..length]) {
            mark.send_replace(());
        }
    }
    Ok(())
}

/// The length of what a client sends before its first frame (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// The length of a frame's head (RFC 9113, 4.1).
const HEAD: usize = 9;
/// The types and flags of a PING and of its answer (RFC 9113, 6.7).
const PING: [u8; 2] = [6, 0];
const PING_ACK: [u8; 2] = [6, 1];

/// The frames of one direction, of which one kind is looked for.
struct Frames {
    wanted: [u8; 2],
    /// The bytes to pass over before the next frame.
    skip: usize,
    /// The part of a head that came so far.
    head: Vec<u8>,
}

impl Frames {
    fn after(skip: usize, wanted: [u8; 2]) -> Self {
        Self {
            wanted,
            skip,
            head: Vec::with_capacity(HEAD),
        }
    }

    /// Takes in the next bytes. Returns true if a wanted frame begins in them.
    fn have(&mut self, mut bytes: &[u8]) -> bool {
        let mut found = false;
        loop {
            let (passed, rest) = bytes.split_at(self.skip.min(bytes.len()));
            self.skip -= passed.len();
            let (head, rest) = rest.split_at(rest.len().min(HEAD - self.head.len()));
            self.head.extend_from_slice(head);
            let [a, b, c, kind, flags, ..] = self.head[..] else {
                return found;
            };
            if self.head.len() < HEAD {
                return found;
            }
            found |= [kind, flags] == self.wanted;
            self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
            self.head.clear();
            bytes = rest;
        }
    }
}
