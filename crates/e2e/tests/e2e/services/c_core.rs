//! gRPC C-core obeys the services of our control plane.
//!
//! Users have such clients, and the short form of a service must mean the same to them.

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::peers;
use crowfly_e2e::rpc::Spread;

use super::{
    CALLS, FAULT, Fleet, MATCHES, RETRY, SPLIT, TIMEOUT, assert_all, assert_ended, assert_share,
};
use crate::CROWFLY;

/// The outcomes of calls to `svc` with these settings; `None` without the peer.
fn outcomes(fleet: &Fleet, svc: &str, calls: usize) -> Option<Spread> {
    let python = peers::python()?;
    let control = CROWFLY.control_of(&fleet.config(svc));
    let mut client = CCoreClient::start(python, control.address, "xds:///svc");
    Some(client.outcomes(calls))
}

/// gRFC A28: a route's calls are split as configured, and the first match decides.
#[test]
fn c_core_splits_the_calls_of_a_route() {
    let Some(outcomes) = outcomes(&Fleet::start(), SPLIT, CALLS) else {
        return;
    };
    assert_share(&outcomes, "v1", 80.0);
    assert_share(&outcomes, "v2", 20.0);
}

/// gRFC A28: regular expressions, absent headers and fractions choose a route.
#[test]
fn c_core_matches_by_expression_header_and_fraction() {
    let Some(outcomes) = outcomes(&Fleet::start(), MATCHES, CALLS) else {
        return;
    };
    assert_share(&outcomes, "v1", 30.0);
    assert_share(&outcomes, "v2", 70.0);
}

/// gRFC A44: the retries of a service reach every route that has none of its own.
#[test]
fn c_core_retries_as_the_service_says() {
    let fleet = Fleet::start();
    let Some(with) = outcomes(&fleet, RETRY, 40) else {
        return;
    };
    assert_all(&with, "flaky");
    let without = outcomes(&fleet, "routes: [{ to: flaky }]", 40).unwrap();
    assert_eq!(without["UNAVAILABLE"], 20, "{without:?}");
}

/// gRFC A31: a timeout ends calls that the caller would let run.
#[test]
fn c_core_ends_a_call_after_the_timeout_of_its_route() {
    let Some(outcomes) = outcomes(&Fleet::start(), TIMEOUT, 3) else {
        return;
    };
    assert_ended(&outcomes, ["DEADLINE_EXCEEDED", "CANCELLED"]);
}

/// gRFC A33: faults fail the percentage of calls that the route says, and reach no server.
#[test]
fn c_core_injects_the_faults_of_a_route() {
    let fleet = Fleet::start();
    let Some(with) = outcomes(&fleet, FAULT, CALLS) else {
        return;
    };
    assert_share(&with, "RESOURCE_EXHAUSTED", 25.0);
    assert_share(&with, "v1", 75.0);
    let without = FAULT.replace("to: v1", "to: v1, fault: none");
    assert_all(&outcomes(&fleet, &without, 100).unwrap(), "v1");
}
