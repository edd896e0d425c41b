//! Compares two transports under one load, in interleaved pairs of short samples.
//!
//! Pairs are compared with each other, because the machine's speed changes less within a pair than
//! over a run.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::task::JoinSet;
use tonic::Status;

use super::Quartiles;
use crate::{
    child::ChildError,
    load::Transport,
    testing::{SimpleRequest, test_service_client::TestServiceClient},
};

const WARM_UP_PATIENCE: Duration = Duration::from_secs(10);
const WARM_UP_PAUSE: Duration = Duration::from_millis(20);

/// The number, the length and the concurrency of samples.
#[derive(Clone, Debug)]
pub struct SamplingPlan {
    /// The number of pairs of samples at each concurrency.
    pub pairs: NonZeroUsize,
    /// The duration of a sample.
    pub sample: Duration,
    /// The numbers of calls that are open at once, one run for each.
    pub concurrency: Vec<NonZeroUsize>,
}

/// The result at one concurrency. Scripts rely on its JSON form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The name of the peer.
    pub peer: String,
    /// Calls open at once.
    pub concurrency: usize,
    /// Crowfly's calls per second, median.
    pub rps: f64,
    /// The peer's calls per second, median.
    pub peer_rps: f64,
    /// Median of crowfly's rate divided by the peer's, pair by pair.
    pub ratio: f64,
    /// Interquartile range of those quotients.
    pub iqr: f64,
}

/// Measures `ours` against `peer`, and reports each run as soon as it is complete.
///
/// # Errors
/// A call failed. Then the measured load would not be the one that was asked for.
pub async fn compare<A: Transport, B: Transport>(
    name: &str,
    ours: &A,
    peer: &B,
    plan: &SamplingPlan,
    mut report: impl FnMut(&Run),
) -> Result<Vec<Run>, BenchError> {
    let mut runs = Vec::new();
    for concurrency in &plan.concurrency {
        let mut pairs = Vec::new();
        // One pair more than asked for: the first only warms both sides up.
        for number in 0..=plan.pairs.get() {
            let pair = pair(ours, peer, concurrency.get(), plan.sample, number % 2 == 0).await?;
            if number > 0 {
                pairs.push(pair);
            }
        }
        let run = Run::new(name, concurrency.get(), &pairs);
        report(&run);
        runs.push(run);
    }
    Ok(runs)
}

impl Run {
    fn new(peer: &str, concurrency: usize, pairs: &[(f64, f64)]) -> Self {
        let ratios = Quartiles::of(pairs.iter().map(|(ours, theirs)| ours / theirs));
        Self {
            peer: peer.to_owned(),
            concurrency,
            rps: Quartiles::of(pairs.iter().map(|pair| pair.0)).median,
            peer_rps: Quartiles::of(pairs.iter().map(|pair| pair.1)).median,
            ratio: ratios.median,
            iqr: ratios.range(),
        }
    }
}

/// Makes calls until one succeeds.
///
/// Some peers fail calls until they have their configuration. Such failures are no part of the
/// measurement.
///
/// # Errors
/// No call succeeded in ten seconds. The error is that of the last call.
pub async fn warm_up<T: Transport>(transport: &T) -> Result<(), BenchError> {
    let mut client = TestServiceClient::new(transport.clone());
    let end = Instant::now() + WARM_UP_PATIENCE;
    loop {
        match client.unary_call(SimpleRequest::default()).await {
            Ok(_) => return Ok(()),
            Err(status) if Instant::now() >= end => return Err(status.into()),
            Err(_) => tokio::time::sleep(WARM_UP_PAUSE).await,
        }
    }
}

/// Measures the calls per second of both transports, in the order that `ours_first` gives.
async fn pair<A: Transport, B: Transport>(
    ours: &A,
    peer: &B,
    concurrency: usize,
    duration: Duration,
    ours_first: bool,
) -> Result<(f64, f64), BenchError> {
    if ours_first {
        let rate = sample(ours, concurrency, duration).await?;
        Ok((rate, sample(peer, concurrency, duration).await?))
    } else {
        let peer_rate = sample(peer, concurrency, duration).await?;
        Ok((sample(ours, concurrency, duration).await?, peer_rate))
    }
}

/// Measures calls per second with `concurrency` callers. Each calls again as soon as it is
/// answered.
async fn sample<T: Transport>(
    transport: &T,
    concurrency: usize,
    duration: Duration,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..concurrency {
        let client = TestServiceClient::new(transport.clone());
        callers.spawn(call_until(client, start + duration));
    }
    let mut calls = 0u64;
    while let Some(made) = callers.join_next().await {
        calls += made.map_err(BenchError::Task)??;
    }
    Ok(calls as f64 / start.elapsed().as_secs_f64())
}

async fn call_until<T: Transport>(
    mut client: TestServiceClient<T>,
    end: Instant,
) -> Result<u64, BenchError> {
    let mut calls = 0;
    while Instant::now() < end {
        client.unary_call(SimpleRequest::default()).await?;
        calls += 1;
    }
    Ok(calls)
}

/// The reasons why a benchmark has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A call failed.
    #[error("a call failed: {0}")]
    Call(#[from] Status),
    /// The channel that is to be measured cannot be made.
    #[error("cannot make a channel: {0}")]
    Channel(String),
    /// A server process failed.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A client of the control plane failed.
    #[error("{step}: a client failed")]
    Client {
        /// The step of the benchmark.
        step: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// The configuration of the control plane cannot be written.
    #[error("cannot write the configuration")]
    Config(#[source] std::io::Error),
    /// The benchmark's own etcd failed.
    #[cfg(target_os = "linux")]
    #[error("cannot use etcd: {0}")]
    Etcd(String),
    /// The process may not open so many files.
    #[error(
        "this needs {needed} open files, and the limit is {allowed}: raise it (as root, `ulimit -n {needed}`)"
    )]
    Files {
        /// The number of files.
        needed: u64,
        /// The number that is allowed.
        allowed: u64,
    },
    /// The command was ended by a signal.
    #[error("ended by a signal; everything that it made is removed")]
    Interrupted,
    /// The kernel does not route.
    #[cfg(target_os = "linux")]
    #[error("cannot route; `crowfly node check` says what is missing")]
    Install(#[source] crowfly_node::maps::ebpf::InstallError),
    /// The machine does not give the benchmark what it needs.
    #[error("cannot set up the benchmark")]
    Machine(#[source] std::io::Error),
    /// A process in a namespace failed.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Peer(#[from] crate::peer::PeerError),
    /// Services cannot be programmed.
    #[error("cannot program services: {0}")]
    Programmed(String),
    /// The namespaces of the sandbox cannot be made.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Sandbox(#[from] crate::sandbox::SandboxError),
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] std::io::Error),
    /// A step takes far too long.
    #[error("{step} took more than a minute")]
    Slow {
        /// The step of the benchmark.
        step: &'static str,
    },
    /// A caller's task panicked.
    #[error("a caller failed")]
    Task(#[source] tokio::task::JoinError),
    /// A change did not reach all clients.
    #[error("a change reached {had_it} of {of} clients within a minute")]
    Undelivered {
        /// The number of clients that have it.
        had_it: usize,
        /// The number of clients that should.
        of: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_pairs_and_not_the_quotient_of_medians() {
        // The machine slowed down by half between the second and the third pair.
        let run = Run::new("tonic", 64, &[(100.0, 100.0), (98.0, 100.0), (48.0, 50.0)]);
        assert_eq!((run.rps, run.peer_rps, run.ratio), (98.0, 100.0, 0.98));
        assert!((run.iqr - 0.02).abs() < 1e-9, "{run:?}");
    }
}
