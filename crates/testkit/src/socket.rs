//! A gRPC server on a loopback port that can go away and come back.

use std::net::SocketAddr;

use crowfly_model::Bootstrap;
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::NODE_ID;

/// A port of the kernel's choice, held for as long as this lives.
///
/// While it is down the port stays bound but nobody listens, so a connection is refused and no
/// other test is given the port. While it is up the server has a runtime of its own; to stop it is to
/// drop that runtime, which cuts every connection at once, as the death of a process does.
#[derive(Debug)]
pub(crate) struct Socket {
    address: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    Between,
    Down(TcpSocket),
    Up(Runtime),
}

impl Socket {
    pub(crate) fn reserve() -> Self {
        let (socket, address) = bind(SocketAddr::from(([127, 0, 0, 1], 0)));
        Self {
            address,
            state: State::Down(socket),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn bootstrap(&self) -> Bootstrap {
        Bootstrap::builder(&self.address.to_string())
            .expect("a loopback address is a valid server")
            .node_id(NODE_ID)
            .build()
    }

    /// Starts to serve; when this returns, connections are accepted.
    pub(crate) fn start(&mut self, routes: Routes) {
        let State::Down(socket) = std::mem::replace(&mut self.state, State::Between) else {
            panic!("the server is already running");
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = {
            let _context = runtime.enter();
            socket.listen(128).expect("the port is ours")
        };
        runtime.spawn(async move {
            Server::builder()
                .add_routes(routes)
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .expect("the server runs until it is stopped");
        });
        self.state = State::Up(runtime);
    }

    /// Cuts every connection and refuses new ones.
    pub(crate) async fn stop(&mut self) {
        let State::Up(runtime) = std::mem::replace(&mut self.state, State::Between) else {
            panic!("the server is not running");
        };
        tokio::task::spawn_blocking(move || drop(runtime))
            .await
            .expect("the runtime ends");
        self.state = State::Down(bind(self.address).0);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let State::Up(runtime) = std::mem::replace(&mut self.state, State::Between) {
            runtime.shutdown_background();
        }
    }
}

fn bind(address: SocketAddr) -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    // The port's former connections may still linger in the kernel.
    socket
        .set_reuseaddr(true)
        .expect("an option every system has");
    socket.bind(address).expect("a loopback port");
    let address = socket.local_addr().expect("it is bound");
    (socket, address)
}
