//! Tests of the rules against an etcd in memory, in simulated time.
//!
//! A real etcd is not made to compact, to lie or to fall silent at a chosen moment.

mod world;

use proptest::prelude::*;

use super::*;
use crate::Status;
use crate::etcd::api::watch_event::EventType;
use crate::etcd::api::{KeyValue, RangeResponse, WatchResponse};
use world::{PREFIX, World, event, settings};

const INIT: News = News::Event(Event::Init);
const SECOND: Duration = Duration::from_secs(1);

/// A world whose store has these keys, at rest.
fn world(keys: &[&str]) -> World {
    let mut world = World::new(settings(), 1);
    for key in keys {
        world.store.set(key, Some("1"));
    }
    world.pass(Duration::ZERO);
    while world.answer() {}
    world
}

/// N-59: a listing is consistent, although keys change while its pages are read.
#[test]
fn pages_are_of_one_revision_and_the_watch_begins_behind_it() {
    let mut world = World::new(settings(), 1);
    for key in ["a/1", "a/2", "a/3", "a/4", "a/5", "b/1"] {
        world.store.set(key, Some("1"));
    }
    world.pass(Duration::ZERO);
    assert!(world.answer());
    assert_eq!(world.keys(), ["a/1", "a/2"]);
    world.store.set("a/5", None);
    world.store.set("a/1", Some("2"));
    while world.answer() {}
    assert_eq!(world.keys(), ["a/1", "a/2", "a/3", "a/4", "a/5"]);
    let (create, _) = world.watches.values().next().unwrap();
    assert_eq!(create.start_revision, 8);
    world.notify();
    assert_eq!(world.keys(), ["a/1", "a/2", "a/3", "a/4"]);
    assert_eq!(world.table.get(&b"a/1"[..]).unwrap(), "2");
}

/// N-58: a lost connection takes nothing away, and the watch goes on where it ended.
#[test]
fn a_watch_goes_on_where_it_ended() {
    let mut world = world(&["a/1", "a/2"]);
    world.lose();
    assert!(matches!(world.table.status(), Status::Failed(_)));
    world.store.set("a/1", None);
    world.store.set("a/3", Some("1"));
    assert_eq!(world.keys(), ["a/1", "a/2"]);
    world.pass(SECOND);
    world.notify();
    assert_eq!(world.keys(), ["a/2", "a/3"]);
    assert_eq!(world.count(&INIT), 1);
    assert_eq!(world.count(&News::Resumed), 1);
}

/// N-59: what a compaction hides is found by a listing, deletes included.
#[test]
fn compaction_lists_anew_with_deletes() {
    let mut world = world(&["a/1", "a/2"]);
    world.lose();
    world.store.set("a/1", None);
    world.store.set("a/3", Some("1"));
    world.store.compact();
    world.settle();
    assert_eq!(world.keys(), ["a/2", "a/3"]);
    assert_eq!(world.count(&INIT), 2);
}

/// N-59: a compaction between two pages begins the listing anew.
#[test]
fn compaction_during_a_listing_begins_it_anew() {
    let mut world = World::new(settings(), 1);
    for key in ["a/1", "a/2", "a/3"] {
        world.store.set(key, Some("1"));
    }
    world.pass(Duration::ZERO);
    assert!(world.answer());
    world.store.set("a/1", None);
    world.store.compact();
    world.settle();
    assert_eq!(world.keys(), ["a/2", "a/3"]);
    assert_eq!(world.count(&INIT), 2);
}

/// N-59: an idle prefix is told revisions, so that a compaction meanwhile costs nothing.
#[test]
fn progress_saves_a_listing_after_a_compaction() {
    let mut world = world(&["a/1"]);
    world.store.set("b/1", Some("1"));
    world.notify();
    world.store.compact();
    world.lose();
    world.settle();
    assert_eq!(world.count(&INIT), 1);
}

/// N-59: an etcd that was restored from a backup, or is another one, is listed.
#[test]
fn another_history_lists_anew() {
    for swap in [
        |world: &mut World| world.store.revision = 2,
        |world: &mut World| world.store.cluster_id = 8,
    ] {
        let mut world = world(&["a/1", "a/2"]);
        world.lose();
        swap(&mut world);
        world.settle();
        assert_eq!(world.count(&INIT), 2);
        assert_eq!(world.count(&News::Resumed), 0);
    }
}

/// N-59: half of a revision is not a revision that a watch could go on behind.
#[test]
fn fragments_are_one_revision() {
    let mut world = world(&["a/1"]);
    let (&id, _) = world.watches.first_key_value().unwrap();
    let fragment = WatchResponse {
        header: world.store.header(),
        watch_id: id,
        fragment: true,
        events: vec![event(EventType::Put, b"a/2", b"1", 9)],
        ..WatchResponse::default()
    };
    world.follower.watched(fragment.clone(), world.now);
    assert_eq!(world.follower.follows[&PREFIX].told, Some(2));
    let rest = WatchResponse {
        fragment: false,
        ..fragment
    };
    world.follower.watched(rest, world.now);
    assert_eq!(world.follower.follows[&PREFIX].told, Some(9));
}

/// N-59: a heartbeat that is not updated for its time means another member; updates keep the connection.
#[test]
fn a_missed_heartbeat_moves_to_another_member() {
    let heartbeat = Heartbeat {
        key: "hb".into(),
        patience: 120 * SECOND,
    };
    let settings = Settings {
        members: 2,
        heartbeat: Some(heartbeat),
        ..settings()
    };
    let mut world = World::new(settings, 1);
    world.pass(Duration::ZERO);
    while world.answer() {}
    let beat = |world: &mut World| {
        let (&id, _) = world.watches.first_key_value().unwrap();
        let beat = WatchResponse {
            watch_id: id,
            events: vec![event(EventType::Put, b"hb", b"", 5)],
            ..WatchResponse::default()
        };
        world.follower.watched(beat, world.now);
    };
    for _ in 0..10 {
        world.pass(60 * SECOND);
        beat(&mut world);
    }
    assert_eq!(world.connects.len(), 1);
    // Other keys are no heartbeat.
    world.pass(110 * SECOND);
    world.store.set("a/1", Some("1"));
    world.notify();
    world.pass(9 * SECOND);
    assert_eq!(world.connects.len(), 1);
    world.pass(SECOND);
    assert_eq!(world.connects.len(), 2);
    assert_ne!(world.connects[0].0, world.connects[1].0);
    assert!(world.told.contains(&News::Resumed), "{:?}", world.told);
    assert!(world.last_failure().contains("no update of hb for 120s"));
    assert_eq!(world.keys(), ["a/1"]);
}

/// N-58: all members are tried at once, then waits grow, and the failure is told once.
#[test]
fn unreachable_members_are_tried_in_turn_with_growing_waits() {
    let settings = Settings {
        members: 3,
        ..settings()
    };
    let mut world = World::new(settings, 1);
    world.is_reachable = false;
    world.pass(600 * SECOND);
    let (members, times): (Vec<_>, Vec<_>) = world.connects.iter().copied().unzip();
    for round in times.chunks_exact(3) {
        assert_eq!(round[0], round[2]);
    }
    for (one, next) in members.iter().zip(&members[1..]) {
        assert_eq!((one + 1) % 3, *next);
    }
    let rounds = times.chunks_exact(3).count();
    assert!((20..60).contains(&rounds), "{rounds} rounds in ten minutes");
    assert_eq!(world.told.len(), 1, "{:?}", world.told);
    world.is_reachable = true;
    world.settle();
}

/// N-59: an etcd that takes connections and drops them is not connected to without a wait.
#[test]
fn connections_that_do_not_last_are_waited_for() {
    let mut world = world(&["a/1"]);
    for _ in 0..100 {
        world.lose();
        let deadline = world.follower.deadline().unwrap();
        assert!(deadline > world.now);
        world.pass(deadline - world.now);
    }
    world.lose();
    let wait = world.follower.deadline().unwrap() - world.now;
    assert!(wait >= 15 * SECOND, "{wait:?}");
}

/// N-59: pages that are too large are asked for in smaller ones; one value that is too large is named.
#[test]
fn pages_shrink_until_they_fit() {
    let mut world = World::new(settings(), 1);
    world.store.set("a/1", Some("1"));
    world.pass(Duration::ZERO);
    let (ticket, request) = world.pages.pop_front().unwrap();
    assert_eq!(request.limit, 2);
    world
        .follower
        .listed(ticket, Err(RangeFailure::TooLarge), world.now);
    world.perform();
    let (ticket, request) = world.pages.pop_front().unwrap();
    assert_eq!(request.limit, 1);
    world
        .follower
        .listed(ticket, Err(RangeFailure::TooLarge), world.now);
    world.perform();
    assert!(world.pages.is_empty());
    assert!(world.last_failure().contains("\"a/\" has more than"));
    world.settle();
    assert_eq!(world.keys(), ["a/1"]);
}

/// N-59: answers that no etcd gives fail their prefix, name the reason, and end no listing.
#[test]
fn lies_about_listings_are_refused() {
    let pair = |key: &str| KeyValue {
        key: key.to_owned().into(),
        ..KeyValue::default()
    };
    let page = |keys: &[&str], more| RangeResponse {
        kvs: keys.iter().map(|key| pair(key)).collect(),
        more,
        header: None,
    };
    for (lie, reason) in [
        (page(&["a/1"], false), "without a revision"),
        (page(&[], true), "an empty page"),
        (page(&["a/2", "a/1"], false), "\"a/1\" out of its place"),
        (page(&["a/2", "a/2"], false), "\"a/2\" out of its place"),
        (page(&["b/1"], false), "\"b/1\" out of its place"),
        (
            page(&["a/1", "a/2", "a/3", "a/4"], true),
            "more than 3 keys",
        ),
    ] {
        let mut settings = settings();
        settings.limits.keys = 3;
        let mut world = World::new(settings, 1);
        world.store.set("a/9", Some("1"));
        world.pass(Duration::ZERO);
        let (ticket, _) = world.pages.pop_front().unwrap();
        let mut lie = lie;
        if reason != "without a revision" {
            lie.header = world.store.header();
        }
        world.follower.listed(ticket, Ok(lie), world.now);
        world.perform();
        assert!(
            world.last_failure().contains(reason),
            "{reason}: {:?}",
            world.told
        );
        assert!(world.table.is_empty());
        world.settle();
        assert_eq!(world.keys(), ["a/9"]);
    }
}

/// N-59: events from before the listing, or of other prefixes, are not told. A revision that is a lie
/// does not silence the ones behind it.
#[test]
fn lies_about_revisions_do_not_silence_a_watch() {
    let mut world = world(&["a/1"]);
    let (&id, _) = world.watches.first_key_value().unwrap();
    let tell = |world: &mut World, events: Vec<_>| {
        let response = WatchResponse {
            header: world.store.header(),
            watch_id: id,
            events,
            ..WatchResponse::default()
        };
        world.follower.watched(response, world.now);
        world.perform();
    };
    tell(
        &mut world,
        vec![
            event(EventType::Delete, b"a/1", b"", 1),
            event(EventType::Put, b"b/1", b"", 3),
            event(EventType::Put, b"a/2", b"", i64::MAX),
        ],
    );
    assert_eq!(world.keys(), ["a/1", "a/2"]);
    tell(&mut world, vec![event(EventType::Put, b"a/3", b"", 4)]);
    assert_eq!(world.keys(), ["a/1", "a/2", "a/3"]);
    // A watch cannot go on behind the last revision of all: the store is listed.
    world.lose();
    world.settle();
    assert_eq!(world.keys(), ["a/1"]);
}

/// A watch grows no further than a listing may be. The last keys stay, and the reader is told. When
/// there is less, the prefix is listed again.
#[test]
fn a_watch_has_the_limits_of_a_listing() {
    for (limit, expected) in [
        (
            (|limits: &mut Limits| limits.keys = 3) as fn(&mut Limits),
            "a/: more than 3 keys",
        ),
        (
            |limits| limits.bytes = 3 * 4,
            "a/: keys and values of more than 12 bytes",
        ),
    ] {
        let mut settings = settings();
        limit(&mut settings.limits);
        let mut world = World::new(settings, 1);
        world.store.set("a/1", Some("x"));
        world.settle();
        // What is replaced or deleted takes no room.
        for (key, value) in [
            ("a/2", Some("x")),
            ("a/2", Some("y")),
            ("a/3", Some("x")),
            ("a/2", None),
            ("a/4", Some("x")),
        ] {
            world.store.set(key, value);
            world.settle();
        }
        assert_eq!(world.keys(), ["a/1", "a/3", "a/4"]);
        assert_eq!(world.watches.len(), 1);

        world.store.set("a/5", Some("x"));
        world.notify();
        assert!(world.last_failure().contains(expected), "{:?}", world.told);
        assert_eq!(world.keys(), ["a/1", "a/3", "a/4"]);
        world.store.set("a/1", None);
        world.pass(Duration::from_secs(600));
        world.settle();
        assert_eq!(world.keys(), ["a/3", "a/4", "a/5"]);
    }
}

/// A prefix may be left before etcd has said that it is watched. The late answer is no reason to connect anew.
#[test]
fn an_answer_to_a_watch_that_was_cancelled_is_ignored() {
    let mut world = world(&["a/1"]);
    let (&id, _) = world.watches.first_key_value().unwrap();
    let created = |watch_id| WatchResponse {
        watch_id,
        created: true,
        ..WatchResponse::default()
    };
    world.follower.unfollow(&PREFIX);
    world.perform();
    world.follower.watched(created(id), world.now);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.connects.len(), 1, "the connection is kept");

    // An etcd that gives a number of its own is too old.
    world.follower.watched(created(0), world.now);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.connects.len(), 2);
}

/// N-59: an etcd that says "compacted" without end is asked less and less often.
#[test]
fn endless_compactions_are_paced() {
    let mut world = world(&["a/1"]);
    let begin = world.now;
    for _ in 0..50 {
        if let Some((&id, _)) = world.watches.first_key_value() {
            let compacted = WatchResponse {
                watch_id: id,
                canceled: true,
                compact_revision: 1,
                ..WatchResponse::default()
            };
            world.watches.clear();
            world.follower.watched(compacted, world.now);
            world.perform();
        }
        for _ in 0..400 {
            if world.pages.is_empty() {
                world.pass(SECOND / 10);
            }
        }
        assert!(!world.pages.is_empty(), "it is listed again");
        while world.answer() {}
    }
    assert!(world.now - begin > 500 * SECOND);
}

/// N-59: an etcd that refuses one prefix may tell others, and a refused prefix is tried again.
#[test]
fn a_refused_prefix_is_refused_alone() {
    let mut world = world(&["a/1"]);
    world.follower.follow("secret/".into());
    world.perform();
    let (ticket, request) = world.pages.pop_front().unwrap();
    assert_eq!(request.key, "secret/");
    assert_eq!(request.range_end, "secret0");
    let refused = RangeFailure::Refused("permission denied".into());
    world.follower.listed(ticket, Err(refused), world.now);
    world.perform();
    assert_eq!(world.last_failure(), "secret/: permission denied");
    world.store.set("a/2", Some("1"));
    world.notify();
    assert_eq!(world.keys(), ["a/1", "a/2"]);
    world.pass(SECOND);
    assert_eq!(world.pages.len(), 1);
}

#[test]
fn a_prefix_that_is_left_is_silent() {
    let mut world = world(&["a/1"]);
    let told = world.told.len();
    world.store.set("a/2", Some("1"));
    let watch = *world.watches.first_key_value().unwrap().0;
    world.follower.unfollow(&PREFIX);
    let late = WatchResponse {
        watch_id: watch,
        events: vec![event(EventType::Put, b"a/2", b"", 3)],
        ..WatchResponse::default()
    };
    world.follower.watched(late, world.now);
    world.perform();
    assert_eq!(world.told.len(), told);
    assert!(world.watches.is_empty());
}

#[test]
fn the_end_of_a_prefix() {
    assert_eq!(end_of(b"a/"), "a0");
    assert_eq!(end_of(&[b'a', 0xff, 0xff]), "b");
    assert_eq!(end_of(&[0xff]), &[0][..]);
    assert_eq!(end_of(b""), &[0][..]);
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u8),
    Delete(u8),
    Compact,
    Lose,
    Answer,
    Notify,
    Pass(u16),
    Reachable(bool),
    Backup,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8u8, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        3 => (0..8u8).prop_map(Step::Delete),
        1 => Just(Step::Compact),
        2 => Just(Step::Lose),
        6 => Just(Step::Answer),
        4 => Just(Step::Notify),
        4 => (0..5000u16).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Reachable),
        1 => Just(Step::Backup),
    ]
}

proptest! {
    /// N-58, N-59: after any sequence of events the reader has the values of the store.
    #[test]
    fn the_reader_ends_with_the_state_of_the_store(
        seed: u64,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut world = World::new(settings(), seed);
        let mut backup = world.store.clone();
        world.pass(Duration::ZERO);
        for step in steps {
            match step {
                Step::Set(key, value) => {
                    world.store.set(&format!("a/{key}"), Some(&value.to_string()));
                }
                Step::Delete(key) => world.store.set(&format!("a/{key}"), None),
                Step::Compact => world.store.compact(),
                Step::Lose => world.lose(),
                Step::Answer => drop(world.answer()),
                Step::Notify => world.notify(),
                Step::Pass(milliseconds) => {
                    world.pass(Duration::from_millis(milliseconds.into()));
                }
                Step::Reachable(is_reachable) => world.is_reachable = is_reachable,
                Step::Backup => {
                    // A restored etcd is a new cluster, and its members were down.
                    world.lose();
                    let id = world.store.cluster_id + 1;
                    std::mem::swap(&mut world.store, &mut backup);
                    world.store.cluster_id = id;
                }
            }
        }
        world.is_reachable = true;
        world.settle();
        let expected = world.store.state(&PREFIX, world.store.revision);
        let found = world.table.iter().map(|(key, value)| (key.clone(), value.clone()));
        prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
    }
}
