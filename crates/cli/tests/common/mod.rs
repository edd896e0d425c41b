//! Helpers that the tests of the binary share.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::{net::SocketAddr, process::Output};

use crowfly_cli::{
    child::{Child, Program},
    testing::test_service_client::TestServiceClient,
};
use tonic::transport::{Channel, Endpoint};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_crowfly");

/// A `crowfly backend` process and where it listens.
pub(crate) async fn spawn_backend(name: &str, flags: &[&str]) -> (Child, SocketAddr) {
    let mut args = vec!["backend", "--name", name];
    args.extend(flags);
    let mut child = Program::at(BINARY).spawn(name, args, None).unwrap();
    let addr = child.announced("listening on").await.unwrap();
    (child, addr)
}

pub(crate) async fn client(addr: SocketAddr) -> TestServiceClient<Channel> {
    TestServiceClient::new(channel(addr).await)
}

pub(crate) async fn channel(addr: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{addr}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// Runs the binary to its end.
pub(crate) async fn crowfly(args: &[&str]) -> Output {
    tokio::process::Command::new(BINARY)
        .args(args)
        .output()
        .await
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
