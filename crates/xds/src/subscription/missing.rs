//! Names that a client subscribed to and that do not exist, in state of the world.
//!
//! A response cannot say that a route or an endpoint does not exist, so a client waits for 15
//! seconds. xRFC TP3 adds errors of single resources to responses, and gRFC A88 gives them their
//! meaning.

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{ResourceError, ResourceName};
use envoy_types::pb::google::rpc::Status;

/// The code NOT_FOUND of gRPC.
const NOT_FOUND: i32 = 5;

/// The feature by which a client of any kind announces that it understands the errors.
const FEATURE: &str = "xds.config.supports-resource-errors";

/// True if a client is told of missing names.
///
/// There is no standard feature for it, so gRPC clients and ours are known by their names. They
/// either understand the errors or ignore the field. An Envoy would take the response for one that
/// has no endpoints, and end its wait for them.
pub(super) fn is_told(node: &Node) -> bool {
    node.user_agent_name.starts_with("gRPC")
        || node.user_agent_name == "crowfly"
        || node.client_features.iter().any(|of| of == FEATURE)
}

/// The error for a name that does not exist.
pub(super) fn not_found(type_url: &str, name: &str) -> ResourceError {
    let message_name = type_url.rsplit('/').next().unwrap_or(type_url);
    ResourceError {
        resource_name: Some(ResourceName {
            name: name.to_owned(),
            ..ResourceName::default()
        }),
        error_detail: Some(Status {
            code: NOT_FOUND,
            message: format!("the control plane has no {message_name} named {name:?}"),
            ..Status::default()
        }),
    }
}
