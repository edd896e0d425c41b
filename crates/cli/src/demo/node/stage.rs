//! The processes of the demo: the control plane, backends, the agent, the client. They are
//! processes of their own, so that the demo can kill one as a crash would.

use std::{fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use crowfly_control::loads::Loads;
use crowfly_node::view::{BackendView, View};
use tokio::{
    io::AsyncReadExt,
    net::UnixStream,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    services::{CLUSTER_IP, Endpoint, Service},
    tally::Tally,
};
use crate::{
    child::{Child, Program},
    demo::DemoError,
    http,
    peer::{Order, Peer, PeerError, Place, Seen},
    sandbox::Sandbox,
};

/// The purpose of the demo's sandbox, which is a part of its name.
pub(super) const PURPOSE: &str = "demo";
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
    control: Option<Child>,
    /// The address of the control plane, and that of its admin pages. It keeps them over a restart.
    control_at: [SocketAddr; 2],
    pub(super) service: Service,
    program: Program,
    sandbox: Sandbox,
}

impl Stage {
    pub(super) async fn set() -> Result<Self, DemoError> {
        let sandbox = Sandbox::new(PURPOSE, &[])?;
        sandbox.namespace(NAMESPACE)?;
        sandbox.ip(NAMESPACE, "route add local 10.244.0.0/16 dev lo")?;
        let mut stage = Self {
            client: None,
            stop: None,
            backends: Vec::new(),
            agent: None,
            control: None,
            control_at: [SocketAddr::from(([127, 0, 0, 1], 0)); 2],
            service: Service::new(),
            program: Program::current()?,
            sandbox,
        };
        for number in 0..stage.service.endpoints.len() {
            let backend = stage.backend(number).await?;
            stage.backends.push(Some(backend));
        }
        stage.write()?;
        stage.start_control().await?;
        stage.start_agent().await?;
        Ok(stage)
    }

    async fn backend(&self, number: usize) -> Result<Peer, DemoError> {
        let Endpoint { name, address, .. } = &self.service.endpoints[number];
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
        let control = self.control_at[0].to_string();
        let mut words = vec![
            "node".into(),
            "--xds-server".into(),
            PathBuf::from(&control),
        ];
        words.extend(["--load-report-server".into(), control.into()]);
        words.extend(["--cgroup".into(), self.sandbox.cgroup().to_owned()]);
        words.extend(["--pins".into(), self.sandbox.pins()]);
        words.extend(["--socket".into(), self.sandbox.socket()]);
        let mut agent = self.program.spawn("node", words, Some(&log))?;
        agent.said("routing ").await?;
        self.agent = Some(agent);
        Ok(())
    }

    /// Ends the control plane as a crash would.
    pub(super) async fn kill_control(&mut self) -> Result<(), DemoError> {
        match self.control.take() {
            Some(mut control) => Ok(control.kill().await?),
            None => Ok(()),
        }
    }

    /// Starts the control plane, at the addresses that it had.
    pub(super) async fn start_control(&mut self) -> Result<(), DemoError> {
        let log = self.sandbox.folder().join("control.log");
        let [listen, admin] = self.control_at.map(|address| address.to_string());
        let mut words = vec!["control".into(), "--config".into(), self.config()];
        words.extend(["--listen".into(), listen.into()]);
        words.extend(["--admin".into(), admin.into()]);
        words.extend(["--load-report-interval".into(), "1s".into()]);
        let mut control = self.program.spawn("control", words, Some(&log))?;
        let listen = control.announced("listening on").await?;
        let admin = control.announced("admin on http://").await?;
        self.control_at = [listen, admin];
        self.control = Some(control);
        Ok(())
    }

    /// The loads that the control plane was told.
    pub(super) async fn loads(&self) -> Result<Loads, DemoError> {
        let page = http::get(&self.control_at[1], "/loads").await;
        let page = page.map_err(|error| DemoError::Admin(io::Error::other(error)))?;
        serde_json::from_slice(&page).map_err(|error| DemoError::Admin(error.into()))
    }

    fn config(&self) -> PathBuf {
        self.sandbox.folder().join("mesh.yaml")
    }

    /// Replaces the control plane's file by a rename.
    pub(super) fn write(&self) -> Result<(), DemoError> {
        let new = self.sandbox.folder().join("new");
        let text = self.service.file();
        let written = fs::write(&new, text).and_then(|()| fs::rename(new, self.config()));
        written.map_err(DemoError::Config)
    }

    /// Writes the service as it is, and waits until the agent routes so. Returns the time, or `None` if
    /// that took too long.
    pub(super) async fn apply(&self) -> Result<Option<Duration>, DemoError> {
        self.write()?;
        self.routed().await
    }

    /// Waits until the agent routes as the file says.
    pub(super) async fn routed(&self) -> Result<Option<Duration>, DemoError> {
        let wanted = self.service.shares();
        self.until(|view| {
            let is_synced = view.sources.iter().all(|source| source.status == "synced");
            let found: Vec<_> = backends(view).collect();
            let is_so = |&(address, share): &(SocketAddr, f64)| {
                let mut found = found.iter();
                found.any(|it| it.address == address && (it.share - share).abs() < 1e-3)
            };
            is_synced && found.len() == wanted.len() && wanted.iter().all(is_so)
        })
        .await
    }

    /// Waits until the agent's state is as wanted.
    async fn until(
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

/// The backends that get connections.
pub(super) fn backends(view: &View) -> impl Iterator<Item = &BackendView> {
    let frontends = view.frontends.iter();
    frontends.flat_map(|frontend| &frontend.backends)
}
