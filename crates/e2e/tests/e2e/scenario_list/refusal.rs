//! A resource that the client refuses.
//!
//! The other resources must stay in use, and the control plane must know the reason.

use std::net::SocketAddr;

use crowfly_control::{Catalog, ConfigFile, ControlPlane, translate};
use crowfly_e2e::admin;
use crowfly_e2e::resources::CLUSTER;
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::LbPolicy;
use envoy_types::util::pack_any;
use prost::Message;
use serde_json::{Value, json};

use super::kind::Kind;
use super::ours::runtime;
use super::peer::{self, settle};
use super::stage::{Mesh, Stage, clients_of, endpoint};

/// A bad cluster is refused, with a reason that the control plane knows. The other cluster of the same
/// routes is in use, and its next version is applied, too.
///
/// The control plane is a task of the test, because it serves what the command would not.
pub(super) fn bad_cluster(stage: &mut Stage) {
    let [b1, b2, _] = &stage.backends;
    let routes = json!([{ "match": { "path": "/never.Called/Method" }, "to": "bad" }]);
    let good = sound(&Mesh::of([
        json!({ "name": "mixed", "routes": routes, "endpoints": [endpoint(b1)] }),
        json!({ "name": "bad", "endpoints": [endpoint(b1)] }),
        json!({ "name": "elsewhere", "endpoints": [endpoint(b2)] }),
    ]));
    let bad = edited(&good, "bad", |cluster| {
        cluster.lb_policy = LbPolicy::ClusterProvided.into();
    });
    let bad_and_moved = edited(&bad, "mixed", |cluster| {
        let eds = cluster.eds_cluster_config.as_mut().unwrap();
        eds.service_name = "elsewhere".to_owned();
    });

    let runtime = runtime();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let plane = runtime
        .block_on(ControlPlane::with_snapshot(bad, loopback, Some(loopback)))
        .unwrap();
    let admin = plane.admin_addr().unwrap();
    let node = stage.kind.node();
    let mut peer = peer::start(stage.kind, node, plane.listen_addr()).unwrap();
    settle(peer.as_mut(), "mixed", &["b1"]);
    let page = admin::until(admin, "/clients", "refusal", |page| {
        nack(page, node).is_some()
    });
    let nack = nack(&page, node).unwrap();
    println!("  {node} refused: {nack}");
    assert!(nack.contains(reason(stage.kind)), "{nack}");

    plane.set_snapshot(bad_and_moved);
    settle(peer.as_mut(), "mixed", &["b2"]);
    plane.set_snapshot(good);
    settle(peer.as_mut(), "mixed", &["b1"]);
    admin::until(admin, "/clients", "end of the refusal", |page| {
        let mut clients = clients_of(page, node).into_iter();
        clients.all(|client| client["types"][CLUSTER]["state"] != "nacked")
    });
}

/// A part of the reason, in the words of the client. All but gRPC-Node name the cluster.
fn reason(kind: Kind) -> &'static str {
    match kind {
        Kind::EnvoySotw | Kind::EnvoyDelta => {
            "cluster provided LB specified but cluster 'bad' did not provide one"
        }
        Kind::CCore => {
            "bad: INVALID_ARGUMENT: errors validating Cluster resource: [field:lb_policy"
        }
        Kind::GrpcNode => "unsupported lb_policy: CLUSTER_PROVIDED",
        Kind::GrpcGo => "unexpected lbPolicy CLUSTER_PROVIDED",
        Kind::CrowflySotw | Kind::CrowflyDelta => "cluster bad: lb_policy: expected",
    }
}

/// The reason for which a node refused clusters.
fn nack<'a>(page: &'a Value, node: &str) -> Option<&'a str> {
    let mut clients = clients_of(page, node).into_iter();
    clients.find_map(|client| client["types"][CLUSTER]["last_nack"]["message"].as_str())
}

/// The snapshot of a configuration.
fn sound(mesh: &Mesh) -> Snapshot {
    let file = ConfigFile {
        path: "mesh.yaml".into(),
        text: mesh.to_yaml(),
    };
    translate(&Catalog::read(&[file]).unwrap()).unwrap()
}

/// The snapshot with another version of a cluster.
fn edited(snapshot: &Snapshot, name: &str, edit: impl FnOnce(&mut Cluster)) -> Snapshot {
    let resource = snapshot.resource(CLUSTER, name).unwrap();
    let mut cluster = Cluster::decode(&*resource.any.value).unwrap();
    edit(&mut cluster);
    let mut builder = snapshot.to_builder();
    builder.set(name, pack_any(cluster));
    builder.build()
}
