//! A relay that delays all bytes, because loopback has no round-trip time and windows matter only
//! with one.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The number of bytes in one read.
const CHUNK: usize = 256 * 1024;
/// The number of reads that may be under way in each direction. The number is far more than windows
/// allow, so the relay itself never limits the rate.
const UNDER_WAY: usize = 4_096;

/// Relays connections to `server`, and makes each round trip longer by `delay`. Returns the address
/// of the relay.
pub(crate) async fn start(server: SocketAddr, delay: Duration) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(relay(near, server, delay / 2));
        }
    });
    Ok(address)
}

async fn relay(near: TcpStream, server: SocketAddr, delay: Duration) -> std::io::Result<()> {
    let far = TcpStream::connect(server).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::spawn(carry(near_read, far_write, delay));
    carry(far_read, near_write, delay).await;
    Ok(())
}

/// Moves bytes one way, each `delay` after it was read.
async fn carry<R, W>(mut from: R, mut to: W, delay: Duration)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin,
{
    let (pieces, mut due) = mpsc::channel(UNDER_WAY);
    tokio::spawn(async move {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK);
            match from.read_buf(&mut buffer).await {
                Ok(len) if len > 0 => {}
                _ => return,
            }
            let piece = (Instant::now() + delay, buffer.split());
            if pieces.send(piece).await.is_err() {
                return;
            }
        }
    });
    while let Some((at, bytes)) = due.recv().await {
        sleep_until(at).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
