//! A control plane and backends to try a policy with.
//!
//! All of them are in this process, so that the example needs no other program.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use crowfly::{Bootstrap, Channel};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, custom_policy, wrr_locality};
use serde_json::Value;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, client, server};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// A service `greeter`, and the control plane that tells where it is.
pub(crate) struct Mesh {
    control_plane: ResourceServer,
    resources: Resources,
}

impl Mesh {
    /// Starts the backends, each of which answers with its name.
    pub(crate) async fn start<const N: usize>(names: [&'static str; N]) -> io::Result<Self> {
        let mut addresses = Vec::new();
        for name in names {
            addresses.push(serve(name).await?);
        }
        let resources = Resources::service("greeter", addresses);
        Ok(Self {
            control_plane: ResourceServer::start(&resources),
            resources,
        })
    }

    /// The bootstrap that leads a program to the control plane.
    pub(crate) fn bootstrap(&self) -> Bootstrap {
        self.control_plane.bootstrap()
    }

    /// Has the cluster name a policy, to be used in each of its localities.
    pub(crate) fn balance_by(&self, name: &str, config: &Value) {
        let by_locality = wrr_locality([custom_policy(name, config)]);
        let cluster = cluster("greeter-cluster").eds("greeter-eds");
        let resources = self.resources.clone().with(cluster.policies([by_locality]));
        self.control_plane.set(&resources);
    }

    /// Waits until the program refuses a resource, and returns the reason.
    pub(crate) async fn refusal(&mut self) -> String {
        self.control_plane.next_nack().await
    }
}

/// Calls the service: the answer is the name of a backend.
pub(crate) async fn call(channel: &Channel) -> Result<String, Status> {
    let mut client = client::Grpc::new(channel.clone());
    let path = http::uri::PathAndQuery::from_static("/demo.Greeter/Greet");
    let codec = ProstCodec::<String, String>::default();
    let answer = client.unary(Request::new(String::new()), path, codec);
    Ok(answer.await?.into_inner())
}

/// Starts a backend on a port of the kernel's choice.
async fn serve(name: &'static str) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let serving = Server::builder()
        .add_service(Greeter(name))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(serving);
    Ok(address)
}

/// The service as tonic generates it from a proto file, but by hand.
#[derive(Clone)]
struct Greeter(&'static str);

impl NamedService for Greeter {
    const NAME: &'static str = "demo.Greeter";
}

impl Service<http::Request<Body>> for Greeter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let greet = Greet(self.0);
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::<String, String>::default());
            Ok(grpc.unary(greet, request).await)
        })
    }
}

/// Its only method.
struct Greet(&'static str);

impl server::UnaryService<String> for Greet {
    type Response = String;
    type Future = Ready<Result<Response<String>, Status>>;

    fn call(&mut self, _: Request<String>) -> Self::Future {
        ready(Ok(Response::new(self.0.to_owned())))
    }
}
