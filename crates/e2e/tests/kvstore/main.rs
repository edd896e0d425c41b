//! The KVStore source of the node agent against a real etcd.
//!
//! Keys are written by `etcdctl`, because it shares no code with the client that is tested.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code"
)]

mod access;
mod load;
mod reader;

use std::sync::Arc;
use std::time::Duration;

use crowfly_e2e::etcd::Etcd;
use crowfly_e2e::peers;
use crowfly_node::kvstore::KvstoreOptions;
use crowfly_node::model::{RemoteBackends, Service, ServiceKind, ServiceName, ServicePort};
use crowfly_source::{Event, Status};
use reader::{Cable, Reader};

const EAST: &str = "cilium/cluster-config/east";
const CANARY: &str = "cilium/synced/east/cilium/state/services/v1";

fn options(etcd: &Etcd) -> KvstoreOptions {
    KvstoreOptions::new([etcd.address.to_string()])
}

fn key(cluster: &str, name: &str) -> String {
    format!("cilium/state/services/v1/{cluster}/ns/{name}")
}

/// A service at port 80 of an address, with one backend.
fn service(cluster: &str, id: u32, name: &str, address: &str, backend: &str) -> String {
    format!(
        r#"{{"cluster":"{cluster}","namespace":"ns","name":"{name}","clusterID":{id},"shared":true,
            "includeExternal":true,"labels":{{}},"selector":null,
            "frontends":{{"{address}":{{"http":{{"Protocol":"TCP","Port":80}}}}}},
            "backends":{{"{backend}":{{"http":{{"Protocol":"TCP","Port":8080}}}}}}}}"#
    )
}

fn put_service(etcd: &Etcd, cluster: &str, id: u32, name: &str, address: &str, backend: &str) {
    let value = service(cluster, id, name, address, backend);
    etcd.put(&key(cluster, name), &value);
}

/// N-59: a key whose lease is not renewed goes, and so does its route; others stay.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_removes_a_service() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Etcd::start(program);
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "stays", "10.96.0.1", "10.244.0.1");
    let value = service("east", 3, "goes", "10.96.0.2", "10.244.0.2");
    etcd.put_leased(&key("east", "goes"), &value, 5);
    let mut reader = Reader::start(options(&etcd));
    reader
        .until_targets("10.96.0.2", &["10.244.0.2:8080"])
        .await;
    reader.until_targets("10.96.0.2", &[]).await;
    assert_eq!(reader.targets("10.96.0.1"), ["10.244.0.1:8080"]);
    assert_eq!(*reader.status(), Status::Synced);
}

/// N-59: nothing of a cluster is applied before its canary; other clusters do not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_before_the_canary() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Etcd::start(program);
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.1");
    etcd.put(EAST, r#"{"id":3,"capabilities":{"syncedCanaries":true}}"#);
    let mut reader = Reader::start(options(&etcd));
    // A cluster without canaries shows that the source has read on.
    etcd.put("cilium/cluster-config/west", r#"{"id":4}"#);
    put_service(&etcd, "west", 4, "other", "10.96.0.2", "10.244.0.2");
    reader
        .until_targets("10.96.0.2", &["10.244.0.2:8080"])
        .await;
    assert_eq!(reader.targets("10.96.0.1"), [""; 0]);
    assert!(!reader.services.has_synced());
    etcd.put(CANARY, "2026-01-01T00:00:00Z");
    reader
        .until_targets("10.96.0.1", &["10.244.0.1:8080"])
        .await;
    reader.until_synced().await;
}

/// N-59: changes while the source was cut off are compacted away. So all is listed, and services
/// that are gone are deleted.
#[tokio::test(flavor = "multi_thread")]
async fn compaction_lists_anew_and_deletes() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Etcd::start(program);
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "goes", "10.96.0.1", "10.244.0.1");
    put_service(&etcd, "east", 3, "moves", "10.96.0.2", "10.244.0.2");
    let cable = Cable::to(etcd.address).await;
    let mut reader = Reader::start(KvstoreOptions::new([cable.address.to_string()]));
    reader
        .until_targets("10.96.0.2", &["10.244.0.2:8080"])
        .await;
    reader.until_synced().await;

    cable.cut();
    reader.until_failed().await;
    etcd.delete(&key("east", "goes"));
    put_service(&etcd, "east", 3, "moves", "10.96.0.2", "10.244.0.9");
    put_service(&etcd, "east", 3, "comes", "10.96.0.3", "10.244.0.3");
    etcd.compact();
    assert_eq!(reader.targets("10.96.0.1"), ["10.244.0.1:8080"]);
    cable.mend();
    reader.until_synced().await;
    reader.until_targets("10.96.0.1", &[]).await;
    reader
        .until_targets("10.96.0.2", &["10.244.0.9:8080"])
        .await;
    reader
        .until_targets("10.96.0.3", &["10.244.0.3:8080"])
        .await;
}

/// N-59: a foreign id, broken JSON and the key of another service are refused, the rest is applied, and
/// the last good value stays.
#[tokio::test(flavor = "multi_thread")]
async fn bad_values_are_refused_and_the_rest_is_applied() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Etcd::start(program);
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.1");
    put_service(&etcd, "east", 9, "foreign", "10.96.0.2", "10.244.0.2");
    etcd.put(&key("east", "broken"), "{");
    let value = service("east", 3, "web", "10.96.0.3", "10.244.0.3");
    etcd.put(&key("east", "other"), &value);
    let mut reader = Reader::start(options(&etcd));
    reader.until_synced().await;
    assert_eq!(reader.targets("10.96.0.1"), ["10.244.0.1:8080"]);
    assert_eq!(reader.services.routes().len(), 1);
    assert_eq!(reader.refused(), 3);

    etcd.put(&key("east", "web"), "no JSON");
    put_service(&etcd, "east", 3, "foreign", "10.96.0.2", "10.244.0.2");
    reader
        .until_targets("10.96.0.2", &["10.244.0.2:8080"])
        .await;
    assert_eq!(reader.targets("10.96.0.1"), ["10.244.0.1:8080"]);
    assert_eq!(reader.refused(), 3);
}

/// N-59: the services of cluster `ab` are none of cluster `a`.
#[tokio::test(flavor = "multi_thread")]
async fn one_cluster_is_not_the_prefix_of_another() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Etcd::start(program);
    etcd.put("cilium/cluster-config/a", r#"{"id":1}"#);
    put_service(&etcd, "a", 1, "web", "10.96.0.1", "10.244.0.1");
    put_service(&etcd, "ab", 2, "web", "10.96.0.2", "10.244.0.2");
    let mut reader = Reader::start(options(&etcd));
    reader
        .until_targets("10.96.0.1", &["10.244.0.1:8080"])
        .await;
    assert_eq!(reader.refused(), 0);
    etcd.put("cilium/cluster-config/ab", r#"{"id":2}"#);
    let both = ["10.244.0.1:8080", "10.244.0.2:8080"];
    reader.until_targets("10.96.0.1", &both).await;
    // The services of a cluster go with their own keys, not with its configuration.
    etcd.delete("cilium/cluster-config/a");
    etcd.delete(&key("a", "web"));
    reader
        .until_targets("10.96.0.2", &["10.244.0.2:8080"])
        .await;
    assert_eq!(reader.targets("10.96.0.1"), [""; 0]);
}

/// N-58: without its etcd the last state serves; when it is back, the differences are applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_etcd_leaves_its_last_state() {
    let Some(program) = peers::etcd() else { return };
    let mut etcd = Etcd::start(program);
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.1");
    put_service(&etcd, "east", 3, "goes", "10.96.0.2", "10.244.0.2");
    let mut reader = Reader::start(options(&etcd));
    reader
        .until_targets("10.96.0.2", &["10.244.0.2:8080"])
        .await;
    reader.until_synced().await;
    etcd.kill();
    let reason = reader.until_failed().await;
    assert!(!reason.is_empty());
    assert_eq!(reader.targets("10.96.0.1"), ["10.244.0.1:8080"]);
    assert_eq!(reader.targets("10.96.0.2"), ["10.244.0.2:8080"]);
    etcd.resume();
    etcd.delete(&key("east", "goes"));
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.9");
    reader
        .until_targets("10.96.0.1", &["10.244.0.9:8080"])
        .await;
    reader.until_targets("10.96.0.2", &[]).await;
    reader.until_synced().await;
}

/// N-60: a global service of another source gets the backends of the mesh, one that is not global does
/// not.
#[tokio::test(flavor = "multi_thread")]
async fn global_services_have_the_backends_of_the_mesh() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Etcd::start(program);
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "global", "10.99.0.1", "10.244.0.1");
    put_service(&etcd, "east", 3, "local", "10.99.0.2", "10.244.0.2");
    let mut reader = Reader::start(KvstoreOptions {
        frontends: false,
        ..options(&etcd)
    });
    for (name, address, remote) in [
        ("global", [10, 96, 0, 1], RemoteBackends::Added),
        ("local", [10, 96, 0, 2], RemoteBackends::Ignored),
    ] {
        let name = ServiceName::new("ns", name);
        let port = ServicePort {
            name: "http".into(),
            port: 80,
            protocol: crowfly_node::model::Protocol::Tcp,
            policy: Arc::default(),
            reported_as: None,
        };
        let service = Service {
            ports: vec![port],
            remote,
            ..Service::new(name.clone(), ServiceKind::ClusterIp(vec![address.into()]))
        };
        let upsert = Event::Upsert(name, Arc::new(service));
        reader.services.handle(0, vec![upsert]);
    }
    reader
        .until_targets("10.96.0.1", &["10.244.0.1:8080"])
        .await;
    reader.until_synced().await;
    assert_eq!(reader.targets("10.96.0.2"), [""; 0]);
    assert_eq!(
        reader.services.routes().len(),
        2,
        "no frontends of the mesh"
    );
}

/// N-58, N-59: without a heartbeat the connection counts as dead. The state stays, and updates are heard
/// again after each new connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_heartbeat_is_a_dead_connection() {
    let Some(program) = peers::etcd() else { return };
    let etcd = Etcd::start(program);
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.1");
    let mut reader = Reader::start(KvstoreOptions {
        heartbeat: Some(Duration::from_secs(1)),
        ..options(&etcd)
    });
    reader
        .until_targets("10.96.0.1", &["10.244.0.1:8080"])
        .await;
    let reason = reader.until_failed().await;
    assert!(
        reason.contains("no update of cilium/.heartbeat"),
        "{reason}"
    );
    assert_eq!(reader.targets("10.96.0.1"), ["10.244.0.1:8080"]);
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.2");
    reader
        .until_targets("10.96.0.1", &["10.244.0.2:8080"])
        .await;
}
