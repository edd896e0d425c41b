//! Messages of incremental ADS, written by hand, so that tests of a client share no code with our
//! server.

use crowfly_model::ResourceType;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, Resource, ResourceError, ResourceName,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status;

/// A delta response of type `R`, each resource with its name and version.
pub fn delta<'a, 'b, R: ResourceType>(
    nonce: &str,
    resources: impl IntoIterator<Item = (&'a str, &'b str, Any)>,
) -> DeltaDiscoveryResponse {
    let resource = |(name, version, any): (&str, &str, Any)| Resource {
        name: name.to_owned(),
        version: version.to_owned(),
        resource: Some(any),
        ..Resource::default()
    };
    DeltaDiscoveryResponse {
        type_url: R::TYPE_URL.to_owned(),
        nonce: nonce.to_owned(),
        resources: resources.into_iter().map(resource).collect(),
        ..DeltaDiscoveryResponse::default()
    }
}

/// A delta response of type `R` with the names of removed resources.
pub fn removed<R: ResourceType>(nonce: &str, names: &[&str]) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        removed_resources: names.iter().map(|name| (*name).to_owned()).collect(),
        ..delta::<R>(nonce, [])
    }
}

/// The error that a server sends in place of a resource (xRFC TP3).
pub fn report(name: &str, code: i32, message: &str) -> ResourceError {
    ResourceError {
        resource_name: Some(ResourceName {
            name: name.to_owned(),
            ..ResourceName::default()
        }),
        error_detail: Some(Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        }),
    }
}
