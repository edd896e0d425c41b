//! Load reports of gRPC C-core and gRPC-Node.
//!
//! Both count a call when it is sent to a backend, and again when it ends. A dropped call is sent
//! to no backend (gRFC A27). Both open the stream on the address of ADS, because `lrs_server` is
//! `self`.

use std::thread;

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::grpc_js::GrpcJsClient;
use crowfly_e2e::loads::{self, ServiceLoads};
use crowfly_e2e::product::Control;
use crowfly_e2e::{peers, resources};
use serde_json::{Value, json};

use super::{CLIENTS, Fleet, Truth};
use crate::CROWFLY;

/// NOT_FOUND, which an Envoy would not count as an error.
const NOT_FOUND: &str = "fail 5";
const UNAVAILABLE: &str = "fail 14";

impl Truth {
    fn add(&mut self, results: &[Value]) {
        for result in results {
            let details = result["details"].as_str().unwrap_or_default();
            match result["code"].as_str() {
                Some("OK") => {
                    let zone = result["hostname"].as_str().unwrap().to_owned();
                    *self.succeeded.entry(zone).or_default() += 1;
                }
                // C-core says "EDS-configured drop", Node "Call dropped by load balancing policy".
                _ if details.contains("drop") => self.dropped += 1,
                _ => self.failed += 1,
            }
        }
    }
}

/// Makes calls that succeed, fail and are dropped, and checks the loads after them.
fn assert_agreement(
    control: &Control,
    mut results: impl FnMut(&str, usize) -> Vec<Value>,
) -> Truth {
    let mut truth = Truth::default();
    for (command, count) in [("call", 60), (UNAVAILABLE, 20), (NOT_FOUND, 20)] {
        truth.add(&results(command, count));
    }
    assert!(truth.dropped > 0 && truth.failed > 0, "{truth:?}");
    truth.assert_shown(control);
    // The next calls are added to the totals.
    truth.add(&results("call", 20));
    truth.assert_shown(control);
    truth
}

/// S13-02, S13-04: C-core's reports agree with its calls.
#[test]
fn the_reports_of_c_core_agree_with_its_calls() {
    let Some(python) = peers::python() else {
        return;
    };
    let fleet = Fleet::start();
    let control = CROWFLY.control_reporting(&fleet.config(), "1s");
    let mut client = CCoreClient::start_in(python, control.address, "xds:///svc", CLIENTS);
    let truth = assert_agreement(&control, |command, count| client.results(command, count));
    // A client that goes changes no total.
    drop(client);
    loads::until(control.admin, "end of the stream", |loads| {
        loads["reporters"] == json!([])
    });
    truth.assert_shown(&control);
}

/// S13-02, S13-04: the reports of gRPC-Node agree with its calls.
#[test]
fn the_reports_of_grpc_node_agree_with_its_calls() {
    let Some(package) = peers::grpc_js_xds() else {
        return;
    };
    let fleet = Fleet::start();
    let control = CROWFLY.control_reporting(&fleet.config(), "1s");
    let mut client = GrpcJsClient::start_in(package, control.address, "xds:///svc", CLIENTS);
    assert_agreement(&control, |command, count| client.results(command, count));
}

/// S13-04: calls over the limit of a cluster are dropped without a category (gRFC A32).
#[test]
fn calls_over_a_limit_are_in_the_total_of_drops() {
    let Some(python) = peers::python() else {
        return;
    };
    let backend = CROWFLY.backend("b1");
    let mut cluster = resources::cluster("limited");
    cluster["lrs_server"] = json!({ "self": {} });
    cluster["circuit_breakers"] = json!({ "thresholds": [{ "max_requests": 0 }] });
    let resources = [
        resources::api_listener("limited"),
        resources::routes("limited", "limited"),
        cluster,
        resources::endpoints("limited", &[backend.address]),
    ];
    let resources = resources.map(|resource| format!("- {resource}\n")).concat();
    let control = CROWFLY.control_reporting(&format!("resources:\n{resources}"), "1s");
    let mut client = CCoreClient::start_in(python, control.address, "xds:///limited", CLIENTS);
    let results = client.results("try", 7);
    assert!(
        results.iter().all(|result| result["code"] == "UNAVAILABLE"),
        "{results:?}"
    );
    let loads = loads::until(control.admin, "report of all drops", |loads| {
        ServiceLoads::of(loads, "limited").dropped >= 7
    });
    let limited = ServiceLoads {
        dropped: 7,
        ..ServiceLoads::default()
    };
    assert_eq!(ServiceLoads::of(&loads, "limited"), limited);
    assert_eq!(
        ServiceLoads::of(&loads::command(CROWFLY, &control), "limited"),
        limited
    );
}

/// S13-05: a call that is open for several intervals is in progress in each report, and began once.
#[test]
fn a_long_call_is_in_progress() {
    let Some(python) = peers::python() else {
        return;
    };
    let backend = CROWFLY.backend_with("127.0.0.1:0", "slow", &["--delay", "5s"]);
    let svc = json!({
        "name": "svc",
        "load_reports": true,
        "endpoints": [{ "address": backend.address }],
    });
    let control = CROWFLY.control_reporting(&format!("services: [{svc}]"), "1s");
    let mut client = CCoreClient::start_in(python, control.address, "xds:///svc", CLIENTS);
    let counts = |loads: &Value| {
        let svc = ServiceLoads::of(loads, "svc");
        svc.calls.get(&("r1/c".to_owned(), String::new())).copied()
    };
    thread::scope(|scope| {
        let call = scope.spawn(|| client.results("call", 1));
        let open = loads::until(control.admin, "report of the open call", |loads| {
            counts(loads).is_some()
        });
        assert_eq!(counts(&open), Some([1, 0, 0, 1]));
        let before = loads::reports(&open, "c-core").unwrap();
        let later = loads::until(control.admin, "second report of the open call", |loads| {
            loads::reports(loads, "c-core") > Some(before)
        });
        assert_eq!(counts(&later), Some([1, 0, 0, 1]));
        assert_eq!(call.join().unwrap()[0]["code"], "OK");
    });
    let ended = loads::until(control.admin, "report of the end", |loads| {
        counts(loads) != Some([1, 0, 0, 1])
    });
    assert_eq!(counts(&ended), Some([1, 1, 0, 0]));
}
