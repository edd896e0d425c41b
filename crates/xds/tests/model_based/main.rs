//! Random scripts against a simple model of the specification.
//!
//! A script is a list of things that happen: watches begin and end, the server says this or that,
//! streams open and die, time passes. After each, every watcher must know what the [`model`] says it
//! knows, the server must have heard of exactly the names that are watched, and every response must
//! have been answered as the model says. A script that fails is cut down to the steps that matter.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod model;
mod script;
mod slow;
mod wire;

use crowfly_xds::Protocol;
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::prelude::*;
use script::{Run, busy_step, mode, step};
use slow::SlowRun;

/// Scripts per protocol; both together are the ten thousand.
const SCRIPTS: u32 = 5_000;
/// Scripts with slow requests per protocol.
const SLOW_SCRIPTS: u32 = 1_000;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(SCRIPTS))]

    /// S1-02, S1-04, S1-06, S1-08, S1-11, S1-12, S1-13, S1-14, S1-16, S1-17, S1-18, S1-20: state of
    /// the world.
    #[test]
    fn watchers_know_what_the_model_says_by_state_of_the_world(
        mode in mode(),
        steps in vec(step(), 1..20),
    ) {
        Run::new(Protocol::StateOfTheWorld, mode).all(&steps)?;
    }

    /// S1-02, S1-04, S1-06, S1-08, S1-11, S1-12, S1-13, S1-14, S1-16, S1-17, S1-18, S1-20: delta.
    #[test]
    fn watchers_know_what_the_model_says_by_delta(
        mode in mode(),
        steps in vec(step(), 1..20),
    ) {
        Run::new(Protocol::Delta, mode).all(&steps)?;
    }

}

proptest! {
    #![proptest_config(config(SLOW_SCRIPTS))]

    /// S1-21, S1-22, S1-27: however slow requests are, the server has in the end heard of the
    /// watched names and no others, and has its answers.
    #[test]
    fn server_hears_of_what_is_watched_by_state_of_the_world(
        mode in mode(),
        steps in vec((weighted(0.3), busy_step()), 1..30),
    ) {
        SlowRun::new(Protocol::StateOfTheWorld, mode).all(&steps)?;
    }

    /// S1-21, S1-22, S1-27: by delta, too, the server has in the end heard of the watched names and
    /// of no others, however slow requests are.
    #[test]
    fn server_hears_of_what_is_watched_by_delta(
        mode in mode(),
        steps in vec((weighted(0.3), busy_step()), 1..30),
    ) {
        SlowRun::new(Protocol::Delta, mode).all(&steps)?;
    }
}
