//! The workloads, one file each, and the conditions that they share. A workload has a small size
//! too, because a smoke test runs all of them.

mod churn;
mod cold_sync;
mod fan_out;
mod hostile;
mod idle_streams;
mod mesh;
mod nack;

use std::time::Duration;

use clap::ValueEnum;

use super::super::BenchError;
use super::books::Latencies;
use super::machine::{self, Cores, Usage};
use super::plane::{Load, Plane};
use super::report::Figure;

/// A workload of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// 5,000 clients with one EDS resource: memory, and the time until all have a change
    FanOut,
    /// 200 clients get 2,000 resources each, by delta and by state of the world; then they come back
    ColdSync,
    /// 1,000 clients with 1,000 clusters and 100 EDS resources each
    Mesh,
    /// 200 clients with 100 EDS resources, at 20, 100 and 500 changes per second, which are published at once or gathered
    /// for 100 ms
    Churn,
    /// 100 clients with 1,000 clusters by state of the world, of which 10 refuse everything
    Nack,
    /// 20,000 idle streams over 2,000 connections: the memory of a stream, its own part, and that of a connection
    IdleStreams,
    /// Well-behaved clients with and without hostile ones beside them
    Hostile,
}

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FanOut => "fan-out",
            Self::ColdSync => "cold-sync",
            Self::Mesh => "mesh",
            Self::Churn => "churn",
            Self::Nack => "nack",
            Self::IdleStreams => "idle-streams",
            Self::Hostile => "hostile",
        }
    }

    pub(super) async fn run(self, rig: &Rig) -> Result<Vec<Figure>, BenchError> {
        match self {
            Self::FanOut => fan_out::run(rig).await,
            Self::ColdSync => cold_sync::run(rig).await,
            Self::Mesh => mesh::run(rig).await,
            Self::Churn => churn::run(rig).await,
            Self::Nack => nack::run(rig).await,
            Self::IdleStreams => idle_streams::run(rig).await,
            Self::Hostile => hostile::run(rig).await,
        }
    }
}

/// The conditions of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rig {
    pub(super) cores: Cores,
    pub(super) quick: bool,
}

impl Rig {
    /// Starts a server.
    async fn plane(&self, load: Load) -> Result<Plane, BenchError> {
        machine::allow_files(load.files())?;
        Plane::start(load, self.cores).await
    }

    /// Starts a server that gathers changes for a while.
    async fn debounced_plane(&self, load: Load, debounce: Duration) -> Result<Plane, BenchError> {
        machine::allow_files(load.files())?;
        Plane::start_debounced(load, self.cores, debounce).await
    }

    /// Starts a server that only holds streams.
    async fn bare_plane(&self, load: Load) -> Result<Plane, BenchError> {
        machine::allow_files(load.files())?;
        Plane::start_bare(load, self.cores).await
    }

    /// A size, and that of a smoke test.
    fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The time between two changes.
    fn pause(&self) -> Duration {
        self.size(Duration::from_secs(1), Duration::from_millis(20))
    }

    /// The number of changes.
    fn changes(&self) -> usize {
        self.size(10, 3)
    }
}

/// The bytes per client between two measurements.
fn memory_each(before: Usage, after: Usage, clients: usize) -> f64 {
    (after.memory - before.memory).max(0.0) / clients as f64
}

/// The time of the server per delivery, in microseconds.
fn cpu_each(before: Usage, after: Usage, latencies: &Latencies) -> Figure {
    let microseconds = (after.cpu - before.cpu) * 1e6 / latencies.deliveries.max(1) as f64;
    Figure::new("CPU of the server per delivery", microseconds, "µs")
}

/// The median and the 99th percentile, with those of go-control-plane. Half of its 99th percentile is the aim.
fn percentiles(latencies: &Latencies, [p50, p99]: [f64; 2]) -> [Figure; 2] {
    [
        Figure::new("change to client, p50", latencies.p50_ms, "ms").recorded(p50),
        Figure::new("change to client, p99", latencies.p99_ms, "ms")
            .recorded(p99)
            .at_most(p99 / 2.0),
    ]
}
