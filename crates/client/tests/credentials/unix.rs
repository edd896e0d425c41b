//! Tests of servers on Unix sockets (gRPC's naming document: `unix:path`).
#![cfg(unix)]

use std::net::SocketAddr;
use std::path::Path;

use crowfly_model::bootstrap::{ServerConfig, TlsFiles};
use crowfly_model::grpc::Cluster;
use crowfly_testkit::AdsServer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener};

use crate::front::Front;
use crate::pki::{Ca, Folder};
use crate::{client, error_with};

/// Passes on what comes in at a socket.
fn pass_on(path: &Path, to: SocketAddr) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut unix, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut tcp = TcpStream::connect(to).await?;
                copy_bidirectional(&mut unix, &mut tcp).await
            });
        }
    });
}

#[tokio::test]
async fn a_server_on_a_unix_socket_is_reached() {
    let folder = Folder::new();
    let mut ads = AdsServer::start();
    let path = folder.path("ads.sock");
    pass_on(&path, ads.address());
    let client = client(ServerConfig::builder(format!("unix:{}", path.display())));
    let _watch = client.watch::<Cluster>("payments").unwrap();
    assert_eq!(ads.next_request().await.resource_names, ["payments"]);
}

#[tokio::test]
async fn tls_over_a_unix_socket_proves_localhost() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let mut ads = AdsServer::start();
    let front = Front::start(ca.server_named("localhost"), ads.address()).await;
    let path = folder.path("ads.sock");
    pass_on(&path, front.address().parse().unwrap());
    let files = TlsFiles::default().ca_certificate(folder.trust(&ca));
    let server = ServerConfig::builder(format!("unix://{}", path.display())).tls(files);
    let client = client(server);
    let _watch = client.watch::<Cluster>("payments").unwrap();
    assert_eq!(ads.next_request().await.resource_names, ["payments"]);
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_named() {
    let path = Folder::new().path("nobody.sock");
    let client = client(ServerConfig::builder(format!("unix:{}", path.display())));
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    error_with(&mut watch, "nobody.sock: No such file or directory").await;
}
