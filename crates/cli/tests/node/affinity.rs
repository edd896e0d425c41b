//! Session affinity: a client is a network namespace.

use std::thread::sleep;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};

use crate::lab::{Lab, Probe};
use crate::web;

const BACKENDS: [&str; 4] = [
    "127.0.0.1:8080",
    "127.0.0.2:8080",
    "127.0.0.3:8080",
    "127.0.0.4:8080",
];

fn sticky(seconds: u32, backends: &[&str]) -> String {
    let more =
        format!("  session_affinity: ClientIP\n  session_affinity_timeout_seconds: {seconds}\n");
    web("10.96.0.10", &more, backends)
}

fn with_servers(lab: &Lab) -> Probe {
    let mut probe = lab.probe();
    for address in BACKENDS {
        probe.ask(&format!("serve-tcp {address} {address}"));
    }
    probe
}

/// The map of clients, with the nanoseconds of the last use of each, and the number of its backend.
type Entries = HashMap<MapData, [u8; 16], [u64; 2]>;

fn entries(lab: &Lab) -> Entries {
    let pin = lab.pins().join("v2/affinity");
    let map = Map::LruHashMap(MapData::from_pin(pin).unwrap());
    map.try_into().unwrap()
}

fn only_entry(entries: &Entries) -> ([u8; 16], [u64; 2]) {
    let all: Vec<_> = entries.iter().collect::<Result<_, _>>().unwrap();
    let [only] = all[..] else { panic!("{all:?}") };
    only
}

/// N-44, N-48, N-49: a client stays with its backend; it gets another one when that leaves; affinity can be switched on
/// and off.
#[test]
fn a_client_stays_with_its_backend() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = with_servers(&lab);
    let agent = lab.agent(&sticky(600, &BACKENDS), &[]);
    let mut first = probe.counts("tcp 10.96.0.10:80 50");
    assert_eq!(first.len(), 1, "{first:?}");

    // Its backend leaves: another one, without an error.
    let (mine, _) = first.remove(0);
    let others: Vec<_> = BACKENDS.into_iter().filter(|it| *it != mine).collect();
    agent.apply(&sticky(600, &others));
    let second = probe.counts("tcp 10.96.0.10:80 50");
    assert_eq!(second.len(), 1, "{second:?}");
    assert!(others.contains(&second[0].0.as_str()), "{second:?}");

    // It comes back: the client stays where it is.
    agent.apply(&sticky(600, &BACKENDS));
    assert_eq!(probe.counts("tcp 10.96.0.10:80 50"), second);

    agent.apply(&web("10.96.0.10", "", &BACKENDS));
    assert!(probe.counts("tcp 10.96.0.10:80 50").len() > 1);
    agent.apply(&sticky(600, &BACKENDS));
    assert_eq!(probe.counts("tcp 10.96.0.10:80 50").len(), 1);
}

/// N-46, N-47: a client that was away for the timeout is free again; each connection begins it anew.
#[test]
fn affinity_ends_after_a_pause() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = with_servers(&lab);
    let _agent = lab.agent(&sticky(3, &BACKENDS), &[]);
    let first = (0..10).find_map(|_| stays_longer_than_the_timeout(&mut probe, &lab));
    let first = first.expect("ten times, the machine stood still for most of the timeout");
    // Away for longer. By chance it may return to the same one, so it is tried a few times.
    let mut moved = false;
    for _ in 0..10 {
        sleep(Duration::from_millis(3100));
        moved |= probe.ask("tcp 10.96.0.10:80 1") != first;
        if moved {
            break;
        }
    }
    assert!(moved, "ten times {first}");
}

/// Connects for longer than the timeout of 3 s in all, and never pauses that long. The backend stays the same, and each
/// connection is in the map as the last one: by chance alone, the same backend would come once in four runs.
/// `None` if the machine was too busy for that: then a pause was too long, and nothing is shown.
fn stays_longer_than_the_timeout(probe: &mut Probe, lab: &Lab) -> Option<String> {
    let mut last = Instant::now();
    let first = probe.ask("tcp 10.96.0.10:80 1");
    let (_, mut used) = only_entry(&entries(lab));
    for _ in 0..7 {
        sleep(Duration::from_millis(600));
        let begin = Instant::now();
        let answer = probe.ask("tcp 10.96.0.10:80 1");
        let (_, now) = only_entry(&entries(lab));
        assert!(now[0] >= used[0] + 600_000_000, "{used:?} {now:?}");
        used = now;
        if last.elapsed() > Duration::from_millis(2500) {
            return None;
        }
        assert_eq!(answer, first);
        last = begin;
    }
    Some(first)
}

/// N-44: two processors connect for one client at once, so that one finds the entry of the other, which is later than its
/// own time. The client stays with its backend.
#[test]
fn an_entry_that_is_later_than_now_counts() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = with_servers(&lab);
    let _agent = lab.agent(&sticky(600, &BACKENDS), &[]);
    let first = probe.ask("tcp 10.96.0.10:80 1");
    let mut entries = entries(&lab);
    // By chance it may return to the same one, so it is tried a few times.
    for _ in 0..10 {
        let (client, [used, backend]) = only_entry(&entries);
        let later = used + Duration::from_secs(1).as_nanos() as u64;
        entries.insert(client, [later, backend], 0).unwrap();
        assert_eq!(probe.ask("tcp 10.96.0.10:80 1"), first);
    }
}

/// N-45: two network namespaces are two clients: each stays with a backend of its own.
#[test]
fn each_client_has_an_affinity_of_its_own() {
    let Some(lab) = Lab::new() else { return };
    let [mut one, mut other] = [with_servers(&lab), with_servers(&lab)];
    let services = (0..8).map(|number| {
        sticky(600, &BACKENDS)
            .replace("services:\n", "")
            .replace("name: web", &format!("name: web{number}"))
            .replace("10.96.0.10", &format!("10.96.1.{number}"))
    });
    let _agent = lab.agent(&format!("services:\n{}", services.collect::<String>()), &[]);
    let mut differ = 0;
    for number in 0..8 {
        let command = format!("tcp 10.96.1.{number}:80 10");
        let (a, b) = (one.counts(&command), other.counts(&command));
        assert_eq!((a.len(), b.len()), (1, 1), "{a:?} {b:?}");
        assert_eq!(
            (one.counts(&command), other.counts(&command)),
            (a.clone(), b.clone())
        );
        differ += usize::from(a != b);
    }
    // All eight agree by chance once in 65,536 runs.
    assert!(differ > 0);
}

/// N-50: each port has an affinity of its own.
#[test]
fn ports_do_not_share_affinity() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = with_servers(&lab);
    let services = (0..8).map(|number| {
        sticky(600, &BACKENDS)
            .replace("services:\n", "")
            .replace("name: web", &format!("name: web{number}"))
            .replace("10.96.0.10", &format!("10.96.1.{number}"))
            .replace(
                "ports: [{ port: 80 }]\n",
                "ports: [{ name: a, port: 80 }, { name: b, port: 81 }]\n",
            )
            .replace(
                "ports: [{ port: 8080 }]",
                "ports: [{ name: a, port: 8080 }, { name: b, port: 8080 }]",
            )
    });
    let _agent = lab.agent(&format!("services:\n{}", services.collect::<String>()), &[]);
    let mut differ = 0;
    for number in 0..8 {
        let a = probe.counts(&format!("tcp 10.96.1.{number}:80 10"));
        let b = probe.counts(&format!("tcp 10.96.1.{number}:81 10"));
        assert_eq!((a.len(), b.len()), (1, 1));
        differ += usize::from(a != b);
    }
    // All eight agree by chance once in 65,536 runs.
    assert!(differ > 0);
}
