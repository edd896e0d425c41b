//! Several sources, and one file that is followed: the last good services serve on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fs;
use std::sync::Arc;

use crowfly_node::agent::Agent;
use crowfly_node::file;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::model::Place;
use crowfly_node::serve::FileSource;
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_source::Event;

const FIRST: usize = 0;
const SECOND: usize = 1;

/// N-57: a ClusterIP belongs to the first source that has it, on every port, and goes to the next one
/// in a single switch.
#[test]
fn a_cluster_ip_belongs_to_the_first_source() {
    let mut agent = agent(&["first", "second"]);
    agent.handle(SECOND, listed("web", "10.96.0.1", &[80, 443], "10.244.2.1"));
    assert_eq!(targets(&agent, 80), ["10.244.2.1:80"]);
    agent.handle(FIRST, listed("other", "10.96.0.1", &[80], "10.244.1.1"));
    assert_eq!(targets(&agent, 80), ["10.244.1.1:80"]);
    assert_eq!(targets(&agent, 443), [""; 0], "on every port");
    let view = agent.view().unwrap();
    assert_eq!(view.frontends[0].source, "first");
    assert_eq!(view.frontends[0].shadowed, ["default/web (second)"]);

    let gone = Event::Delete(crowfly_node::model::ServiceName::new("default", "other"));
    let outcome = agent.handle(FIRST, vec![gone]);
    assert_eq!((outcome.switched, outcome.removed), (2, 0));
    assert_eq!(targets(&agent, 80), ["10.244.2.1:80"]);
}

/// N-26: a ClusterIP is used again by another service, whose creation is told before the deletion.
#[test]
fn a_cluster_ip_is_used_again() {
    let mut agent = agent(&["first"]);
    agent.handle(FIRST, listed("b", "10.96.0.1", &[80], "10.244.1.1"));
    let [_, upsert, _] = listed("a", "10.96.0.1", &[80], "10.244.1.2")
        .try_into()
        .unwrap();
    agent.handle(FIRST, vec![upsert]);
    let b = crowfly_node::model::ServiceName::new("default", "b");
    agent.handle(FIRST, vec![Event::Delete(b)]);
    assert_eq!(targets(&agent, 80), ["10.244.1.2:80"]);
}

/// N-58: a source that fails keeps its last state, and the others go on.
#[test]
fn a_failed_source_keeps_serving() {
    let mut agent = agent(&["first", "second"]);
    agent.handle(FIRST, listed("web", "10.96.0.1", &[80], "10.244.1.1"));
    let outcome = agent.handle(FIRST, vec![Event::Failed("gone".into())]);
    assert_eq!(outcome.switched + outcome.removed, 0);
    agent.handle(SECOND, listed("api", "10.96.0.2", &[80], "10.244.2.1"));
    assert_eq!(agent.services().routes().len(), 2);
    assert_eq!(agent.view().unwrap().sources[0].status, "failed: gone");
}

/// N-76: what a former agent left is deleted only when all sources have told what they have.
#[test]
fn nothing_is_pruned_before_all_sources_are_there() {
    let mut before = agent(&["first"]);
    before.handle(FIRST, listed("old", "10.96.0.9", &[80], "10.244.1.1"));
    let maps = before.reconciler().maps().clone();
    let services = Services::new(vec!["first".into(), "second".into()], Place::default());
    let mut agent = Agent::new(services, maps).unwrap();
    agent.handle(FIRST, listed("new", "10.96.0.1", &[80], "10.244.1.2"));
    assert_eq!(agent.reconciler().maps().services.len(), 2);
    let outcome = agent.handle(SECOND, vec![Event::Init, Event::InitDone]);
    assert_eq!(outcome.removed, 1);
    assert_eq!(agent.reconciler().maps().services.len(), 1);
}

/// A bad, empty or missing file leaves the last good services in force.
#[tokio::test]
async fn a_bad_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.yaml");
    fs::write(&path, yaml("web", "10.96.0.1", &[80], "10.244.1.1")).unwrap();
    let mut source = FileSource::new(path.clone());
    let mut agent = agent(&["file"]);
    agent.handle(FIRST, source.first().await.unwrap());
    assert_eq!(targets(&agent, 80), ["10.244.1.1:80"]);

    for bad in ["", "services:\n- name: web\n  cluster_ip: 10.96.0.1\n"] {
        fs::write(&path, bad).unwrap();
        let events = source.next().await;
        assert!(
            matches!(events.as_slice(), [Event::Failed(_)]),
            "{events:?}"
        );
        agent.handle(FIRST, events);
        assert_eq!(targets(&agent, 80), ["10.244.1.1:80"]);
    }
    fs::write(&path, yaml("web", "10.96.0.1", &[80], "10.244.1.2")).unwrap();
    agent.handle(FIRST, source.next().await);
    assert_eq!(targets(&agent, 80), ["10.244.1.2:80"]);
    assert_eq!(agent.view().unwrap().sources[0].status, "synced");
}

/// An agent does not begin with a file that is wrong, or that is not there.
#[tokio::test]
async fn the_first_file_must_be_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.yaml");
    let missing = FileSource::new(path.clone()).first().await.unwrap_err();
    assert!(missing.to_string().contains("node.yaml"), "{missing}");
    fs::write(&path, "").unwrap();
    let empty = FileSource::new(path).first().await.unwrap_err();
    assert!(empty.to_string().contains("`services: []`"), "{empty}");
}

fn agent(sources: &[&str]) -> Agent<MemoryMaps> {
    let sources = sources.iter().map(|name| Arc::from(*name)).collect();
    Agent::new(
        Services::new(sources, Place::default()),
        MemoryMaps::default(),
    )
    .unwrap()
}

fn yaml(name: &str, ip: &str, ports: &[u16], backend: &str) -> String {
    let ports = ports
        .iter()
        .map(|port| format!("{{ name: p{port}, port: {port} }}"));
    let ports = ports.collect::<Vec<_>>().join(", ");
    format!(
        "services:\n- name: {name}\n  cluster_ips: [{ip}]\n  ports: [{ports}]\n  \
         endpoints: [{{ addresses: [{backend}], ports: [{ports}] }}]\n"
    )
}

fn listed(name: &str, ip: &str, ports: &[u16], backend: &str) -> Vec<ServiceEvent> {
    let services = file::read("test.yaml".as_ref(), &yaml(name, ip, ports, backend)).unwrap();
    let events = services.into_iter().map(|service| {
        let name = service.name.clone();
        Event::Upsert(name, Arc::new(service))
    });
    let events = [Event::Init].into_iter().chain(events);
    events.chain([Event::InitDone]).collect()
}

/// The backends of 10.96.0.1 on a port.
fn targets(agent: &Agent<MemoryMaps>, port: u16) -> Vec<String> {
    let routes = agent.services().routes().iter();
    let mut routes =
        routes.filter(|(frontend, _)| frontend.to_string() == format!("10.96.0.1:{port}/TCP"));
    let route = routes.next().map(|(_, route)| Arc::clone(route));
    let targets = route.iter().flat_map(|route| &route.targets);
    targets.map(|target| target.address.to_string()).collect()
}
