//! Counters of clients that reached a limit, by limit and node.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Limit;

/// The most nodes that have a label of their own. Clients choose their names, and must not fill our
/// memory with them. The log names all.
const MAX_NODES: usize = 100;

/// The most characters of a node in a label.
const MAX_CHARACTERS: usize = 100;

/// The counters of limits; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitMetrics {
    connections: Gauge,
    refused: Family<ReasonLabel, Counter>,
    limited: Family<LimitLabel, Counter>,
    nodes: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
    node: String,
}

impl LimitMetrics {
    pub(crate) fn connected(&self) {
        self.connections.inc();
    }

    pub(crate) fn disconnected(&self) {
        self.connections.dec();
    }

    /// Counts a connection that was closed before it could be used.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts that a node reached a limit.
    pub(crate) fn limited(&self, limit: Limit, node: &str) {
        let node = self.label_of(node);
        let limit = limit.name();
        self.limited
            .get_or_create(&LimitLabel { limit, node })
            .inc();
    }

    fn label_of(&self, node: &str) -> String {
        let node: String = node.chars().take(MAX_CHARACTERS).collect();
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.contains(&node) {
            return node;
        }
        if nodes.len() == MAX_NODES {
            return "(others)".to_owned();
        }
        nodes.insert(node.clone());
        node
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Open connections to the port of ADS";
        registry.register("connections", help, self.connections.clone());
        let help = "Connections that were closed before they could be used";
        registry.register("refused_connections", help, self.refused.clone());
        let help = "Times a client reached a limit, by limit and node";
        registry.register("limited", help, self.limited.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-11: a client that invents names of nodes gets a hundred labels, and no more.
    #[test]
    fn invented_nodes_share_a_label() {
        let metrics = LimitMetrics::default();
        for index in 0..MAX_NODES {
            assert_eq!(
                metrics.label_of(&format!("node-{index}")),
                format!("node-{index}")
            );
        }
        assert_eq!(metrics.label_of("one-more"), "(others)");
        assert_eq!(metrics.label_of("node-7"), "node-7");
        let long = LimitMetrics::default().label_of(&"x".repeat(1 << 20));
        assert_eq!(long.len(), MAX_CHARACTERS);
    }
}
