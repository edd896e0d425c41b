//! The checks of a request before the server half takes it. They stand for what a stream keeps and the log shows of a
//! client's texts, because a client may send any.

use envoy_types::pb::envoy::config::core::v3::Node;
use tonic::Status;

/// The most bytes of a type URL. It is kept for the life of a stream.
const MAX_TYPE_URL: usize = 256;

/// The most bytes of a name in a node. The log has them, and views match them by regular expressions.
const MAX_NODE_NAME: usize = 512;

/// Checks the type of a request. On a service of one type, `only`, it may be left out (xDS protocol:
/// DiscoveryRequest).
///
/// # Errors
/// It is too long, missing, or of another type.
pub(super) fn type_url(type_url: &mut String, only: Option<&'static str>) -> Result<(), Status> {
    check_length("type_url", type_url, MAX_TYPE_URL)?;
    match only {
        Some(only) if type_url.is_empty() => only.clone_into(type_url),
        Some(only) if type_url != only => {
            let message = format!("type_url: expected {only} on this service, got {type_url}");
            return Err(Status::invalid_argument(message));
        }
        None if type_url.is_empty() => {
            return Err(Status::invalid_argument("type_url: must be set"));
        }
        _ => {}
    }
    Ok(())
}

/// Checks the names in a node.
///
/// # Errors
/// One of them is too long.
pub(super) fn node(node: &Node) -> Result<(), Status> {
    for (field, text) in [
        ("node.id", &node.id),
        ("node.cluster", &node.cluster),
        ("node.user_agent_name", &node.user_agent_name),
    ] {
        check_length(field, text, MAX_NODE_NAME)?;
    }
    Ok(())
}

fn check_length(field: &str, text: &str, most: usize) -> Result<(), Status> {
    let length = text.len();
    if length > most {
        let message = format!("{field}: expected at most {most} bytes, got {length}");
        return Err(Status::invalid_argument(message));
    }
    Ok(())
}
