//! The cost of a change for a resolver, compared with a resolution from scratch.
//!
//! `cargo bench -p crowfly-xds`. A time is the minimum of several samples, because other work of
//! the machine adds to the rest. `clusters built` is the number of clusters that were looked at
//! again.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench"
)]

mod world;

use std::hint::black_box;
use std::time::{Duration, Instant};

use crowfly_testkit::builders::Resource;
use crowfly_xds::{Resolved, resolve};

use world::{World, changed_endpoints, ordered};

const CLUSTERS: usize = 1_000;
const SAMPLES: usize = 300;
/// A change must take this many times less time than a resolution from scratch.
const LIMIT: f64 = 10.0;

/// The cost of a change.
struct Cost {
    time: Duration,
    built: usize,
}

fn main() {
    println!("{:<52}{:>12}{:>18}", "", "time", "clusters built");
    let mut routed = World::routed(CLUSTERS);
    let scratch = print_scratch("clusters with a route each", &routed);
    let changes = [0, 1].map(|turn| changed_endpoints(CLUSTERS / 2, turn));
    let step = change(&mut routed, &changes);
    print("  one changed endpoints", &step);
    assert_eq!(step.built, 1, "one cluster has changed");

    let mut listed = World::listed(CLUSTERS);
    print_scratch("leaves of one aggregate", &listed);
    let orders = [true, false].map(|swapped| ordered(CLUSTERS, swapped));
    let reorder = change(&mut listed, &orders);
    print("  a list in another order", &reorder);
    assert_eq!(reorder.built, 1, "one aggregate has changed");
    let changes = [0, 1].map(|turn| changed_endpoints(CLUSTERS / 2, turn));
    let leaf = change(&mut listed, &changes);
    print("  one changed endpoints", &leaf);
    assert_eq!(leaf.built, 1, "one leaf has changed");

    let ratio = scratch.time.as_secs_f64() / step.time.as_secs_f64();
    println!(
        "\none changed endpoints: {ratio:.0} times less time than from scratch, at least {LIMIT} wanted"
    );
    assert!(ratio >= LIMIT, "a change costs too much");
}

/// One resource in turns as it is and as it was: what it takes from hearing of it to a configuration.
fn change(world: &mut World, turns: &[impl Resource; 2]) -> Cost {
    let entries = turns.each_ref().map(|resource| world.entry(resource));
    let mut turn = entries.iter().cycle();
    let sample = || {
        let (key, entry) = turn.next().unwrap().clone();
        let before = world.resolver.clusters_built();
        let start = Instant::now();
        world.resolver.update(key, entry);
        let step = world.resolver.step();
        let time = start.elapsed();
        assert!(
            matches!(step.resolved, Some(Resolved::Ready(_))),
            "the change gives a configuration"
        );
        (time, world.resolver.clusters_built() - before)
    };
    let (time, built) = std::iter::repeat_with(sample).take(SAMPLES).min().unwrap();
    Cost { time, built }
}

/// Everything from scratch.
fn print_scratch(what: &str, world: &World) -> Cost {
    let (view, roots) = (world.resolver.view(), world.resolver.roots());
    let sample = || {
        let start = Instant::now();
        let resolution = black_box(resolve(black_box(view), roots, None));
        (start.elapsed(), resolution)
    };
    let samples = std::iter::repeat_with(sample).take(SAMPLES / 10);
    let (time, resolution) = samples.min_by_key(|(time, _)| *time).unwrap();
    let Resolved::Ready(config) = resolution.resolved else {
        panic!("everything is there");
    };
    let built = config.clusters.len();
    let cost = Cost { time, built };
    print(&format!("{CLUSTERS} {what}, from scratch"), &cost);
    cost
}

fn print(what: &str, cost: &Cost) {
    let time = cost.time.as_nanos() as f64 / 1000.0;
    println!("{what:<52}{time:>9.1} us{:>18}", cost.built);
}
