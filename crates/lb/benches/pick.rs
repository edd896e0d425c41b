//! Nanoseconds per pick, with the end of its call, at 1, 100 and 10,000 ready endpoints.
//!
//! `cargo bench -p crowfly-lb`. Each figure is the minimum of 20 samples: the cost of the code, not
//! of what else the machine does.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench"
)]

use std::{
    hint::black_box,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use crowfly_lb::{
    Balancer, CallContext, Command, Endpoint, EndpointId, EndpointState, Event, Locality,
    LocalityId, Node, Pick, Picker, Plan,
};

const SAMPLES: usize = 20;
const PICKS: u64 = 200_000;
const SIZES: [u32; 3] = [1, 100, 10_000];
/// The greatest ratio between the cost at 10,000 and at 100 endpoints.
const LIMIT: f64 = 3.0;

fn main() {
    println!("ns per pick and end of call, minimum of {SAMPLES} samples of {PICKS} picks");
    println!(
        "{:<34}{:>8}{:>8}{:>8}{:>14}",
        "", "1", "100", "10,000", "10,000/100"
    );
    let mut worst: f64 = 0.0;
    for localities in [1, 3] {
        let pickers = SIZES.map(|size| picker(localities, size));
        for threads in [1, 2] {
            let cost = pickers.each_ref().map(|picker| minimum(picker, threads));
            let ratio = cost[2] / cost[1];
            worst = worst.max(ratio);
            let label = format!("{localities} localities, {threads} threads");
            println!(
                "{label:<34}{:>8.1}{:>8.1}{:>8.1}{ratio:>14.2}",
                cost[0], cost[1], cost[2]
            );
        }
    }
    println!("worst ratio {worst:.2}, at most {LIMIT} allowed");
    assert!(
        worst <= LIMIT,
        "a pick at 10,000 endpoints costs {worst:.2} times that at 100"
    );
}

/// The time that one thread spends on one pick, while `threads` of them pick.
fn minimum(picker: &Arc<Picker<Transport>>, threads: usize) -> f64 {
    let samples = (0..SAMPLES).map(|_| sample(picker, threads));
    let best = samples.min().unwrap_or_default();
    best.as_nanos() as f64 / PICKS as f64
}

fn sample(picker: &Arc<Picker<Transport>>, threads: usize) -> Duration {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let spawn = |thread| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                pick_many(picker, thread as u64);
                start.elapsed()
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .max()
            .unwrap_or_default()
    })
}

fn pick_many(picker: &Picker<Transport>, thread: u64) {
    let mut rng = fastrand::Rng::with_seed(thread);
    for _ in 0..PICKS {
        let cx = CallContext::new(rng.u64(..));
        let Pick::Ready(call) = black_box(picker).pick(&cx) else {
            panic!("every endpoint is ready");
        };
        black_box(call.transport());
    }
}

/// What a channel would keep per connection: a handle behind an `Arc`.
type Transport = Arc<u64>;

/// A picker of `size` ready endpoints, spread over localities of unequal weight.
fn picker(localities: u32, size: u32) -> Arc<Picker<Transport>> {
    let now = Instant::now();
    let mut balancer = Balancer::new(1, Arc::default());
    let locality = |index: u32| Locality {
        id: LocalityId::new("region", &index.to_string(), ""),
        weight: NonZeroU32::new(index + 1).unwrap(),
        child: Node::round_robin(
            (0..size)
                .filter(|n| n % localities == index)
                .map(endpoint)
                .collect::<Vec<_>>(),
        ),
    };
    let root = Node::Localities((0..localities).map(locality).collect());
    balancer.handle(
        Event::Plan(Arc::new(Plan {
            cluster: "bench".into(),
            root,
            note: None,
        })),
        now,
    );
    balancer.flush(now);
    let (mut ids, _) = drain(&mut balancer);
    // Connections are made in any order: neighbours in the list are not neighbours in memory.
    fastrand::Rng::with_seed(2).shuffle(&mut ids);
    for (serial, id) in (0..).zip(ids) {
        let state = EndpointState::Ready(Arc::new(serial));
        balancer.handle(Event::Endpoint { id, state }, now);
    }
    balancer.flush(now);
    drain(&mut balancer).1.expect("a change makes a picker")
}

fn drain(balancer: &mut Balancer<Transport>) -> (Vec<EndpointId>, Option<Arc<Picker<Transport>>>) {
    let (mut connects, mut published) = (Vec::new(), None);
    while let Some(command) = balancer.poll_command() {
        match command {
            Command::Connect { id, .. } => connects.push(id),
            Command::Publish { picker, .. } => published = Some(picker),
            Command::Release(_) => {}
        }
    }
    (connects, published)
}

fn endpoint(n: u32) -> Endpoint {
    SocketAddr::from(([10, (n >> 16) as u8, (n >> 8) as u8, n as u8], 50051)).into()
}
