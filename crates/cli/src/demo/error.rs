//! The errors that end the demo early. A failed call is none of them, because the verdict counts
//! failed calls.

use std::io;

use crate::child::ChildError;

/// An error that keeps the demo from starting or going on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The node agent does not answer on its socket.
    #[error("cannot ask the node agent")]
    Agent(#[source] io::Error),
    /// The control plane does not answer on its admin port.
    #[error("cannot ask the control plane")]
    Admin(#[source] io::Error),
    /// The client's bootstrap is invalid.
    #[error("cannot make a bootstrap")]
    Bootstrap(#[from] crowfly::BootstrapError),
    /// The client's channel cannot be made.
    #[error("cannot make a channel")]
    Channel(#[from] crowfly::BuildError),
    /// A child process failed.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The configuration of the control plane cannot be written.
    #[error("cannot write the configuration")]
    Config(#[source] io::Error),
    /// The port for `crowfly inspect` cannot be opened.
    #[error("cannot open a port for `crowfly inspect`")]
    Debug(#[source] io::Error),
    /// The kernel is not Linux.
    #[cfg(not(target_os = "linux"))]
    #[error("the node agent needs Linux; the demo without --node runs anywhere")]
    NotLinux,
    /// A process in a network namespace failed.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Peer(#[from] crate::peer::PeerError),
    /// The network namespace of the demo cannot be made.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Sandbox(#[from] crate::sandbox::SandboxError),
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// A task of the demo panicked.
    #[error("the demo's own task failed")]
    Task(#[from] tokio::task::JoinError),
    /// The terminal cannot be drawn on.
    #[error("cannot draw on the terminal; --plain does without")]
    Terminal(#[source] io::Error),
}
