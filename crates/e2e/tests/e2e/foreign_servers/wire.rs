//! What passes between a channel and a server, counted.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crowfly_e2e::process::PATIENCE;

/// Passes everything on, for one connection.
pub(super) struct Wire {
    pub(super) address: SocketAddr,
    /// How often the channel has sent something.
    sent: watch::Receiver<usize>,
    _passing: JoinSet<io::Result<()>>,
}

impl Wire {
    pub(super) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, sent) = watch::channel(0);
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            let (client, _) = listener.accept().await?;
            pass_on(client, TcpStream::connect(to).await?, count).await
        });
        Self {
            address,
            sent,
            _passing: passing,
        }
    }

    /// Waits until the channel has sent something `more` times.
    pub(super) async fn until_sent(&self, more: usize) {
        let mut sent = self.sent.clone();
        let goal = *sent.borrow() + more;
        let sent = timeout(PATIENCE, sent.wait_for(|sent| *sent >= goal)).await;
        sent.expect("more is sent").expect("an open connection");
    }
}

async fn pass_on(
    client: TcpStream,
    server: TcpStream,
    count: watch::Sender<usize>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = vec![0; 16 * 1024];
        while let length @ 1.. = from_client.read(&mut buffer).await? {
            count.send_modify(|count| *count += 1);
            to_server.write_all(&buffer[..length]).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = there => ended,
        ended = copy(&mut from_server, &mut to_client) => ended.map(drop),
    }
}
