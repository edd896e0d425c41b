//! Outlier detection (gRFC A50): both clients eject the same endpoints, and for the same time.
//!
//! An ejection shows in the backends that answer, which is the one view that both clients give.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crowfly_e2e::comparison::{Backends, Both, Call, Outcome, Rig};
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::{peers, resources};
use serde_json::{Value, json};
use tonic::Code;

use crate::CROWFLY;

/// The time between two looks of a client at the calls of its endpoints.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time of a first ejection.
const BASE: Duration = Duration::from_secs(3);

/// gRFC A50: two of five backends fail by the same script, once by each rule. Both clients eject exactly these
/// two, and both send calls there again after the ejection time, to within an interval of each other.
#[tokio::test(flavor = "multi_thread")]
async fn both_eject_the_same_endpoints_for_the_same_time() {
    let Some(python) = peers::python() else {
        return;
    };
    let names = ["a", "b", "c", "d", "e"];
    let backends = Backends::start(&names);
    let addresses: Vec<_> = backends.addresses.iter().map(|(_, at)| *at).collect();
    let mut all = Vec::new();
    for (name, settings) in [("failures", by_failures()), ("rates", by_success_rate())] {
        let mut cluster = resources::cluster(name);
        cluster["outlier_detection"] = settings;
        all.extend([resources::api_listener(name), resources::routes(name, name)]);
        all.extend([cluster, resources::endpoints(name, &addresses)]);
    }
    let mut rig = Rig::start(CROWFLY, python, backends, all);
    for service in ["failures", "rates"] {
        let mut watch = Watch::new(&mut rig, service);
        watch
            .until("all serve", |seen| seen.len() == names.len())
            .await;
        watch.rig.backends.fail(&["b", "d"]);
        let good = BTreeSet::from(["a", "c", "e"]);
        let ejected = watch.until("two are ejected", |seen| *seen == good).await;
        watch.rig.backends.fail(&[]);
        let back = watch
            .until("all serve again", |seen| seen.len() == names.len())
            .await;

        let away = Both {
            ours: back.ours - ejected.ours,
            c_core: back.c_core - ejected.c_core,
        };
        // A client looks once in an interval, and the first call after that shows what it found.
        for time in [away.ours, away.c_core] {
            assert!(time + INTERVAL > BASE, "{service}: {away:?}");
        }
        let apart = away.ours.abs_diff(away.c_core);
        assert!(apart <= INTERVAL + SLACK, "{service}: {away:?}");
    }
}

/// The time that a round of calls and a busy machine may add.
const SLACK: Duration = Duration::from_millis(700);

fn settings() -> Value {
    json!({
        "interval": "1s",
        "base_ejection_time": "3s",
        "max_ejection_time": "3s",
        "max_ejection_percent": 50,
        "enforcing_consecutive_5xx": 0,
        "enforcing_consecutive_gateway_failure": 0,
    })
}

fn by_failures() -> Value {
    let mut settings = settings();
    settings["enforcing_success_rate"] = json!(0);
    settings["enforcing_failure_percentage"] = json!(100);
    settings["failure_percentage_threshold"] = json!(40);
    settings["failure_percentage_minimum_hosts"] = json!(3);
    settings["failure_percentage_request_volume"] = json!(3);
    settings
}

fn by_success_rate() -> Value {
    let mut settings = settings();
    settings["enforcing_failure_percentage"] = json!(0);
    settings["enforcing_success_rate"] = json!(100);
    // Of the rates 100, 100, 100, 0 and 0 the mean is 60 and the standard deviation 49.
    settings["success_rate_stdev_factor"] = json!(1000);
    settings["success_rate_minimum_hosts"] = json!(5);
    settings["success_rate_request_volume"] = json!(3);
    settings
}

/// Calls a service with both clients, round after round.
struct Watch<'a> {
    rig: &'a mut Rig,
    calls: Vec<Call>,
}

impl<'a> Watch<'a> {
    fn new(rig: &'a mut Rig, service: &str) -> Self {
        let call = Call::new(&format!("xds:///{service}"), "/test.Echo/Call");
        Self {
            rig,
            calls: vec![call; 20],
        }
    }

    /// Calls until a round of each client's calls goes to backends that `done` likes, and none of them fails.
    /// Returns the time at which that was so for the first time, by client.
    async fn until(&mut self, what: &str, done: impl Fn(&BTreeSet<&str>) -> bool) -> Both<Instant> {
        let deadline = Instant::now() + PATIENCE;
        let mut when = Both {
            ours: None,
            c_core: None,
        };
        loop {
            let outcomes = self.rig.call(&self.calls).await;
            let now = Instant::now();
            let is_done = |outcomes: &[Outcome]| {
                let seen: BTreeSet<_> = outcomes.iter().map(|one| one.backend.as_str()).collect();
                outcomes.iter().all(|one| one.code == Code::Ok) && done(&seen)
            };
            if is_done(&outcomes.ours) {
                when.ours.get_or_insert(now);
            }
            if is_done(&outcomes.c_core) {
                when.c_core.get_or_insert(now);
            }
            if let (Some(ours), Some(c_core)) = (when.ours, when.c_core) {
                return Both { ours, c_core };
            }
            assert!(now < deadline, "{what}: {when:?}, {:?}", counts(&outcomes));
        }
    }
}

/// The answers of each client, by backend; failures have no name.
fn counts(outcomes: &Both<Vec<Outcome>>) -> Both<BTreeMap<&str, usize>> {
    Both {
        ours: tally(&outcomes.ours),
        c_core: tally(&outcomes.c_core),
    }
}

fn tally(outcomes: &[Outcome]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for one in outcomes {
        *counts.entry(one.backend.as_str()).or_default() += 1;
    }
    counts
}
