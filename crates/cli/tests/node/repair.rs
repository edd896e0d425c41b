//! Another program changes maps and links: the agent finds it and repairs it.

use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::links::PinnedLink;

use crate::lab::{Lab, Probe};
use crate::web;

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
    probe.ask("serve-tcp 127.0.0.1:8080 a");
    let services = web("10.96.0.10", "", &["127.0.0.1:8080"]);
    let agent = lab.agent(&services, &["--compare-interval", "2s"]);
    let pins = lab.pins().join("v2");
    wait(&mut probe, "a=1");

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
