//! The memory that many services need. The agent is measured by source, because each source keeps
//! other objects. The maps in the kernel are measured, too.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crowfly_control::ControlPlane;
use crowfly_node::maps::ebpf;
use serde::Serialize;

use super::{
    BenchError,
    etcd::Etcd,
    kube::ApiServer,
    reaction::{fill, snapshot},
    rig::Rig,
    shape::Shape,
};

/// The memory of agents, and of their maps in the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Memory {
    pub(super) services: u32,
    pub(super) backends_each: u32,
    pub(super) agents: Vec<AgentMemory>,
    pub(super) maps_mb: f64,
    pub(super) maps: BTreeMap<&'static str, u64>,
}

/// The memory of an agent whose services are all from one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AgentMemory {
    pub(super) source: &'static str,
    /// The resident memory once all services are routed.
    pub(super) resident_mb: f64,
    /// The greatest resident memory until then.
    pub(super) peak_mb: f64,
    /// The resident memory of an agent that reports all connections.
    pub(super) reporting_mb: f64,
}

impl Memory {
    pub(super) async fn measure(
        rig: &mut Rig,
        shape: &Shape,
        etcd: Option<&Path>,
    ) -> Result<Self, BenchError> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let snapshot = snapshot(shape, u32::MAX, &[])?;
        let plane = ControlPlane::with_snapshot(snapshot, listen, None).await;
        let plane = plane.map_err(|error| BenchError::Programmed(error.to_string()))?;
        let server = plane.listen_addr().to_string();

        rig.route(shape).await?;
        let maps = ebpf::memory(&rig.sandbox.pins()).map_err(BenchError::Config)?;
        let total: u64 = maps.iter().map(|(_, bytes)| bytes).sum();
        let file = rig.config().display().to_string();
        let mut agents = vec![AgentMemory::of(rig, "file", ["--config", &file], &server).await?];

        let api = ApiServer::start(shape).await?;
        let flags = ["--kubernetes-server", &api.url];
        agents.push(AgentMemory::of(rig, "kubernetes", flags, &server).await?);

        let flags = ["--xds-server", &server];
        agents.push(AgentMemory::of(rig, "xds", flags, &server).await?);

        let program = etcd.unwrap_or_else(|| Path::new("etcd"));
        // A missing one was said where the reactions were measured.
        if let Some(mut etcd) = Etcd::start(rig, program).await? {
            fill(&mut etcd, shape).await?;
            let flags = ["--kvstore-endpoints", &etcd.url];
            agents.push(AgentMemory::of(rig, "kvstore", flags, &server).await?);
        }
        rig.stop_agent().await?;
        plane.shutdown().await;
        Ok(Self {
            services: shape.services,
            backends_each: shape.backends,
            agents,
            maps_mb: total as f64 / 1e6,
            maps: maps.into_iter().collect(),
        })
    }
}

impl AgentMemory {
    /// Starts an agent with these flags twice: alone, and with reports of all connections to a server.
    async fn of(
        rig: &mut Rig,
        source: &'static str,
        [flag, value]: [&str; 2],
        server: &str,
    ) -> Result<Self, BenchError> {
        let reports = ["--load-report-server", server, "--load-report-all"];
        rig.start_agent(&[&[flag, value], &reports[..]].concat())
            .await?;
        let (reporting_mb, _) = resident(rig)?;
        rig.start_agent(&[flag, value]).await?;
        let (resident_mb, peak_mb) = resident(rig)?;
        Ok(Self {
            source,
            resident_mb,
            peak_mb,
            reporting_mb,
        })
    }
}

/// The resident memory of the agent in MB, now and at its greatest.
fn resident(rig: &Rig) -> Result<(f64, f64), BenchError> {
    let agent = rig.agent().unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{agent}/status"));
    let status = status.map_err(BenchError::Config)?;
    Ok((
        field(&status, "VmRSS:") / 1e3,
        field(&status, "VmHWM:") / 1e3,
    ))
}

/// A number of kilobytes in `/proc/PID/status`.
fn field(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    let number: f64 = number.and_then(|number| number.parse().ok()).unwrap_or(0.0);
    // The kernel means 1,024 bytes.
    number * 1.024
}
