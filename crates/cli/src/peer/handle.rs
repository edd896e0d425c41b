//! The parent's side of a peer: it starts the process, sends orders and reads the answers.
//!
//! A peer is a process, because a namespace and a cgroup belong to a process.

use std::{
    env, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{self, ChildStdin, ChildStdout},
};

use super::Order;

/// The namespace, the cgroup and the processor of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) netns: PathBuf,
    pub(crate) cgroup: Option<PathBuf>,
    /// The one processor that the peer runs on; without it, the peer runs on any.
    pub(crate) cpu: Option<usize>,
}

impl Place {
    /// A place in a namespace, and in no cgroup of its own.
    pub(crate) fn of(netns: PathBuf) -> Self {
        Self {
            netns,
            cgroup: None,
            cpu: None,
        }
    }

    /// A place in a namespace and a cgroup.
    pub(crate) fn within(netns: PathBuf, cgroup: &Path) -> Self {
        Self {
            netns,
            cgroup: Some(cgroup.to_owned()),
            cpu: None,
        }
    }
}

/// A peer that runs. The peer ends when this value is dropped, or when this process ends.
#[derive(Debug)]
pub(crate) struct Peer {
    process: process::Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

/// The reasons why a peer gives no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The peer cannot be started, or no order can be sent to it.
    #[error("cannot use a process of crowfly's own")]
    Process(#[from] io::Error),
    /// The peer ended.
    #[error("a process of crowfly's own ended: {0}")]
    Ended(String),
    /// The answer of the peer cannot be read.
    #[error("a process of crowfly's own has no answer")]
    Answer(#[from] serde_json::Error),
}

impl Peer {
    /// Starts a server, and returns with its address once it accepts connections.
    pub(crate) async fn serve(
        place: &Place,
        listen: SocketAddr,
        name: Option<&str>,
        threads: usize,
    ) -> Result<(Self, SocketAddr), PeerError> {
        let (listen, threads) = (listen.to_string(), threads.to_string());
        let mut role = vec!["--exit-with-parent", "serve", "--listen", &listen];
        role.extend(["--threads", &threads]);
        if let Some(name) = name {
            role.extend(["--name", name]);
        }
        let mut peer = Self::start(place, &role)?;
        let line = peer.line().await?;
        let address = line.strip_prefix("listening on ");
        let address = address.and_then(|address| address.parse().ok());
        let address = address.ok_or(PeerError::Ended(line))?;
        Ok((peer, address))
    }

    /// Starts a client.
    pub(crate) fn client(place: &Place) -> Result<Self, PeerError> {
        Self::start(place, &["connect"])
    }

    fn start(place: &Place, role: &[&str]) -> Result<Self, PeerError> {
        let mut command = process::Command::new(env::current_exe()?);
        command.arg("peer").arg("--netns").arg(&place.netns);
        if let Some(cgroup) = &place.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        if let Some(cpu) = place.cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        let mut process = command
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at a terminal is for the parent, who then ends its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let stdin = process.stdin.take().ok_or_else(missing)?;
        let stdout = process.stdout.take().ok_or_else(missing)?;
        Ok(Self {
            process,
            stdin,
            stdout: BufReader::new(stdout).lines(),
        })
    }

    /// Gives an order, without waiting for the answer.
    pub(crate) async fn order(&mut self, order: &Order) -> Result<(), PeerError> {
        let line = serde_json::to_string(order)?;
        Ok(self.stdin.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// Ends an order that goes on until then.
    pub(crate) async fn stop(&mut self) -> Result<(), PeerError> {
        Ok(self.stdin.write_all(b"\n").await?)
    }

    /// Waits for the next answer.
    pub(crate) async fn answer<T: DeserializeOwned>(&mut self) -> Result<T, PeerError> {
        Ok(serde_json::from_str(&self.line().await?)?)
    }

    /// Gives an order, and waits for its answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&mut self, order: &Order) -> Result<T, PeerError> {
        self.order(order).await?;
        self.answer().await
    }

    /// Ends the process as a crash would, and waits until its sockets are closed.
    pub(crate) async fn kill(mut self) -> Result<(), PeerError> {
        Ok(self.process.kill().await?)
    }

    async fn line(&mut self) -> Result<String, PeerError> {
        if let Some(line) = self.stdout.next_line().await? {
            return Ok(line);
        }
        let mut said = String::new();
        if let Some(stderr) = self.process.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                said = line;
            }
        }
        Err(PeerError::Ended(said))
    }
}
