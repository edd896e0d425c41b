//! Changes, crashes and restarts, under connections that never stop.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use crowfly_node::agent::Agent;
use crowfly_node::maps::ebpf::{Capacity, EbpfMaps, Settings};
use crowfly_node::model::Place;
use crowfly_node::services::Services;

use crate::lab::{Lab, counters};
use crate::{older, web};

const A: &str = "127.0.0.1:8080";
const B: &str = "127.0.0.2:8080";
const C: &str = "127.0.0.3:8080";

/// N-23, N-24, N-25, N-42: endpoints come and go without a failed connection. One that left gets no new connection, and
/// those that are open go on. A service that goes is routed no more.
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
        // All of them listen still, so a connection to one that left would succeed.
        let names = backends.iter().map(|backend| match *backend {
            A => "a",
            B => "b",
            _ => "c",
        });
        let names: Vec<_> = names.collect();
        let counts = probe.counts("tcp 10.96.0.10:80 20");
        let are_in = counts.iter().all(|(name, _)| names.contains(&&**name));
        assert!(are_in, "{names:?}: {counts:?}");
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

/// N-25: services that are deleted leave nothing in the kernel's maps. Counters go when the connections have ended. The maps
/// of affinity and of unconnected sockets are not looked at, because the kernel evicts their entries itself.
#[test]
fn deleted_services_leave_the_maps_of_the_kernel_empty() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    probe.ask(&format!("serve-tcp {B} b"));
    let sticky = web("10.96.0.10", "  session_affinity: ClientIP\n", &[A, B]);
    let plain = web("10.96.0.11", "", &[B, C]).replace("name: web", "name: plain");
    let both = format!("{sticky}{}", plain.trim_start_matches("services:\n"));
    let agent = lab.agent(&both, &["--end-tcp"]);
    probe.ask("hold 10.96.0.10:80 3");
    let used = ["backends", "members", "routed", "slots", "stats", "svc"];
    assert_eq!(not_empty(&lab), used);

    agent.apply("services: []\n");
    probe.kill();
    let begin = Instant::now();
    while not_empty(&lab) != ["stats"] {
        let left = not_empty(&lab);
        assert!(begin.elapsed() < Duration::from_secs(20), "{left:?}");
        sleep(Duration::from_millis(20));
    }
    agent.stop();
    // An agent looks at them once a minute, and forgets what it has found idle twice.
    let maps = EbpfMaps::install(&Settings {
        cgroup: lab.cgroup().to_owned(),
        pins: lab.pins(),
        capacity: Capacity::default(),
        ends_tcp: false,
    });
    let services = Services::new(Vec::new(), Place::default());
    let mut agent = Agent::new(services, maps.unwrap()).unwrap();
    agent.prune_counters().unwrap();
    agent.prune_counters().unwrap();
    assert_eq!(not_empty(&lab), [""; 0]);
}

/// The maps of the kernel that have entries.
fn not_empty(lab: &Lab) -> Vec<&'static str> {
    let entries = [
        ("backends", keys::<4, 20>(lab, "backends")),
        ("labels", keys::<4, 512>(lab, "labels")),
        ("members", keys::<8, 4>(lab, "members")),
        ("reported", keys::<8, 32>(lab, "reported")),
        ("routed", keys::<8, 28>(lab, "routed")),
        ("slots", keys::<12, 12>(lab, "slots")),
        ("stats", keys::<8, 32>(lab, "stats")),
        ("svc", keys::<20, 20>(lab, "svc")),
    ];
    let full = entries.into_iter().filter(|(_, entries)| *entries > 0);
    full.map(|(name, _)| name).collect()
}

/// The number of entries of a map with keys and values of these sizes.
fn keys<const KEY: usize, const VALUE: usize>(lab: &Lab, name: &str) -> usize {
    let map = MapData::from_pin(lab.pins().join("v2").join(name)).unwrap();
    let map: HashMap<_, [u8; KEY], [u8; VALUE]> = Map::HashMap(map).try_into().unwrap();
    map.keys().count()
}

/// N-64: an endpoint that drains gets no new connections while another one is healthy. Its open ones go on.
#[test]
fn a_draining_endpoint_keeps_its_connections() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    probe.ask(&format!("serve-tcp {B} b"));
    let agent = lab.agent(&web("10.96.0.10", "", &[A]), &["--end-tcp"]);
    probe.ask("hold 10.96.0.10:80 5");
    let both = web("10.96.0.10", "", &[A, B]);
    let drained = both.replacen(
        "ports: [{ port: 8080 }]",
        "ports: [{ port: 8080 }], health: draining",
        1,
    );
    assert_ne!(drained, both);
    agent.apply(&drained);
    assert_eq!(probe.ask("tcp 10.96.0.10:80 50"), "b=50");
    assert_eq!(probe.ask("use-held"), "ok");
    let (_, trace) = lab.crowfly(&["trace", "10.96.0.10:80"]);
    assert!(trace.contains("x  127.0.0.1:8080"), "{trace}");

    // The other one goes: a draining endpoint is better than none.
    let alone = web("10.96.0.10", "", &[A]);
    agent.apply(&alone.replace(
        "ports: [{ port: 8080 }]",
        "ports: [{ port: 8080 }], health: draining",
    ));
    assert_eq!(probe.ask("tcp 10.96.0.10:80 50"), "a=50");
    assert_eq!(probe.ask("use-held"), "ok");
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

/// N-77: programs of an older version route, and an agent is started under connections that never stop. It puts its
/// own programs on the links that are there. No connection fails, and each is counted once, whichever of them saw its
/// beginning and its end.
#[test]
fn an_upgrade_leaves_no_gap() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    let services = web("10.96.0.10", "", &[A]);
    lab.agent(&services, &[]).stop();
    let ours = older::links(&lab);
    let mut opened = 0;
    for _ in 0..5 {
        older::install(&lab);
        for map in older::LATER_MAPS {
            fs::remove_file(lab.pins().join("v2").join(map)).unwrap();
        }
        let theirs = older::links(&lab);
        for name in older::CHANGED {
            assert_ne!(theirs[name].tag, ours[name].tag, "{name}");
        }
        probe.ask("hold 10.96.0.10:80 3");
        probe.ask("storm 10.96.0.10:80");
        let agent = lab.agent(&services, &[]);
        for (name, now) in older::links(&lab) {
            let (then, ours) = (theirs[&name], ours[&name]);
            assert_eq!((now.id, now.tag), (then.id, ours.tag), "{name}");
            assert_ne!(now.program, then.program, "{name}");
        }
        let counts = probe.counts("calm");
        assert_eq!(counts.len(), 1, "{counts:?}");
        assert_eq!(counts[0].0, "a");
        assert!(counts[0].1 > 20, "{counts:?}");
        opened += counts[0].1 as u64 + 3;
        agent.wait(|view| counters(&view.frontends[0]) == (opened, 3, 0));
        assert_eq!(probe.ask("use-held"), "ok");
        probe.ask("let-go 3");
        agent.wait(|view| counters(&view.frontends[0]) == (opened, 0, 0));
        agent.stop();
    }
}

/// N-81: an agent does not start if the maps that it finds have another layout. It says what to do, and connections are
/// routed on. `clean` removes what the other version left, also what this one has no name for.
#[test]
fn maps_of_another_version_are_refused() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {A} a"));
    let services = web("10.96.0.10", "", &[A]);
    let (pins, config) = (lab.pins(), lab.config());
    let ours = pins.join("v2");
    let advice = "`crowfly node clean`, which ends routing until the agent runs again";

    // A map with keys and values of other sizes.
    lab.agent(&services, &[]).stop();
    let theirs = older::links(&lab);
    fs::rename(ours.join("members"), ours.join("labels")).unwrap();
    let (ok, error) = lab.crowfly(&["--config", config.to_str().unwrap()]);
    let found = "v2/labels: made by another version (keys of 8 bytes, values of 4)";
    assert!(!ok && error.contains(found), "{error}");
    assert!(error.contains("`crowfly node clean` removes it"), "{error}");
    assert_eq!(older::links(&lab), theirs);
    assert_eq!(probe.ask("tcp 10.96.0.10:80 9"), "a=9");
    let (ok, text) = lab.crowfly(&["clean"]);
    assert!(ok && !pins.exists(), "{text}");

    // Another layout as a whole, with a map and a program that this version does not have.
    lab.agent(&services, &[]).stop();
    let other = pins.join("v9");
    fs::rename(&ours, &other).unwrap();
    fs::rename(other.join("stats"), other.join("later")).unwrap();
    let links = other.join("links");
    fs::rename(links.join("crowfly_sendmsg6"), links.join("later")).unwrap();
    let (ok, error) = lab.crowfly(&["--config", config.to_str().unwrap()]);
    assert!(
        !ok && error.contains("v9: made by another version"),
        "{error}"
    );
    assert!(error.contains(advice), "{error}");
    assert!(!ours.exists());
    assert_eq!(probe.ask("tcp 10.96.0.10:80 9"), "a=9");
    let (ok, text) = lab.crowfly(&["clean"]);
    assert!(ok && text.contains(": 21 pins removed"), "{text}");
    assert!(!pins.exists());
    assert_eq!(probe.ask("tcp 10.96.0.10:80 1"), "ENETUNREACH=1");

    let _agent = lab.agent(&services, &[]);
    assert_eq!(probe.ask("tcp 10.96.0.10:80 9"), "a=9");
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
