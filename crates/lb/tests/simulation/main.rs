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
mod script;

use proptest::prelude::*;

use self::{
    driver::Driver,
    script::{Child, LeafSpec, Reported::*, Script, Shape::*, Step::*, Zone, script},
};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// S6-01, S6-06, S6-07, S6-13, S7-01, S7-02, S8-01, S8-02, S8-12, S8-15: whatever the script,
    /// calls go to READY endpoints of the priority that A56 chooses, with the exact shares of the
    /// weights; timers are those of the rules, and nothing is leaked.
    #[test]
    fn any_script_keeps_the_rules(script in script()) {
        run(script);
    }
}

/// S6-07: a tree that is replaced takes its timers along. (A script as one that fails is printed.)
#[test]
#[rustfmt::skip]
fn a_replaced_tree_leaves_no_timer() {
    run(Script(vec![vec![Plan(Aggregate(vec![]))], vec![Plan(Leaf(LeafSpec(0, 0, vec![Child(2, vec![])]))), Turn(1)], vec![Plan(Leaf(LeafSpec(0, 0, vec![Child(1, vec![Zone(1, 1, vec![2])]), Child(2, vec![])])))], vec![Plan(Aggregate(vec![])), Report(0, Ready)]]));
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
