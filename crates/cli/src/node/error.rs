//! The reasons why `crowfly node` does not run. The command prints them, so they name the flag or
//! the command that helps, if there is one.

use std::{io, path::PathBuf};

use crowfly_node::maps::MapError;

/// The reasons why the agent does not run, or has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The file is bad.
    #[error(transparent)]
    Config(#[from] crowfly_node::ConfigErrors),
    /// No source of services is given.
    #[error(
        "no source of services: give a file with `services` by --config, or --kubernetes, \
         --kvstore-endpoints or --xds-server"
    )]
    NoSource,
    /// A setting of a section is wrong.
    #[error("{0}: {1}")]
    Setting(&'static str, String),
    /// The order of sources is wrong.
    #[error("sources: {0}")]
    Order(String),
    /// A dry run did not hear all sources.
    #[error("{0}")]
    Silent(String),
    /// The kernel does not route.
    #[cfg(target_os = "linux")]
    #[error("cannot route; `crowfly node check` says what is missing")]
    Install(#[from] crowfly_node::maps::ebpf::InstallError),
    /// No cgroup is given, and none is mounted.
    #[error("no cgroup v2 is mounted: give one by --cgroup")]
    NoCgroup,
    /// A map cannot be read.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The port for metrics cannot be opened.
    #[error("cannot listen for metrics at {address}")]
    Metrics {
        /// The address that was asked for.
        address: std::net::SocketAddr,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Load reports cannot start.
    #[error(transparent)]
    Loads(#[from] crowfly_node::loads::LoadsError),
    /// The bootstrap of load reports is bad.
    #[error("cannot report loads")]
    Bootstrap(#[from] crowfly_model::bootstrap::BootstrapError),
    /// The socket for questions cannot be used.
    #[error("{}: {what}", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The attempt that failed.
        what: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The path of the socket is that of another file, which is not replaced.
    #[error("{}: there is a file that is no socket", .0.display())]
    NoSocket(PathBuf),
    /// Another agent runs.
    #[error("{}: an agent answers there already", .0.display())]
    Running(PathBuf),
    /// The agent's answer cannot be read.
    #[error("the agent's answer cannot be read")]
    Answer(#[from] serde_json::Error),
    /// An agent runs, or a pin cannot be removed.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Clean(crowfly_node::maps::ebpf::InstallError),
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// The kernel is not Linux.
    #[cfg(not(target_os = "linux"))]
    #[error("routing needs Linux; --dry-run works anywhere")]
    NotLinux,
}
