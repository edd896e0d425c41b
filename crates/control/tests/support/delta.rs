//! A bare incremental ADS client.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use envoy_types::pb::google::rpc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{channel, soon};

/// One incremental stream, with nothing in between.
pub struct DeltaClient {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl DeltaClient {
    pub async fn open(address: SocketAddr) -> Self {
        let mut client = AggregatedDiscoveryServiceClient::new(channel(address).await);
        let (requests, receiver) = mpsc::channel(16);
        let responses = client.delta_aggregated_resources(ReceiverStream::new(receiver));
        Self {
            requests,
            responses: soon(responses).await.unwrap().into_inner(),
        }
    }

    pub async fn send(&self, request: DeltaDiscoveryRequest) {
        self.requests.send(request).await.unwrap();
    }

    pub async fn next(&mut self) -> DeltaDiscoveryResponse {
        self.try_next().await.unwrap().expect("the stream ended")
    }

    pub async fn try_next(&mut self) -> Result<Option<DeltaDiscoveryResponse>, Status> {
        soon(self.responses.message()).await
    }
}

/// A subscription of a client of the given kind.
pub fn subscribe(agent: &str, type_url: &str, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(Node {
            id: "node-1".to_owned(),
            user_agent_name: agent.to_owned(),
            ..Node::default()
        }),
        type_url: type_url.to_owned(),
        resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
        ..DeltaDiscoveryRequest::default()
    }
}

pub fn answer(response: &DeltaDiscoveryResponse, error: Option<&str>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        error_detail: error.map(|message| rpc::Status {
            code: 3,
            message: message.to_owned(),
            ..rpc::Status::default()
        }),
        ..DeltaDiscoveryRequest::default()
    }
}

pub fn names(response: &DeltaDiscoveryResponse) -> Vec<&str> {
    let resources = response.resources.iter();
    resources.map(|resource| resource.name.as_str()).collect()
}
