//! A gRPC server on a loopback port that can stop and start again.
//!
//! Tests of reconnection need a server that comes back on the same port.

use std::net::SocketAddr;

use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::Reserved;

/// A port of the kernel's choice, which is held until this value is dropped.
///
/// While the server is down, connections are refused. While it is up, it has a runtime of its own.
/// Stopping the server drops that runtime, which cuts every connection at once, as the end of a
/// process does.
#[derive(Debug)]
pub(crate) struct Socket {
    port: Reserved,
    /// The server, while it is up.
    server: Option<Runtime>,
}

impl Socket {
    pub(crate) fn reserve() -> Self {
        Self {
            port: Reserved::new(),
            server: None,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address
    }

    /// Starts to serve; when this returns, connections are accepted.
    pub(crate) fn start(&mut self, routes: Routes) {
        assert!(self.server.is_none(), "the server is already running");
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = {
            let _context = runtime.enter();
            self.port.listen()
        };
        runtime.spawn(async move {
            Server::builder()
                .add_routes(routes)
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .expect("the server runs until it is stopped");
        });
        self.server = Some(runtime);
    }

    /// Cuts every connection and refuses new ones.
    pub(crate) async fn stop(&mut self) {
        let runtime = self.server.take().expect("the server is running");
        tokio::task::spawn_blocking(move || drop(runtime))
            .await
            .expect("the runtime ends");
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(runtime) = self.server.take() {
            runtime.shutdown_background();
        }
    }
}
