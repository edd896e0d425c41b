//! Priorities and aggregates: calls go to the next part when the first cannot serve.
//!
//! Health and connections are tested apart, because an Envoy fails over by health alone.

use crowfly_e2e::product::Backend;
use crowfly_testkit::Reserved;
use serde_json::{Value, json};

use super::stage::{Mesh, Stage, endpoint, endpoint_with};
use super::traffic::Traffic;
use crate::CROWFLY;

/// The first priority is unhealthy for a while, and no call fails.
pub(super) fn priority_by_health(stage: &mut Stage) {
    let [b1, b2, _] = &stage.backends;
    let second = json!({ "zone": "b", "priority": 1, "endpoints": [endpoint(b2)] });
    let with = |health: &str| {
        let first = json!({ "zone": "a", "endpoints": [endpoint_with(health, b1)] });
        Mesh::of([json!({ "name": "priorities", "localities": [first, second] })])
    };
    let meshes = ["healthy", "unhealthy"].map(with);
    there_and_back(stage, "priorities", &meshes);
}

/// The backend of the first priority is killed.
pub(super) fn priority_by_connection(stage: &mut Stage) {
    let second = json!({ "zone": "b", "priority": 1, "endpoints": [endpoint(&stage.backends[1])] });
    first_dies(stage, "dead-priority", |first| {
        let first = json!({ "zone": "a", "endpoints": [endpoint(first)] });
        Mesh::of([json!({ "name": "dead-priority", "localities": [first, second] })])
    });
}

/// The endpoints of the first part of an aggregate are unhealthy for a while, and no call fails. The
/// second part is another service.
pub(super) fn aggregate_to_endpoints(stage: &mut Stage) {
    let [b1, b2, _] = &stage.backends;
    let other = json!({ "name": "other", "endpoints": [endpoint(b2)] });
    let with = |health: &str| {
        let first = endpoint_with(health, b1);
        let aggregate = json!({ "name": "aggregate", "endpoints": [first], "fallback": ["other"] });
        Mesh::of([aggregate, other.clone()])
    };
    let meshes = ["healthy", "unhealthy"].map(with);
    there_and_back(stage, "aggregate", &meshes);
}

/// The endpoints of the first part of an aggregate are unhealthy for a while, and no call fails.
/// The second part is a DNS name.
pub(super) fn aggregate_to_dns_by_health(stage: &mut Stage) {
    let [b1, b2, _] = &stage.backends;
    let with = |health: &str| named("named", &endpoint_with(health, b1), b2.address.port());
    let meshes = ["healthy", "unhealthy"].map(with);
    there_and_back(stage, "named", &meshes);
}

/// The backend of the first part is killed. The second part is a DNS name.
pub(super) fn aggregate_to_dns_by_connection(stage: &mut Stage) {
    let port = stage.backends[1].address.port();
    first_dies(stage, "dead-part", |first| {
        named("dead-part", &endpoint(first), port)
    });
}

/// A service with an endpoint, and a DNS name for when that cannot serve.
fn named(name: &str, first: &Value, port: u16) -> Mesh {
    let dns = format!("localhost:{port}");
    Mesh::of([json!({ "name": name, "endpoints": [first], "fallback": [{ "dns": dns }] })])
}

/// Calls go to `b1`, then to `b2` with the second configuration, and back.
fn there_and_back(stage: &mut Stage, service: &str, [here, there]: &[Mesh; 2]) {
    stage.serve(here);
    stage.settle(service, &["b1"]);
    let (peer, control, _) = stage.parts();
    Traffic::of(peer, service, |traffic| {
        control.configure_with(&there.to_yaml());
        traffic.until_served_by(&["b2"]);
        control.configure_with(&here.to_yaml());
        traffic.until_served_by(&["b1"]);
    });
}

/// Calls go to a backend of their own until it is killed, and then to `b2`.
fn first_dies(stage: &mut Stage, service: &str, mesh: impl FnOnce(&Backend) -> Mesh) {
    // No other process gets the port of the dead backend.
    let place = Reserved::new();
    let mut mortal = CROWFLY.backend_on(&place.address.to_string(), "mortal");
    stage.serve(&mesh(&mortal));
    stage.settle(service, &["mortal"]);
    mortal.process.kill();
    stage.settle(service, &["b2"]);
}
