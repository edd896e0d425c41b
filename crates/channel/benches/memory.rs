//! Bytes of heap per idle channel.
//!
//! `cargo bench -p crowfly --bench memory`. Each of 1,000 channels has a target of its own, and so
//! a client and an ADS stream of its own. It has a connection to one backend, over which one call
//! went, because buffers grow with use. Servers run on other threads, whose allocations are not
//! counted.
//!
//! The benchmark runs with the tests, too, and fails if a channel needs more than `LIMIT`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench"
)]

use std::net::SocketAddr;
use std::time::Duration;

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

const CHANNELS: usize = 1_000;
/// A little more than a channel needs, so that nothing grows unnoticed. gRPC C-core's developers publish 45,000 for theirs.
const LIMIT: u64 = 30_000;
/// The time to wait until the channels are at rest, because no event reports that.
const SETTLE: Duration = Duration::from_secs(1);

fn main() {
    let backends = other_threads();
    let backend = backends.block_on(backend());
    let server = ResourceServer::start(&services(backend));
    // Only the allocations of this one thread are counted.
    let clients = Builder::new_current_thread().enable_all().build().unwrap();
    let mut channels = Vec::with_capacity(CHANNELS);
    let measured = allocation_counter::measure(|| {
        channels.extend(clients.block_on(connected(&server)));
    });
    let each = u64::try_from(measured.bytes_current).unwrap() / CHANNELS as u64;
    println!("{each} bytes per idle channel, of {CHANNELS} channels; the limit is {LIMIT}");
    assert!(each <= LIMIT, "{each} bytes, more than {LIMIT}");
}

/// A runtime that does nothing on this thread.
fn other_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// A server without methods. Its UNIMPLEMENTED is an answer, too.
async fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_routes(Routes::default());
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

fn name(number: usize) -> String {
    format!("service-{number}")
}

/// All with the same backend; channels share no connections.
fn services(backend: SocketAddr) -> Resources {
    let names = (0..CHANNELS).map(name);
    names.fold(Resources::new(), |resources, name| {
        resources
            .with(listener(&name).rds(&name))
            .with(routes(&name).host("*").route("/", &name))
            .with(cluster(&name))
            .with(endpoints(&name).locality("region/zone", 1, [backend]))
    })
}

async fn connected(server: &ResourceServer) -> Vec<Channel> {
    let channel = |number| {
        let builder = Channel::builder(&format!("xds:///{}", name(number)));
        builder.bootstrap(server.bootstrap()).build().unwrap()
    };
    let channels: Vec<Channel> = (0..CHANNELS).map(channel).collect();
    for channel in &channels {
        call(channel).await;
    }
    tokio::time::sleep(SETTLE).await;
    channels
}

async fn call(channel: &Channel) {
    let mut grpc = Grpc::new(channel.clone());
    let codec = ProstCodec::<String, String>::default();
    let path = "/test.Echo/Call".parse().unwrap();
    let answer = grpc.unary(Request::new(String::new()), path, codec).await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
}
