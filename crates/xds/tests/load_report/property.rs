//! A property of load reports: no call is lost or counted twice, whatever happens to streams.
//!
//! It runs scripts that nobody wrote by hand, because the ways in which streams break are many.

use std::time::Duration;

use crowfly_xds::load_report::{LoadInput, StreamEnd};
use proptest::prelude::*;

use crate::sim::{INTERVAL, Sim, all};

#[derive(Clone, Debug)]
enum Step {
    Count(u64),
    Advance(u64),
    Break,
    Stall(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..5).prop_map(Step::Count),
        4 => (1u64..15).prop_map(Step::Advance),
        1 => Just(Step::Break),
        1 => any::<bool>().prop_map(Step::Stall),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// S13-06: whenever streams break and connections stall, what connections took adds up to the calls that
    /// were made: each call once.
    #[test]
    fn any_script_reports_each_call_once(steps in steps()) {
        let mut sim = Sim::open(&all(INTERVAL), &["a"]);
        let (mut made, mut taken) = (0, 0);
        for step in steps {
            match step {
                Step::Count(calls) => { made += calls; sim.count("a", calls, calls, 0); }
                Step::Advance(seconds) => sim.advance(Duration::from_secs(seconds)),
                Step::Break => {
                    sim.input(LoadInput::Closed(StreamEnd::told("broken")));
                    sim.reopen(&all(INTERVAL));
                }
                Step::Stall(stalls) => {
                    sim.takes_requests = !stalls;
                    if !stalls { sim.take_request(); }
                }
            }
            taken += sim.taken_calls();
            prop_assert!(taken <= made);
            prop_assert_eq!(taken, sim.reporter.totals().calls);
        }
        sim.takes_requests = true;
        sim.take_request();
        sim.advance(2 * INTERVAL);
        sim.stop_using("a");
        taken += sim.taken_calls();
        prop_assert_eq!(taken, made);
        prop_assert_eq!(sim.reporter.totals().calls_given_up, 0);
    }
}
