//! Load reports: the control plane shows each call that was made, once.
//!
//! The tests in `load_reports` have the rules by which kinds of clients differ.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crowfly_e2e::loads::{self, ServiceLoads};
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::product::Backend;
use serde_json::json;

use super::balance::is_drop;
use super::peer::Outcome;
use super::stage::{Mesh, Stage, endpoint};

const SERVICE: &str = "reported";
/// Three intervals of the control plane here.
const ALL_ARE_REPORTED: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The page `/loads` has each call once: by zone, and the drops.
pub(super) fn counts(stage: &mut Stage) {
    let zone = |backend: &Backend| json!({ "region": "r1", "zone": backend.name, "endpoints": [endpoint(backend)] });
    let zones: Vec<_> = stage.backends[..2].iter().map(zone).collect();
    let service = json!({
        "name": SERVICE,
        "load_reports": true,
        "drops": { "throttle": "25%" },
        "localities": zones,
    });
    stage.serve(&Mesh::of([service]));
    let before = stage.until_answered(SERVICE);
    let mut truth = Truth::default();
    if stage.kind.is_envoy() {
        // It counts for a new cluster from the end of an interval.
        next_report(stage);
        next_report(stage);
        truth.before = shown(stage);
    } else {
        truth.add(&before);
    }
    truth.add(&stage.peer.call(SERVICE, 100));
    assert!(truth.answered.len() == 2 && truth.dropped > 0, "{truth:?}");

    let deadline = Instant::now() + PATIENCE;
    while !truth.is_shown_soon(stage) {
        let shown = shown(stage);
        assert!(Instant::now() < deadline, "{truth:?}, shown: {shown:?}");
        // An Envoy whose last call ended in the interval after that of its begin tells of the end
        // with the next call.
        truth.add(&stage.peer.call(SERVICE, 1));
    }
}

/// The calls of the client, as it saw them.
#[derive(Debug, Default)]
struct Truth {
    /// The loads before the first of these calls.
    before: ServiceLoads,
    /// Answers by the name of the backend, which is its zone.
    answered: BTreeMap<String, u64>,
    dropped: u64,
}

impl Truth {
    /// Adds calls. A call that failed without a drop was made before the client had the service.
    fn add(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            match outcome {
                Outcome::Answered(zone) => *self.answered.entry(zone.clone()).or_default() += 1,
                dropped if is_drop(dropped) => self.dropped += 1,
                Outcome::Failed(_) => (),
            }
        }
    }

    /// Waits until the loads are those of the calls. Returns false if they are not after some
    /// intervals.
    fn is_shown_soon(&self, stage: &Stage) -> bool {
        let deadline = Instant::now() + ALL_ARE_REPORTED;
        while Instant::now() < deadline {
            if shown(stage) == self.expected() {
                return true;
            }
            thread::sleep(LOOK_AGAIN);
        }
        false
    }

    fn expected(&self) -> ServiceLoads {
        let mut loads = self.before.clone();
        for (zone, count) in &self.answered {
            let key = ("r1/c".to_owned(), format!("r1/{zone}"));
            let [issued, succeeded, _, _] = loads.calls.entry(key).or_default();
            *issued += count;
            *succeeded += count;
        }
        loads.dropped += self.dropped;
        *loads.categories.entry("throttle".to_owned()).or_default() += self.dropped;
        loads
    }
}

fn shown(stage: &Stage) -> ServiceLoads {
    ServiceLoads::of(&loads::page(stage.control.admin), SERVICE)
}

fn next_report(stage: &Stage) {
    let count = |loads: &_| loads::reports(loads, stage.kind.node());
    let before = count(&loads::page(stage.control.admin));
    loads::until(stage.control.admin, "next report", |loads| {
        count(loads) > before
    });
}
