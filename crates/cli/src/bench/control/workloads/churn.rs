//! 200 clients with 100 EDS resources, which change faster than clients may be able to follow.
//!
//! A server that cannot follow merges changes. Then there are fewer deliveries than changes times clients, and no
//! queue that grows.
//!
//! All rates run twice: each change is published at once, and changes are gathered for 100 ms. The second shows what a
//! source that gathers changes saves, and what it adds to the time until clients have them.

use std::time::{Duration, Instant};

use tokio::time::interval;

use super::super::super::BenchError;
use super::super::books::Books;
use super::super::client::Spec;
use super::super::fleet::{Fleet, connect};
use super::super::machine::Usage;
use super::super::plane::Load;
use super::super::report::Figure;
use super::super::resources::Kind;
use super::{Rig, cpu_each};

const RATES: [u32; 3] = [20, 100, 500];

/// The times for which changes are gathered.
const DEBOUNCES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(100)];

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for debounce in DEBOUNCES {
        figures.extend(run_with(rig, debounce).await?);
    }
    Ok(figures)
}

async fn run_with(rig: &Rig, debounce: Duration) -> Result<Vec<Figure>, BenchError> {
    let (clients, assignments) = rig.size((200, 100), (10, 10));
    let seconds = rig.size(5.0, 0.2);
    let load = Load {
        clusters: 0,
        endpoints: assignments,
        connections: clients,
    };
    let mut plane = rig.debounced_plane(load, debounce).await?;
    let books = Books::default();
    let spec = |_| Spec::of_endpoints(0..assignments);
    let connected = connect(plane.ads, clients, &books, spec).await?;
    let mut fleet = Fleet::follow(connected, &books, clients);
    let gathered = match debounce {
        Duration::ZERO => String::new(),
        time => format!(", {time:?}"),
    };
    let mut figures = Vec::new();
    for rate in RATES {
        let changes = (f64::from(rate) * seconds) as usize;
        let before = plane.usage()?;
        let own = own_usage()?;
        let begin = Instant::now();
        let mut ticks = interval(Duration::from_secs(1) / rate);
        for turn in 0..changes {
            ticks.tick().await;
            let resource = (Kind::Endpoints, turn % assignments);
            fleet.hand(&mut plane, resource).await?;
        }
        fleet.arrived().await?;
        let elapsed = begin.elapsed().as_secs_f64();
        let after = plane.usage()?;
        let latencies = fleet.books().take_latencies();
        let named = |name: &str| format!("{rate}/s{gathered}: {name}");
        let share = |before: Usage, after: Usage| (after.cpu - before.cpu) / elapsed * 100.0;
        let percentiles = (latencies.p50_ms, latencies.p99_ms);
        let mut p50 = Figure::new(named("change to client, p50"), percentiles.0, "ms");
        let mut p99 = Figure::new(named("change to client, p99"), percentiles.1, "ms");
        let mut cost = cpu_each(before, after, &latencies);
        cost.name = named(&cost.name);
        if rate == 20 && debounce.is_zero() {
            p50 = p50.recorded(14.0);
            p99 = p99.recorded(29.0).at_most(14.5);
            cost = cost.recorded(158.0);
        }
        let per_second = latencies.deliveries as f64 / elapsed;
        figures.extend([
            Figure::new(named("deliveries"), per_second, "/s"),
            p50,
            p99,
            cost,
            Figure::new(named("CPU of the server"), share(before, after), "%"),
            Figure::new(named("CPU of the clients"), share(own, own_usage()?), "%"),
        ]);
    }
    Ok(figures)
}

fn own_usage() -> Result<Usage, BenchError> {
    Usage::of(std::process::id()).map_err(BenchError::Machine)
}
