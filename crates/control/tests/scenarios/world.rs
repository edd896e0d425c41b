//! A control plane with its adapter, and streams of every kind.

use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use crowfly_control::ControlPlane;
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

use adapter::adapter_client::AdapterClient;
use adapter::{ClearStateRequest, ResourceRequest, SetStateRequest};

#[allow(
    dead_code,
    unreachable_pub,
    unused_qualifications,
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated"
)]
mod adapter {
    include!("../../src/conformance/generated/adapter.rs");
}

pub(crate) const CDS: Type = Type {
    url: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    service: "envoy.service.cluster.v3.ClusterDiscoveryService",
    noun: "Clusters",
    name_field: 1,
};
pub(crate) const LDS: Type = Type {
    url: "type.googleapis.com/envoy.config.listener.v3.Listener",
    service: "envoy.service.listener.v3.ListenerDiscoveryService",
    noun: "Listeners",
    name_field: 1,
};
pub(crate) const RDS: Type = Type {
    url: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    service: "envoy.service.route.v3.RouteDiscoveryService",
    noun: "Routes",
    name_field: 1,
};
pub(crate) const EDS: Type = Type {
    url: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    service: "envoy.service.endpoint.v3.EndpointDiscoveryService",
    noun: "Endpoints",
    name_field: 1,
};
pub(crate) const ALL: [Type; 4] = [CDS, LDS, RDS, EDS];
pub(crate) const FULL_STATE: [Type; 2] = [CDS, LDS];
pub(crate) const CHANGES_ONLY: [Type; 2] = [RDS, EDS];

/// A type of resources, and its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) url: &'static str,
    service: &'static str,
    noun: &'static str,
    name_field: u32,
}

/// The services that a stream uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Aggregated,
    OfOneType,
}

pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Aggregated, Transport::OfOneType];

impl Transport {
    /// The path of a method; `variant` is `Stream` or `Delta`.
    pub(crate) fn path(self, variant: &str, of: Type) -> PathAndQuery {
        let path = match self {
            Self::Aggregated => format!(
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/{variant}AggregatedResources"
            ),
            Self::OfOneType => format!("/{}/{variant}{}", of.service, of.noun),
        };
        path.parse().unwrap()
    }
}

/// A control plane that serves what its adapter says.
pub(crate) struct World {
    plane: ControlPlane,
    adapter: AdapterClient<Channel>,
    version: u32,
}

impl World {
    /// A world in which one node has resources of these names, of each type.
    pub(crate) async fn with(types: &[Type], names: &[&str]) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut plane = ControlPlane::with_snapshot(Snapshot::default(), any, None)
            .await
            .unwrap();
        let address = plane.serve_conformance(any).await.unwrap();
        let adapter = AdapterClient::new(channel(address).await);
        let mut world = Self {
            plane,
            adapter,
            version: 0,
        };
        world.set(types, names).await;
        world
    }

    pub(crate) async fn channel(&self) -> Channel {
        channel(self.plane.listen_addr()).await
    }

    pub(crate) fn version(&self) -> String {
        self.version.to_string()
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version()
    }

    pub(crate) async fn set(&mut self, types: &[Type], names: &[&str]) {
        let resources = types.iter().flat_map(|of| {
            names.iter().map(|name| {
                // A message with nothing but a name.
                let mut value = Vec::new();
                prost::encoding::string::encode(of.name_field, &(*name).to_owned(), &mut value);
                envoy_types::pb::google::protobuf::Any {
                    type_url: of.url.to_owned(),
                    value,
                }
            })
        });
        let request = SetStateRequest {
            node: NODE.to_owned(),
            version: self.next_version(),
            resources: resources.collect(),
        };
        let response = soon(self.adapter.set_state(request)).await.unwrap();
        assert!(response.into_inner().success);
    }

    pub(crate) async fn clear(&mut self) {
        let node = NODE.to_owned();
        let request = ClearStateRequest { node };
        soon(self.adapter.clear_state(request)).await.unwrap();
    }

    pub(crate) async fn update(&mut self, of: Type, name: &str) {
        let version = self.next_version();
        let request = resource(of, name, version);
        soon(self.adapter.update_resource(request)).await.unwrap();
    }

    pub(crate) async fn add(&mut self, of: Type, name: &str) {
        let version = self.next_version();
        let request = resource(of, name, version);
        soon(self.adapter.add_resource(request)).await.unwrap();
    }

    /// Removes a resource under the version that it has, as the suite does.
    pub(crate) async fn remove(&mut self, of: Type, name: &str) {
        let request = resource(of, name, self.version());
        soon(self.adapter.remove_resource(request)).await.unwrap();
    }

    /// The reasons for which the adapter refuses requests.
    pub(crate) async fn refusals(&mut self) -> Vec<String> {
        let mut refusals = Vec::new();
        for request in [
            resource(CDS, "missing", "9".to_owned()),
            resource(CDS, "", "9".to_owned()),
            ResourceRequest {
                type_url: "type.googleapis.com/x.Y".to_owned(),
                ..resource(CDS, "a", "9".to_owned())
            },
            ResourceRequest {
                node: String::new(),
                ..resource(CDS, "a", "9".to_owned())
            },
        ] {
            let refusal = soon(self.adapter.update_resource(request)).await;
            refusals.push(refusal.unwrap_err().message().to_owned());
        }
        refusals
    }
}

const NODE: &str = "test-id";

fn resource(of: Type, name: &str, version: String) -> ResourceRequest {
    ResourceRequest {
        node: NODE.to_owned(),
        type_url: of.url.to_owned(),
        resource_name: name.to_owned(),
        version,
    }
}

/// The node of every client.
pub(crate) fn node() -> Option<Node> {
    Some(Node {
        id: NODE.to_owned(),
        ..Node::default()
    })
}

/// A bare stream of requests and responses.
pub(crate) struct Wire<Q, R> {
    requests: mpsc::Sender<Q>,
    responses: Streaming<R>,
}

impl<Q, R> Wire<Q, R>
where
    Q: Message + Default + 'static,
    R: Message + Default + 'static,
{
    pub(crate) async fn open(channel: Channel, path: PathAndQuery) -> Self {
        let (requests, receiver) = mpsc::channel(16);
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let request = tonic::Request::new(ReceiverStream::new(receiver));
        let codec = tonic_prost::ProstCodec::default();
        let responses = soon(grpc.streaming(request, path, codec)).await;
        Self {
            requests,
            responses: responses.unwrap().into_inner(),
        }
    }

    pub(crate) async fn send(&self, request: Q) {
        self.requests.send(request).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> R {
        let response = soon(self.responses.message()).await;
        response.unwrap().expect("the stream ended")
    }
}

/// Everything here happens within milliseconds; this is for a machine that is busy.
pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), event)
        .await
        .expect("it should have happened by now")
}

async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}
