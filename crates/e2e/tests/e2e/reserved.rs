//! A port for a process that goes away and comes back.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port that nobody else gets while the process that listens there is gone.
pub(crate) struct Reserved {
    pub(crate) address: SocketAddr,
    _socket: TcpSocket,
}

impl Reserved {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self {
            address: socket.local_addr().unwrap(),
            _socket: socket,
        }
    }

    pub(crate) fn listen(&self) -> String {
        self.address.to_string()
    }
}
