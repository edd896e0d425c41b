//! Both protocols as one, for what holds in either.

use std::collections::BTreeMap;

use crowfly_model::ResourceType;
use crowfly_xds::{Input, Protocol, Request};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;

use crate::{delta, response};

/// Both, state of the world first.
pub const PROTOCOLS: [Protocol; 2] = [Protocol::StateOfTheWorld, Protocol::Delta];

/// Runs a test over each protocol; what it prints tells which one failed.
pub fn over_both(test: impl Fn(Protocol)) {
    for protocol in PROTOCOLS {
        println!("over {protocol:?}");
        test(protocol);
    }
}

/// The same for a test over sockets.
pub async fn over_both_on_sockets(test: impl AsyncFn(Protocol)) {
    for protocol in PROTOCOLS {
        println!("over {protocol:?}");
        test(protocol).await;
    }
}

/// What a server says, in the protocol it speaks.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// In the incremental protocol.
    Delta(DeltaDiscoveryResponse),
    /// In state of the world.
    Sotw(DiscoveryResponse),
}

impl Said {
    /// Resources of type `R` with their names, all of one version, which is the nonce as well.
    pub fn new<'a, R: ResourceType>(
        protocol: Protocol,
        version: &str,
        resources: impl IntoIterator<Item = (&'a str, Any)>,
    ) -> Self {
        let resources = resources.into_iter();
        match protocol {
            Protocol::Delta => {
                let resources = resources.map(|(name, any)| (name, version, any));
                Self::Delta(delta::<R>(version, resources))
            }
            Protocol::StateOfTheWorld => {
                let resources = resources.map(|(_, any)| any);
                Self::Sotw(response::<R>(version, version, resources))
            }
        }
    }
}

impl From<DeltaDiscoveryResponse> for Said {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        Self::Delta(response)
    }
}

impl From<DiscoveryResponse> for Said {
    fn from(response: DiscoveryResponse) -> Self {
        Self::Sotw(response)
    }
}

impl From<Said> for Input {
    fn from(said: Said) -> Self {
        match said {
            Said::Delta(response) => Self::DeltaResponse(response),
            Said::Sotw(response) => Self::Response(response),
        }
    }
}

/// What a client says, in either protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The node's id, on a stream's first request.
    pub node: Option<String>,
    /// The names it asks for: in delta, those that it did not ask for before.
    pub names: Vec<String>,
    /// The names it no longer asks for, in delta.
    pub left: Vec<String>,
    /// What it says it holds: by name in delta, in state of the world one version for all of a
    /// type, under the empty name.
    pub held: BTreeMap<String, String>,
    /// The response that it answers.
    pub nonce: String,
    /// Why it refuses that response.
    pub refusal: Option<String>,
}

impl From<Request> for Asked {
    fn from(request: Request) -> Self {
        match request {
            Request::Delta(request) => Self {
                node: request.node.map(|node| node.id),
                names: request.resource_names_subscribe,
                left: request.resource_names_unsubscribe,
                held: request.initial_resource_versions.into_iter().collect(),
                nonce: request.response_nonce,
                refusal: request.error_detail.map(|status| status.message),
            },
            Request::Sotw(request) => Self {
                node: request.node.map(|node| node.id),
                names: request.resource_names,
                left: Vec::new(),
                held: Some(request.version_info)
                    .filter(|version| !version.is_empty())
                    .map(|version| (String::new(), version))
                    .into_iter()
                    .collect(),
                nonce: request.response_nonce,
                refusal: request.error_detail.map(|status| status.message),
            },
        }
    }
}
