//! One event as one line of JSON, so that a change of a recording is readable in a diff.

use std::collections::HashMap;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use envoy_types::pb::google::{protobuf::Any, rpc};
use serde::{Deserialize, Serialize};

use super::{Event, Message};

#[derive(Serialize, Deserialize)]
struct Line {
    stream: u64,
    #[serde(flatten)]
    message: Body,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Request(RequestLine),
    Response(ResponseLine),
}

#[derive(Serialize, Deserialize)]
struct RequestLine {
    type_url: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    response_nonce: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subscribe: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unsubscribe: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    initial_resource_versions: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<(i32, String)>,
}

#[derive(Serialize, Deserialize)]
struct ResponseLine {
    type_url: String,
    nonce: String,
    system_version_info: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resources: Vec<ResourceLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct ResourceLine {
    name: String,
    version: String,
    /// The message, in hexadecimal; its type is that of the response.
    value: String,
}

pub(super) fn write(event: &Event) -> String {
    let line = Line {
        stream: event.stream,
        message: match &event.message {
            Message::Request(request) => Body::Request(request.as_ref().into()),
            Message::Response(response) => Body::Response(response.into()),
        },
    };
    serde_json::to_string(&line).expect("strings and numbers")
}

pub(super) fn read(text: &str) -> Event {
    let line: Line = serde_json::from_str(text).expect("a line of a recording");
    Event {
        stream: line.stream,
        message: match line.message {
            Body::Request(request) => Message::Request(Box::new(request.into())),
            Body::Response(response) => Message::Response(response.into()),
        },
    }
}

impl From<&DeltaDiscoveryRequest> for RequestLine {
    fn from(request: &DeltaDiscoveryRequest) -> Self {
        let versions = request.initial_resource_versions.clone();
        let mut versions: Vec<_> = versions.into_iter().collect();
        versions.sort_unstable();
        let error = request.error_detail.as_ref();
        Self {
            type_url: request.type_url.clone(),
            response_nonce: request.response_nonce.clone(),
            subscribe: request.resource_names_subscribe.clone(),
            unsubscribe: request.resource_names_unsubscribe.clone(),
            initial_resource_versions: versions,
            error: error.map(|error| (error.code, error.message.clone())),
        }
    }
}

impl From<RequestLine> for DeltaDiscoveryRequest {
    fn from(line: RequestLine) -> Self {
        Self {
            type_url: line.type_url,
            response_nonce: line.response_nonce,
            resource_names_subscribe: line.subscribe,
            resource_names_unsubscribe: line.unsubscribe,
            initial_resource_versions: line
                .initial_resource_versions
                .into_iter()
                .collect::<HashMap<_, _>>(),
            error_detail: line.error.map(|(code, message)| rpc::Status {
                code,
                message,
                ..rpc::Status::default()
            }),
            ..Self::default()
        }
    }
}

impl From<&DeltaDiscoveryResponse> for ResponseLine {
    fn from(response: &DeltaDiscoveryResponse) -> Self {
        let resource = |resource: &Resource| ResourceLine {
            name: resource.name.clone(),
            version: resource.version.clone(),
            value: hex(resource.resource.as_ref().map_or(&[], |any| &any.value)),
        };
        Self {
            type_url: response.type_url.clone(),
            nonce: response.nonce.clone(),
            system_version_info: response.system_version_info.clone(),
            resources: response.resources.iter().map(resource).collect(),
            removed: response.removed_resources.clone(),
        }
    }
}

impl From<ResponseLine> for DeltaDiscoveryResponse {
    fn from(line: ResponseLine) -> Self {
        let resource = |resource: ResourceLine| Resource {
            name: resource.name,
            version: resource.version,
            resource: Some(Any {
                type_url: line.type_url.clone(),
                value: unhex(&resource.value),
            }),
            ..Resource::default()
        };
        Self {
            resources: line.resources.into_iter().map(resource).collect(),
            type_url: line.type_url,
            nonce: line.nonce,
            system_version_info: line.system_version_info,
            removed_resources: line.removed,
            ..Self::default()
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
