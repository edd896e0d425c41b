//! Counters of connections, and of clients that reached a limit, by limit and node.
//!
//! Only the nodes that came first have a label of their own, because clients choose their names.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{LabelNames, Limit};

/// The most nodes that have a label of their own. The log names all.
const MAX_NODES: usize = 100;

/// The counters of limits; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LimitMetrics {
    connections: Gauge,
    refused: Family<ReasonLabel, Counter>,
    limited: Family<LimitLabel, Counter>,
    nodes: Arc<LabelNames>,
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

impl Default for LimitMetrics {
    fn default() -> Self {
        Self {
            connections: Gauge::default(),
            refused: Family::default(),
            limited: Family::default(),
            nodes: Arc::new(LabelNames::new(MAX_NODES)),
        }
    }
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
        let node = self.nodes.label_of(node);
        let limit = limit.name();
        self.limited
            .get_or_create(&LimitLabel { limit, node })
            .inc();
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
