//! The agent for Prometheus. All names begin with `crowfly_node_`.
//!
//! Counters of the agent's own work are kept in [`Metrics`]. Everything else is read when somebody asks, in
//! a [`Scrape`]: the counters of connections belong to the kernel, and outlive the agent.

mod listen;
mod read;
mod scrape;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use listen::{Listener, listen};
pub use read::read;
pub(crate) use read::read_with;
pub use scrape::{Connections, MAX_CONNECTION_ROWS, Scrape};

use crate::reconcile::Outcome;

/// A count that is read anew for each scrape.
type UnsignedGauge = Gauge<u64, AtomicU64>;

/// The upper ends of the buckets of a change's time, in seconds.
const BUCKETS: [f64; 12] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// The counters of one agent's work; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconcile: Histogram,
    frontends: Family<Result, Counter>,
    failures: Family<Source, Counter>,
    refused: Family<Source, Counter>,
    ended: Family<Protocol, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Source {
    source: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Protocol {
    protocol: String,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            reconcile: Histogram::new(BUCKETS),
            frontends: Family::default(),
            failures: Family::default(),
            refused: Family::default(),
            ended: Family::default(),
        }
    }
}

impl Metrics {
    /// Counts a change of the maps, and the time from the event to its end.
    pub fn reconciled(&self, took: Duration, outcome: &Outcome) {
        self.reconcile.observe(took.as_secs_f64());
        let failed = outcome.failed.len();
        for (result, frontends) in [
            ("switched", outcome.switched),
            ("removed", outcome.removed),
            ("failed", failed),
        ] {
            let counter = self.frontends.get_or_create(&Result { result });
            counter.inc_by(frontends as u64);
        }
    }

    /// Counts a failure of a source as a whole.
    pub fn source_failed(&self, source: &str) {
        self.failures.get_or_create(&of(source)).inc();
    }

    /// Counts inputs that a source refused: resources, keys or objects.
    pub fn refused(&self, source: &str, inputs: u64) {
        self.refused.get_or_create(&of(source)).inc_by(inputs);
    }

    /// Counts sockets that were ended because their backend is gone.
    pub fn sockets_ended(&self, protocol: crate::model::Protocol, sockets: u64) {
        let protocol = protocol.to_string();
        self.ended
            .get_or_create(&Protocol { protocol })
            .inc_by(sockets);
    }

    fn register(&self, registry: &mut Registry) {
        let help =
            "Time from an event of a source to the end of its changes in the maps, in seconds";
        registry.register("reconcile_seconds", help, self.reconcile.clone());
        let help = "Frontends that were switched or removed, or whose change failed";
        registry.register("frontend_changes", help, self.frontends.clone());
        let help = "Failures of a source as a whole; its last services stay";
        registry.register("source_failures", help, self.failures.clone());
        let help = "Inputs of a source that were refused: resources, keys or objects";
        registry.register("inputs_refused", help, self.refused.clone());
        let help = "Sockets that were ended because their backend is gone";
        registry.register("sockets_ended", help, self.ended.clone());
    }
}

fn of(source: &str) -> Source {
    Source {
        source: source.to_owned(),
    }
}
