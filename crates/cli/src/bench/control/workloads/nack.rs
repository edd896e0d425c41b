//! 100 clients with 1,000 clusters by state of the world, of which a tenth refuses every response.
//! A server that sends a refused version again would never stop, so repeated responses are counted.

use std::time::Duration;

use tokio::time::sleep;

use super::super::super::BenchError;
use super::super::books::Books;
use super::super::client::{Spec, Variant};
use super::super::fleet::{Fleet, connect};
use super::super::plane::Load;
use super::super::report::Figure;
use super::super::resources::Kind;
use super::{Rig, cpu_each, memory_each, percentiles};

/// The time in which a server that repeats what was refused would do so.
const AFTERMATH: Duration = Duration::from_millis(500);

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let (clients, clusters) = rig.size((100, 1_000), (20, 50));
    let refusing = clients / 10;
    let load = Load {
        clusters,
        endpoints: 0,
        connections: clients,
    };
    let mut plane = rig.plane(load).await?;
    let empty = plane.usage()?;
    let books = Books::default();
    let spec = |id| Spec {
        variant: Variant::Sotw,
        clusters,
        endpoints: 0..0,
        refuses: id < refusing,
    };
    let connected = connect(plane.ads, clients, &books, spec).await?;
    let idle = plane.usage()?;
    let mut fleet = Fleet::follow(connected, &books, clients - refusing);
    let resource = |turn: usize| (Kind::Cluster, turn % clusters);
    let changes = rig.changes();
    let latencies = fleet
        .deliver(&mut plane, changes, rig.pause(), resource)
        .await?;
    let end = plane.usage()?;
    sleep(AFTERMATH).await;
    let refusals = books.refusals() as f64;
    // The first state and each change are versions, each of which a client may be sent once.
    let necessary = (refusing * (changes + 1)) as f64;
    let resends = (refusals - necessary).max(0.0) / refusals.max(1.0);
    let [p50, p99] = percentiles(&latencies, [288.0, 605.0]);
    let megabytes = memory_each(empty, idle, clients) / 1e6;
    Ok(vec![
        Figure::new("memory per client", megabytes, "MB")
            .recorded(0.7)
            .at_most(0.175),
        p50,
        p99,
        cpu_each(idle, end, &latencies).recorded(5_600.0),
        Figure::new("responses sent again per refusal", resends, "").at_most(0.0),
    ])
}
