//! A TCP proxy whose connections can fall silent, as those to a stopped machine do.
//!
//! A connection on loopback does not fall silent by itself.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Passes everything on.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    silence: watch::Sender<()>,
    last_words: watch::Sender<Vec<u8>>,
    sent: watch::Sender<usize>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silence = watch::Sender::new(());
        let last_words = watch::Sender::new(Vec::new());
        let sent = watch::Sender::new(0);
        let mut accepting = JoinSet::new();
        let (silenced, counted) = (silence.clone(), sent.clone());
        let ended = last_words.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let orders = Orders {
                    silence: silenced.subscribe(),
                    last_words: ended.subscribe(),
                };
                connections.spawn(pass_on(client, to, orders, counted.clone()));
            }
        });
        Self {
            address,
            silence,
            last_words,
            sent,
            _accepting: accepting,
        }
    }

    /// The connections there are stay open, but nothing gets through any more.
    pub(crate) fn silence(&self) {
        self.silence.send_replace(());
    }

    /// Says this to the clients there are, as if it came from the server, and closes.
    pub(crate) fn end_with(&self, words: Vec<u8>) {
        self.last_words.send_replace(words);
    }

    /// The number of bytes that came from clients.
    pub(crate) fn sent(&self) -> watch::Receiver<usize> {
        self.sent.subscribe()
    }
}

/// The orders of the test to a connection.
struct Orders {
    silence: watch::Receiver<()>,
    last_words: watch::Receiver<Vec<u8>>,
}

async fn pass_on(
    client: TcpStream,
    to: SocketAddr,
    mut orders: Orders,
    sent: watch::Sender<usize>,
) {
    let server = TcpStream::connect(to).await.unwrap();
    // Held to the end: a connection that is silent stays open.
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let received = watch::Sender::new(0);
    tokio::select! {
        () = copy(&mut from_client, &mut to_server, &sent) => return,
        () = copy(&mut from_server, &mut to_client, &received) => return,
        _ = orders.silence.changed() => std::future::pending().await,
        _ = orders.last_words.changed() => {}
    }
    let words = orders.last_words.borrow().clone();
    to_client.write_all(&words).await.unwrap();
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &watch::Sender<usize>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        count.send_modify(|count| *count += length);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
