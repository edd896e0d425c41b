//! Random graphs of up to 40 clusters, that change one piece at a time.
//!
//! A [`Script`] says what the server and the DNS say, in which order that reaches the resolver, and
//! when the resolver takes a step. After each step what it gave must equal what comes out from
//! scratch, and what the simple-minded [`oracle`] says; see [`run`]. A script that fails is cut down
//! to what matters.

mod oracle;
mod piece;
mod run;
mod script;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use run::Run;
use script::{Script, script};

/// The number of graphs, unless `PROPTEST_CASES` says otherwise.
const GRAPHS: u32 = 600;

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default.cases,
        None => GRAPHS,
    };
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    /// S4-01, S4-02, S4-05, S4-08, S4-12 to S4-28: whatever happens, in whatever order it is heard.
    #[test]
    fn every_step_gives_what_comes_out_from_scratch(script in script()) {
        Run::new().all(&script)?;
    }
}

/// The scripts lead to all that can be said of a cluster, and to whole configurations often.
#[test]
fn scripts_lead_everywhere() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    let mut configs = 0;
    for _ in 0..100 {
        let script: Script = script().new_tree(&mut runner).unwrap().current();
        let mut run = Run::new();
        run.all(&script).unwrap();
        seen.extend(run.seen);
        configs += run.configs;
    }

    let expected = [
        "aggregate",
        "an error",
        "leaf with endpoints",
        "leaf without endpoints",
        "no cluster",
        "no leaf",
        "no list",
        "note",
        "same cluster",
        "too deep",
        "waiting",
        "waiting, and in use",
    ];
    assert_eq!(seen, BTreeSet::from(expected));
    assert!(
        configs > 300,
        "only {configs} configurations in 100 scripts"
    );
}
