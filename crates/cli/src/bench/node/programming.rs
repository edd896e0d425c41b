//! The time from events of a source to maps that are written. A new backend gets no connection
//! before that.

use std::{path::Path, sync::Arc, time::Duration};

use crowfly_node::{
    agent::Agent,
    file,
    maps::ebpf::{Capacity, EbpfMaps, Settings},
    model,
    services::{ServiceEvent, Services},
};
use crowfly_source::Event;
use serde::Serialize;
use tokio::time::Instant;

use super::{
    BenchError, nft,
    rig::Rig,
    shape::{self, Shape},
};
use crate::{bench::Quartiles, sandbox::Sandbox};

/// The source of the measured agents.
const SOURCE: &str = "file";

/// The time to program services from empty maps, and to change one of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Programming {
    pub(super) services: u32,
    pub(super) backends_each: u32,
    /// From the sources' events to maps that are written, median.
    pub(super) ours_ms: f64,
    /// The slowest run, from the sources' events to maps that are written.
    pub(super) ours_slowest_ms: f64,
    /// A whole agent: programs loaded, file read, maps written.
    pub(super) agent_start_ms: f64,
    /// `nft -f` of the whole ruleset.
    pub(super) nft_ms: f64,
    /// One service gets another backend: from the event to maps that are written, median.
    pub(super) change_p50_us: f64,
    pub(super) change_p99_us: f64,
    /// `nft -f` of such a change, median.
    pub(super) nft_change_ms: f64,
}

impl Programming {
    pub(super) async fn measure(
        rig: &mut Rig,
        shape: &Shape,
        rounds: usize,
    ) -> Result<Self, BenchError> {
        rig.rules(&nft::clear())?;
        let nft_all = rig.rules(&nft::ruleset(shape))?;
        let mut nft_changes = Vec::new();
        for turn in 0..3 {
            let (before, after) = (shape.backends_of(turn), Shape::spare_backends(turn));
            nft_changes.push(millis(rig.rules(&nft::change(turn, &before, &after))?));
        }
        let agent_start = rig.route(shape).await?;
        rig.stop_agent().await?;

        let (mut all, mut changes) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let mut agent = empty_agent(&rig.sandbox)?;
            let events = listing(&shape.file())?;
            let begin = Instant::now();
            let outcome = agent.handle(0, events);
            all.push(millis(begin.elapsed()));
            if let Some((frontend, error)) = outcome.failed.first() {
                return Err(BenchError::Programmed(format!("{frontend}: {error}")));
            }
            changes.extend(change_some(&mut agent, shape)?);
            drop(agent);
            rig.stop_agent().await?;
        }
        changes.sort_by(f64::total_cmp);
        let p99 = changes.get(changes.len() * 99 / 100).copied();
        Ok(Self {
            services: shape.services,
            backends_each: shape.backends,
            ours_ms: Quartiles::of(all.iter().copied()).median,
            ours_slowest_ms: all.into_iter().fold(0.0, f64::max),
            agent_start_ms: millis(agent_start),
            nft_ms: millis(nft_all),
            change_p50_us: Quartiles::of(changes).median,
            change_p99_us: p99.unwrap_or_default(),
            nft_change_ms: Quartiles::of(nft_changes).median,
        })
    }
}

/// An agent with maps of its own, which hold nothing yet.
fn empty_agent(sandbox: &Sandbox) -> Result<Agent<EbpfMaps>, BenchError> {
    let settings = Settings {
        cgroup: sandbox.cgroup().to_owned(),
        pins: sandbox.pins(),
        capacity: Capacity::default(),
        ends_tcp: false,
    };
    let maps = EbpfMaps::install(&settings).map_err(BenchError::Install)?;
    let services = Services::new(vec![SOURCE.into()], model::Place::default());
    Agent::new(services, maps).map_err(|error| BenchError::Programmed(error.to_string()))
}

fn listing(text: &str) -> Result<Vec<ServiceEvent>, BenchError> {
    let services = file::read(Path::new("bench"), text);
    let services = services.map_err(|errors| BenchError::Programmed(errors.to_string()))?;
    let services = services
        .into_iter()
        .map(|service| Event::Upsert(service.name.clone(), Arc::new(service)));
    let begin = [Event::Init].into_iter();
    Ok(begin.chain(services).chain([Event::InitDone]).collect())
}

/// Gives some services another backend, one by one, and returns the microseconds that each took.
fn change_some(agent: &mut Agent<EbpfMaps>, shape: &Shape) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::new();
    for turn in 0..shape.services.min(500) {
        let service = turn * 7_919 % shape.services;
        let entry = shape::entry(service, &Shape::spare_backends(turn));
        let mut events = listing(&format!("services:\n{entry}"))?;
        // A change, not a listing.
        events.retain(|event| matches!(event, Event::Upsert(..)));
        let begin = Instant::now();
        agent.handle(0, events);
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        if turn % 50 == 0 {
            agent.sweep();
        }
    }
    Ok(times)
}

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
