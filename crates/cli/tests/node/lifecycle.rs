//! Changes, crashes and restarts, under connections that never stop.

use std::fs;

use crate::lab::{Lab, counters};
use crate::web;

const A: &str = "127.0.0.1:8080";
const B: &str = "127.0.0.2:8080";
const C: &str = "127.0.0.3:8080";

/// N-23, N-24, N-25, N-42: endpoints come and go without a failed connection; connections that are open
/// go on, even to endpoints that left; a service that goes is routed no more.
#[test]
fn endpoints_change_under_load() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    for (address, name) in [(A, "a"), (B, "b"), (C, "c")] {
        probe.ask(&format!("serve-tcp {address} {name}"));
    }
    let agent = lab.agent(&web("10.96.0.10", "", &[A]), &[]);
    probe.ask("hold 10.96.0.10:80 5");
    probe.ask("storm 10.96.0.10:80");
    for backends in [&[A, B][..], &[A, B, C], &[B, C], &[C], &[A, C], &[A]]
        .iter()
        .cycle()
        .take(18)
    {
        agent.apply(&web("10.96.0.10", "", backends));
    }
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "{counts:?}");
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    assert!(all > 200, "{counts:?}");
    assert_eq!(probe.ask("use-held"), "ok");

    agent.apply("services: []\n");
    assert_eq!(probe.ask("tcp 10.96.0.10:80 1"), "ENETUNREACH=1");
    assert_eq!(probe.ask("use-held"), "ok");
    agent.write("");
    let view = agent.wait(|view| view.sources[0].status.starts_with("failed"));
    assert!(
        view.sources[0].status.contains("got an empty file"),
        "{view:?}"
    );
    assert!(
        agent.log().contains("node.yaml: expected `services`"),
        "{}",
        agent.log()
    );
}

/// N-76: connections are routed while a killed agent is down; the next one adopts the maps, with their
/// counters, and prunes what was deleted meanwhile.
#[test]
fn a_killed_agent_is_not_missed() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    probe.ask(&format!("serve-tcp {B} b"));
    let two = web("10.96.0.10, 10.96.0.11", "", &[A, B]);
    let agent = lab.agent(&two, &[]);
    probe.ask("hold 10.96.0.10:80 10");
    probe.ask("storm 10.96.0.10:80");
    agent.kill();
    assert_eq!(probe.counts("tcp 10.96.0.11:80 50").len(), 2);
    let agent = lab.agent(&web("10.96.0.10", "", &[A, B]), &[]);
    let counts = probe.counts("calm");
    assert_eq!(counts.len(), 2, "{counts:?}");
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    // The counters of the first agent's time are there, and the open connections.
    let opened = all as u64 + 10;
    agent.wait(|view| counters(&view.frontends[0]) == (opened, 10, 0));
    assert_eq!(probe.ask("tcp 10.96.0.11:80 1"), "ENETUNREACH=1", "pruned");
    assert_eq!(probe.ask("use-held"), "ok");
    let pruned = "1 frontends are routed no more; 0 were changed or added";
    assert!(agent.log().contains(pruned), "{}", agent.log());
}

/// N-77: an agent is stopped and another one started, again and again, which replaces every program:
/// no connection fails.
#[test]
fn an_upgrade_leaves_no_gap() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    let services = web("10.96.0.10", "", &[A]);
    lab.agent(&services, &[]).stop();
    let first = programs(&lab);
    probe.ask("storm 10.96.0.10:80");
    for _ in 0..5 {
        lab.agent(&services, &[]).stop();
    }
    let counts = probe.counts("calm");
    assert_eq!(counts.len(), 1, "{counts:?}");
    assert_eq!(counts[0].0, "a");
    assert!(counts[0].1 > 100, "{counts:?}");
    assert_eq!(programs(&lab), first, "the links are the same ones");
}

/// The pins of the links, with their inodes.
fn programs(lab: &Lab) -> Vec<(String, u64)> {
    use std::os::unix::fs::MetadataExt;

    let links = fs::read_dir(lab.pins().join("v1/links")).unwrap();
    let links = links.map(|link| {
        let link = link.unwrap();
        (
            link.file_name().into_string().unwrap(),
            link.metadata().unwrap().ino(),
        )
    });
    let mut links: Vec<_> = links.collect();
    links.sort();
    assert_eq!(links.len(), 10);
    links
}

/// N-78: a service that the maps have no room for fails alone, and says so; it is routed when there is
/// room.
#[test]
fn a_full_map_fails_one_service_alone() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    for address in [A, B, C] {
        probe.ask(&format!("serve-tcp {address} {address}"));
    }
    let small = web("10.96.0.1", "", &[A, B]);
    let large = web("10.96.0.2", "", &[A, B, C]).replace("name: web", "name: large");
    let both = format!("{small}{}", large.replace("services:\n", ""));
    let agent = lab.agent(&both, &["--max-backends", "4"]);
    let view = agent.wait(|view| view.frontends.iter().any(|it| it.error.is_some()));
    let errors: Vec<_> = view
        .frontends
        .iter()
        .map(|it| it.error.as_deref())
        .collect();
    assert_eq!(errors, [None, Some("the map `slots` is full")]);
    assert!(
        agent
            .log()
            .contains("10.96.0.2:80/TCP: the map `slots` is full"),
        "{}",
        agent.log()
    );
    assert_eq!(probe.counts("tcp 10.96.0.1:80 50").len(), 2);
    assert_eq!(probe.ask("tcp 10.96.0.2:80 1"), "ENETUNREACH=1");

    agent.apply(&large);
    assert_eq!(probe.counts("tcp 10.96.0.2:80 60").len(), 3);
}
