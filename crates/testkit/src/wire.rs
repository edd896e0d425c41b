//! Messages of state-of-the-world ADS, written by hand, so that tests of a client share no code
//! with our server.

use crowfly_model::ResourceType;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryResponse, Resource};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;

/// A response of type `R`.
pub fn response<R: ResourceType>(
    version: &str,
    nonce: &str,
    resources: impl IntoIterator<Item = Any>,
) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: version.to_owned(),
        resources: resources.into_iter().collect(),
        type_url: R::TYPE_URL.to_owned(),
        nonce: nonce.to_owned(),
        ..DiscoveryResponse::default()
    }
}

/// A resource in a `Resource` wrapper.
pub fn wrapped(name: &str, inner: Any) -> Any {
    pack_any(Resource {
        name: name.to_owned(),
        resource: Some(inner),
        ..Resource::default()
    })
}

/// A resource of type `R` whose bytes are not that message.
pub fn garbled<R: ResourceType>() -> Any {
    Any {
        type_url: R::TYPE_URL.to_owned(),
        // A field of a wire type that does not exist.
        value: vec![0x0f],
    }
}
