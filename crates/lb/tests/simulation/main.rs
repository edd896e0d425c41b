//! Random scripts drive the whole tree, checked against a model after every step.
//!
//! A script that fails shrinks and prints as a call of [`run`]: paste it into a test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod driver;
mod model;
mod plans;
mod script;
mod world;

use proptest::{prelude::*, test_runner::RngAlgorithm};

use self::{
    driver::Driver,
    script::{
        Child, Choice::*, LeafSpec, Reported::*, Script, Shape::*, Spread::*, Step::*, Zone, script,
    },
};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        // The default takes a third of the time.
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    })]

    /// Every script keeps these rules:
    /// - Calls go to READY endpoints of the leaf cluster and the priority that A56 chooses, with the
    ///   exact shares of the weights, and wait or fail when the rules say so; what stays in the plan
    ///   keeps its connections (S6-01, S6-06, S6-10, S6-11, S6-12, S6-13, S6-18, S7-01, S7-02, S7-05,
    ///   S8-01, S8-02, S8-03, S8-04, S8-05, S8-06, S8-07, S8-08, S8-09, S8-10).
    /// - Timers are those of the rules, what is not needed is kept and goes when its time is up, and
    ///   nothing is leaked (S8-12, S8-15).
    /// - A node of another kind takes over gracefully: an aggregate, another name of the endpoints,
    ///   another policy of a priority or a locality (S6-07, S6-08, S7-04, S8-11).
    /// - Drops come first and then the limit, each of its own leaf cluster (S6-09, S9-02, S9-03,
    ///   S9-04).
    /// - Names are looked up again when connections are lost or cannot be made, and only where there
    ///   are names (S6-17, S8-16).
    /// - Each policy connects what A61, A62 and A42 say, address by address, and chooses by its own
    ///   rule (S7-08, S10-01, S10-02, S10-03, S10-04, S10-05, S10-06, S10-08, S10-09, S10-10).
    #[test]
    fn any_script_keeps_the_rules(script in script()) {
        run(script);
    }
}

/// S6-07: a tree that is replaced takes its timers along. (A script as one that fails is printed.)
#[test]
#[rustfmt::skip]
fn a_replaced_tree_leaves_no_timer() {
    run(Script(vec![vec![Switch(0, Zones(RoundRobin)), Plan(Aggregate(vec![]))], vec![Plan(Leaf(LeafSpec { name: 0, eds: 0, drops: 0, limit: 1024, apart: true, flipped: false, draining: vec![], children: vec![Child(2, vec![])] })), Turn(1)], vec![Plan(Leaf(LeafSpec { name: 0, eds: 0, drops: 0, limit: 1024, apart: true, flipped: false, draining: vec![], children: vec![Child(1, vec![Zone(1, 1, vec![2])]), Child(2, vec![])] }))], vec![Plan(Aggregate(vec![])), Report(0, Ready)]]));
}

/// A child of `priority` that was kept, went, and is needed again under the same plan is created anew:
/// its nodes keep the numbers that their addresses say, or the next plan would rename its endpoints.
#[test]
#[rustfmt::skip]
fn a_child_that_is_created_again_keeps_its_names() {
    run(Script(vec![vec![Switch(0, Zones(RoundRobin)), Switch(1, Zones(RoundRobin)), Switch(2, Zones(RoundRobin)), Plan(Aggregate(vec![LeafSpec { name: 1, eds: 0, drops: 0, limit: 0, apart: true, flipped: false, draining: vec![], children: vec![Child(0, vec![Zone(0, 1, vec![1])])] }, LeafSpec { name: 0, eds: 0, drops: 0, limit: 0, apart: true, flipped: false, draining: vec![], children: vec![Child(0, vec![Zone(0, 1, vec![1])])] }]))], vec![Millis(10000), Report(13, Ready)], vec![Millis(899000)], vec![All(Idle), Switch(0, Zones(PickFirst))], vec![Switch(0, Whole(PickFirst)), Millis(9500)], vec![Millis(500), All(Failing)], vec![Turn(1)]]));
}

/// A call asked for an endpoint that was then left to `pick_first`, which has a connection of its own. The next call that
/// needs the endpoint asks again, because the balancer ignores the first demand if it comes in between.
#[test]
#[rustfmt::skip]
fn a_demand_is_made_anew_after_pick_first_had_the_endpoint() {
    run(Script(vec![vec![Switch(0, Zones(RoundRobin)), Switch(1, Whole(RingHash(1, 4))), Switch(2, Zones(RoundRobin)), Plan(Leaf(LeafSpec { name: 1, eds: 0, drops: 0, limit: 1, apart: false, flipped: false, draining: vec![], children: vec![Child(0, vec![Zone(0, 1, vec![1])])] }))], vec![Switch(1, Zones(PickFirst))], vec![Millis(1), Switch(1, Whole(RingHash(1, 4)))]]));
}

fn run(Script(batches): Script) {
    let mut driver = Driver::new();
    for batch in batches {
        for step in batch {
            driver.act(step);
        }
        driver.flush();
        driver.check();
    }
    driver.end();
}
