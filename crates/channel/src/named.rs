//! The node in the text of a failure.
//!
//! Every failure that a call can see ends with the node, because an operator finds a client by it in the control plane.
//! The node is added only here, so that no text has it twice.

use std::error::Error as _;
use std::sync::Arc;

use tonic::Status;

/// Adds the node to the end of a status' text. A channel without a bootstrap has no node to name.
///
/// The cause of the failure can still be found below it ([`ConnectionLost::find`](crate::ConnectionLost::find)).
pub(crate) fn named(status: Status, node: &str) -> Status {
    if node.is_empty() {
        return status;
    }
    with_suffix(status, &format!(" [node {node}]"))
}

/// Adds words to the end of a status' text, and keeps the rest of the status.
pub(crate) fn with_suffix(status: Status, suffix: &str) -> Status {
    let mut longer = Status::with_details_and_metadata(
        status.code(),
        format!("{}{suffix}", status.message()),
        status.details().to_vec().into(),
        status.metadata().clone(),
    );
    if status.source().is_some() {
        // A source cannot be taken out of a status, so the status is the source.
        longer.set_source(Arc::new(status));
    }
    longer
}

#[cfg(test)]
mod tests {
    use std::io;

    use tonic::Code;

    use super::*;

    #[test]
    fn the_node_is_added_and_nothing_is_lost() {
        let mut status = Status::with_details(Code::Aborted, "broken", vec![1].into());
        status
            .metadata_mut()
            .insert("key", "value".parse().unwrap());
        status.set_source(Arc::new(io::Error::other("cause")));
        let named = named(status, "web-1");
        assert_eq!(
            (named.code(), named.message(), named.details()),
            (Code::Aborted, "broken [node web-1]", &[1][..])
        );
        assert_eq!(named.metadata().get("key").unwrap(), "value");
        let below = named.source().unwrap().source().unwrap();
        assert_eq!(below.to_string(), "cause");
    }

    #[test]
    fn no_node_is_not_named() {
        let status = named(Status::unavailable("no bootstrap"), "");
        assert_eq!(status.message(), "no bootstrap");
    }
}
