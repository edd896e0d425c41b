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
}

impl Memory {
    pub(super) async fn measure(
        rig: &mut Rig,
        shape: &Shape,
        etcd: Option<&Path>,
    ) -> Result<Self, BenchError> {
        rig.route(shape).await?;
        let mut agents = vec![AgentMemory::read(rig, "file")?];
        let maps = ebpf::memory(&rig.sandbox.pins()).map_err(BenchError::Config)?;
        let total: u64 = maps.iter().map(|(_, bytes)| bytes).sum();

        let api = ApiServer::start(shape).await?;
        rig.start_agent("--kubernetes-server", &api.url).await?;
        agents.push(AgentMemory::read(rig, "kubernetes")?);

        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let snapshot = snapshot(shape, u32::MAX, &[])?;
        let plane = ControlPlane::with_snapshot(snapshot, listen, None).await;
        let plane = plane.map_err(|error| BenchError::Programmed(error.to_string()))?;
        let server = plane.listen_addr().to_string();
        rig.start_agent("--xds-server", server).await?;
        agents.push(AgentMemory::read(rig, "xds")?);
        rig.stop_agent().await?;
        plane.shutdown().await;

        let program = etcd.unwrap_or_else(|| Path::new("etcd"));
        // A missing one was said where the reactions were measured.
        if let Some(mut etcd) = Etcd::start(rig, program).await? {
            fill(&mut etcd, shape).await?;
            rig.start_agent("--kvstore-endpoints", &etcd.url).await?;
            agents.push(AgentMemory::read(rig, "kvstore")?);
        }
        rig.stop_agent().await?;
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
    fn read(rig: &Rig, source: &'static str) -> Result<Self, BenchError> {
        let agent = rig.agent().unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{agent}/status"));
        let status = status.map_err(BenchError::Config)?;
        Ok(Self {
            source,
            resident_mb: field(&status, "VmRSS:") / 1e3,
            peak_mb: field(&status, "VmHWM:") / 1e3,
        })
    }
}

/// A number of kilobytes in `/proc/PID/status`.
fn field(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    let number: f64 = number.and_then(|number| number.parse().ok()).unwrap_or(0.0);
    // The kernel means 1,024 bytes.
    number * 1.024
}
