//! A bare ADS client that asks for endpoints, in either variant of the protocol.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The subscription of a client.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// As a gRPC channel does.
    SotwOne,
    /// As an Envoy with every cluster does.
    SotwAll,
    DeltaWildcard,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::SotwOne, Self::SotwAll, Self::DeltaWildcard];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SotwOne => "state of the world, one name",
            Self::SotwAll => "state of the world, all names",
            Self::DeltaWildcard => "delta, wildcard",
        }
    }
}

/// One ADS stream that has what there is, and waits for the next change.
pub(crate) enum Stream {
    Sotw {
        names: Vec<String>,
        requests: mpsc::Sender<DiscoveryRequest>,
        responses: Streaming<DiscoveryResponse>,
    },
    Delta {
        requests: mpsc::Sender<DeltaDiscoveryRequest>,
        responses: Streaming<DeltaDiscoveryResponse>,
    },
}

impl Stream {
    pub(crate) async fn open(address: SocketAddr, kind: Kind, names: &[String]) -> Self {
        let names = match kind {
            Kind::SotwOne => vec![names[names.len() / 2].clone()],
            Kind::SotwAll => names.to_vec(),
            Kind::DeltaWildcard => return Self::open_delta(address, names.len()).await,
        };
        let (requests, receiver) = mpsc::channel(16);
        let opened = client(address)
            .await
            .stream_aggregated_resources(ReceiverStream::new(receiver))
            .await;
        let mut responses = opened.unwrap().into_inner();
        let first = DiscoveryRequest {
            node: Some(node()),
            type_url: ENDPOINTS.to_owned(),
            resource_names: names.clone(),
            ..DiscoveryRequest::default()
        };
        requests.send(first).await.unwrap();
        let response = responses.message().await.unwrap().unwrap();
        assert_eq!(response.resources.len(), names.len());
        requests.send(ack(&response, &names)).await.unwrap();
        Self::Sotw {
            names,
            requests,
            responses,
        }
    }

    async fn open_delta(address: SocketAddr, count: usize) -> Self {
        let (requests, receiver) = mpsc::channel(16);
        let opened = client(address)
            .await
            .delta_aggregated_resources(ReceiverStream::new(receiver))
            .await;
        let mut responses = opened.unwrap().into_inner();
        let first = DeltaDiscoveryRequest {
            node: Some(node()),
            type_url: ENDPOINTS.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(first).await.unwrap();
        let mut known = 0;
        while known < count {
            let response = responses.message().await.unwrap().unwrap();
            known += response.resources.len();
            requests.send(ack_delta(&response)).await.unwrap();
        }
        Self::Delta {
            requests,
            responses,
        }
    }

    /// Waits for the response with one changed resource, and accepts it.
    pub(crate) async fn next(&mut self) {
        match self {
            Self::Sotw {
                names,
                requests,
                responses,
            } => {
                let response = responses.message().await.unwrap().unwrap();
                assert_eq!(response.resources.len(), 1);
                requests.send(ack(&response, names)).await.unwrap();
            }
            Self::Delta {
                requests,
                responses,
            } => {
                let response = responses.message().await.unwrap().unwrap();
                assert_eq!(response.resources.len(), 1);
                requests.send(ack_delta(&response)).await.unwrap();
            }
        }
    }
}

async fn client(
    address: SocketAddr,
) -> AggregatedDiscoveryServiceClient<tonic::transport::Channel> {
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX)
}

fn node() -> Node {
    Node {
        id: "bench".to_owned(),
        ..Node::default()
    }
}

fn ack(response: &DiscoveryResponse, names: &[String]) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: response.version_info.clone(),
        response_nonce: response.nonce.clone(),
        type_url: response.type_url.clone(),
        resource_names: names.to_vec(),
        ..DiscoveryRequest::default()
    }
}

fn ack_delta(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        ..DeltaDiscoveryRequest::default()
    }
}
