//! 1,000 clients with all of 1,000 clusters and the endpoints of 100. Each change is of one
//! resource, so it shows the cost of a small change to clients with a large configuration.

use std::time::Instant;

use super::super::super::BenchError;
use super::super::books::Books;
use super::super::client::{Spec, Variant};
use super::super::fleet::{Fleet, connect};
use super::super::plane::Load;
use super::super::report::Figure;
use super::super::resources::Kind;
use super::{Rig, cpu_each, memory_each, percentiles};

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let (clients, clusters, assignments) = rig.size((1_000, 1_000, 100), (20, 50, 10));
    let load = Load {
        clusters,
        endpoints: clusters,
        connections: clients,
    };
    let mut plane = rig.plane(load).await?;
    let empty = plane.usage()?;
    let begin = Instant::now();
    let books = Books::default();
    let spec = Spec {
        variant: Variant::Delta,
        clusters,
        endpoints: 0..assignments,
        refuses: false,
    };
    let connected = connect(plane.ads, clients, &books, |_| spec.clone()).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let idle = plane.usage()?;
    let mut fleet = Fleet::follow(connected, &books, clients);
    let resource = |turn: usize| (Kind::Endpoints, turn % assignments);
    let latencies = fleet
        .deliver(&mut plane, rig.changes(), rig.pause(), resource)
        .await?;
    let end = plane.usage()?;
    let megabytes = memory_each(empty, idle, clients) / 1e6;
    let [p50, p99] = percentiles(&latencies, [74.0, 189.0]);
    Ok(vec![
        Figure::new("all clients have all resources", seconds, "s").recorded(5.9),
        Figure::new("CPU of the server for that", idle.cpu - empty.cpu, "s").recorded(5.1),
        Figure::new("memory per client", megabytes, "MB")
            .recorded(1.0)
            .at_most(0.25),
        p50,
        p99,
        cpu_each(idle, end, &latencies).recorded(194.0),
    ])
}
