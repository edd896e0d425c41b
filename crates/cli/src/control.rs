//! `crowfly control`.

use std::{io, net::SocketAddr, path::PathBuf};

use clap::Args;
use crowfly_control::{ControlPlane, Options, StartError};
use tracing::info;

use crate::{output, signal::Termination};

/// Serve xDS (ADS) from YAML files, and follow their changes
///
/// Prints `listening on ADDR` and `admin on http://ADDR` once it serves. A file that becomes bad
/// changes nothing for clients: the last good configuration stays, and the log says file, line,
/// field and what was expected. So it is with a file that becomes empty; `services: []` is applied.
///
/// A file is read once it has been unchanged for 100 ms. The log says what each reload added,
/// changed and removed, as a warning if something is gone.
///
/// The admin port serves /healthz, /metrics, /snapshot and /clients. SIGTERM and SIGINT end the
/// streams with UNAVAILABLE, and then the process.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly control --config mesh.yaml
  crowfly control --config /etc/crowfly/ --listen 0.0.0.0:18000

A configuration:
  services:
  - name: payments                      # clients call xds:///payments
    localities:
    - { region: eu, zone: a, weight: 3, endpoints: [{ address: \"10.0.0.1:50051\" }] }
    - { region: eu, zone: b, weight: 1, endpoints: [{ address: \"10.0.1.1:50051\" }] }
  resources:                            # anything else that xDS can say, as proto JSON
  - { \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: other }")]
pub struct ControlArgs {
    /// A YAML or JSON file, or a directory of such files
    #[arg(long, value_name = "FILE|DIR", env = "CROWFLY_CONTROL_CONFIG")]
    pub config: PathBuf,

    /// Serve files that say nothing; else they are refused, because a file is empty while it is
    /// written anew
    #[arg(long, env = "CROWFLY_CONTROL_ALLOW_EMPTY")]
    pub allow_empty: bool,

    /// Where to serve ADS, health and reflection; port 0 lets the kernel choose one
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:18000",
        env = "CROWFLY_CONTROL_LISTEN"
    )]
    pub listen: SocketAddr,

    /// Where to serve the admin pages
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:18001",
        env = "CROWFLY_CONTROL_ADMIN"
    )]
    pub admin: SocketAddr,
}

/// Serves until a signal comes.
///
/// # Errors
/// The configuration is bad, or a port cannot be opened.
pub async fn run(args: ControlArgs) -> Result<(), ControlError> {
    let mut termination = Termination::listen().map_err(ControlError::Signals)?;
    let options = Options {
        config: args.config,
        allow_empty: args.allow_empty,
        listen: args.listen,
        admin: Some(args.admin),
    };
    let plane = ControlPlane::start(options).await?;
    output::line(format_args!("listening on {}", plane.listen_addr()));
    if let Some(admin) = plane.admin_addr() {
        output::line(format_args!("admin on http://{admin}"));
    }
    termination.recv().await;
    info!("shutting down");
    plane.shutdown().await;
    Ok(())
}

/// Why a control plane does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// Its configuration or its ports.
    #[error(transparent)]
    Start(#[from] StartError),
}
