//! The section `metrics`: the port that Prometheus asks. It is off unless an address is given.

use std::net::SocketAddr;

use clap::Args;
use serde::Deserialize;

/// Metrics for Prometheus.
#[derive(Args, Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSettings {
    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics [default: off]
    #[arg(
        long = "metrics-listen",
        value_name = "ADDR:PORT",
        env = "CROWFLY_NODE_METRICS_LISTEN"
    )]
    pub listen: Option<SocketAddr>,
}

impl MetricsSettings {
    /// Fills each setting that is absent here with that of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
        }
    }
}
