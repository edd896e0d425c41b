//! A reserved port is given to no other socket.
//!
//! Tests stop a server and start it again at its port, and other tests run at the same time.

use std::io::ErrorKind;
use std::net::SocketAddr;

use crowfly_testkit::Reserved;
use tokio::net::TcpSocket;

/// The kernel gives out a port where this succeeds, since it asks the same question.
fn take(address: SocketAddr) -> Result<(), ErrorKind> {
    let bound = TcpSocket::new_v4().and_then(|other| other.bind(address));
    bound.map_err(|error| error.kind())
}

#[tokio::test]
async fn a_port_is_kept_before_while_and_after_somebody_listens_there() {
    let port = Reserved::new();
    assert_eq!(take(port.address), Err(ErrorKind::AddrInUse));
    let listener = port.listen();
    assert_eq!(take(port.address), Err(ErrorKind::AddrInUse));
    drop(listener);
    assert_eq!(take(port.address), Err(ErrorKind::AddrInUse));
    drop(port.listen());

    let address = port.address;
    drop(port);
    assert_eq!(take(address), Ok(()));
}

#[tokio::test]
async fn an_address_that_refuses_does_so_for_good() {
    let address = Reserved::new().refusing();
    assert_eq!(take(address), Err(ErrorKind::AddrInUse));
}
