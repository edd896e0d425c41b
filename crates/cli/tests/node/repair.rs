//! Another program changes maps, links and pins: the agent finds it and repairs it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::links::{FdLink, PinnedLink};
use crowfly_node::maps::ebpf::{Capacity, EbpfMaps, Settings};

use crate::lab::{Agent, Lab, Probe};
use crate::older;
use crate::web;

/// The agent of these tests, which compares every two seconds, and its only backend.
fn agent<'a>(lab: &'a Lab, probe: &mut Probe) -> Agent<'a> {
    probe.ask("serve-tcp 127.0.0.1:8080 a");
    let services = web("10.96.0.10", "", &["127.0.0.1:8080"]);
    let agent = lab.agent(&services, &["--compare-interval", "2s"]);
    wait(probe, "a=1");
    agent
}

/// Waits until the agent has logged a line, once.
fn wait_for_log(agent: &Agent<'_>, line: &str) {
    let begin = Instant::now();
    while agent.log().matches(line).count() != 1 {
        let log = agent.log();
        assert!(begin.elapsed() < Duration::from_secs(20), "{line}\n{log}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until connections to a frontend get this answer.
fn wait(probe: &mut Probe, answer: &str) {
    let begin = Instant::now();
    while probe.ask("tcp 10.96.0.10:80 1") != answer {
        assert!(begin.elapsed() < Duration::from_secs(20), "not {answer}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// N-83: an entry of a map is deleted, and then a link, with their pins. The agent routes again after its next comparison,
/// and says what it repaired.
#[test]
fn a_deleted_entry_and_a_deleted_link_are_repaired() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    let agent = agent(&lab, &mut probe);
    let pins = lab.pins().join("v2");

    let map = Map::HashMap(MapData::from_pin(pins.join("svc")).unwrap());
    let mut entries: HashMap<_, [u8; 20], [u8; 20]> = map.try_into().unwrap();
    let frontends: Vec<_> = entries.keys().collect::<Result<_, _>>().unwrap();
    entries.remove(&frontends[0]).unwrap();
    wait(&mut probe, "ENETUNREACH=1");
    wait(&mut probe, "a=1");
    let repaired =
        "10.96.0.10:80/TCP: 1 entries of the maps were missing or wrong, and are written again";
    assert_eq!(agent.log().matches(repaired).count(), 1, "{}", agent.log());

    let link = PinnedLink::from_pin(pins.join("links/crowfly_connect4")).unwrap();
    drop(link.unpin().unwrap());
    wait(&mut probe, "ENETUNREACH=1");
    wait(&mut probe, "a=1");
    let repaired = "the program crowfly_connect4 was not attached any more, and is again";
    assert_eq!(agent.log().matches(repaired).count(), 1, "{}", agent.log());
    assert!(pins.join("links/crowfly_connect4").exists());
}

/// N-83: another program replaces the programs of the links that are pinned, which keep their number and their cgroup. The agent
/// puts its own back after its next comparison.
#[test]
fn replaced_programs_are_put_back() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    let agent = agent(&lab, &mut probe);
    let ours = older::links(&lab);
    replace_programs(&lab);
    wait(&mut probe, "ENETUNREACH=1");
    wait(&mut probe, "a=1");
    for name in ours.keys() {
        let repaired = format!("the program {name} was not attached any more, and is again");
        wait_for_log(&agent, &repaired);
    }
    assert_eq!(older::links(&lab), ours, "links, programs and their tags");
}

/// Replaces the programs of all links by others, whose maps are empty: an agent that finds the links elsewhere does.
fn replace_programs(lab: &Lab) {
    let theirs = lab.pins().with_file_name("theirs");
    fs::create_dir_all(theirs.join("v2/links")).unwrap();
    for name in older::links(lab).keys() {
        let path = Path::new("v2/links").join(name);
        let link = PinnedLink::from_pin(lab.pins().join(&path)).unwrap();
        FdLink::from(link).pin(theirs.join(path)).unwrap();
    }
    let settings = Settings {
        cgroup: lab.cgroup().to_owned(),
        pins: theirs,
        capacity: Capacity::default(),
        ends_tcp: false,
    };
    drop(EbpfMaps::install(&settings).unwrap());
}

/// N-83: pins of maps are removed, and the agent pins them again after its next comparison. So the agent that follows
/// a killed one finds the entries, and no connection fails.
#[test]
fn removed_pins_of_maps_are_back() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    let first = agent(&lab, &mut probe);
    let pins = lab.pins().join("v2");
    for map in ["svc", "slots", "conn"] {
        fs::remove_file(pins.join(map)).unwrap();
    }
    // A pin of another map is as wrong as none.
    fs::remove_file(pins.join("backends")).unwrap();
    let other = MapData::from_pin(pins.join("members")).unwrap();
    other.pin(pins.join("backends")).unwrap();
    for map in ["svc", "slots", "conn", "backends"] {
        let repaired = format!("the map {map} was not pinned any more, and is again");
        wait_for_log(&first, &repaired);
    }
    probe.ask("storm 10.96.0.10:80");
    first.kill();
    let second = lab.adopt(&["--compare-interval", "2s"]);
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["a"], "{counts:?}\n{}", second.log());

    // Everything is removed, and with it the directory that the agent had locked.
    fs::remove_dir_all(lab.pins()).unwrap();
    wait_for_log(
        &second,
        "the program crowfly_sendmsg6 was not attached any more",
    );
    wait_for_log(&second, "the map routed was not pinned any more");
    wait(&mut probe, "a=1");
    let (config, other) = (lab.config(), lab.config().with_file_name("other.sock"));
    let (config, other) = (config.to_str().unwrap(), other.to_str().unwrap());
    let (ok, error) = lab.crowfly(&["--config", config, "--socket", other]);
    let refused = "another agent uses these pins";
    assert!(!ok && error.contains(refused), "{error}");
    probe.ask("storm 10.96.0.10:80");
    second.kill();
    let third = lab.adopt(&[]);
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["a"], "{counts:?}\n{}", third.log());
}
