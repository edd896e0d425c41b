//! Services and endpoints: calls reach the endpoints of the control plane, in its shares.
//!
//! The shares are checked within five standard deviations, because some clients draw them at
//! random.

use crowfly_e2e::product::Backend;
use serde_json::json;

use super::peer::{Outcome, answers};
use super::stage::{FIRST, Mesh, Stage, endpoint};
use super::traffic::Traffic;

/// The first call is answered, and then all backends answer.
pub(super) fn first_answer(stage: &mut Stage) {
    let first = stage.peer.call(FIRST, 1);
    assert_eq!(answers(&first).len(), 1);
    stage.settle(FIRST, &["b1", "b2", "b3"]);
}

/// One endpoint is added and one removed, and no call fails.
pub(super) fn endpoint_change(stage: &mut Stage) {
    let with = |backends: &[Backend]| {
        let endpoints: Vec<_> = backends.iter().map(endpoint).collect();
        Mesh::of([json!({ "name": "changing", "endpoints": endpoints })])
    };
    let [before, after] = [with(&stage.backends[..2]), with(&stage.backends[1..])];
    stage.serve(&before);
    stage.settle("changing", &["b1", "b2"]);
    let (peer, control, _) = stage.parts();
    Traffic::of(peer, "changing", |traffic| {
        control.configure_with(&after.to_yaml());
        traffic.until_served_by(&["b2", "b3"]);
    });
}

/// Three quarters of the calls go to the zone with three quarters of the weight.
pub(super) fn two_zones_by_weight(stage: &mut Stage) {
    let zone = |backend: &Backend, weight: u32| {
        json!({
            "region": "r1",
            "zone": backend.name,
            "weight": weight,
            "endpoints": [endpoint(backend)],
        })
    };
    let [b1, b2, _] = &stage.backends;
    let zones = [zone(b1, 3), zone(b2, 1)];
    stage.serve(&Mesh::of([json!({ "name": "zoned", "localities": zones })]));
    stage.settle("zoned", &["b1", "b2"]);
    let outcomes = stage.peer.call("zoned", 400);
    let answers = answers(&outcomes);
    // Five standard deviations of a client that draws lots.
    assert!((257..=343).contains(&answers["b1"]), "{answers:?}");
    assert_eq!(answers["b1"] + answers["b2"], 400, "{answers:?}");
}

/// Half of the calls fail at once, and say why.
pub(super) fn drops(stage: &mut Stage) {
    stage.serve(&Mesh::of([json!({
        "name": "dropping",
        "drops": { "throttle": "50%" },
        "endpoints": [endpoint(&stage.backends[0])],
    })]));
    // Until it has the service, all calls fail.
    stage.until_answered("dropping");
    let outcomes = stage.peer.call("dropping", 300);
    let failed = |outcome: &&Outcome| matches!(outcome, Outcome::Failed(_));
    let dropped: Vec<_> = outcomes.iter().filter(failed).collect();
    // Nearly six standard deviations.
    assert!((100..=200).contains(&dropped.len()), "{outcomes:?}");
    let is_drop = |outcome: &&&Outcome| !is_drop(outcome);
    assert_eq!(dropped.iter().find(is_drop), None);
}

/// True if a client says that it dropped the call. C-core says "EDS-configured drop", Node "Call
/// dropped by load balancing policy", and Envoy `drop_overload`.
pub(super) fn is_drop(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(status) if status.to_lowercase().contains("drop"))
}
