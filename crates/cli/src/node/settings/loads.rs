//! The section `load_reports`: the xDS server (LRS) to which the agent reports its connections.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

/// Load reports.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadSettings {
    /// Report connections to this xDS server (LRS), without TLS
    #[arg(
        long = "load-report-server",
        value_name = "HOST:PORT",
        conflicts_with = "bootstrap",
        env = "CROWFLY_NODE_LOAD_REPORT_SERVER"
    )]
    pub server: Option<String>,

    /// Report connections to the first server of this xDS bootstrap (JSON), with its credentials and node
    #[arg(
        long = "load-report-bootstrap",
        value_name = "FILE",
        env = "CROWFLY_NODE_LOAD_REPORT_BOOTSTRAP"
    )]
    pub bootstrap: Option<PathBuf>,

    /// Report also services for which no source names a cluster, as NAMESPACE/NAME:PORT
    #[arg(
        long = "load-report-all",
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "CROWFLY_NODE_LOAD_REPORT_ALL"
    )]
    pub all: Option<bool>,
}

impl LoadSettings {
    /// Fills each setting that is absent here with that of `other`. The address and the bootstrap
    /// are one setting, because both name the server.
    pub(super) fn or(self, other: Self) -> Self {
        let has_server = self.server.is_some() || self.bootstrap.is_some();
        let (server, bootstrap) = match has_server {
            true => (self.server, self.bootstrap),
            false => (other.server, other.bootstrap),
        };
        Self {
            server,
            bootstrap,
            all: self.all.or(other.all),
        }
    }
}
