//! Well-behaved clients, with and without hostile ones beside them. The two are measured in turn,
//! so that other work of the machine slows both down alike.

use std::time::{Duration, Instant};

use super::super::super::{BenchError, Quartiles};
use super::super::books::Books;
use super::super::client::Spec;
use super::super::fleet::{Fleet, connect};
use super::super::hostile::{Hostile, RESOURCES};
use super::super::plane::Load;
use super::super::report::Figure;
use super::super::resources::Kind;
use super::Rig;

/// The most that hostile clients may multiply the time of the others by.
const RATIO: f64 = 1.5;

const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let (clients, pairs, changes) = rig.size((500, 5, 40), (20, 1, 5));
    let load = Load {
        clusters: RESOURCES,
        endpoints: RESOURCES,
        connections: clients + 100,
    };
    let mut plane = rig.plane(load).await?;
    let books = Books::default();
    let connected = connect(plane.ads, clients, &books, |_| Spec::of_endpoints(0..1)).await?;
    let mut fleet = Fleet::follow(connected, &books, clients);
    let resource = |_| (Kind::Endpoints, 0);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut requests, mut ended, mut seconds) = (0, 0, 0.0);
    // The first pair warms up.
    for pair in 0..=pairs {
        let quiet = fleet.deliver(&mut plane, changes, PAUSE, resource).await?;
        let begin = Instant::now();
        let hostile = Hostile::start(plane.ads);
        let loud = fleet.deliver(&mut plane, changes, PAUSE, resource).await?;
        if pair > 0 {
            alone.push(quiet.p99_ms);
            beside.push(loud.p99_ms);
            let counts = hostile.counts();
            requests += counts.0;
            ended += counts.1;
            seconds += begin.elapsed().as_secs_f64();
        }
    }
    let ratios = beside
        .iter()
        .zip(&alone)
        .map(|(beside, alone)| beside / alone);
    let ratio = Quartiles::of(ratios).median;
    Ok(vec![
        Figure::new("p99 alone", Quartiles::of(alone.clone()).median, "ms"),
        Figure::new(
            "p99 beside hostile clients",
            Quartiles::of(beside.clone()).median,
            "ms",
        ),
        Figure::new("ratio of the two", ratio, "x").at_most(RATIO),
        Figure::new(
            "requests of the hostile clients",
            requests as f64 / seconds,
            "/s",
        ),
        Figure::new(
            "streams of theirs that were ended",
            ended as f64 / seconds,
            "/s",
        ),
    ])
}
