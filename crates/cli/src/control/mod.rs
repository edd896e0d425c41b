//! `crowfly control`: runs the control plane of the `crowfly-control` crate from the command line.
//!
//! The flags and signals are here, because the crate is a library that other programs can embed.

mod limits;
mod ports;

use std::{io, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use crowfly_control::{ControlPlane, Options, StartError};
use crowfly_xds::Snapshot;
use tracing::info;

pub use self::{
    limits::LimitArgs,
    ports::{AdminPort, PortArgs},
};
use crate::{
    args, output,
    signal::{Termination, hangup},
    validate::{self, ValidateArgs},
};

/// Serve xDS (ADS, LRS) from YAML files, and follow their changes
///
/// Prints `listening on ADDR` and `admin on http://ADDR` once it serves. A file that becomes bad or
/// empty changes nothing for clients: the last good configuration stays. The log names file, line,
/// field and the expected value. `services: []` is applied.
///
/// A file is read once it has been unchanged for 100 ms. The log lists the resources that each
/// reload added, changed and removed, as a warning if any were removed.
///
/// Resources that gRPC clients would refuse are an error, if a listener with `api_listener` leads to them. `crowfly
/// validate` checks a configuration before it is served.
///
/// Clients report their loads on the address of ADS (LRS). `crowfly loads` shows them.
///
/// The admin port serves /healthz, /metrics, /snapshot, /clients and /loads. SIGHUP reads the configuration
/// and the certificates again. SIGTERM and SIGINT end the streams with UNAVAILABLE, and then the process.
///
/// Ports are on loopback. To let other machines reach ADS, give it certificates: --tls-cert, --tls-key and,
/// so that clients need one, too, --tls-client-ca. Each client is held to the limits below. One that goes
/// beyond them is slowed, or told RESOURCE_EXHAUSTED; log, /clients and /metrics name it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly control --config mesh.yaml
  crowfly control --config /etc/crowfly/ --listen :18000 --tls-cert control.pem --tls-key control.key \
      --tls-client-ca ca.pem
  crowfly control --config /etc/crowfly/ --listen :18000 --insecure-listen --admin off
  crowfly validate mesh.yaml    # only check it
  crowfly control --conformance 127.0.0.1:17000 # for ii/xds-test-harness -A :17000 -T :18000

A configuration:
  services:
  - name: payments                      # clients call xds:///payments
    localities:
    - { region: eu, zone: a, weight: 3, endpoints: [{ address: \"10.0.0.1:50051\" }] }
    - { region: eu, zone: b, weight: 1, endpoints: [{ address: \"10.0.1.1:50051\" }] }
  resources:                            # anything else that xDS can say, as proto JSON
  - { \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: other }")]
// The adapter of the conformance suite alone has no use for `--named-only`.
#[command(group(clap::ArgGroup::new("files").args(["config", "check"]).multiple(true)))]
pub struct ControlArgs {
    /// A YAML or JSON file, or a directory of such files
    #[arg(
        long,
        value_name = "FILE|DIR",
        required_unless_present_any = ["check", "conformance"],
        env = "CROWFLY_CONTROL_CONFIG"
    )]
    pub config: Option<PathBuf>,

    /// Serve nothing, and do what `crowfly validate FILE|DIR` does
    #[arg(long, value_name = "FILE|DIR")]
    pub check: Option<PathBuf>,

    /// Serve files without content; else they are refused, because a file is empty while it is
    /// rewritten
    #[arg(long, env = "CROWFLY_CONTROL_ALLOW_EMPTY")]
    pub allow_empty: bool,

    /// Serve resources that gRPC clients refuse; else they are an error, and at a reload the last good
    /// configuration stays
    #[arg(long, env = "CROWFLY_CONTROL_FORCE")]
    pub force: bool,

    /// The ports.
    #[command(flatten)]
    pub ports: PortArgs,

    /// The time between two load reports of a client; at least 1s, because gRPC clients report no
    /// more often
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = load_report_interval,
        env = "CROWFLY_CONTROL_LOAD_REPORT_INTERVAL"
    )]
    pub load_report_interval: Duration,

    /// Serve the adapter of the conformance suite ii/xds-test-harness at this address. Then
    /// --config may be left out, and a node that the suite names is served what the suite says
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = args::listen_address,
        env = "CROWFLY_CONTROL_CONFORMANCE"
    )]
    pub conformance: Option<SocketAddr>,

    /// A type of which a request without names asks for nothing: listeners, routes, clusters,
    /// endpoints or a type URL; may be given several times. Of other types it asks for everything,
    /// as Envoys mean it; gRPC clients never mean that
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = type_url,
        value_delimiter = ',',
        requires = "files",
        env = "CROWFLY_CONTROL_NAMED_ONLY"
    )]
    pub named_only: Vec<String>,

    /// The most that clients may take.
    #[command(flatten)]
    pub limits: LimitArgs,
}

fn type_url(text: &str) -> Result<String, String> {
    let url = match text {
        "clusters" => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "endpoints" => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "listeners" => "type.googleapis.com/envoy.config.listener.v3.Listener",
        "routes" => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        url if url.contains('/') => url,
        _ => {
            return Err("expected listeners, routes, clusters, endpoints or a type URL".to_owned());
        }
    };
    Ok(url.to_owned())
}

fn load_report_interval(text: &str) -> Result<Duration, String> {
    let interval = args::duration(text)?;
    if interval < Duration::from_secs(1) {
        return Err("expected at least 1s: gRPC clients report no more often".to_owned());
    }
    Ok(interval)
}

/// Serves until a signal comes.
///
/// # Errors
/// The configuration is bad, or a port cannot be opened.
pub async fn run(args: ControlArgs) -> Result<ExitCode, ControlError> {
    if let Some(config) = args.check {
        return Ok(validate::run(&ValidateArgs {
            configs: vec![config],
            allow_empty: args.allow_empty,
            force: args.force,
            notes: false,
            json: false,
        }));
    }
    let mut termination = Termination::listen().map_err(ControlError::Signals)?;
    let mut hangup = hangup().map_err(ControlError::Signals)?;
    let mut plane = start(&args).await?;
    output::line(format_args!("listening on {}", plane.listen_addr()));
    if let Some(admin) = plane.admin_addr() {
        output::line(format_args!("admin on http://{admin}"));
    }
    if let Some(address) = args.conformance {
        let address = plane.serve_conformance(address).await?;
        output::line(format_args!("conformance adapter on {address}"));
    }
    loop {
        tokio::select! {
            () = termination.recv() => break,
            _ = hangup.recv() => {
                info!("SIGHUP: reading the configuration and the certificates again");
                plane.reload();
            }
        }
    }
    info!("shutting down");
    plane.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Starts the control plane with its configuration. The conformance suite needs none.
async fn start(args: &ControlArgs) -> Result<ControlPlane, ControlError> {
    let ports = args.ports.ports(args.limits.limits());
    let started = match &args.config {
        Some(config) => {
            let options = Options {
                allow_empty: args.allow_empty,
                force: args.force,
                load_report_interval: args.load_report_interval,
                named_only: args.named_only.iter().cloned().collect(),
                ..Options::new(config, ports)
            };
            ControlPlane::start(options).await
        }
        None if args.conformance.is_some() => {
            let of_files = [("--force", args.force), ("--allow-empty", args.allow_empty)];
            if let Some((flag, _)) = of_files.into_iter().find(|(_, is_set)| *is_set) {
                return Err(ControlError::NoFiles(flag));
            }
            let plane = ControlPlane::with_ports(Snapshot::default(), ports).await?;
            plane.set_load_report_interval(args.load_report_interval);
            return Ok(plane);
        }
        None => return Err(ControlError::NoConfig),
    };
    Ok(started?)
}

/// The reasons why a control plane does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The configuration cannot be served.
    #[error("expected --config, --check or --conformance")]
    NoConfig,
    /// A flag says how files are read, and there are none.
    #[error("{0} is about the files of --config: give it, or leave {0} out")]
    NoFiles(&'static str),
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// A port without TLS has an address that other machines can reach.
    #[error(
        "{purpose} on {address} would be without TLS, and other machines can reach it: {remedy}, listen on \
         127.0.0.1, or say that you want it with --insecure-listen"
    )]
    Exposed {
        /// The purpose of the port.
        purpose: &'static str,
        /// The address that was asked for.
        address: SocketAddr,
        /// A safe way to let other machines reach it.
        remedy: &'static str,
    },
    /// The configuration is bad, or a port cannot be opened.
    #[error(transparent)]
    Start(StartError),
}

impl From<StartError> for ControlError {
    fn from(error: StartError) -> Self {
        let StartError::Exposed { purpose, address } = error else {
            return Self::Start(error);
        };
        let remedy = match purpose {
            "ADS" => "give it certificates with --tls-cert and --tls-key",
            _ => "put a proxy with TLS before it",
        };
        Self::Exposed {
            purpose,
            address,
            remedy,
        }
    }
}
