//! The port on which `crowfly inspect` looks at the channels of `load` and `demo`.
//!
//! Both are clients without a server of their own, so they open one for this.

use std::{io, net::SocketAddr};

use tokio::{net::TcpListener, task::JoinHandle};
use tonic::transport::{Server, server::TcpIncoming};

/// Serves CSDS and the balancing trees until it is dropped.
#[derive(Debug)]
pub(crate) struct DebugPort {
    addr: SocketAddr,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl DebugPort {
    pub(crate) async fn open(listen: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let addr = listener.local_addr()?;
        let server = Server::builder()
            .add_service(crowfly::csds_service())
            .add_service(crowfly::debug_service())
            .serve_with_incoming(TcpIncoming::from(listener));
        Ok(Self {
            addr,
            server: tokio::spawn(server),
        })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for DebugPort {
    fn drop(&mut self) {
        self.server.abort();
    }
}
