//! The identity of a client, as a stream keeps it.
//!
//! A message takes several times the memory of its bytes, and is looked at by people alone. So its bytes are kept, and
//! what the protocol depends on.

use envoy_types::pb::envoy::config::core::v3::Node;
use prost::Message;

use super::{lifetime, missing};

/// The identity of a client, without the list of its extensions. An Envoy has hundreds of those, and nothing depends on
/// them.
///
/// ```
/// use std::sync::Arc;
/// use crowfly_xds::{Snapshot, Subscription};
/// use envoy_types::pb::envoy::config::core::v3::Node;
/// use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
///
/// let mut stream = Subscription::new(Arc::new(Snapshot::default()));
/// let node = Node { id: "web-1".into(), cluster: "web".into(), ..Default::default() };
/// stream.handle_request(DiscoveryRequest { node: Some(node.clone()), ..Default::default() });
///
/// let known = stream.node().unwrap();
/// assert_eq!(known.id(), "web-1");
/// assert_eq!(known.to_message(), node);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNode {
    encoded: Box<[u8]>,
    /// True if the client is told of missing names.
    pub(super) is_told_missing: bool,
    /// True if the client understands the time to live.
    pub(super) has_ttl: bool,
}

/// The field of a node that is asked for most often.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

impl ClientNode {
    pub(super) fn new(mut node: Node) -> Self {
        node.extensions = Vec::new();
        Self {
            is_told_missing: missing::is_told(&node),
            has_ttl: lifetime::is_understood(&node),
            encoded: node.encode_to_vec().into(),
        }
    }

    /// The id of the client.
    pub fn id(&self) -> String {
        // The bytes are of a message, so they can be read.
        Id::decode(&*self.encoded).unwrap_or_default().id
    }

    /// The whole node, but for its extensions.
    pub fn to_message(&self) -> Node {
        Node::decode(&*self.encoded).unwrap_or_default()
    }

    /// The bytes that are kept.
    pub fn encoded_len(&self) -> usize {
        self.encoded.len()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{Extension, Locality};

    use super::*;

    /// Everything is kept but the extensions, which are most of an Envoy's node.
    #[test]
    fn a_node_is_kept_without_its_extensions() {
        let node = Node {
            id: "web-1".to_owned(),
            user_agent_name: "envoy".to_owned(),
            locality: Some(Locality {
                region: "eu".to_owned(),
                ..Locality::default()
            }),
            ..Node::default()
        };
        let told = Node {
            extensions: vec![Extension::default(); 300],
            ..node.clone()
        };
        let kept = ClientNode::new(told);
        assert_eq!((kept.id(), kept.to_message()), ("web-1".to_owned(), node));
        assert!(kept.encoded_len() < 50, "{}", kept.encoded_len());
        assert!(kept.has_ttl && !kept.is_told_missing);
    }
}
