//! 5,000 clients with one EDS resource. A change of it is small and goes to all clients, so the
//! workload shows the cost of a delivery.

use std::time::Instant;

use super::super::super::BenchError;
use super::super::books::Books;
use super::super::client::Spec;
use super::super::fleet::{Fleet, connect};
use super::super::plane::Load;
use super::super::report::Figure;
use super::super::resources::Kind;
use super::{Rig, cpu_each, memory_each, percentiles};

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let clients = rig.size(5_000, 50);
    let load = Load {
        clusters: 0,
        endpoints: 1,
        connections: clients,
    };
    let mut plane = rig.plane(load).await?;
    let empty = plane.usage()?;
    let begin = Instant::now();
    let books = Books::default();
    let connected = connect(plane.ads, clients, &books, |_| Spec::of_endpoints(0..1)).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let idle = plane.usage()?;
    let mut fleet = Fleet::follow(connected, &books, clients);
    let latencies = fleet
        .deliver(&mut plane, rig.changes(), rig.pause(), |_| {
            (Kind::Endpoints, 0)
        })
        .await?;
    let end = plane.usage()?;
    let [p50, p99] = percentiles(&latencies, [228.0, 475.0]);
    Ok(vec![
        Figure::new("all clients have the resource", seconds, "s").recorded(2.0),
        Figure::new("CPU of the server for that", idle.cpu - empty.cpu, "s").recorded(1.4),
        Figure::new(
            "memory per client",
            memory_each(empty, idle, clients) / 1e3,
            "kB",
        )
        .recorded(44.0),
        p50,
        p99,
        cpu_each(idle, end, &latencies).recorded(90.0),
    ])
}
