//! A port that stays with its test while no socket listens on it, because the kernel would give it
//! to another test.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// A loopback port of the kernel's choice that no other socket is given until this value is
/// dropped.
///
/// The kernel gives a port that a test has closed to the next socket that asks for one. Then the
/// server of another test would answer a call that is meant for a stopped backend. So this type
/// keeps the port with a socket that is bound and never listens. Connections are refused until a
/// listener joins it.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let port = crowfly_testkit::Reserved::new();
/// assert!(tokio::net::TcpStream::connect(port.address).await.is_err());
/// let listener = port.listen();
/// assert!(tokio::net::TcpStream::connect(port.address).await.is_ok());
/// drop(listener);
/// assert!(tokio::net::TcpStream::connect(port.address).await.is_err());
/// # });
/// ```
#[derive(Debug)]
pub struct Reserved {
    /// The address of the port.
    pub address: SocketAddr,
    /// The socket that keeps the port. The socket is bound and never used.
    socket: TcpSocket,
}

impl Reserved {
    /// Takes a port.
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let socket = bind(SocketAddr::from(([127, 0, 0, 1], 0)));
        Self {
            address: socket.local_addr().expect("it is bound"),
            socket,
        }
    }

    /// Listens on the port. The port stays reserved when the listener is gone.
    pub fn listen(&self) -> TcpListener {
        bind(self.address).listen(128).expect("nobody else listens")
    }

    /// The address of the port, on which no socket listens for the rest of this process.
    pub fn refusing(self) -> SocketAddr {
        std::mem::forget(self.socket);
        self.address
    }
}

fn bind(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    // Lets a listener join the one that reserves, and both of them former connections of the port,
    // which may linger in the kernel. A socket that asks for any port is not given this one.
    socket
        .set_reuseaddr(true)
        .expect("an option every system has");
    socket.bind(address).expect("a loopback port");
    socket
}
