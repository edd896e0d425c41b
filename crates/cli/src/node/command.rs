//! The flags of `crowfly node` and its sub-commands. Their doc comments are the help of the
//! command, so they address its user.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};

use super::settings::{
    KubernetesSettings, KvstoreSettings, LoadSettings, MachineSettings, MetricsSettings, PINS,
    PlaceSettings, SOCKET, SourceName, Span, XdsSettings,
};

/// Route ClusterIPs on this machine: an eBPF program sends connections straight to a backend
///
/// The programs of a cgroup connect to a ClusterIP, and the kernel replaces it by the address of a
/// backend. No packet is rewritten, and no proxy runs. It needs Linux and root; `crowfly node
/// check` says what is missing. It serves ClusterIPs over TCP and UDP, and no NodePort,
/// LoadBalancer or externalIPs.
///
/// Services come from independent sources. A ClusterIP belongs to the first source that has it. A
/// source that fails keeps its last services in force, and the others go on. Connections are routed on
/// while the agent is down.
///
/// The file has settings and services. It is read again when it has changed and then stayed the same
/// for 100 ms, or at SIGHUP. A bad or empty file changes nothing: the last good services stay, and the
/// log names file, line and field. Settings are read at the start. A flag counts more than a variable
/// of the environment, and that more than the file.
///
/// Prints `routing N frontends in CGROUP` once every source has listed its services.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  crowfly node check
  crowfly node --config node.yaml --dry-run
  crowfly node --config node.yaml --node-name worker-1 --zone eu-a
  crowfly node --kubernetes --kubernetes-server https://10.0.0.1:6443 --node-name worker-1
  crowfly node --xds-server control:18000 --xds-delta --node-name worker-1
  crowfly node services
  crowfly node trace 10.96.0.10:80
  crowfly node clean

A configuration:
  services:
  - name: web
    namespace: shop
    cluster_ips: [10.96.0.10]
    ports: [{ name: http, port: 80 }]
    endpoints:
    - { addresses: [10.244.1.5], ports: [{ name: http, port: 8080 }], node: worker-1, zone: eu-a }"
)]
pub struct NodeArgs {
    /// The sub-command; without one the agent runs
    #[command(subcommand)]
    pub command: Option<NodeCommand>,

    /// A YAML or JSON file with settings and services
    #[arg(long, value_name = "FILE", env = "CROWFLY_NODE_CONFIG")]
    pub config: Option<PathBuf>,

    /// Print what would be programmed, and program nothing
    #[arg(long, env = "CROWFLY_NODE_DRY_RUN")]
    pub dry_run: bool,

    /// Print it as JSON
    #[arg(long, requires_if("true", "dry_run"), env = "CROWFLY_NODE_JSON")]
    pub json: bool,

    /// The longest time that a dry run waits for sources
    #[arg(
        long,
        value_name = "DURATION",
        requires = "dry_run",
        default_value = "10s",
        env = "CROWFLY_NODE_TIMEOUT"
    )]
    pub timeout: Span,

    /// The place of this machine
    #[command(flatten)]
    pub place: PlaceSettings,

    /// The order of sources: a ClusterIP belongs to the first one that has it
    /// [default: kubernetes,kvstore,xds,file]
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        env = "CROWFLY_NODE_SOURCES"
    )]
    pub sources: Option<Vec<SourceName>>,

    /// The longest time after a restart that routes wait for sources that were not heard yet
    /// [default: 30s]
    #[arg(long, value_name = "DURATION", env = "CROWFLY_NODE_START_TIMEOUT")]
    pub start_timeout: Option<Span>,

    /// Load reports
    #[command(flatten)]
    pub loads: LoadSettings,

    /// Metrics for Prometheus
    #[command(flatten)]
    pub metrics: MetricsSettings,

    /// The kernel's side of the agent, and its socket
    #[command(flatten)]
    pub machine: MachineSettings,

    /// The API server of Kubernetes
    #[command(flatten)]
    pub kubernetes: KubernetesSettings,

    /// The etcd of a ClusterMesh
    #[command(flatten)]
    pub kvstore: KvstoreSettings,

    /// An xDS server
    #[command(flatten)]
    pub xds: XdsSettings,
}

impl NodeArgs {
    /// True if this is the agent itself, which logs as servers do.
    pub(crate) fn is_agent(&self) -> bool {
        self.command.is_none() && !self.dry_run
    }
}

/// The kernel's side of the agent.
#[derive(Args, Clone, Debug)]
pub struct MachineArgs {
    /// The directory of a cgroup v2: its programs are routed, and those below it [default: the root]
    #[arg(long, value_name = "DIR", env = "CROWFLY_NODE_CGROUP")]
    pub cgroup: Option<PathBuf>,

    /// The directory for pinned maps and programs, in a bpffs
    #[arg(
        long,
        value_name = "DIR",
        default_value = PINS,
        env = "CROWFLY_NODE_PINS"
    )]
    pub pins: PathBuf,
}

/// The socket on which the agent answers.
#[derive(Args, Clone, Debug)]
pub struct SocketArgs {
    /// The agent's socket, for `services` and `trace`
    #[arg(
        long,
        value_name = "PATH",
        default_value = SOCKET,
        env = "CROWFLY_NODE_SOCKET"
    )]
    pub socket: PathBuf,
}

/// The sub-commands.
#[allow(
    missing_docs,
    reason = "the help of a command is the documentation of its arguments"
)]
#[derive(Clone, Debug, Subcommand)]
pub enum NodeCommand {
    Services(ServicesArgs),
    Trace(TraceArgs),
    Check(CheckArgs),
    Clean(CleanArgs),
}

/// Show what the agent routes: frontends, sources, backends, weights and connections
#[derive(Args, Clone, Debug)]
pub struct ServicesArgs {
    /// The agent's socket
    #[command(flatten)]
    pub socket: SocketArgs,

    /// Print JSON
    #[arg(long, env = "CROWFLY_NODE_JSON")]
    pub json: bool,
}

/// Show where a connection would go: the frontend, its source, its backends, and why others are out
///
/// Exits with 1 if nothing routes the address.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The address that a program connects to
    #[arg(value_name = "ADDR:PORT")]
    pub address: SocketAddr,

    /// The agent's socket
    #[command(flatten)]
    pub socket: SocketArgs,

    /// Print JSON
    #[arg(long, env = "CROWFLY_NODE_JSON")]
    pub json: bool,
}

/// Check that this machine can route: kernel, cgroup, bpffs, privileges; exits with 1 if it cannot
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The kernel's side of the agent
    #[command(flatten)]
    pub machine: MachineArgs,

    /// Print JSON
    #[arg(long, env = "CROWFLY_NODE_JSON")]
    pub json: bool,
}

/// Remove every trace: detach the programs and delete the maps, which ends routing
///
/// Stop the agent first. Connections that exist go on, because their packets carry the addresses of
/// backends. The socket of a killed agent is removed as well, and its directory if nothing else is in it.
#[derive(Args, Clone, Debug)]
pub struct CleanArgs {
    /// The kernel's side of the agent
    #[command(flatten)]
    pub machine: MachineArgs,

    /// The agent's socket
    #[command(flatten)]
    pub socket: SocketArgs,

    /// Print JSON
    #[arg(long, env = "CROWFLY_NODE_JSON")]
    pub json: bool,
}
