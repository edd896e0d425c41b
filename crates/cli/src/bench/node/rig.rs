//! Three clients that reach the same server in three ways.
//!
//! Each client has a network namespace of its own, and a pair of devices to the server's, as a pod has.
//! One connects to backends, one to ClusterIPs that the agent routes, one to ClusterIPs that nftables
//! rewrites.
//!
//! Clients and server share a processor. Otherwise a connection that takes a few microseconds longer finds the server
//! asleep. To wake an idle processor of a virtual machine costs more than everything that is compared here.

use std::{fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use tokio::time::{Instant, sleep};

use super::{BenchError, Plan, nft, shape::BACKEND_PORT, shape::Shape};
use crate::{
    child::{Child, Program},
    peer::{self, Order, Peer, Place, Sample, Targets},
    sandbox::{self, Sandbox},
};

const SERVER: &str = "server";

/// The ways to reach a backend.
pub(super) const WAYS: [Way; 3] = [Way::Direct, Way::Ours, Way::Nft];

/// A way to reach a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Ours,
    Nft,
}

impl Way {
    fn namespace(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Ours => "ours",
            Self::Nft => "nft",
        }
    }

    pub(super) fn targets(self, shape: &Shape) -> Targets {
        match self {
            Self::Direct => shape.all_backends(),
            Self::Ours | Self::Nft => shape.frontends(),
        }
    }
}

/// The processes, in the order in which they are to end: the sandbox last.
#[derive(Debug)]
pub(super) struct Rig {
    clients: [Peer; 3],
    agent: Option<Child>,
    _server: Peer,
    program: Program,
    pub(super) sandbox: Sandbox,
}

impl Rig {
    pub(super) async fn start(plan: &Plan) -> Result<Self, BenchError> {
        let cpu = match plan.spreads {
            true => None,
            false => Some(peer::first_cpu().map_err(BenchError::Config)?),
        };
        let sandbox = Sandbox::new("bench", &[("nft", "nftables")])?;
        sandbox.namespace(SERVER)?;
        sandbox.ip(SERVER, "route add local 198.18.0.0/15 dev lo")?;
        let mut server = Place::of(sandbox.path_of(SERVER));
        server.cpu = cpu;
        let listen = SocketAddr::from(([0, 0, 0, 0], BACKEND_PORT));
        let (server, _) = Peer::serve(&server, listen, None, 1).await?;
        let mut clients = Vec::new();
        for (number, way) in WAYS.into_iter().enumerate() {
            let namespace = way.namespace();
            sandbox.namespace(namespace)?;
            let (client, gateway) = (4 * number + 1, 4 * number + 2);
            let addresses = [
                format!("192.0.2.{client}/30"),
                format!("192.0.2.{gateway}/30"),
            ];
            let addresses = addresses.each_ref().map(String::as_str);
            sandbox.connect([namespace, SERVER], addresses)?;
            // ClusterIPs have a route, because DNAT comes after the first look for one.
            for range in ["198.18.0.0/15", "10.96.0.0/12"] {
                let route = format!("route add {range} via 192.0.2.{gateway}");
                sandbox.ip(namespace, &route)?;
            }
            let netns = sandbox.path_of(namespace);
            let mut place = match way {
                Way::Ours => Place::within(netns, sandbox.cgroup()),
                Way::Direct | Way::Nft => Place::of(netns),
            };
            place.cpu = cpu;
            clients.push(Peer::client(&place)?);
        }
        let clients = <[Peer; 3]>::try_from(clients)
            .map_err(|_| io::Error::other("three ways have three clients"));
        Ok(Self {
            clients: clients.map_err(BenchError::Config)?,
            agent: None,
            _server: server,
            program: Program::current()?,
            sandbox,
        })
    }

    /// Gives the client of this way an order.
    pub(super) async fn sample(&mut self, way: Way, order: &Order) -> Result<Sample, BenchError> {
        Ok(self.client(way).ask(order).await?)
    }

    pub(super) fn client(&mut self, way: Way) -> &mut Peer {
        let [direct, ours, nft] = &mut self.clients;
        match way {
            Way::Direct => direct,
            Way::Ours => ours,
            Way::Nft => nft,
        }
    }

    /// The agent's file.
    pub(super) fn config(&self) -> PathBuf {
        self.sandbox.folder().join("node.yaml")
    }

    /// Replaces the agent's file by a rename, as a careful program does it.
    pub(super) fn write(&self, text: &str) -> Result<(), BenchError> {
        let new = self.sandbox.folder().join("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(new, self.config()));
        written.map_err(BenchError::Config)
    }

    /// Starts an agent with these services on empty maps. Returns the time until they are routed, which
    /// is for a whole process: programs are loaded, and the file is read.
    pub(super) async fn route(&mut self, shape: &Shape) -> Result<Duration, BenchError> {
        self.write(&shape.file())?;
        let file = self.config().display().to_string();
        self.start_agent(&["--config", &file]).await
    }

    /// Starts an agent with these flags on empty maps, and returns the time until it routes.
    pub(super) async fn start_agent(&mut self, flags: &[&str]) -> Result<Duration, BenchError> {
        self.stop_agent().await?;
        let begin = Instant::now();
        let log = self.sandbox.folder().join("agent.log");
        let mut words = vec![PathBuf::from("node")];
        words.extend(flags.iter().map(PathBuf::from));
        words.extend(["--cgroup".into(), self.sandbox.cgroup().to_owned()]);
        words.extend(["--pins".into(), self.sandbox.pins()]);
        words.extend(["--socket".into(), self.sandbox.socket()]);
        let mut agent = self.program.spawn("node", words, Some(&log))?;
        agent.said("routing ").await?;
        self.agent = Some(agent);
        Ok(begin.elapsed())
    }

    /// The agent's process.
    pub(super) fn agent(&self) -> Option<u32> {
        self.agent.as_ref().and_then(Child::id)
    }

    /// Ends the agent, and removes its maps.
    pub(super) async fn stop_agent(&mut self) -> Result<(), BenchError> {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().await?;
        }
        // The kernel may take a moment to unlock the pins of the process.
        let begin = Instant::now();
        loop {
            match crowfly_node::maps::ebpf::clean(&self.sandbox.pins()) {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > Duration::from_secs(5) => {
                    return Err(BenchError::Install(error));
                }
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Gives the namespace of nftables these rules, and returns the time that `nft` takes.
    pub(super) fn rules(&self, text: &str) -> Result<Duration, BenchError> {
        let path = self.sandbox.folder().join("rules");
        fs::write(&path, text).map_err(BenchError::Config)?;
        let namespace = self.sandbox.name_of(Way::Nft.namespace());
        let begin = Instant::now();
        let path = path.to_string_lossy();
        sandbox::run("ip", ["netns", "exec", &namespace, "nft", "-f", &path])?;
        Ok(begin.elapsed())
    }

    /// Programs the services into the agent and into nftables.
    pub(super) async fn program(&mut self, shape: &Shape) -> Result<(), BenchError> {
        self.rules(&nft::clear())?;
        self.rules(&nft::ruleset(shape))?;
        self.route(shape).await.map(drop)
    }
}
