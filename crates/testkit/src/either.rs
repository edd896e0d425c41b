//! Requests and responses of both protocols as one type each, because most rules hold in both protocols, and one
//! test can then check both.

use std::collections::BTreeMap;

use crowfly_model::ResourceType;
use crowfly_xds::{Input, Protocol, Request};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, ResourceError,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status;

use crate::{delta, removed, response};

/// The two protocols, state of the world first.
pub const PROTOCOLS: [Protocol; 2] = [Protocol::StateOfTheWorld, Protocol::Delta];

/// Runs a test over each protocol. The output of a failed test names the protocol.
pub fn over_both(test: impl Fn(Protocol)) {
    for protocol in PROTOCOLS {
        println!("over {protocol:?}");
        test(protocol);
    }
}

/// Runs a test over sockets over each protocol.
pub async fn over_both_on_sockets(test: impl AsyncFn(Protocol)) {
    for protocol in PROTOCOLS {
        println!("over {protocol:?}");
        test(protocol).await;
    }
}

/// A response of a server, in the protocol it speaks.
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
        Self::with_nonce::<R>(protocol, version, version, resources)
    }

    /// Resources of type `R` with their names, all of one version.
    pub fn with_nonce<'a, R: ResourceType>(
        protocol: Protocol,
        version: &str,
        nonce: &str,
        resources: impl IntoIterator<Item = (&'a str, Any)>,
    ) -> Self {
        let resources = resources.into_iter();
        match protocol {
            Protocol::Delta => {
                let resources = resources.map(|(name, any)| (name, version, any));
                Self::Delta(delta::<R>(nonce, resources))
            }
            Protocol::StateOfTheWorld => {
                let resources = resources.map(|(_, any)| any);
                Self::Sotw(response::<R>(version, nonce, resources))
            }
        }
    }

    /// A response that deletes the resource `gone` of type `R`. In delta it names `gone`. In state
    /// of the world it has only the resources in `rest`, which are all that are left.
    pub fn without<'a, R: ResourceType>(
        protocol: Protocol,
        version: &str,
        nonce: &str,
        gone: &str,
        rest: impl IntoIterator<Item = (&'a str, Any)>,
    ) -> Self {
        match protocol {
            Protocol::Delta => removed::<R>(nonce, &[gone]).into(),
            Protocol::StateOfTheWorld => Self::with_nonce::<R>(protocol, version, nonce, rest),
        }
    }

    /// The response with another type URL.
    pub fn of_type(mut self, url: &str) -> Self {
        match &mut self {
            Self::Delta(response) => response.type_url = url.to_owned(),
            Self::Sotw(response) => response.type_url = url.to_owned(),
        }
        self
    }

    /// The response with errors in place of resources (xRFC TP3).
    pub fn reporting(mut self, errors: impl IntoIterator<Item = ResourceError>) -> Self {
        let errors = errors.into_iter().collect();
        match &mut self {
            Self::Delta(response) => response.resource_errors = errors,
            Self::Sotw(response) => response.resource_errors = errors,
        }
        self
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

/// A request of a client, in either protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The type that the request is about.
    pub type_url: String,
    /// The id of the node, in the first request of a stream.
    pub node: Option<String>,
    /// The names that the client asks for; in delta, only those that are new.
    pub names: Vec<String>,
    /// The names that the client no longer asks for, in delta.
    pub left: Vec<String>,
    /// The versions that the client holds. In delta they are by name. In state of the world there
    /// is one version for the type, under the empty name.
    pub held: BTreeMap<String, String>,
    /// The nonce of the response that the request answers.
    pub nonce: String,
    /// The reason why the client refuses that response; `None` for an ACK.
    pub refusal: Option<String>,
}

impl Asked {
    /// The reason of a NACK, and the rest of the request.
    ///
    /// # Panics
    ///
    /// If the request is not a NACK.
    pub fn refused(mut self) -> (String, Self) {
        let reason = self.refusal.take();
        (reason.expect("the request refuses a response"), self)
    }
}

impl From<Request> for Asked {
    fn from(request: Request) -> Self {
        match request {
            Request::Delta(request) => Self {
                type_url: request.type_url,
                node: request.node.map(|node| node.id),
                names: request.resource_names_subscribe,
                left: request.resource_names_unsubscribe,
                held: request.initial_resource_versions.into_iter().collect(),
                nonce: request.response_nonce,
                refusal: request.error_detail.map(reason),
            },
            Request::Sotw(request) => Self {
                type_url: request.type_url,
                node: request.node.map(|node| node.id),
                names: request.resource_names,
                left: Vec::new(),
                held: Some(request.version_info)
                    .filter(|version| !version.is_empty())
                    .map(|version| (String::new(), version))
                    .into_iter()
                    .collect(),
                nonce: request.response_nonce,
                refusal: request.error_detail.map(reason),
            },
        }
    }
}

/// The message of a NACK. The code is checked here, because every NACK of a client has the same.
fn reason(status: Status) -> String {
    const INVALID_ARGUMENT: i32 = 3;
    assert_eq!(status.code, INVALID_ARGUMENT, "{status:?}");
    status.message
}
