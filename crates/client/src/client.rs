//! The handle to a client.

use crowfly_model::ResourceType;
use crowfly_model::bootstrap::Bootstrap;
use crowfly_xds::{Key, Kind, SessionConfig};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::driver::{Command, Driver};
use crate::stream::Server;
use crate::subscriber::Subscriber;
use crate::watch::Watch;

/// A connection to the control plane, shared by all who watch through it.
///
/// Clones are cheap and share the stream; when the last clone and the last watch are gone, the
/// stream ends.
#[derive(Clone, Debug)]
pub struct XdsClient {
    commands: mpsc::UnboundedSender<Command>,
}

impl XdsClient {
    /// A client of the first server of `bootstrap`. It connects when the first watch begins, so an
    /// unreachable server is no error here: the watches tell.
    ///
    /// Must be called in a tokio runtime.
    pub fn new(bootstrap: &Bootstrap) -> Result<Self, ConfigError> {
        let server = bootstrap.servers.first().ok_or(ConfigError::NoServer)?;
        let server = Server::new(server)?;
        let session = SessionConfig::new(bootstrap.node.clone(), fastrand::u64(..));
        let (commands, receiver) = mpsc::unbounded_channel();
        tokio::spawn(Driver::new(server, session, receiver).run());
        Ok(Self { commands })
    }

    /// Watches the resource of type `R` named `name`. Dropping the watch ends it.
    pub fn watch<R: ResourceType>(&self, name: &str) -> Watch<R> {
        let subscriber = self.subscriber();
        subscriber.watch(Key::of::<R>(name), Kind::of::<R>());
        Watch::new(subscriber)
    }

    /// Somebody who watches many resources, and is told of what changed together in one batch.
    pub fn subscriber(&self) -> Subscriber {
        Subscriber::new(self.commands.clone())
    }
}

/// Why a bootstrap cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It lists no server.
    #[error("xds_servers: expected at least one server")]
    NoServer,
    /// The address of a server is malformed.
    #[error("xds_servers[0].server_uri: `{uri}` is not an address: {reason}")]
    ServerUri {
        /// As it was given.
        uri: String,
        /// What is wrong with it.
        reason: String,
    },
}
