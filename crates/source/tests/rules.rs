//! One test for each rule that sources and claims follow (CFP-30235, phase 1).
//!
//! Each test is small, so that a rule that breaks has one name. `random.rs` covers their
//! combinations.

#![allow(clippy::unwrap_used, reason = "test code")]

use crowfly_source::Event::{Delete, Failed, Init, InitDone, Upsert};
use crowfly_source::{Event, Merged, Replaced, Status, Table};

const HIGH: usize = 0;
const LOW: usize = 1;

/// No claim has changed hands.
const NONE: [u32; 0] = [];

type Value = (&'static str, Vec<u32>);
type Claims = Merged<&'static str, Value, u32, fn(&Value) -> Vec<u32>>;

/// Two sources whose values are a text and the numbers that it claims.
fn merged() -> Claims {
    Merged::new(2, |(_, claims)| claims.clone())
}

fn holder(merged: &Claims, claim: u32) -> Option<(usize, &'static str, &'static str)> {
    let winner = merged.winner(&claim)?;
    Some((winner.source, *winner.key, winner.value.0))
}

fn keys(table: &Table<&'static str, u32>) -> Vec<&'static str> {
    table.iter().map(|(key, _)| *key).collect()
}

fn handle_all(
    table: &mut Table<&'static str, u32>,
    events: impl IntoIterator<Item = Event<&'static str, u32>>,
) {
    for event in events {
        table.handle(event);
    }
}

#[test]
fn a_value_that_a_listing_leaves_out_is_gone_when_the_listing_is_complete() {
    let mut table = Table::default();
    handle_all(&mut table, [Init, Upsert("a", 1), Upsert("b", 1), InitDone]);
    handle_all(&mut table, [Init, Upsert("b", 1), Upsert("c", 1)]);
    assert_eq!(keys(&table), ["a", "b", "c"]);
    let gone = table.handle(InitDone);
    assert_eq!(
        gone,
        [Replaced {
            key: "a",
            before: Some(1)
        }]
    );
    assert_eq!(keys(&table), ["b", "c"]);
}

#[test]
fn a_listing_that_begins_again_starts_over() {
    let mut table = Table::default();
    handle_all(
        &mut table,
        [Init, Upsert("a", 1), Init, Upsert("b", 1), InitDone],
    );
    assert_eq!(keys(&table), ["b"]);
}

#[test]
fn a_value_that_comes_after_the_listing_stays() {
    let mut table = Table::default();
    handle_all(&mut table, [Init, InitDone, Upsert("a", 1), InitDone]);
    assert_eq!(keys(&table), ["a"]);
}

#[test]
fn a_source_that_fails_keeps_its_last_state() {
    let mut table = Table::default();
    handle_all(&mut table, [Init, Upsert("a", 1), InitDone]);
    assert_eq!(table.handle(Failed("cut off".into())), []);
    assert_eq!(keys(&table), ["a"]);
    assert_eq!(*table.status(), Status::Failed("cut off".into()));
    assert!(table.has_synced());
}

/// A value is taken away only by a listing that is complete.
#[test]
fn a_listing_that_failed_concludes_nothing() {
    let mut table = Table::default();
    handle_all(
        &mut table,
        [
            Init,
            Upsert("a", 1),
            InitDone,
            Init,
            Failed("cut off".into()),
        ],
    );
    assert_eq!(table.handle(InitDone), []);
    assert_eq!(keys(&table), ["a"]);
}

#[test]
fn a_source_tells_how_far_it_is() {
    let mut table = Table::<&str, u32>::default();
    assert_eq!(*table.status(), Status::Silent);
    table.handle(Init);
    assert_eq!(*table.status(), Status::Listing);
    table.handle(InitDone);
    assert_eq!(*table.status(), Status::Synced);
}

#[test]
fn an_equal_value_is_no_change() {
    let mut table = Table::default();
    assert_eq!(
        table.handle(Upsert("a", 1)),
        [Replaced {
            key: "a",
            before: None
        }]
    );
    assert_eq!(table.handle(Upsert("a", 1)), []);
    assert_eq!(
        table.handle(Upsert("a", 2)),
        [Replaced {
            key: "a",
            before: Some(1)
        }]
    );
    assert_eq!(table.handle(Delete("b")), []);
}

#[test]
fn the_highest_source_wins_whoever_spoke_first() {
    for low_first in [true, false] {
        let mut merged = merged();
        let mut events = [
            (LOW, Upsert("a", ("low", vec![7]))),
            (HIGH, Upsert("z", ("high", vec![7]))),
        ];
        if !low_first {
            events.reverse();
        }
        for (source, event) in events {
            merged.handle(source, event);
        }
        assert_eq!(holder(&merged, 7), Some((HIGH, "z", "high")));
    }
}

#[test]
fn of_several_claimants_of_one_source_the_first_by_name_wins() {
    let mut merged = merged();
    assert_eq!(merged.handle(HIGH, Upsert("b", ("second", vec![7]))), [7]);
    assert_eq!(merged.handle(HIGH, Upsert("a", ("first", vec![7]))), [7]);
    assert_eq!(merged.handle(HIGH, Upsert("c", ("third", vec![7]))), NONE);
    assert_eq!(holder(&merged, 7), Some((HIGH, "a", "first")));
    let all: Vec<_> = merged.claimants(&7).map(|claimant| *claimant.key).collect();
    assert_eq!(all, ["a", "b", "c"]);
}

#[test]
fn a_value_that_is_shadowed_takes_over_when_the_winner_goes() {
    let mut merged = merged();
    merged.handle(HIGH, Upsert("a", ("high", vec![7])));
    assert_eq!(merged.handle(LOW, Upsert("b", ("low", vec![7]))), NONE);
    assert_eq!(merged.handle(LOW, Upsert("b", ("lower", vec![7]))), NONE);
    assert_eq!(merged.handle(HIGH, Delete("a")), [7]);
    assert_eq!(holder(&merged, 7), Some((LOW, "b", "lower")));
    assert_eq!(merged.handle(LOW, Delete("b")), [7]);
    assert_eq!(merged.claims().count(), 0);
}

#[test]
fn a_value_may_win_some_of_its_claims() {
    let mut merged = merged();
    merged.handle(HIGH, Upsert("a", ("high", vec![1, 2])));
    assert_eq!(merged.handle(LOW, Upsert("b", ("low", vec![3, 2, 3]))), [3]);
    assert_eq!(holder(&merged, 2), Some((HIGH, "a", "high")));
    assert_eq!(holder(&merged, 3), Some((LOW, "b", "low")));
    // What the winner no longer claims, the other has.
    assert_eq!(merged.handle(HIGH, Upsert("a", ("high", vec![1]))), [1, 2]);
    assert_eq!(holder(&merged, 2), Some((LOW, "b", "low")));
}

#[test]
fn a_value_that_claims_nothing_is_kept() {
    let mut merged = merged();
    assert_eq!(merged.handle(HIGH, Upsert("a", ("idle", vec![]))), NONE);
    assert_eq!(merged.values(HIGH).count(), 1);
}

#[test]
fn a_source_that_fails_keeps_its_claims() {
    let mut merged = merged();
    merged.handle(HIGH, Upsert("a", ("high", vec![7])));
    merged.handle(LOW, Upsert("b", ("low", vec![7])));
    assert_eq!(merged.handle(HIGH, Failed("cut off".into())), NONE);
    assert_eq!(holder(&merged, 7), Some((HIGH, "a", "high")));
    assert_eq!(*merged.status(HIGH), Status::Failed("cut off".into()));
    assert_eq!(*merged.status(LOW), Status::Silent);
}

#[test]
fn all_sources_have_synced_once_each_has_completed_a_listing() {
    let mut merged = merged();
    for event in [Init, InitDone, Failed("cut off".into())] {
        merged.handle(HIGH, event);
    }
    assert!(!merged.has_synced());
    merged.handle(LOW, Init);
    assert!(!merged.has_synced());
    merged.handle(LOW, InitDone);
    assert!(merged.has_synced());
}
