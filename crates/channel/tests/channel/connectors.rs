//! Sockets to backends that the program makes, such as Unix sockets.
//!
//! Their failures must reach the caller as those of TCP do.

use std::io;
use std::net::SocketAddr;

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call, spread};

/// An address without a host, because it is reserved for documentation.
const NOWHERE: [u8; 4] = [192, 0, 2, 1];

/// A connector gets the endpoint's address, and may connect by another way, such as a Unix socket.
#[tokio::test]
async fn a_connector_goes_by_a_unix_socket() {
    let a = Backend::start("a").await;
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("443")).unwrap();
    let behind = a.address;
    tokio::spawn(async move {
        while let Ok((mut unix, _)) = listener.accept().await {
            let mut tcp = TcpStream::connect(behind).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut unix, &mut tcp).await });
        }
    });
    let server = ResourceServer::start(&Resources::service(
        "payments",
        [SocketAddr::from((NOWHERE, 443))],
    ));
    let path = folder.path().to_owned();
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .connector(move |address| UnixStream::connect(path.join(address.port().to_string())))
        .build()
        .unwrap();
    assert_eq!(spread(&channel, 10).await["a"], 10);
    assert_eq!(a.connections(), 1);
}

/// The failure of a connector is told to calls, as a failure of TCP is.
#[tokio::test]
async fn what_a_connector_fails_with_is_told() {
    let server = ResourceServer::start(&Resources::service(
        "payments",
        [SocketAddr::from((NOWHERE, 443))],
    ));
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .connector(|address| async move {
            Err::<TcpStream, _>(io::Error::other(format!("no way to {address}")))
        })
        .build()
        .unwrap();
    let status = call(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let said = status.message().contains("no way to 192.0.2.1:443");
    assert!(said, "{status}");
}
