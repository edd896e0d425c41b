//! Random scripts of plans, servers and sessions. The oracle knows no tree and no picker: it looks at the plan, at
//! the servers that live, and at what it has seen.
//!
//! A script that fails shrinks and prints as a call of [`run`]: paste it into a test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod driver;
mod oracle;

use crowfly_lb::Health;
use proptest::{collection::vec, prelude::*, sample::select, test_runner::RngAlgorithm};

use self::oracle::Oracle;

/// The number of backends. Every other one has two addresses.
const BACKENDS: usize = 6;

/// The number of sessions.
const SESSIONS: usize = 4;

/// One step of a script.
#[derive(Clone, Debug)]
enum Step {
    /// A call of a session.
    Call(usize),
    /// A session begins anew, without a backend.
    Forget(usize),
    /// The next plan.
    Plan(PlanSpec),
    /// A server dies.
    Kill(usize),
    /// A server lives again.
    Revive(usize),
    /// Time passes.
    Seconds(u64),
}

/// A plan: where each backend is, and its settings.
#[derive(Clone, Debug)]
struct PlanSpec {
    backends: [Option<Spot>; BACKENDS],
    policy: Choice,
    allowed: Vec<Health>,
    idle_timeout: u64,
}

/// The priority and the health of a backend.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Spot(usize, Health);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Choice {
    LeastRequest,
    PickFirst,
    RingHash,
    RoundRobin,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    })]

    /// After any script:
    /// - A session whose backend is in the plan with an allowed health, and can be connected, stays on it, while
    ///   backends move between priorities, drain, die and change their policy (S12-03, S12-04, S12-06, S12-07,
    ///   S12-08, S12-11).
    /// - A call that waits is woken by a picker as soon as it has nothing to wait for (S12-07).
    /// - No connection that a session used within the timeout is released, and none that only sessions used is kept
    ///   much longer (S12-09, S12-10).
    #[test]
    fn sessions_stay_on_their_backends(steps in vec(step(), 1..40)) {
        run(&steps);
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..SESSIONS).prop_map(Step::Call),
        1 => (0..SESSIONS).prop_map(Step::Forget),
        4 => plan().prop_map(Step::Plan),
        2 => (0..BACKENDS).prop_map(Step::Kill),
        2 => (0..BACKENDS).prop_map(Step::Revive),
        2 => select(vec![1, 3, 6, 20, 70, 1_000]).prop_map(Step::Seconds),
    ]
}

fn plan() -> impl Strategy<Value = PlanSpec> {
    use Health::{Draining, Healthy, Unknown};
    let health = select(vec![Unknown, Healthy, Healthy, Draining]);
    let spot = prop::option::weighted(0.8, (0..3_usize, health));
    let backends = vec(spot, BACKENDS);
    let policy = prop_oneof![
        3 => Just(Choice::RoundRobin),
        1 => Just(Choice::LeastRequest),
        1 => Just(Choice::PickFirst),
        1 => Just(Choice::RingHash),
    ];
    let allowed = select(vec![
        vec![Unknown, Healthy, Draining],
        vec![Unknown, Healthy, Draining],
        vec![Unknown, Healthy],
        vec![Healthy, Draining],
    ]);
    let idle_timeout = select(vec![2, 60, 3_600]);
    (backends, policy, allowed, idle_timeout).prop_map(
        |(backends, policy, allowed, idle_timeout)| {
            let mut spots = [None; BACKENDS];
            for (place, spot) in spots.iter_mut().zip(backends) {
                *place = spot.map(|(priority, health)| Spot(priority, health));
            }
            PlanSpec {
                backends: spots,
                policy,
                allowed,
                idle_timeout,
            }
        },
    )
}

fn run(steps: &[Step]) {
    let mut oracle = Oracle::new();
    for step in steps {
        oracle.act(step);
    }
}
