//! The order of several sources, and a file that is followed. A source that fails keeps its last
//! good services in force.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use std::fs;
use std::sync::Arc;

use crowfly_node::agent::Agent;
use crowfly_node::file::{FileSource, no_settings};
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::model::Place;
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
    let [shadowed] = view.frontends[0].shadowed.as_slice() else {
        panic!("{view:?}");
    };
    assert_eq!(
        (shadowed.service.as_str(), shadowed.source.as_str()),
        ("default/web", "second")
    );

    let gone = Event::Delete(crowfly_node::model::ServiceName::new("default", "other"));
    let outcome = agent.handle(FIRST, vec![gone]);
    assert_eq!((outcome.switched, outcome.removed), (2, 0));
    assert_eq!(targets(&agent, 80), ["10.244.2.1:80"]);
}

/// N-57: three sources have a ClusterIP. It goes down their order as they lose it, and back up as they
/// have it again. Each step is one switch of the frontend, and nothing is ever removed.
#[test]
fn a_cluster_ip_goes_down_the_order_and_back() {
    let mut agent = agent(&["kubernetes", "kvstore", "xds"]);
    let all: Vec<_> = (0..3).map(|rank| of_source(rank, "")).collect();
    for rank in [2, 0, 1] {
        agent.handle(rank, all[rank].clone());
    }
    let none = vec![Event::Init, Event::InitDone];
    for (rank, events, owner) in [
        (0, &none, 1),
        (1, &none, 2),
        (1, &all[1], 1),
        (0, &all[0], 0),
        // A lower source changes nothing.
        (2, &none, 0),
        (2, &all[2], 0),
    ] {
        let before = targets(&agent, 80);
        let outcome = agent.handle(rank, events.clone());
        assert_eq!(targets(&agent, 80), [format!("10.244.{owner}.1:80")]);
        let switched = usize::from(before != targets(&agent, 80));
        assert_eq!((outcome.switched, outcome.removed), (switched, 0));
    }
}

/// N-57: a service that prefers another source yields to it when that source has its ClusterIP, and
/// follows its changes. It serves itself when that source loses the ClusterIP.
#[test]
fn a_service_yields_to_the_source_that_it_prefers() {
    let mut agent = agent(&["kubernetes", "kvstore", "xds"]);
    agent.handle(0, of_source(0, "  preferred_source: xds\n"));
    agent.handle(1, of_source(1, ""));
    assert_eq!(targets(&agent, 80), ["10.244.0.1:80"], "xds has none yet");
    assert_eq!(agent.handle(2, of_source(2, "")).switched, 1);
    assert_eq!(targets(&agent, 80), ["10.244.2.1:80"]);
    let view = agent.view().unwrap();
    let shadowed = view.frontends[0].shadowed.iter();
    let shadowed: Vec<_> = shadowed.map(|it| (&*it.source, &*it.reason)).collect();
    assert_eq!(
        shadowed,
        [
            ("kubernetes", "it prefers the source xds"),
            ("kvstore", "the first claimant prefers the source xds")
        ]
    );
    agent.handle(2, listed("web", "10.96.0.1", &[80], "10.244.2.2"));
    assert_eq!(targets(&agent, 80), ["10.244.2.2:80"], "its changes count");
    agent.handle(1, vec![Event::Init, Event::InitDone]);
    assert_eq!(targets(&agent, 80), ["10.244.2.2:80"]);
    // The preference goes, and comes back.
    assert_eq!(agent.handle(0, of_source(0, "")).switched, 1);
    assert_eq!(targets(&agent, 80), ["10.244.0.1:80"]);
    agent.handle(0, of_source(0, "  preferred_source: xds\n"));
    assert_eq!(targets(&agent, 80), ["10.244.2.2:80"]);
    let outcome = agent.handle(2, vec![Event::Init, Event::InitDone]);
    assert_eq!((outcome.switched, outcome.removed), (1, 0));
    assert_eq!(targets(&agent, 80), ["10.244.0.1:80"], "it serves itself");
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
    let view = agent.view().unwrap();
    let shadowed = &view.frontends[0].shadowed[0];
    assert_eq!(shadowed.reason, "same source, and its name comes later");
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

/// N-57, N-76: a source that is heard early takes no frontend that a former agent left, while a source
/// before it may have it. New frontends are routed at once.
#[test]
fn a_restart_does_not_lend_a_cluster_ip_to_a_lower_source() {
    let mut agent = restarted(&[]);
    let outcome = agent.handle(1, of_source(1, ""));
    assert_eq!(outcome.switched, 0);
    assert_eq!(in_maps(&agent), ["10.244.0.1:80"], "as it was");
    let view = agent.view().unwrap();
    assert_eq!(view.frontends[0].waits_for, ["kubernetes"]);
    assert!(!view.frontends[0].programmed);
    let new = golden::listed(&yaml("new", "10.96.0.2", &[80], "10.244.1.2"));
    let mut both = of_source(1, "");
    both.extend(new);
    both.retain(|event| matches!(event, Event::Upsert(..)));
    assert_eq!(agent.handle(1, both).switched, 1, "nobody had that one");
    // It is as before the restart, so nothing is to be done.
    assert_eq!(agent.handle(0, of_source(0, "")).switched, 0);
    assert_eq!(in_maps(&agent), ["10.244.0.1:80", "10.244.1.2:80"]);
    assert!(agent.view().unwrap().frontends[0].programmed);
}

/// N-57, N-76: a frontend that its owner left to a later source stays there over a restart, although the owner's
/// source is heard first.
#[test]
fn a_restart_does_not_give_a_cluster_ip_back_to_its_first_source() {
    let yields = || of_source(0, "  preferred_source: kvstore\n");
    let mut before = agent(&["kubernetes", "kvstore"]);
    before.handle(0, yields());
    before.handle(1, of_source(1, ""));
    assert_eq!(in_maps(&before), ["10.244.1.1:80"]);
    let mut agent = restart(&before, &["kubernetes", "kvstore"]);
    assert_eq!(agent.handle(0, yields()).switched, 0);
    assert_eq!(in_maps(&agent), ["10.244.1.1:80"], "as it was");
    let view = agent.view().unwrap();
    assert_eq!(view.frontends[0].waits_for, ["kvstore"]);
    assert_eq!(agent.handle(1, of_source(1, "")).switched, 0);
    assert!(!is_holding(&agent));
}

/// N-76: a frontend that waits for a source is free when that source has listed, also if it does not have it any
/// more.
#[test]
fn a_source_that_has_nothing_ends_the_wait_for_it() {
    let mut agent = restarted(&[]);
    agent.handle(1, of_source(1, ""));
    assert!(is_holding(&agent));
    let none = vec![Event::Init, Event::InitDone];
    let outcome = agent.handle(0, none);
    assert_eq!((outcome.switched, outcome.removed), (1, 0));
    assert_eq!(in_maps(&agent), ["10.244.1.1:80"]);
    assert!(!is_holding(&agent));
}

/// N-76: a frontend that a source told and took back stays after the longest wait, because a source that is silent
/// still may have it.
#[test]
fn a_frontend_that_was_taken_back_may_be_of_a_silent_source() {
    let mut agent = restarted(&[]);
    agent.handle(1, of_source(1, ""));
    let name = crowfly_node::model::ServiceName::new("default", "web");
    agent.handle(1, vec![Event::Delete(name)]);
    assert_eq!(agent.release().removed, 0);
    assert_eq!(in_maps(&agent), ["10.244.0.1:80"], "as it was");
    assert_eq!(agent.handle(0, of_source(0, "")).switched, 0);
    let none = vec![Event::Init, Event::InitDone];
    assert_eq!(agent.handle(0, none).removed, 1);
}

/// N-58: a source that stays silent is not waited for longer than a while. Frontends that no source
/// knows stay even then.
#[test]
fn a_silent_source_is_not_waited_for_for_ever() {
    let mut agent = restarted(&["other"]);
    agent.handle(1, of_source(1, ""));
    assert!(is_holding(&agent));
    assert_eq!(agent.release().switched, 1);
    assert_eq!(
        in_maps(&agent),
        ["10.244.1.1:80", "10.244.9.1:80"],
        "the other frontend may be one of the silent source"
    );
    let name = crowfly_node::model::ServiceName::new("default", "web");
    agent.handle(1, vec![Event::Delete(name)]);
    let none = vec![Event::Init, Event::InitDone];
    agent.handle(0, none);
    assert_eq!(in_maps(&agent), [""; 0]);
}

/// N-60, N-76: a global service keeps its remote backends over a restart, although its own source is heard
/// first.
#[test]
fn a_restart_does_not_take_remote_backends_away() {
    let remote = "services: [{ name: web, shared: true, endpoints: \
                  [{ addresses: [10.245.0.1], ports: [{ name: p80, port: 80 }], cluster: west }] }]";
    let global = |rank| of_source(rank, "  remote_backends: Preferred\n");
    let mut before = agent(&["kubernetes", "kvstore"]);
    before.handle(0, global(0));
    before.handle(1, golden::listed(remote));
    assert_eq!(in_maps(&before), ["10.245.0.1:80"]);
    let mut agent = restart(&before, &["kubernetes", "kvstore"]);
    assert_eq!(agent.handle(0, global(0)).switched, 0);
    assert_eq!(in_maps(&agent), ["10.245.0.1:80"], "kvstore is silent");
    assert_eq!(agent.handle(1, golden::listed(remote)).switched, 0);
    assert_eq!(in_maps(&agent), ["10.245.0.1:80"]);
    assert!(!is_holding(&agent));
}

/// The time and the reason of a source's last failure are known after it has recovered.
#[test]
fn the_last_failure_of_a_source_is_known() {
    let mut agent = agent(&["file"]);
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
    let failed = vec![Event::Failed("connection refused".into())];
    agent.note_failures(0, &failed, at);
    agent.handle(0, failed);
    agent.handle(0, of_source(0, ""));
    let view = agent.view().unwrap();
    assert_eq!(view.sources[0].status, "synced");
    let error = view.sources[0].last_error.as_ref().unwrap();
    assert_eq!(
        (error.reason.as_str(), error.at.as_str()),
        ("connection refused", "2027-01-15T08:00:00Z")
    );
}

/// An agent after the restart of one whose first of two sources had services.
fn restarted(more: &[&str]) -> Agent<MemoryMaps> {
    let mut before = agent(&["kubernetes", "kvstore"]);
    before.handle(0, of_source(0, ""));
    for (index, name) in more.iter().enumerate() {
        let ip = format!("10.96.9.{index}");
        let listed = golden::listed(&yaml(name, &ip, &[80], "10.244.9.1"));
        let upserts = listed
            .into_iter()
            .filter(|it| matches!(it, Event::Upsert(..)));
        before.handle(0, upserts.collect());
    }
    restart(&before, &["kubernetes", "kvstore"])
}

/// True if a frontend waits for a source.
fn is_holding(agent: &Agent<MemoryMaps>) -> bool {
    let view = agent.view().unwrap();
    view.frontends.iter().any(|it| !it.waits_for.is_empty())
}

fn restart(before: &Agent<MemoryMaps>, sources: &[&str]) -> Agent<MemoryMaps> {
    let maps = before.reconciler().maps().clone();
    let sources = sources.iter().map(|name| Arc::from(*name)).collect();
    Agent::new(Services::new(sources, Place::default()), maps).unwrap()
}

/// The backends that the maps lead to, of all frontends.
fn in_maps(agent: &Agent<MemoryMaps>) -> Vec<String> {
    let maps = agent.reconciler().maps();
    let slots = maps.services.values().flat_map(|entry| {
        let slots = maps.slots.iter();
        let own = slots
            .filter(|(key, _)| (key.service, key.generation) == (entry.service, entry.generation));
        own.map(|(_, slot)| maps.backends[&slot.first].to_string())
    });
    let mut found: Vec<String> = slots.collect();
    found.sort();
    found
}

/// A bad, empty or missing file leaves the last good services in force.
#[tokio::test]
async fn a_bad_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.yaml");
    fs::write(&path, yaml("web", "10.96.0.1", &[80], "10.244.1.1")).unwrap();
    let mut source = FileSource::new(path.clone(), no_settings);
    let mut agent = agent(&["file"]);
    let first = source.first().await.unwrap();
    agent.handle(FIRST, first.listing(&path).unwrap());
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
    let missing = FileSource::new(path.clone(), no_settings)
        .first()
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("node.yaml"), "{missing}");
    fs::write(&path, "").unwrap();
    let empty = FileSource::new(path, no_settings)
        .first()
        .await
        .unwrap_err();
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

/// The service of a source, whose backend names the source.
fn of_source(rank: usize, more: &str) -> Vec<ServiceEvent> {
    let yaml = yaml("web", "10.96.0.1", &[80], &format!("10.244.{rank}.1"));
    golden::listed(&format!("{yaml}{more}"))
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
    golden::listed(&yaml(name, ip, ports, backend))
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
