//! Views: a client gets another configuration because of its node id.
//!
//! The view is by node id, because every client sends one.

use serde_json::json;

use super::kind::Kind;
use super::peer::{self, settle};
use super::stage::{Mesh, Stage, endpoint};
use super::traffic::Traffic;

/// The client has a view, while another client has none. Then the view goes, and no call fails.
pub(super) fn view_by_node_id(stage: &mut Stage) {
    let [b1, b2, _] = &stage.backends;
    let base = Mesh::of([json!({ "name": "seen", "endpoints": [endpoint(b1)] })]);
    let mut viewed = Mesh::of(base.services.clone());
    viewed.views = vec![json!({
        "name": "own",
        "match": { "id": stage.kind.node() },
        "services": [{ "name": "seen", "endpoints": [endpoint(b2)] }],
    })];
    stage.serve(&viewed);
    stage.settle("seen", &["b2"]);
    let mut witness = peer::start(Kind::CrowflySotw, "witness", stage.control.address).unwrap();
    settle(witness.as_mut(), "seen", &["b1"]);
    let (peer, control, _) = stage.parts();
    Traffic::of(peer, "seen", |traffic| {
        control.configure_with(&base.to_yaml());
        traffic.until_served_by(&["b1"]);
    });
}
