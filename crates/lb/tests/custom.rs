//! Tests of policies of the user's own, which decide about connections and calls through the traits
//! that this crate exports.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod leaf;
mod sim;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crowfly_lb::{
    BalancerEvent, CallContext, CallOutcome, Connectivity, CustomPolicy, Endpoint, Policy,
    ReadySet, Selection, Selector,
};
use leaf::leaf;
use sim::{CLUSTER, Picked, Sim, endpoints_at};

type Ends = Arc<Mutex<Vec<(usize, CallOutcome)>>>;

/// Sends all calls to the last endpoint of the list, and keeps at most one connected.
#[derive(Debug, Default)]
struct Last {
    ends: Ends,
    builds: AtomicUsize,
}

#[derive(Debug)]
struct LastOf {
    last: usize,
    ends: Ends,
}

impl CustomPolicy for Last {
    fn name(&self) -> &str {
        "last"
    }

    fn build(&self, endpoints: &[Endpoint]) -> Arc<dyn Selector> {
        self.builds.fetch_add(1, Relaxed);
        Arc::new(LastOf {
            last: endpoints.len().saturating_sub(1),
            ends: self.ends.clone(),
        })
    }
}

impl Selector for LastOf {
    fn wants(&self, _endpoint: usize, _states: &[Connectivity]) -> bool {
        false
    }

    fn pick<'a>(&self, _cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let mut ready = ready.iter();
        let last = ready.find(|endpoint| endpoint.index() == self.last);
        last.map_or(Selection::Connect(self.last), Selection::Send)
    }

    fn finished(&self, endpoint: usize, outcome: CallOutcome) {
        self.ends.lock().unwrap().push((endpoint, outcome));
    }
}

/// Sends a call to the endpoint with the fewest open ones. The name is that of the policy.
#[derive(Debug)]
struct LeastBusy(&'static str);

impl CustomPolicy for LeastBusy {
    fn name(&self) -> &str {
        self.0
    }

    fn build(&self, _endpoints: &[Endpoint]) -> Arc<dyn Selector> {
        Arc::new(Self(self.0))
    }
}

impl Selector for LeastBusy {
    fn pick<'a>(&self, _cx: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let least = ready.iter().min_by_key(|endpoint| endpoint.in_flight());
        least.map_or(Selection::Queue, Selection::Send)
    }
}

fn ready_at_3(policy: &Arc<Last>) -> Sim {
    let mut sim = Sim::new();
    sim.plan(leaf(
        Policy::Custom(policy.clone()),
        endpoints_at(&[1, 2, 3]),
    ));
    assert!(sim.connects.is_empty(), "it wants nothing by itself");
    let Picked::Wake(id) = sim.pick() else {
        panic!("a call makes it connect");
    };
    sim.handle(BalancerEvent::Demand(id));
    sim.flush();
    assert_eq!(sim.connects, [3]);
    assert!(sim.is_queued());
    sim.ready(&[3]);
    sim.forget();
    sim
}

#[test]
fn a_policy_decides_what_is_connected_and_where_calls_go() {
    let mut sim = ready_at_3(&Arc::default());
    assert_eq!(sim.count(10).into_iter().collect::<Vec<_>>(), [(3, 10)]);
    assert!(sim.tree().contains("last READY"), "{}", sim.tree());
    sim.failing(3, "refused");
    assert!(
        sim.is_queued(),
        "the others are idle, and it does not want them"
    );
}

/// The policy hears of every end once. A token that is only dropped was cancelled, unless it was said
/// before how it would end.
#[test]
fn a_policy_hears_how_calls_end() {
    let policy = Arc::<Last>::default();
    let mut sim = ready_at_3(&policy);
    let [told, dropped, mut foretold] = std::array::from_fn(|_| match sim.pick() {
        Picked::Ready(call) => call,
        other => panic!("3 is ready: {other:?}"),
    });
    assert_eq!(sim.view(3).in_flight, 3);
    told.finish(CallOutcome::Status(14));
    drop(dropped);
    foretold.will_end(CallOutcome::Status(5));
    drop(foretold);
    assert_eq!(sim.view(3).in_flight, 0);
    let ends = policy.ends.lock().unwrap().clone();
    assert_eq!(
        ends,
        [
            (2, CallOutcome::Status(14)),
            (2, CallOutcome::Cancelled),
            (2, CallOutcome::Status(5))
        ]
    );
}

/// A channel that is to connect without a call connects the first endpoint of a policy that wants none
/// by itself: as gRPC's policies do when they are told to exit IDLE (A61, A42).
#[test]
fn an_idle_policy_connects_on_request() {
    let mut sim = Sim::new();
    let policy = Policy::Custom(Arc::<Last>::default());
    sim.plan(leaf(policy, endpoints_at(&[1, 2, 3])));
    assert_eq!(sim.balancer.state(CLUSTER), Some(Connectivity::Idle));
    let now = sim.now();
    sim.balancer.exit_idle(&CLUSTER.into(), now);
    sim.flush();
    assert_eq!(sim.connects, [1]);
    assert_eq!(sim.balancer.state(CLUSTER), Some(Connectivity::Connecting));
}

/// A policy sees how many calls are open on each endpoint, which `least_request` (A48) goes by as well.
#[test]
fn a_policy_sees_how_many_calls_are_open() {
    let policy = Policy::Custom(Arc::new(LeastBusy("least_busy")));
    let mut sim = Sim::ready_with(leaf(policy, endpoints_at(&[1, 2])));
    let open = [sim.call(), sim.call(), sim.call()];
    let ports = open.each_ref().map(|call| *call.transport());
    assert_eq!(ports, [1, 2, 1], "of two that are as busy, the first");
    let [first, _second, third] = open;
    drop(first);
    drop(third);
    assert_eq!(sim.count(5), [(1, 5)].into(), "2 is the busier one now");
}

/// A policy of another name replaces the one in use gracefully, and so does one of the same name that is
/// of another kind: calls go on until the new one is READY, as A56 asks of a child whose policy changes.
#[test]
fn another_policy_takes_over_when_it_is_ready() {
    let custom = |name| Policy::Custom(Arc::new(LeastBusy(name)));
    for (before, after) in [
        (custom("old"), custom("new")),
        (custom("round_robin"), Policy::RoundRobin),
        (Policy::RoundRobin, custom("round_robin")),
    ] {
        let what = format!("{before:?} to {after:?}");
        let mut sim = Sim::ready_with(leaf(before, endpoints_at(&[1])));
        sim.plan(leaf(after, endpoints_at(&[2])));
        assert_eq!((&*sim.connects, &*sim.releases), (&[2][..], &[][..]));
        assert_eq!(sim.tree_fields().children.len(), 2, "{what}: side by side");
        assert_eq!(sim.pick_port(), 1, "{what}");
        sim.ready(&[2]);
        assert_eq!((sim.pick_port(), &*sim.releases), (2, &[1][..]), "{what}");
    }
}

/// A policy is known by its object: a plan with that object is no change. Another object takes over
/// its connections.
#[test]
fn policies_are_compared_by_identity() {
    let policy = Arc::<Last>::default();
    let mut sim = ready_at_3(&policy);
    sim.plan(leaf(
        Policy::Custom(policy.clone()),
        endpoints_at(&[1, 2, 3]),
    ));
    assert_eq!((policy.builds.load(Relaxed), sim.publishes), (1, 0));

    let other = Arc::<Last>::default();
    sim.plan(leaf(
        Policy::Custom(other.clone()),
        endpoints_at(&[1, 2, 3]),
    ));
    assert_eq!((other.builds.load(Relaxed), sim.publishes), (1, 1));
    assert_eq!(sim.pick_port(), 3);
    assert!(sim.connects.is_empty() && sim.releases.is_empty());
}

#[test]
fn a_pick_allocates_nothing() {
    #[derive(Debug)]
    struct First;
    impl CustomPolicy for First {
        fn name(&self) -> &str {
            "first"
        }
        fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
            Arc::new(Self)
        }
    }
    impl Selector for First {
        fn pick<'a>(&self, _: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
            ready.get(0).map_or(Selection::Queue, Selection::Send)
        }
    }
    // All endpoints are connected unless a policy says otherwise.
    let mut sim = Sim::ready_with(leaf(Policy::Custom(Arc::new(First)), endpoints_at(&[1, 2])));
    assert_eq!(leaf::allocations_of_picks(&mut sim), 0);
}
