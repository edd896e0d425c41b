//! The control plane is killed, and starts again.
//!
//! No call may fail meanwhile, and a client by delta must not be sent again what it has.

use crowfly_e2e::resources;
use crowfly_e2e::tap::Tap;
use serde_json::{Value, json};

use super::peer::{self, settle};
use super::stage::{INGRESS, Mesh, Stage, endpoint, restart, routes_by_host};
use super::traffic::Traffic;
use crate::CROWFLY;

/// The control plane is killed and starts again with another endpoint. No call fails, and the calls
/// follow.
pub(super) fn restart_under_traffic(stage: &mut Stage) {
    let [before, after] = [0, 1].map(|index| {
        let endpoint = endpoint(&stage.backends[index]);
        Mesh::of([json!({ "name": "lasting", "endpoints": [endpoint] })])
    });
    stage.serve(&before);
    stage.settle("lasting", &["b1"]);
    let (peer, control, place) = stage.parts();
    Traffic::of(peer, "lasting", |traffic| {
        restart(control, place, &after);
        traffic.until_served_by(&["b2"]);
    });
}

/// The name of the resource that changes.
const CHANGED: &str = "kept-endpoints";

/// The control plane is killed and starts again, and the client says what it has. It is sent the one
/// resource that changed, and no other.
///
/// A name stands in its resource, and in the one that leads to it.
pub(super) fn reconnect_with_nothing_resent(stage: &mut Stage) {
    let unchanged = match stage.kind.is_envoy() {
        true => [INGRESS, "kept-cluster"],
        false => ["kept-routes", "kept-cluster"],
    };
    let [before, after] = [0, 1].map(|index| kept(stage, index));
    let mut control = CROWFLY.control_of(&before);
    let tap = Tap::start(control.address);
    let mut peer = peer::start(stage.kind, stage.kind.node(), tap.address).unwrap();
    settle(peer.as_mut(), "kept", &["b1"]);
    // If these were never heard, their absence later would show nothing.
    for name in unchanged {
        assert!(tap.count(name) > 0, "{name} was not sent");
    }
    println!("  first: {} bytes", tap.bytes());

    Traffic::of(peer.as_mut(), "kept", |traffic| {
        control.process.kill();
        tap.forget();
        control = CROWFLY.control_of(&before);
        tap.lead_to(control.address);
        control.configure_with(&after);
        traffic.until_served_by(&["b2"]);
    });
    println!("  after the restart: {} bytes", tap.bytes());
    assert!(tap.count(CHANGED) > 0, "the change was sent");
    for name in unchanged {
        assert_eq!(tap.count(name), 0, "{name} was sent again");
    }
}

/// A service as four resources with a name each, for gRPC and for an Envoy.
fn kept(stage: &Stage, backend: usize) -> String {
    let mut listener = resources::api_listener("kept");
    listener["api_listener"]["api_listener"]["rds"]["route_config_name"] = json!("kept-routes");
    let mut cluster = resources::http2_cluster("kept-cluster");
    cluster["eds_cluster_config"]["service_name"] = json!(CHANGED);
    let address = stage.backends[backend].address;
    let resources: Value = json!([
        listener,
        resources::routes("kept-routes", "kept-cluster"),
        resources::http2_listener(INGRESS),
        routes_by_host(&[(&json!("kept"), &json!("kept-cluster"))]),
        cluster,
        resources::endpoints(CHANGED, &[address]),
    ]);
    format!("resources: {resources}\n")
}
