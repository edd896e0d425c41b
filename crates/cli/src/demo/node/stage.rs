//! The processes of the demo: backends, the agent, the client.

use std::{fs, path::PathBuf, time::Duration};

use crowfly_node::view::View;
use tokio::{
    io::AsyncReadExt,
    net::UnixStream,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    services::{self, CLUSTER_IP, Endpoint},
    tally::Tally,
};
use crate::{
    child::{Child, Program},
    demo::DemoError,
    peer::{Order, Peer, PeerError, Place, Seen},
    sandbox::Sandbox,
};

const NAMESPACE: &str = "pods";

/// The time that the agent has for a change.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// The processes, in the order in which they end: the sandbox last.
#[derive(Debug)]
pub(super) struct Stage {
    client: Option<JoinHandle<Result<(), PeerError>>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    backends: Vec<Option<Peer>>,
    agent: Option<Child>,
    pub(super) endpoints: Vec<Endpoint>,
    program: Program,
    sandbox: Sandbox,
}

impl Stage {
    pub(super) async fn set() -> Result<Self, DemoError> {
        let sandbox = Sandbox::new("demo", &[])?;
        sandbox.namespace(NAMESPACE)?;
        sandbox.ip(NAMESPACE, "route add local 10.244.0.0/16 dev lo")?;
        let mut stage = Self {
            client: None,
            stop: None,
            backends: Vec::new(),
            agent: None,
            endpoints: services::endpoints(),
            program: Program::current()?,
            sandbox,
        };
        for number in 0..stage.endpoints.len() {
            let backend = stage.backend(number).await?;
            stage.backends.push(Some(backend));
        }
        stage.write(&services::file(&stage.endpoints))?;
        stage.start_agent().await?;
        Ok(stage)
    }

    async fn backend(&self, number: usize) -> Result<Peer, DemoError> {
        let Endpoint { name, address, .. } = &self.endpoints[number];
        let place = Place::of(self.sandbox.path_of(NAMESPACE));
        let (peer, _) = Peer::serve(&place, *address, Some(name), 4).await?;
        Ok(peer)
    }

    /// Begins to connect, at a steady rate. The tally has the outcome.
    pub(super) async fn connect(&mut self, rps: u32, tally: Tally) -> Result<(), DemoError> {
        let netns = self.sandbox.path_of(NAMESPACE);
        let mut client = Peer::client(&Place::within(netns, self.sandbox.cgroup()))?;
        let target = CLUSTER_IP;
        client.order(&Order::Keep { target, rps }).await?;
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        self.stop = Some(stop);
        self.client = Some(tokio::spawn(async move {
            let mut is_stopped = false;
            loop {
                tokio::select! {
                    _ = &mut stopped, if !is_stopped => {
                        is_stopped = true;
                        client.stop().await?;
                    }
                    seen = client.answer::<Seen>() => {
                        let seen = seen?;
                        let is_last = seen.done;
                        tally.add(seen);
                        if is_last {
                            return Ok(());
                        }
                    }
                }
            }
        }));
        Ok(())
    }

    /// Ends the client, and waits for its last report.
    pub(super) async fn disconnect(&mut self) -> Result<(), DemoError> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        match self.client.take() {
            Some(client) => Ok(client.await??),
            None => Ok(()),
        }
    }

    /// Ends a backend as a crash would.
    pub(super) async fn kill_backend(&mut self, number: usize) -> Result<(), DemoError> {
        match self.backends[number].take() {
            Some(backend) => Ok(backend.kill().await?),
            None => Ok(()),
        }
    }

    /// Starts a backend again.
    pub(super) async fn start_backend(&mut self, number: usize) -> Result<(), DemoError> {
        self.backends[number] = Some(self.backend(number).await?);
        Ok(())
    }

    /// Ends the agent as a crash would.
    pub(super) async fn kill_agent(&mut self) -> Result<(), DemoError> {
        match self.agent.take() {
            Some(mut agent) => Ok(agent.kill().await?),
            None => Ok(()),
        }
    }

    /// Starts the agent, and waits until it routes.
    pub(super) async fn start_agent(&mut self) -> Result<(), DemoError> {
        let log = self.sandbox.folder().join("agent.log");
        let mut words = vec!["node".into(), "--config".into(), self.config()];
        words.extend(["--cgroup".into(), self.sandbox.cgroup().to_owned()]);
        words.extend(["--pins".into(), self.sandbox.pins()]);
        words.extend(["--socket".into(), self.sandbox.socket()]);
        let mut agent = self.program.spawn("node", words, Some(&log))?;
        agent.said("routing ").await?;
        self.agent = Some(agent);
        Ok(())
    }

    fn config(&self) -> PathBuf {
        self.sandbox.folder().join("node.yaml")
    }

    /// Replaces the agent's file by a rename.
    pub(super) fn write(&self, text: &str) -> Result<(), DemoError> {
        let new = self.sandbox.folder().join("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(new, self.config()));
        written.map_err(DemoError::Config)
    }

    /// Writes the endpoints as they are, and waits until the agent routes so. Returns the time, or
    /// `None` if that took too long.
    pub(super) async fn apply(&self) -> Result<Option<Duration>, DemoError> {
        self.write(&services::file(&self.endpoints))?;
        let listed = self.endpoints.iter().filter(|endpoint| endpoint.is_listed);
        let wanted: Vec<_> = listed.map(|it| (it.address, it.weight)).collect();
        self.until(|view| {
            let frontends = view.frontends.iter();
            let backends = frontends.flat_map(|frontend| &frontend.backends);
            let is_synced = view.sources.iter().all(|source| source.status == "synced");
            is_synced
                && backends
                    .map(|it| (it.address, it.weight))
                    .eq(wanted.iter().copied())
        })
        .await
    }

    /// Waits until the agent's state is as wanted.
    pub(super) async fn until(
        &self,
        is_wanted: impl Fn(&View) -> bool,
    ) -> Result<Option<Duration>, DemoError> {
        let begin = Instant::now();
        loop {
            if is_wanted(&self.view().await?) {
                return Ok(Some(begin.elapsed()));
            }
            if begin.elapsed() > PATIENCE {
                return Ok(None);
            }
            sleep(PAUSE).await;
        }
    }

    /// The agent's state.
    pub(super) async fn view(&self) -> Result<View, DemoError> {
        let read = async {
            let mut stream = UnixStream::connect(self.sandbox.socket()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok(serde_json::from_slice(&answer)?)
        };
        read.await.map_err(DemoError::Agent)
    }

    /// The way to ask the agent from another terminal.
    pub(super) fn question(&self) -> String {
        let socket = self.sandbox.socket();
        format!("crowfly node services --socket {}", socket.display())
    }
}
