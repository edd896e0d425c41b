//! Our channel calls servers that share no code with us: on gRPC C-core, on gRPC-Node, and an Envoy
//! with a C-core server behind it.
//!
//! Servers differ in their HTTP/2: when they open windows, how they cut frames, how they end
//! streams and how they go away. The channel must work with each.

mod calls;
mod endings;
mod limits;
mod retries;
mod wire;

use std::net::SocketAddr;

use crowfly::{Channel, ChannelBuilder};
use crowfly_e2e::echo::{EchoClient, answered_by};
use crowfly_e2e::echo_server::EchoServer;
use crowfly_e2e::envoy::{Envoy, INGRESS};
use crowfly_e2e::peers;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use serde_json::json;
use tokio::task::block_in_place;

/// Runs each of the scenarios against each kind of server, on a runtime of this flavor. A scenario
/// that lets time pass has to be on one thread.
macro_rules! against_each_server {
    ($flavor:literal: $($scenario:ident),* $(,)?) => {
        $crate::foreign_servers::against!($flavor, c_core, CCore, $($scenario),*);
        $crate::foreign_servers::against!($flavor, envoy, Envoy, $($scenario),*);
        $crate::foreign_servers::against!($flavor, node, Node, $($scenario),*);
    };
    ($($scenario:ident),* $(,)?) => {
        $crate::foreign_servers::against_each_server!("multi_thread": $($scenario),*);
    };
}

macro_rules! against {
    ($flavor:literal, $module:ident, $kind:ident, $($scenario:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = $flavor)]
                async fn $scenario() {
                    super::$scenario($crate::foreign_servers::Kind::$kind).await;
                }
            )*
        }
    };
}

use {against, against_each_server};

#[derive(Clone, Copy, Debug)]
enum Kind {
    CCore,
    Envoy,
    Node,
}

/// The options of C-core servers; gRPC-Node knows neither.
const OPTIONS: [(&str, u32); 2] = [
    // PINGs as often as a client likes: its own rule is one in five minutes.
    ("grpc.http2.max_ping_strikes", 0),
    // Off: C-core would also count calls that it has answered and not cleaned up yet. It would
    // refuse streams of clients that obey its limit.
    ("grpc.http.overload_protection", 0),
];

/// A server of the service, with any of the HTTP/2 implementations.
struct Server {
    /// The address for clients.
    address: SocketAddr,
    echo: EchoServer,
    envoy: Option<Envoy>,
}

impl Server {
    /// `None` means that the calling test is to be left out.
    fn start(kind: Kind, name: &str) -> Option<Self> {
        Self::start_with(kind, name, None)
    }

    /// Starts a server that takes so many streams at a time.
    fn start_limited(kind: Kind, name: &str, max_streams: u32) -> Option<Self> {
        Self::start_with(kind, name, Some(max_streams))
    }

    fn start_with(kind: Kind, name: &str, max_streams: Option<u32>) -> Option<Self> {
        let limit = max_streams.map(|max| ("grpc.max_concurrent_streams", max));
        let options: Vec<_> = limit.into_iter().chain(OPTIONS).collect();
        Some(match kind {
            Kind::CCore => Self::plain(EchoServer::c_core(peers::python()?, name, &options)),
            Kind::Node => Self::plain(EchoServer::node(peers::grpc_js()?, name, &options)),
            Kind::Envoy => Self::behind_envoy(name, max_streams)?,
        })
    }

    fn plain(echo: EchoServer) -> Self {
        Self {
            address: echo.address,
            echo,
            envoy: None,
        }
    }

    fn behind_envoy(name: &str, max_streams: Option<u32>) -> Option<Self> {
        let program = peers::envoy()?;
        let echo = EchoServer::c_core(peers::python()?, name, &[]);
        let http2 = match max_streams {
            Some(max) => json!({ "max_concurrent_streams": max }),
            None => json!({}),
        };
        let envoy = Envoy::start_before(program, echo.address, http2);
        Some(Self {
            address: envoy.listener(INGRESS),
            echo,
            envoy: Some(envoy),
        })
    }

    /// Has it stop gracefully, while clients call it; one stream of them stays open, and is broken
    /// in the end.
    fn stop(&mut self) {
        block_in_place(|| match &mut self.envoy {
            None => self.echo.stop(),
            Some(envoy) => {
                envoy.drain(self.address);
                // The connection of the stream that stays: it was told to go away.
                envoy.until_stat("http.ingress.downstream_cx_active", |count| count == 1);
                envoy.until_stat("http.ingress.downstream_rq_active", |count| count == 1);
                envoy.kill();
            }
        });
    }
}

/// A client of these servers, and the control plane that tells it of them.
fn client_of<const N: usize>(
    servers: [SocketAddr; N],
    options: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
) -> (ResourceServer, Channel) {
    let control = ResourceServer::start(&Resources::service("echo", servers));
    let builder = Channel::builder("xds:///echo").bootstrap(control.bootstrap());
    let channel = options(builder).build().unwrap();
    (control, channel)
}

/// A client of one server.
fn client(server: &Server) -> (ResourceServer, EchoClient<Channel>) {
    let (control, channel) = client_of([server.address], |builder| builder);
    (control, EchoClient::new(channel))
}

/// Calls until each of the servers in `names` has answered.
async fn until_answered_by_each(client: &EchoClient<Channel>, names: &[&str]) {
    for name in names {
        loop {
            let response = client.unary("Unary", "").await.unwrap();
            if answered_by(&response) == *name {
                break;
            }
        }
    }
}
