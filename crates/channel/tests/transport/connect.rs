//! Tests of connecting: READY means that the server's SETTINGS were read.
//!
//! A TCP connection alone proves nothing, because the kernel accepts it for a stopped process, too.

use crowfly::transport::{ConnectError, ConnectPhase, Connection};
use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;

use crate::support::{RawServer, TIMEOUT, connect, listen, plaintext};

/// A stopped process still has a kernel that accepts: such a backend never becomes READY.
#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_stays_silent_is_never_ready() {
    let (_listener, address) = listen().await;
    let error = connect_error(address).await;
    assert_eq!(error.phase, ConnectPhase::Settings);
    assert_eq!(
        error.to_string(),
        format!("cannot connect to {address}: HTTP/2 SETTINGS: timed out after 20s")
    );
}

#[tokio::test]
async fn connect_returns_only_after_the_servers_settings() {
    let (listener, address) = listen().await;
    let connecting = tokio::spawn(async move { connect(address).await });
    let mut server = RawServer::accept(&listener).await;
    // An acknowledgement of the client's SETTINGS is not the server's SETTINGS.
    server.write(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await;
    server.read_until(4).await;
    assert!(!connecting.is_finished());
    server.write(RawServer::SETTINGS).await;
    assert!(connecting.await.unwrap().sender().is_open());
}

#[tokio::test]
async fn a_closed_port_fails_in_the_connect_phase() {
    let (listener, address) = listen().await;
    drop(listener);
    let error = connect_error(address).await;
    assert_eq!(error.phase, ConnectPhase::Connect);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_up_before_its_settings_fails_in_the_settings_phase() {
    let (listener, address) = listen().await;
    let accept = async { drop(listener.accept().await.unwrap()) };
    let (error, ()) = tokio::join!(connect_error(address), accept);
    assert_eq!(error.phase, ConnectPhase::Settings);
}

#[tokio::test]
async fn an_http1_server_fails_in_the_settings_phase() {
    let (listener, address) = listen().await;
    let accept = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        tcp
    };
    let (error, _tcp) = tokio::join!(connect_error(address), accept);
    assert_eq!(error.phase, ConnectPhase::Settings);
    assert!(!error.reason.contains("timed out"), "{error}");
}

async fn connect_error(address: SocketAddr) -> ConnectError {
    Connection::connect(address, &plaintext(), TIMEOUT)
        .await
        .unwrap_err()
}
