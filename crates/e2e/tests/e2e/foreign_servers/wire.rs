//! What passes between a channel and a server, counted.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crowfly_e2e::process::PATIENCE;

/// Passes everything on, for one connection.
pub(super) struct Wire {
    pub(super) address: SocketAddr,
    /// Marked when the channel has sent something, and when the server has.
    sent: watch::Receiver<()>,
    answered: watch::Receiver<()>,
    _passing: JoinSet<io::Result<()>>,
}

impl Wire {
    pub(super) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, sent) = watch::channel(());
        let (count_answers, answered) = watch::channel(());
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            let (client, _) = listener.accept().await?;
            let server = TcpStream::connect(to).await?;
            pass_on(client, server, count, count_answers).await
        });
        Self {
            address,
            sent,
            answered,
            _passing: passing,
        }
    }

    /// Waits until the channel has sent something because of `step`, and the server has answered.
    pub(super) async fn until_answered(&self, step: impl Future<Output = ()>) {
        let (mut sent, mut answered) = (self.sent.clone(), self.answered.clone());
        sent.mark_unchanged();
        answered.mark_unchanged();
        step.await;
        let answered = async {
            sent.changed().await?;
            answered.changed().await
        };
        let answered = timeout(PATIENCE, answered).await;
        answered.expect("an answer").expect("an open connection");
    }
}

async fn pass_on(
    client: TcpStream,
    server: TcpStream,
    sent: watch::Sender<()>,
    answered: watch::Sender<()>,
) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = copy(from_client, to_server, sent) => ended,
        ended = copy(from_server, to_client, answered) => ended,
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mark: watch::Sender<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    while let length @ 1.. = from.read(&mut buffer).await? {
        to.write_all(&buffer[..length]).await?;
        mark.send_replace(());
    }
    Ok(())
}
