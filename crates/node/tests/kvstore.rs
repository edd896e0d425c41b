//! The layout of a ClusterMesh, as files that a reviewer can read: keys in, tables out.
//!
//! Each file of `tests/kvstore` has settings and steps: keys that are put or deleted, a connection that
//! fails and comes back, time that passes. A value that is a map becomes JSON; a text stays as it is.
//! After `--- table` comes the state after each step: what was logged, what the agent was told, and the
//! routes. It is kept by `CROWFLY_REGENERATE=1 cargo test -p crowfly-node --test kvstore`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;
#[path = "kvstore/simulated.rs"]
mod simulated;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crowfly_node::kvstore::{Layout, LogLine};
use crowfly_node::model::Place;
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_source::Event;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use simulated::Simulated;

const TABLE: &str = "\n--- table\n";

/// N-59: canaries are waited for, copies have keys of their own, and configurations may come late.
#[test]
fn services_are_read_when_the_cluster_says_so() {
    check("canaries");
}

/// N-59: bad values are refused by name, alone, and the last good ones stay.
#[test]
fn bad_values_are_refused_alone() {
    check("refused");
}

/// N-59: the cluster `ab` is not in the cluster `a`.
#[test]
fn names_of_clusters_are_not_prefixes() {
    check("prefixes");
}

/// N-58, N-59: a cluster that cannot be reached stays, and so does one whose configuration is lost. One that has
/// another id is drained.
#[test]
fn clusters_come_and_go() {
    check("clusters");
}

/// N-60: services of one name in several clusters are one service.
#[test]
fn clusters_share_a_service() {
    check("merged");
}

/// N-60: clusters that do not share a service do not get the backends of each other.
#[test]
fn unshared_services_keep_their_backends() {
    check("unshared");
}

/// N-60: each backend serves a port by the name that its own cluster gives that port.
#[test]
fn clusters_name_ports_for_themselves() {
    check("names");
}

/// N-53, N-60: zones and hints of remote backends count.
#[test]
fn zones_of_remote_backends() {
    check("zones");
}

/// N-60: without frontends a mesh has backends alone; a listed cluster may be missing for a while.
#[test]
fn backends_without_frontends() {
    check("backends_only");
}

/// N-58: the time of an outage is not a part of the time that a missing cluster has.
#[test]
fn a_missing_cluster_has_its_time_after_an_outage() {
    check("outage");
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    #[serde(default)]
    clusters: Option<Vec<String>>,
    #[serde(default)]
    own_cluster: Option<String>,
    #[serde(default = "yes")]
    frontends: bool,
    #[serde(default)]
    zone: Option<String>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    step: String,
    #[serde(default)]
    put: std::collections::BTreeMap<String, Value>,
    #[serde(default)]
    delete: Vec<String>,
    /// The connection is lost for this reason.
    fail: Option<String>,
    /// The connection is back: with `true` all is listed anew, as after a compaction.
    back: Option<bool>,
    /// Seconds that pass.
    wait: Option<u64>,
}

fn yes() -> bool {
    true
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kvstore/{name}.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    let (input, expected) = text.split_once(TABLE).unwrap_or((&text, ""));
    let situation: Situation = serde_saphyr::from_str(input).unwrap();
    let found = play(situation);
    if std::env::var_os("CROWFLY_REGENERATE").is_some() {
        return fs::write(path, format!("{}{TABLE}{found}", input.trim_end())).unwrap();
    }
    assert_eq!(found, expected, "{name}");
}

fn play(situation: Situation) -> String {
    let layout = Layout {
        clusters: situation.clusters,
        own_cluster: situation.own_cluster,
        frontends: situation.frontends,
    };
    let place = Place {
        node: None,
        zone: situation.zone.map(Into::into),
    };
    let mut services = Services::new(vec!["kvstore".into()], place);
    let mut mesh = Simulated::new(layout);
    let mut text = String::new();
    for step in situation.steps {
        writeln!(text, "== {}", step.step).unwrap();
        if let Some(reason) = step.fail {
            mesh.fail(&reason);
        }
        for (key, value) in step.put {
            let value = match value {
                Value::String(text) => text,
                value => value.to_string(),
            };
            mesh.put(&key, &value);
        }
        for key in step.delete {
            mesh.delete(&key);
        }
        if let Some(is_relisted) = step.back {
            mesh.back(is_relisted);
        }
        mesh.pass(Duration::from_secs(step.wait.unwrap_or_default()));
        let (notes, events) = mesh.take();
        for note in notes {
            match note {
                LogLine::Info(line) => writeln!(text, "info: {line}").unwrap(),
                LogLine::Warn(line) => writeln!(text, "warn: {line}").unwrap(),
            }
        }
        if !events.is_empty() {
            let told: Vec<String> = events.iter().map(told).collect();
            writeln!(text, "told: {}", told.join(", ")).unwrap();
        }
        services.handle(0, events);
        text.push_str(&golden::table(&services));
    }
    text
}

fn told(event: &ServiceEvent) -> String {
    match event {
        Event::Init => "init".to_owned(),
        Event::InitDone => "done".to_owned(),
        Event::Upsert(name, service) => {
            let shared = if service.shared { "" } else { " (not shared)" };
            let backends = service.backends.len();
            format!("{name} with {backends} backends{shared}")
        }
        Event::Delete(name) => format!("no {name}"),
        Event::Failed(reason) => format!("failed: {reason}"),
    }
}

/// A change to a mesh of clusters `a` and `ab`, with two services.
#[derive(Clone, Copy, Debug)]
enum Change {
    Config(bool, u8, bool),
    NoConfig(bool),
    Canary(bool),
    Service(bool, u8, u8, u8),
    Broken(bool, u8),
    NoService(bool, u8),
    Fail,
    Back(bool),
    Pass(u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (any::<bool>(), 1..3u8, any::<bool>())
            .prop_map(|(cluster, id, canary)| Change::Config(cluster, id, canary)),
        1 => any::<bool>().prop_map(Change::NoConfig),
        2 => any::<bool>().prop_map(Change::Canary),
        8 => (any::<bool>(), 0..2u8, 1..3u8, any::<u8>())
            .prop_map(|(cluster, name, id, backend)| Change::Service(cluster, name, id, backend)),
        2 => (any::<bool>(), 0..2u8).prop_map(|(cluster, name)| Change::Broken(cluster, name)),
        2 => (any::<bool>(), 0..2u8).prop_map(|(cluster, name)| Change::NoService(cluster, name)),
        1 => Just(Change::Fail),
        2 => any::<bool>().prop_map(Change::Back),
        1 => any::<u8>().prop_map(Change::Pass),
    ]
}

fn apply(mesh: &mut Simulated, change: Change) {
    let cluster = |is_long| if is_long { "ab" } else { "a" };
    let service = |of, name| format!("cilium/state/services/v1/{}/ns/s{name}", cluster(of));
    match change {
        Change::Config(of, id, canary) => {
            let value = format!(r#"{{"id":{id},"capabilities":{{"syncedCanaries":{canary}}}}}"#);
            mesh.put(&format!("cilium/cluster-config/{}", cluster(of)), &value);
        }
        Change::NoConfig(of) => mesh.delete(&format!("cilium/cluster-config/{}", cluster(of))),
        Change::Canary(of) => {
            let key = format!("cilium/synced/{}/cilium/state/services/v1", cluster(of));
            mesh.put(&key, "2026-01-01T00:00:00Z");
        }
        Change::Service(of, name, id, backend) => {
            let value = format!(
                r#"{{"cluster":"{}","namespace":"ns","name":"s{name}","clusterID":{id},"shared":true,
                    "frontends":{{"10.96.0.{id}":{{"":{{"Protocol":"TCP","Port":80}}}}}},
                    "backends":{{"10.244.0.{backend}":{{"":{{"Protocol":"TCP","Port":80}}}}}}}}"#,
                cluster(of)
            );
            mesh.put(&service(of, name), &value);
        }
        Change::Broken(of, name) => mesh.put(&service(of, name), "{"),
        Change::NoService(of, name) => mesh.delete(&service(of, name)),
        Change::Fail => mesh.fail("reset"),
        Change::Back(is_relisted) => mesh.back(is_relisted),
        Change::Pass(seconds) => mesh.pass(Duration::from_secs(seconds.into())),
    }
}

proptest! {
    /// N-58, N-59, N-60: after any history, an agent that heard all of it has the services of one
    /// that comes later. The exceptions are values that were good once and are refused now, awaited
    /// canaries, and services of clusters whose configuration was lost.
    #[test]
    fn history_leaves_no_trace(changes in prop::collection::vec(change(), 0..60)) {
        let layout = || Layout { clusters: None, own_cluster: None, frontends: true };
        let mut mesh = Simulated::new(layout());
        for change in changes {
            apply(&mut mesh, change);
        }
        mesh.back(false);
        for cluster in [true, false] {
            apply(&mut mesh, Change::Canary(cluster));
        }
        for key in mesh.refused() {
            mesh.delete(&key);
        }
        mesh.pass(Duration::from_secs(61));
        let later = Simulated::with(layout(), mesh.keys());
        let routes = |mesh: Simulated| {
            let mut mesh = mesh;
            mesh.pass(Duration::from_secs(61));
            let mut services = Services::new(vec!["kvstore".into()], Place::default());
            services.handle(0, mesh.take().1);
            prop_assert!(services.has_synced());
            Ok(golden::table(&services))
        };
        prop_assert_eq!(routes(mesh)?, routes(later)?);
    }
}
