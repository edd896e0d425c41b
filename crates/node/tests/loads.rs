//! Load reports tell every connection once: over restarts, streams that break, and pairs that come
//! and go.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod loads_model;

use crowfly_names::{ClusterLoad, LocalityId};
use crowfly_node::loads::{Label, Ledger, forget_all};
use crowfly_node::maps::reports::{LabelId, MAX_LABEL, MemoryReports};
use crowfly_node::maps::{BackendId, Counters, Pair, ServiceId};
use crowfly_node::model::ReportedAs;

fn pair(number: u32) -> Pair {
    Pair {
        service: ServiceId(1),
        backend: BackendId(number),
    }
}

fn label(cluster: &str, zone: &str) -> Label {
    Label {
        cluster: ReportedAs {
            cluster: cluster.into(),
            eds_service: None,
        },
        locality: LocalityId::new("", zone, ""),
    }
}

fn counters(opened: u64, failed: u64, closed: u64) -> Counters {
    Counters {
        opened,
        established: opened - failed,
        failed,
        closed,
    }
}

/// `cluster zone: issued succeeded errors in_progress`, and the same of connections.
fn rows(loads: &[ClusterLoad]) -> Vec<String> {
    let rows = loads.iter().map(|load| {
        let at = &load.localities[0];
        assert_eq!(at.connections.opened, at.issued);
        assert_eq!(at.connections.failed, at.errors);
        assert_eq!(at.connections.active, at.in_progress);
        let (cluster, zone) = (&load.cluster, at.locality.zone());
        format!(
            "{cluster} {zone}: {} {} {} {}",
            at.issued, at.succeeded, at.errors, at.in_progress
        )
    });
    rows.collect()
}

/// N-70: connections of all backends in a locality are one figure; open ones are a gauge; a cluster without
/// load is left out.
#[test]
fn connections_are_told_by_cluster_and_locality() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    for (number, cluster, zone) in [(1, "web", "a"), (2, "web", "a"), (3, "web", "b")] {
        let label = label(cluster, zone);
        ledger.label(pair(number), Some(&label)).unwrap();
    }
    ledger.label(pair(4), None).unwrap();
    let counts = &mut ledger.maps_mut().counters;
    counts.insert(pair(1), counters(5, 1, 2));
    counts.insert(pair(2), counters(3, 0, 3));
    counts.insert(pair(4), counters(9, 9, 0));
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 8 5 1 2"]);
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 0 0 0 2"]);
    let counts = &mut ledger.maps_mut().counters;
    counts.insert(pair(1), counters(5, 1, 4));
    counts.insert(pair(3), counters(1, 1, 0));
    let told = rows(&ledger.take().unwrap());
    assert_eq!(told, ["web a: 0 2 0 0", "web b: 1 0 1 0"]);
    assert!(ledger.take().unwrap().is_empty());
}

/// N-71: an agent that was killed is followed by one that knows the names of services that went meanwhile.
#[test]
fn a_service_that_goes_while_the_agent_is_down_is_told() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    let mut maps = ledger.into_maps();
    maps.counters.insert(pair(1), counters(4, 0, 4));
    let mut ledger = Ledger::adopt(maps).unwrap();
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 4 4 0 0"]);
    assert!(!ledger.is_told(&pair(1), &counters(4, 0, 4)));
    ledger.sending().unwrap();
    assert!(!ledger.is_told(&pair(1), &counters(4, 0, 4)), "on its way");
    ledger.sent();
    assert!(ledger.is_told(&pair(1), &counters(4, 0, 4)));
    assert!(!ledger.is_told(&pair(1), &counters(5, 0, 4)));
    ledger.maps_mut().counters.clear();
    ledger.forget(&[pair(1)]).unwrap();
    let maps = ledger.into_maps();
    assert!(maps.reported.is_empty() && maps.labels.is_empty());
}

/// N-71: the first agent that reports does not tell the connections before its time. An agent that
/// does not report leaves nothing that a later one would tell.
#[test]
fn connections_before_reports_are_not_told() {
    let mut maps = MemoryReports::default();
    maps.counters.insert(pair(1), counters(100, 0, 90));
    let mut ledger = Ledger::adopt(maps).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 0 0 0 10"]);

    let mut maps = ledger.into_maps();
    forget_all(&mut maps).unwrap();
    maps.counters.insert(pair(1), counters(120, 0, 100));
    let mut ledger = Ledger::adopt(maps).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 0 0 0 20"]);
}

/// N-71: a backend that moves to another cluster or locality takes its old connections not along.
#[test]
fn a_new_label_counts_from_its_beginning() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    let counts = &mut ledger.maps_mut().counters;
    counts.insert(pair(1), counters(3, 0, 3));
    ledger.label(pair(1), Some(&label("web", "b"))).unwrap();
    let counts = &mut ledger.maps_mut().counters;
    counts.insert(pair(1), counters(5, 0, 5));
    let told = rows(&ledger.take().unwrap());
    assert_eq!(told, ["web a: 3 3 0 0", "web b: 2 2 0 0"]);
}

/// N-71: a report that cannot be stored is not sent, and nothing of it is lost.
#[test]
fn a_report_that_cannot_be_stored_is_put_off() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    let maps = ledger.maps_mut();
    maps.counters.insert(pair(1), counters(3, 0, 3));
    maps.is_broken = true;
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 3 3 0 0"]);
    let error = ledger.sending().unwrap_err();
    assert_eq!(error.to_string(), "the map `reported` is full");
    let mut maps = ledger.into_maps();
    assert_eq!(maps.reported[&pair(1)].opened, 0);
    assert_ne!(maps.reported[&pair(1)].label, LabelId::default());
    maps.is_broken = false;
    let mut ledger = Ledger::adopt(maps).unwrap();
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 3 3 0 0"]);
}

/// N-71: a pair that a full map has no room for waits alone, with its counts. Others are reported, and may be forgotten.
#[test]
fn a_full_map_puts_off_the_pairs_without_room_alone() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    ledger.maps_mut().is_full = true;
    let error = ledger.label(pair(2), Some(&label("web", "b"))).unwrap_err();
    assert_eq!(error.to_string(), "the map `reported` is full");
    for number in [1, 2] {
        let counters = counters(3, 0, 3);
        ledger.maps_mut().counters.insert(pair(number), counters);
    }
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 3 3 0 0"]);
    ledger.sending().unwrap();
    ledger.sent();
    assert!(ledger.is_told(&pair(1), &counters(3, 0, 3)));
    assert!(!ledger.is_told(&pair(2), &counters(3, 0, 3)));
    ledger.maps_mut().counters.remove(&pair(1));
    ledger.forget(&[pair(1)]).unwrap();
    ledger.maps_mut().is_full = false;
    assert_eq!(rows(&ledger.take().unwrap()), ["web b: 3 3 0 0"]);
    ledger.sending().unwrap();
    ledger.sent();
    assert!(ledger.is_told(&pair(2), &counters(3, 0, 3)));
    assert_eq!(rows(&ledger.take().unwrap()), Vec::<String>::new());
}

/// N-71: counters that were read before a pair got another label, or went and came back, are not counted for it.
#[test]
fn a_change_while_the_counters_are_read_is_told_once() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    for number in [1, 2] {
        ledger
            .label(pair(number), Some(&label("web", "a")))
            .unwrap();
        let counters = counters(3, 0, 3);
        ledger.maps_mut().counters.insert(pair(number), counters);
    }
    let read = ledger.begin_take()().unwrap();
    let counts = &mut ledger.maps_mut().counters;
    counts.insert(pair(1), counters(5, 0, 5));
    ledger.label(pair(1), Some(&label("web", "b"))).unwrap();
    ledger.maps_mut().counters.remove(&pair(2));
    ledger.forget(&[pair(2)]).unwrap();
    ledger.label(pair(2), Some(&label("api", ""))).unwrap();
    ledger.take_some(&read);
    assert_eq!(rows(&ledger.end_take()), ["web a: 5 5 0 0"]);
    let counts = &mut ledger.maps_mut().counters;
    counts.insert(pair(1), counters(6, 0, 6));
    counts.insert(pair(2), counters(1, 0, 1));
    let told = rows(&ledger.take().unwrap());
    assert_eq!(told, ["web b: 1 1 0 0", "api : 1 1 0 0"]);
}

/// N-71: a label that cannot be stored, or whose counters cannot be read, is in force all the same.
/// Each connection is told once, and waits until its label can be stored.
#[test]
fn a_label_is_in_force_though_the_maps_fail() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.maps_mut().is_broken = true;
    let error = ledger.label(pair(1), Some(&label("web", "a"))).unwrap_err();
    assert_eq!(error.to_string(), "the map `reported` is full");
    let maps = ledger.maps_mut();
    maps.counters.insert(pair(1), counters(3, 0, 3));
    assert_eq!(rows(&ledger.take().unwrap()), Vec::<String>::new());
    ledger.sending().unwrap();
    assert!(!ledger.is_told(&pair(1), &counters(3, 0, 3)), "not stored");
    ledger.maps_mut().is_broken = false;
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 3 3 0 0"]);
    ledger.sending().unwrap();
    ledger.sent();
    assert!(ledger.is_told(&pair(1), &counters(3, 0, 3)));

    let maps = ledger.maps_mut();
    maps.counters.insert(pair(1), counters(5, 0, 5));
    maps.is_unreadable = true;
    let error = ledger.label(pair(1), Some(&label("web", "b"))).unwrap_err();
    assert!(error.to_string().contains("stats"), "{error}");
    ledger.maps_mut().is_unreadable = false;
    assert_eq!(rows(&ledger.take().unwrap()), ["web b: 2 2 0 0"]);
    ledger.sending().unwrap();
    ledger.sent();
    let mut ledger = Ledger::adopt(ledger.into_maps()).unwrap();
    ledger
        .maps_mut()
        .counters
        .insert(pair(1), counters(6, 0, 5));
    assert_eq!(rows(&ledger.take().unwrap()), ["web b: 1 0 0 1"]);
}

/// N-71: a label that the map had no room for is lost with the agent. The connections that were not told yet are told
/// all the same, once the next agent has a label for them.
#[test]
fn a_lost_label_loses_no_connection_of_a_service_that_is_there() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    ledger.maps_mut().has_full_labels = true;
    let error = ledger.label(pair(2), Some(&label("web", "b"))).unwrap_err();
    assert_eq!(error.to_string(), "the map `labels` is full");
    let (told, later) = (counters(2, 0, 2), counters(7, 0, 7));
    for number in [1, 2] {
        ledger.maps_mut().counters.insert(pair(number), told);
    }
    let rows_told = rows(&ledger.take().unwrap());
    assert_eq!(rows_told, ["web a: 2 2 0 0", "web b: 2 2 0 0"]);
    ledger.sending().unwrap();
    ledger.sent();
    let mut maps = ledger.into_maps();
    for number in [1, 2] {
        maps.counters.insert(pair(number), later);
    }

    let mut ledger = Ledger::adopt(maps).unwrap();
    // The next agent looks before it knows the services.
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 5 5 0 0"]);
    assert!(
        ledger.is_told(&pair(2), &later),
        "nothing can be told of a pair that has no label any more"
    );
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    assert!(ledger.label(pair(2), Some(&label("web", "b"))).is_err());
    assert!(!ledger.is_told(&pair(2), &later));
    assert_eq!(rows(&ledger.take().unwrap()), ["web b: 5 5 0 0"]);
    ledger.sending().unwrap();
    ledger.sent();
    let mut ledger = Ledger::adopt(ledger.into_maps()).unwrap();
    assert!(ledger.label(pair(2), Some(&label("web", "b"))).is_err());
    assert_eq!(rows(&ledger.take().unwrap()), Vec::<String>::new());
}

/// N-71: names that are too long for the map are as good as lost, and the connections are told all the same.
#[test]
fn a_long_name_loses_no_connection_of_a_service_that_is_there() {
    let long = label(&"x".repeat(MAX_LABEL), "a");
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&long)).unwrap();
    let mut maps = ledger.into_maps();
    assert!(maps.labels.is_empty());
    maps.counters.insert(pair(1), counters(5, 0, 5));
    let mut ledger = Ledger::adopt(maps).unwrap();
    ledger.label(pair(1), Some(&long)).unwrap();
    let expected = format!("{} a: 5 5 0 0", long.cluster.cluster);
    assert_eq!(rows(&ledger.take().unwrap()), [expected]);
}

/// N-71: a label that the map had no room for is stored by the first take after there is room.
#[test]
fn a_label_is_stored_when_there_is_room() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&label("old", "a"))).unwrap();
    ledger.maps_mut().has_full_labels = true;
    for (number, zone) in [(2, "a"), (3, "b"), (4, "c")] {
        let label = label("web", zone);
        assert!(ledger.label(pair(number), Some(&label)).is_err());
    }
    // A label that goes is not stored any more.
    ledger.forget(&[pair(4)]).unwrap();
    ledger.take().unwrap();
    assert_eq!(ledger.maps().labels.len(), 1);
    ledger.maps_mut().has_full_labels = false;
    ledger.take().unwrap();
    let mut maps = ledger.into_maps();
    assert_eq!(maps.labels.len(), 3);
    maps.counters.insert(pair(2), counters(5, 0, 5));
    let mut ledger = Ledger::adopt(maps).unwrap();
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 5 5 0 0"]);
}

/// N-71: the first connection of a pair comes after the counters were read, and then its backend leaves. The pair stays
/// until it is told.
#[test]
fn a_first_connection_after_the_counters_were_read_is_told() {
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    ledger.label(pair(1), Some(&label("web", "a"))).unwrap();
    let late = counters(1, 0, 1);
    ledger.maps_mut().counters.insert(pair(1), late);
    ledger.forget(&[pair(1)]).unwrap();
    assert!(!ledger.is_told(&pair(1), &late));
    assert_eq!(rows(&ledger.take().unwrap()), ["web a: 1 1 0 0"]);
}
