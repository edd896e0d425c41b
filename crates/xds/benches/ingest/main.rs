//! The cost of a large configuration for a client: time, bytes on the wire and bytes held.
//!
//! `cargo bench -p crowfly-xds`. A time is for the whole way of a message: it is decoded, taken
//! into the cache, and its answer encoded. Each time is the minimum of several samples, because
//! other work of the machine adds to the rest. The allocations are counted throughout, which costs
//! both protocols alike.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench"
)]

mod client;
mod memory;
mod messages;

use std::time::{Duration, Instant};

use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_xds::Protocol;
use crowfly_xds::Protocol::{Delta, StateOfTheWorld};

use client::Client;
use messages::Resources;

const RESOURCES: usize = 10_000;
const ENDPOINTS: usize = 10;
/// A changed cluster must take this many times less time by delta.
const LIMIT: f64 = 100.0;

/// The cost of a step.
struct Cost {
    time: Duration,
    response: usize,
    answer: usize,
}

fn main() {
    let names: Vec<String> = (0..RESOURCES).map(messages::name).collect();
    println!(
        "{RESOURCES} resources; endpoints: {ENDPOINTS} in each\n\n{:<44}{:>12}{:>16}{:>14}",
        "", "time", "response bytes", "answer bytes"
    );
    let endpoints = Resources::endpoints(&names, ENDPOINTS);
    for protocol in [StateOfTheWorld, Delta] {
        print("all endpoints", protocol, &ingest(&endpoints, protocol));
    }
    let clusters = Resources::clusters(&names);
    let [all, one] = [StateOfTheWorld, Delta].map(|protocol| {
        let cost = change::<Cluster>(&clusters, protocol, protocol == StateOfTheWorld);
        print("one changed cluster", protocol, &cost);
        cost
    });
    for protocol in [StateOfTheWorld, Delta] {
        let cost = change::<Endpoints>(&endpoints, protocol, false);
        print("one changed endpoints", protocol, &cost);
    }
    let ratio = all.time.as_secs_f64() / one.time.as_secs_f64();
    println!("\none changed cluster: {ratio:.0} times less time by delta, at least {LIMIT} wanted");
    memory::print(&endpoints, ENDPOINTS);
    assert!(ratio >= LIMIT, "delta saves too little");
}

/// A new client takes everything in one response.
fn ingest(endpoints: &Resources, protocol: Protocol) -> Cost {
    let response = endpoints.response(protocol, "1", 0..RESOURCES);
    let sample = || {
        let mut client = Client::watching::<Endpoints>(protocol, endpoints.names());
        let start = Instant::now();
        let answer = client.receive(&response);
        (start.elapsed(), answer)
    };
    minimum(10, response.len(), sample)
}

/// A client that has everything hears of a change in one resource. A response with `all` carries
/// the others too.
fn change<R: crowfly_model::ResourceType>(
    resources: &Resources,
    protocol: Protocol,
    all: bool,
) -> Cost {
    let mut client = Client::watching::<R>(protocol, resources.names());
    client.receive(&resources.response(protocol, "1", 0..RESOURCES));
    assert_eq!(client.take_changes(), RESOURCES);
    // One of the middle, in turns as it is and as it was.
    let changed = RESOURCES / 2;
    let carried = if all {
        0..RESOURCES
    } else {
        changed..changed + 1
    };
    let versions = ["2", "3"].map(|version| {
        let mut resources = resources.clone();
        resources.change(changed, version);
        resources.response(protocol, version, carried.clone())
    });
    let mut turn = versions.iter().cycle();
    let sample = || {
        let response = turn.next().unwrap();
        let start = Instant::now();
        let answer = client.receive(response);
        let time = start.elapsed();
        assert_eq!(client.take_changes(), 1, "exactly one resource has changed");
        (time, answer)
    };
    minimum(if all { 20 } else { 500 }, versions[0].len(), sample)
}

fn minimum(samples: usize, response: usize, sample: impl FnMut() -> (Duration, usize)) -> Cost {
    let costs = std::iter::repeat_with(sample).take(samples);
    let (time, answer) = costs.min().unwrap();
    Cost {
        time,
        response,
        answer,
    }
}

fn print(what: &str, protocol: Protocol, cost: &Cost) {
    let protocol = match protocol {
        Delta => "delta",
        StateOfTheWorld => "state of the world",
    };
    let label = format!("{what}, {protocol}");
    let time = cost.time.as_nanos() as f64 / 1000.0;
    let Cost {
        response, answer, ..
    } = cost;
    println!("{label:<44}{time:>9.1} us{response:>16}{answer:>14}");
}
