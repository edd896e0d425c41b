//! What the tests over real sockets share: a bare ADS client, and a bare HTTP client.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code, shared by several test crates"
)]

pub mod delta;
pub mod log;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use crowfly_control::{Catalog, ConfigFile, ControlPlane, translate};
use crowfly_model::Features;
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::rpc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
pub const CLUSTER_CONFIG: &str =
    "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";
pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The name of our own client, which reads the lists of aggregates as resources (gRFC A99) and says so.
pub const CROWFLY: &str = "crowfly";

/// Everything here happens within milliseconds; this is for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

pub async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event)
        .await
        .expect("it should have happened by now")
}

/// Waits until `condition` holds. There is no event to wait for: the pages show it.
pub async fn until(mut condition: impl AsyncFnMut() -> bool) {
    soon(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// The value of a metric, with its labels; 0 if it is not there.
pub async fn metric(admin: SocketAddr, name: &str) -> f64 {
    let (_, text) = get(admin, "/metrics").await;
    let of = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    text.lines().find_map(of).unwrap_or_default()
}

pub fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A service with one endpoint, on the given port.
pub fn service(name: &str, port: u16) -> String {
    services(&[(name, port)])
}

/// Services with one endpoint each, on the given port.
pub fn services(all: &[(&str, u16)]) -> String {
    let service = |(name, port): &(&str, u16)| {
        format!("{{ name: {name}, endpoints: [{{ address: \"10.0.0.1:{port}\" }}] }}")
    };
    let all: Vec<String> = all.iter().map(service).collect();
    format!("services: [{}]\n", all.join(", "))
}

/// Two lists of clusters: one that a service's fallbacks become, and a raw one.
pub fn cluster_lists() -> String {
    format!(
        r#"
services:
- {{ name: payments, fallback: [other], fallback_as: resource }}
- {{ name: other }}
resources:
- name: raw
  resource: {{ "@type": {CLUSTER_CONFIG}, clusters: [other, payments] }}
"#
    )
}

pub fn snapshot(text: &str) -> Snapshot {
    let file = ConfigFile {
        path: "test.yaml".into(),
        text: text.to_owned(),
    };
    translate(&Catalog::read_allowing_empty(&[file]).unwrap()).unwrap()
}

pub async fn plane(text: &str) -> ControlPlane {
    ControlPlane::with_snapshot(snapshot(text), any_port(), Some(any_port()))
        .await
        .unwrap()
}

pub async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

/// One ADS stream, with nothing in between.
pub struct AdsClient {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl AdsClient {
    pub async fn open(address: SocketAddr) -> Self {
        let mut client = AggregatedDiscoveryServiceClient::new(channel(address).await);
        let (requests, receiver) = mpsc::channel(16);
        let responses = client.stream_aggregated_resources(ReceiverStream::new(receiver));
        Self {
            requests,
            responses: soon(responses).await.unwrap().into_inner(),
        }
    }

    pub async fn send(&self, request: DiscoveryRequest) {
        self.requests.send(request).await.unwrap();
    }

    /// Asks as a client of the given kind.
    pub async fn subscribe(&self, agent: &str, type_url: &str, names: &[&str]) {
        let feature = Features::AGGREGATE_CLUSTER_RESOURCE.to_owned();
        let node = Node {
            id: "node-1".to_owned(),
            user_agent_name: agent.to_owned(),
            client_features: Vec::from_iter((agent == CROWFLY).then_some(feature)),
            ..Node::default()
        };
        self.send(DiscoveryRequest {
            node: Some(node),
            type_url: type_url.to_owned(),
            resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..DiscoveryRequest::default()
        })
        .await;
    }

    pub async fn next(&mut self) -> DiscoveryResponse {
        self.try_next().await.unwrap().expect("the stream ended")
    }

    pub async fn try_next(&mut self) -> Result<Option<DiscoveryResponse>, Status> {
        soon(self.responses.message()).await
    }

    pub async fn ack(&self, response: &DiscoveryResponse, names: &[&str]) {
        self.send(DiscoveryRequest {
            version_info: response.version_info.clone(),
            ..answer(response, names)
        })
        .await;
    }

    pub async fn nack(&self, response: &DiscoveryResponse, names: &[&str], reason: &str) {
        self.send(DiscoveryRequest {
            error_detail: Some(rpc::Status {
                code: 3,
                message: reason.to_owned(),
                ..rpc::Status::default()
            }),
            ..answer(response, names)
        })
        .await;
    }
}

fn answer(response: &DiscoveryResponse, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..DiscoveryRequest::default()
    }
}

/// Fetches a page; the status code and the body.
pub async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nhost: test\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(socket.read_to_string(&mut response)).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(
        !head.contains("chunked"),
        "an answer to HTTP/1.0 is not in chunks"
    );
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

pub async fn get_json(address: SocketAddr, path: &str) -> serde_json::Value {
    let (status, body) = get(address, path).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}
