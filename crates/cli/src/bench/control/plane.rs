//! The parent's side of the server process. Changes go over a connection of their own, so that they
//! do not wait behind the traffic of clients.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::super::BenchError;
use super::machine::{Cores, Usage};
use super::resources::Change;
use crate::child::{Child, Program};

/// The resources of a server, and the connections that it must be able to hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) clusters: usize,
    pub(super) endpoints: usize,
    pub(super) connections: usize,
}

impl Load {
    /// The files that a process needs for these connections and for itself.
    pub(super) fn files(&self) -> usize {
        self.connections + 100
    }
}

/// A server process, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Plane {
    child: Child,
    pub(super) ads: SocketAddr,
    orders: TcpStream,
}

impl Plane {
    /// Starts a control plane.
    pub(super) async fn start(load: Load, cores: Cores) -> Result<Self, BenchError> {
        Self::start_with(load, cores, &[]).await
    }

    /// Starts a control plane that gathers changes for a while and publishes them together.
    pub(super) async fn start_debounced(
        load: Load,
        cores: Cores,
        debounce: Duration,
    ) -> Result<Self, BenchError> {
        let debounce = debounce.as_millis().to_string();
        Self::start_with(load, cores, &["--debounce", &debounce]).await
    }

    /// Starts a server that holds streams and does nothing with them. It knows one EDS resource.
    pub(super) async fn start_bare(load: Load, cores: Cores) -> Result<Self, BenchError> {
        Self::start_with(load, cores, &["--bare"]).await
    }

    async fn start_with(load: Load, cores: Cores, more: &[&str]) -> Result<Self, BenchError> {
        let words = [
            ("--clusters", load.clusters),
            ("--endpoints", load.endpoints),
            ("--files", load.files()),
            ("--core", cores.server),
        ];
        let words = words.map(|(flag, value)| [flag.to_owned(), value.to_string()]);
        let command = ["bench", "control-server"].map(str::to_owned);
        let words = command.into_iter().chain(words.into_iter().flatten());
        let words = words.chain(more.iter().map(|word| (*word).to_owned()));
        let mut child = Program::current()?.spawn("the control plane", words, None)?;
        let ads = child.announced("ads ").await?;
        let address = child.announced("orders ").await?;
        let orders = TcpStream::connect(address).await;
        let orders = orders.map_err(BenchError::Machine)?;
        orders.set_nodelay(true).map_err(BenchError::Machine)?;
        Ok(Self { child, ads, orders })
    }

    /// Hands the server a change.
    pub(super) async fn change(&mut self, change: &Change) -> Result<(), BenchError> {
        // The value holds text and numbers only, so JSON can express it.
        let mut line = serde_json::to_string(change).unwrap_or_default();
        line.push('\n');
        let written = self.orders.write_all(line.as_bytes()).await;
        written.map_err(BenchError::Machine)
    }

    /// The use of memory and time by the server.
    pub(super) fn usage(&self) -> Result<Usage, BenchError> {
        let process = self.child.id().unwrap_or_default();
        Usage::of(process).map_err(BenchError::Machine)
    }
}
