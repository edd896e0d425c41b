//! Our channel obeys the services of our control plane, as C-core does.
//!
//! The configurations are those of the other clients, so that one file means the same to all.

use crowfly_e2e::rpc::{self, Spread};

use super::{
    CALLS, FAULT, Fleet, MATCHES, RETRY, SPLIT, TIMEOUT, assert_all, assert_ended, assert_share,
};
use crate::{CROWFLY, channel};

/// The outcomes of calls to `svc` with these settings.
async fn outcomes(fleet: &Fleet, svc: &str, calls: usize) -> Spread {
    let control = CROWFLY.control_of(&fleet.config(svc));
    rpc::outcomes(&channel(control.address), calls).await
}

/// gRFC A28: matches and splits.
#[tokio::test(flavor = "multi_thread")]
async fn our_channel_matches_and_splits_calls() {
    let fleet = Fleet::start();
    for (svc, v1) in [(SPLIT, 80.0), (MATCHES, 30.0)] {
        let outcomes = outcomes(&fleet, svc, CALLS).await;
        assert_share(&outcomes, "v1", v1);
        assert_share(&outcomes, "v2", 100.0 - v1);
    }
}

/// gRFC A28: a fraction and the split after it are drawn apart. (An Envoy draws one number for both.)
#[tokio::test(flavor = "multi_thread")]
async fn our_channel_draws_a_fraction_and_a_split_apart() {
    let svc = "routes: [{ match: { fraction: 50% }, split: { v1: 50%, v2: 50% } }, { to: v2 }]";
    let outcomes = outcomes(&Fleet::start(), svc, CALLS).await;
    assert_share(&outcomes, "v1", 25.0);
    assert_share(&outcomes, "v2", 75.0);
}

/// gRFC A44: retries of a service.
#[tokio::test(flavor = "multi_thread")]
async fn our_channel_retries_as_the_service_says() {
    let fleet = Fleet::start();
    assert_all(&outcomes(&fleet, RETRY, 40).await, "flaky");
    let without = outcomes(&fleet, "routes: [{ to: flaky }]", 40).await;
    assert_eq!(without["Unavailable"], 20, "{without:?}");
}

/// gRFC A31: the timeout of a route.
#[tokio::test(flavor = "multi_thread")]
async fn our_channel_ends_a_call_after_the_timeout_of_its_route() {
    let outcomes = outcomes(&Fleet::start(), TIMEOUT, 3).await;
    assert_ended(&outcomes, ["DeadlineExceeded", "Cancelled"]);
}

/// gRFC A33: the faults of a route.
#[tokio::test(flavor = "multi_thread")]
async fn our_channel_injects_the_faults_of_a_route() {
    let fleet = Fleet::start();
    let with = outcomes(&fleet, FAULT, CALLS).await;
    assert_share(&with, "ResourceExhausted", 25.0);
    assert_share(&with, "v1", 75.0);
    let without = FAULT.replace("to: v1", "to: v1, fault: none");
    assert_all(&outcomes(&fleet, &without, 100).await, "v1");
}
