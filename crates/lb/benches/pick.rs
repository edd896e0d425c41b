//! The cost of balancing: nanoseconds per pick through a whole tree, and milliseconds from a
//! changed endpoint to the new picker.
//!
//! `cargo bench -p crowfly-lb`. A figure of one thread is the minimum of 20 samples, because other
//! work of the machine adds to the rest. A pick passes a drop category and the limit of a leaf
//! cluster of an aggregate. Then it chooses one of three localities, and an endpoint of its leaf.
//! The end of its call is included.

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
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crowfly_lb::{
    Balancer, BalancerEvent, Call, CallContext, CallOutcome, ChoiceCount, ClusterPlan, Command,
    DropCategory, Endpoint, EndpointId, EndpointState, FailurePercentageEjection, Leaf, LoadPlan,
    LoadStore, Locality, LocalityId, Node, OutlierDetection, OverrideHost, Pick, Picker, Plan,
    Policy, Priority, PriorityChild, RingSize, timing::RETENTION,
};

const SAMPLES: usize = 20;
const PICKS: u64 = 100_000;
const SIZES: [u32; 3] = [1, 100, 10_000];
const LOCALITIES: u32 = 3;
/// round_robin at 100 endpoints on one thread, in nanoseconds.
const LIMIT: f64 = 150.0;
/// The greatest ratio between the cost of round_robin at 10,000 and at 100 endpoints.
const LIMIT_RATIO: f64 = 3.0;
/// From one changed of 10,000 endpoints to the new picker, in milliseconds.
const LIMIT_CHANGE: f64 = 2.0;

/// A measured cost, the greatest cost allowed, and their unit.
type Limit = (f64, f64, &'static str);

fn main() {
    let mut limits = Vec::new();
    limits.extend(print_picks());
    print_counted();
    print_sessions();
    limits.extend(print_changes());
    limits.push(print_failover());
    println!("\nlimits");
    for (cost, limit, what) in &limits {
        println!("{cost:.2} {what}, at most {limit} allowed");
    }
    assert!(
        limits.iter().all(|(cost, limit, _)| cost <= limit),
        "too slow"
    );
}

/// The cost of a pick by each policy.
fn print_picks() -> Vec<Limit> {
    println!(
        "ns per pick and end of call, {SAMPLES} samples of {PICKS} picks: their minimum; with 2 threads their median"
    );
    println!(
        "{:<34}{:>8}{:>8}{:>8}{:>14}",
        "", "1", "100", "10,000", "10,000/100"
    );
    let mut limits = Vec::new();
    for policy in policies() {
        let pickers = SIZES.map(|size| Bench::ready(&policy, size).picker);
        for threads in [1, 2] {
            let cost = pickers.each_ref().map(|picker| cost(picker, threads));
            let ratio = print_costs(&format!("{}, {threads} threads", policy.name()), cost);
            if policy == Policy::RoundRobin && threads == 1 {
                limits.push((cost[1], LIMIT, "ns at 100 endpoints"));
                limits.push((ratio, LIMIT_RATIO, "times that at 10,000"));
            }
        }
    }
    limits
}

/// The cost of a pick whose call belongs to a session.
fn print_sessions() {
    println!("\nns per pick of a session under round_robin, and end of call");
    for (what, session) in [
        ("its backend is READY", Known::Yes),
        ("its backend is gone", Known::No),
    ] {
        print_costs(what, SIZES.map(|size| session_pick(size, session)));
    }
}

/// The time from a change to the picker that knows it.
fn print_changes() -> Vec<Limit> {
    println!("\nms from one changed of 10,000 endpoints to the new picker");
    println!("{:<34}{:>8}{:>10}", "", "state", "endpoint");
    let mut limits = Vec::new();
    for policy in policies() {
        let (state, endpoint) = (change_of_state(&policy), change_of_endpoint(&policy));
        println!(
            "{:<34}{:>8.3}{:>10.3}",
            policy.name(),
            state.as_secs_f64() * 1e3,
            endpoint.as_secs_f64() * 1e3
        );
        if policy == Policy::RoundRobin {
            let change = state.max(endpoint).as_secs_f64() * 1e3;
            limits.push((change, LIMIT_CHANGE, "ms from a change to the new picker"));
        }
    }
    limits
}

/// The cost of the failover of an aggregate, which must not grow faster than the number of its leaves.
fn print_failover() -> Limit {
    println!("\nµs for each dead leaf cluster of an aggregate, from its failure to the next");
    println!("{:<34}{:>8}{:>8}{:>14}", "", "100", "2,000", "2,000/100");
    let [few, many] = [100, 2000].map(fail_over);
    let ratio = many / few;
    println!("{:<34}{few:>8.2}{many:>8.2}{ratio:>14.2}", "failover");
    let what = "times the failover of 100 leaves at 2,000";
    (ratio, LIMIT_RATIO, what)
}

/// Prints the costs for each of [`SIZES`], and returns the ratio of the largest size to the one before.
fn print_costs(what: &str, cost: [f64; 3]) -> f64 {
    let [one, hundred, many] = cost;
    let ratio = many / hundred;
    println!("{what:<34}{one:>8.1}{hundred:>8.1}{many:>8.1}{ratio:>14.2}");
    ratio
}

/// The cost of a pick whose call is counted for load reports, and of one in a cluster with outlier detection or with a
/// small limit.
fn print_counted() {
    print_row("load counted", counted);
    print_row("outlier detection", watched);
    print_row("limit of 64", limited);
}

fn print_row(what: &str, plan: fn(u32) -> Plan) {
    let pickers = SIZES.map(|size| Bench::of(&plan(size)).picker);
    for threads in [1, 2] {
        let cost = pickers.each_ref().map(|picker| cost(picker, threads));
        print_costs(&format!("round_robin, {what}, {threads} threads"), cost);
    }
}

fn policies() -> Vec<Policy> {
    vec![
        Policy::RoundRobin,
        Policy::LeastRequest(ChoiceCount::default()),
        Policy::PickFirst { shuffle: false },
        Policy::RingHash {
            size: RingSize::default(),
            request_hash_header: None,
        },
    ]
}

/// The nanoseconds that one thread spends on one pick, while `threads` of them pick.
///
/// With two threads it is the median, because the smallest sample is one in which they hardly met.
fn cost(picker: &Arc<Picker<Transport>>, threads: usize) -> f64 {
    let mut samples: Vec<_> = (0..SAMPLES).map(|_| sample(picker, threads)).collect();
    samples.sort_by(f64::total_cmp);
    samples[if threads == 1 { 0 } else { SAMPLES / 2 }]
}

fn sample(picker: &Arc<Picker<Transport>>, threads: usize) -> f64 {
    let (ready, timed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all_have = |counter: &AtomicUsize| counter.load(Relaxed) == threads;
    let spent = thread::scope(|scope| {
        let spawn = |thread| {
            let (ready, timed, all_have) = (&ready, &timed, &all_have);
            scope.spawn(move || {
                ready.fetch_add(1, Relaxed);
                while !all_have(ready) {
                    thread::yield_now();
                }
                let mut rng = fastrand::Rng::with_seed(thread as u64);
                let start = Instant::now();
                pick_many(picker, &mut rng, PICKS);
                let spent = start.elapsed();
                timed.fetch_add(1, Relaxed);
                // The others are still timed, and are to meet this thread until they have ended.
                while !all_have(timed) {
                    pick_many(picker, &mut rng, 100);
                }
                spent
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        let spent = handles.into_iter().map(|handle| handle.join().unwrap());
        spent.sum::<Duration>()
    });
    spent.as_nanos() as f64 / (PICKS * threads as u64) as f64
}

fn pick_many(picker: &Picker<Transport>, rng: &mut fastrand::Rng, picks: u64) {
    for _ in 0..picks {
        let cx = CallContext::new(rng.u64(..)).with_hash(rng.u64(..));
        match black_box(picker).pick(&cx) {
            Pick::Ready(call) => end(call),
            Pick::Drop(dropped) => _ = black_box(dropped),
            other => panic!("every endpoint is ready: {other:?}"),
        }
    }
}

/// Ends a call with OK, as most calls end.
fn end(call: Call<Transport>) {
    black_box(call.transport());
    call.finish(CallOutcome::Status(0));
}

/// The backend of a session: known, or gone.
#[derive(Clone, Copy)]
enum Known {
    No,
    Yes,
}

/// The time of one pick of a session, and of the end of its call.
fn session_pick(size: u32, known: Known) -> f64 {
    let mut bench = Bench::ready(&Policy::RoundRobin, size);
    bench.open_sessions();
    let backends: Vec<_> = match known {
        Known::Yes => (0..size).map(|n| endpoint(n).addresses()[0]).collect(),
        Known::No => (0..size)
            .map(|n| endpoint(n + 1_000_000).addresses()[0])
            .collect(),
    };
    let (picker, now) = (bench.picker, Instant::now());
    let samples = (0..SAMPLES).map(|sample| {
        let mut rng = fastrand::Rng::with_seed(sample as u64);
        let start = Instant::now();
        for _ in 0..PICKS {
            let backend = &backends[rng.usize(..backends.len())..][..1];
            let cx = CallContext::new(rng.u64(..)).with_session(backend, now);
            match black_box(&picker).pick(&cx) {
                Pick::Ready(call) => end(call),
                Pick::Drop(dropped) => _ = black_box(dropped),
                other => panic!("every endpoint is ready: {other:?}"),
            }
        }
        start.elapsed()
    });
    samples.min().unwrap_or_default().as_nanos() as f64 / PICKS as f64
}

/// One endpoint loses its connection and gets another.
fn change_of_state(policy: &Policy) -> Duration {
    let mut bench = Bench::ready(policy, 10_000);
    let id = bench.ids[bench.ids.len() / 2];
    let sample = |serial| {
        let state = ready(serial);
        bench.time(BalancerEvent::Endpoint { id, state })
    };
    (0..SAMPLES as u64).map(sample).min().unwrap_or_default()
}

/// A plan has one endpoint fewer, or one more.
fn change_of_endpoint(policy: &Policy) -> Duration {
    let mut bench = Bench::ready(policy, 10_000);
    let sample = |n| {
        let plan = plan(policy, 10_000 - n % 2);
        bench.time(BalancerEvent::Plan(Arc::new(plan)))
    };
    (1..=SAMPLES as u32).map(sample).min().unwrap_or_default()
}

/// Every leaf cluster but the last fails, one after the other: the microseconds that each takes.
fn fail_over(leaves: u32) -> f64 {
    let sample = |_| {
        let now = Instant::now();
        let mut balancer = Balancer::new(1, Arc::default());
        balancer.handle(BalancerEvent::Plan(Arc::new(many_leaves(leaves))), now);
        balancer.flush(now);
        let start = Instant::now();
        for _ in 1..leaves {
            let (connects, _) = drain(&mut balancer);
            let [id] = connects[..] else {
                panic!("one leaf is tried at a time: {connects:?}");
            };
            let state = EndpointState::TransientFailure("refused".into());
            balancer.handle(BalancerEvent::Endpoint { id, state }, now);
            balancer.flush(now);
        }
        start.elapsed()
    };
    let best = (0..SAMPLES).map(sample).min().unwrap_or_default();
    best.as_secs_f64() * 1e6 / f64::from(leaves - 1)
}

/// An aggregate of so many leaf clusters with one endpoint each.
fn many_leaves(leaves: u32) -> Plan {
    let mut plan = plan(&Policy::RoundRobin, 1);
    let children = (0..leaves).map(|n| {
        let name = format!("leaf{n}");
        let cluster = ClusterPlan {
            name: name.as_str().into(),
            eds_service_name: None,
            drops: Arc::from([]),
            max_concurrent_requests: 1024,
            load: None,
            outlier_detection: None,
            note: None,
            draining: Arc::from([]),
            override_host: OverrideHost::default(),
            child: priority("child0", localities(&Policy::RoundRobin, 1), Duration::ZERO),
        };
        PriorityChild {
            name: name.into(),
            node: Node::Cluster(Arc::new(cluster)),
            ignore_reresolution: false,
        }
    });
    plan.root = Node::Priority(Arc::new(Priority {
        children: children.collect(),
        keep_removed: RETENTION,
    }));
    plan
}

/// The handle that a channel would keep per connection, behind an `Arc`.
type Transport = Arc<u64>;

/// A balancer whose endpoints are all READY.
struct Bench {
    balancer: Balancer<Transport>,
    ids: Vec<EndpointId>,
    picker: Arc<Picker<Transport>>,
}

impl Bench {
    fn ready(policy: &Policy, size: u32) -> Self {
        Self::of(&plan(policy, size))
    }

    fn of(plan: &Plan) -> Self {
        let now = Instant::now();
        let mut balancer = Balancer::new(1, Arc::default());
        balancer.handle(BalancerEvent::Plan(Arc::new(plan.clone())), now);
        balancer.flush(now);
        // Some policies connect only what calls ask for.
        for view in balancer.endpoints("bench") {
            balancer.handle(BalancerEvent::Demand(view.id.into()), now);
        }
        balancer.flush(now);
        let (mut ids, first) = drain(&mut balancer);
        // Connections are made in any order: neighbours in the list are not neighbours in memory.
        fastrand::Rng::with_seed(2).shuffle(&mut ids);
        for (serial, &id) in (0..).zip(&ids) {
            let state = ready(serial);
            balancer.handle(BalancerEvent::Endpoint { id, state }, now);
        }
        balancer.flush(now);
        let picker = drain(&mut balancer).1.or(first);
        let picker = picker.expect("a change makes a picker");
        Self {
            balancer,
            ids,
            picker,
        }
    }

    /// Lets a first call of a session come.
    fn open_sessions(&mut self) {
        let now = Instant::now();
        // Some calls are dropped, and ask for nothing.
        let first = |seed| {
            self.picker
                .pick(&CallContext::new(seed).with_session(&[], now))
        };
        let demand = (0..100).find_map(|seed| match first(seed) {
            Pick::Wake(demand) => Some(demand),
            _ => None,
        });
        let demand = demand.expect("the first call of a session asks for all");
        self.time(BalancerEvent::Demand(demand));
    }

    /// How long it takes from an event to the picker that follows from it.
    fn time(&mut self, event: BalancerEvent<Transport>) -> Duration {
        let now = Instant::now();
        self.balancer.handle(event, now);
        self.balancer.flush(now);
        let (connects, _) = drain(&mut self.balancer);
        let elapsed = now.elapsed();
        for id in connects {
            let state = ready(0);
            self.balancer
                .handle(BalancerEvent::Endpoint { id, state }, now);
        }
        self.balancer.flush(now);
        drain(&mut self.balancer);
        elapsed
    }
}

/// An aggregate of two leaf clusters, the first with `size` endpoints in localities of unequal
/// weight.
fn plan(policy: &Policy, size: u32) -> Plan {
    plan_with(policy, size, &Extras::default())
}

/// The aggregate of `plan` with round_robin, whose calls are counted for load reports (A27).
fn counted(size: u32) -> Plan {
    let load = LoadPlan {
        store: Arc::new(LoadStore::new(|| {})),
        metrics: Arc::default(),
    };
    let extras = Extras {
        load: Some(load),
        ..Extras::default()
    };
    plan_with(&Policy::RoundRobin, size, &extras)
}

/// The aggregate of `plan` with round_robin, whose endpoints are ejected if they fail too often
/// (A50).
fn watched(size: u32) -> Plan {
    let settings = OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 10,
        success_rate: None,
        failure_percentage: Some(FailurePercentageEjection {
            threshold: 85,
            enforcement_percentage: 100,
            minimum_hosts: 5,
            request_volume: 50,
        }),
    };
    let extras = Extras {
        outlier_detection: Some(Arc::new(settings)),
        ..Extras::default()
    };
    plan_with(&Policy::RoundRobin, size, &extras)
}

/// The aggregate of `plan` with round_robin, and a limit of open calls that is far below the
/// default (A32).
fn limited(size: u32) -> Plan {
    let extras = Extras {
        limit: 64,
        ..Extras::default()
    };
    plan_with(&Policy::RoundRobin, size, &extras)
}

/// The settings of a leaf cluster that cost something at each call.
struct Extras {
    load: Option<LoadPlan>,
    outlier_detection: Option<Arc<OutlierDetection>>,
    limit: u32,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            load: None,
            outlier_detection: None,
            limit: 1024,
        }
    }
}

fn plan_with(policy: &Policy, size: u32, extras: &Extras) -> Plan {
    let leaves = [("first", size), ("second", 1)].map(|(name, size)| {
        let cluster = ClusterPlan {
            name: name.into(),
            eds_service_name: None,
            drops: Arc::from([DropCategory {
                name: "throttle".into(),
                per_million: 1,
            }]),
            max_concurrent_requests: extras.limit,
            load: extras.load.clone(),
            outlier_detection: extras.outlier_detection.clone(),
            note: None,
            draining: Arc::from([]),
            override_host: OverrideHost::default(),
            child: priority("child0", localities(policy, size), Duration::ZERO),
        };
        let Node::Priority(leaf) = priority(name, Node::Cluster(Arc::new(cluster)), RETENTION)
        else {
            panic!("a priority");
        };
        leaf.children[0].clone()
    });
    Plan {
        cluster: "bench".into(),
        root: Node::Priority(Arc::new(Priority {
            children: leaves.into(),
            keep_removed: RETENTION,
        })),
        note: None,
    }
}

fn priority(name: &str, node: Node, keep_removed: Duration) -> Node {
    Node::Priority(Arc::new(Priority {
        children: vec![PriorityChild {
            name: name.into(),
            node,
            ignore_reresolution: true,
        }],
        keep_removed,
    }))
}

fn localities(policy: &Policy, size: u32) -> Node {
    let locality = |index: u32| Locality {
        id: LocalityId::new("region", &index.to_string(), ""),
        weight: NonZeroU32::new(index + 1).unwrap(),
        child: Node::Leaf(Leaf {
            policy: policy.clone(),
            endpoints: (0..size)
                .filter(|n| n % LOCALITIES == index)
                .map(endpoint)
                .collect(),
        }),
    };
    Node::Localities((0..LOCALITIES.min(size)).map(locality).collect())
}

fn drain(balancer: &mut Balancer<Transport>) -> (Vec<EndpointId>, Option<Arc<Picker<Transport>>>) {
    let (mut connects, mut published) = (Vec::new(), None);
    while let Some(command) = balancer.poll_command() {
        match command {
            Command::Connect { id, .. } => connects.push(id),
            Command::Publish { picker, .. } => published = Some(picker),
            Command::Outlier(_) | Command::Release(_) | Command::Reresolve(_) => {}
        }
    }
    (connects, published)
}

/// The report of a connection. Any address will do: none of the policies asks which it is.
fn ready(serial: u64) -> EndpointState<Transport> {
    EndpointState::Ready {
        transport: Arc::new(serial),
        address: SocketAddr::from(([10, 0, 0, 0], 50051)),
    }
}

fn endpoint(n: u32) -> Endpoint {
    SocketAddr::from(([10, (n >> 16) as u8, (n >> 8) as u8, n as u8], 50051)).into()
}
