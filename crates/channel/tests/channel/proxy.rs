//! A TCP proxy whose connections can fall silent, as those to a stopped machine do.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Passes everything on.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    silence: watch::Sender<()>,
    sent: watch::Sender<usize>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silence = watch::Sender::new(());
        let sent = watch::Sender::new(0);
        let mut accepting = JoinSet::new();
        let (silenced, counted) = (silence.clone(), sent.clone());
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let silence = silenced.subscribe();
                connections.spawn(pass_on(client, to, silence, counted.clone()));
            }
        });
        Self {
            address,
            silence,
            sent,
            _accepting: accepting,
        }
    }

    /// The connections there are stay open, but nothing gets through any more.
    pub(crate) fn silence(&self) {
        self.silence.send_replace(());
    }

    /// How many bytes came from clients.
    pub(crate) fn sent(&self) -> watch::Receiver<usize> {
        self.sent.subscribe()
    }
}

async fn pass_on(
    client: TcpStream,
    to: SocketAddr,
    mut silence: watch::Receiver<()>,
    sent: watch::Sender<usize>,
) {
    let server = TcpStream::connect(to).await.unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let received = watch::Sender::new(0);
    let passed = async {
        tokio::select! {
            () = copy(from_client, to_server, &sent) => {}
            () = copy(from_server, to_client, &received) => {}
        }
    };
    tokio::pin!(passed);
    tokio::select! {
        () = &mut passed => {}
        _ = silence.changed() => std::future::pending().await,
    }
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
