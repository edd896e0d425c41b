//! Random interleavings of three sources, compared with a naive reading of what they said.
//!
//! The oracle has another shape than the code, because the same shape could have the same mistake.
//! It keeps no index and no table. It replays all that a source ever said into a list, and looks
//! through all lists for each claim.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;

use crowfly_source::{Event, Merged};
use proptest::prelude::*;

const SOURCES: usize = 3;

/// A few keys and claims, so that they collide often.
type Key = u8;
type Value = (u8, Vec<u8>);
type Said = Event<Key, Value>;
type Claims = Merged<Key, Value, u8, fn(&Value) -> Vec<u8>>;
type Winners = BTreeMap<u8, (usize, Key, Value)>;

fn merged() -> Claims {
    Merged::new(SOURCES, |(_, claims)| claims.clone())
}

fn said() -> impl Strategy<Value = Said> {
    let value = (0..3u8, prop::collection::vec(0..6u8, 0..4));
    prop_oneof![
        10 => (0..5u8, value).prop_map(|(key, value)| Event::Upsert(key, value)),
        4 => (0..5u8).prop_map(Event::Delete),
        2 => Just(Event::Init),
        2 => Just(Event::InitDone),
        1 => Just(Event::Failed("cut off".into())),
    ]
}

fn script() -> impl Strategy<Value = Vec<(usize, Said)>> {
    prop::collection::vec((0..SOURCES, said()), 0..60)
}

/// The values that a source has after all it said: each with whether the listing named it.
fn final_state(all: impl IntoIterator<Item = Said>) -> Vec<(Key, Value)> {
    let mut list: Vec<(Key, Value, bool)> = Vec::new();
    let mut is_listing = false;
    for event in all {
        match event {
            Event::Init => {
                is_listing = true;
                for entry in &mut list {
                    entry.2 = false;
                }
            }
            Event::Upsert(key, value) => {
                list.retain(|entry| entry.0 != key);
                list.push((key, value, true));
            }
            Event::Delete(key) => list.retain(|entry| entry.0 != key),
            Event::InitDone => {
                if is_listing {
                    list.retain(|entry| entry.2);
                }
                is_listing = false;
            }
            Event::Failed(_) => is_listing = false,
        }
    }
    list.into_iter()
        .map(|(key, value, _)| (key, value))
        .collect()
}

fn expected(script: &[(usize, Said)]) -> Winners {
    let of_source = |source: usize| {
        let said = script.iter().filter(|(from, _)| *from == source);
        final_state(said.map(|(_, event)| event.clone()))
    };
    let states: Vec<_> = (0..SOURCES).map(of_source).collect();
    let winner = |claim: u8| {
        for (source, state) in states.iter().enumerate() {
            let claimants = state.iter().filter(|(_, value)| value.1.contains(&claim));
            if let Some((key, value)) = claimants.min_by_key(|(key, _)| *key) {
                return Some((claim, (source, *key, value.clone())));
            }
        }
        None
    };
    (0..6).filter_map(winner).collect()
}

fn winner(merged: &Claims, claim: u8) -> Option<(usize, Key, Value)> {
    let found = merged.winner(&claim)?;
    Some((found.source, *found.key, found.value.clone()))
}

fn winners(merged: &Claims) -> Winners {
    let claims = merged.claims();
    claims
        .map(|claim| (*claim, winner(merged, *claim).unwrap()))
        .collect()
}

/// All that claim a key, the winner first.
fn claimants(merged: &Claims, claim: u8) -> Vec<(usize, Key, Value)> {
    let all = merged.claimants(&claim);
    all.map(|it| (it.source, *it.key, it.value.clone()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// After each event the table is what a naive reading says. A reader that looks only at the
    /// claims that were returned has the same copy. A claim that was returned did change.
    #[test]
    fn the_table_is_what_the_sources_said(script in script()) {
        let mut merged = merged();
        let mut follower = Winners::new();
        for (step, (source, event)) in script.iter().enumerate() {
            for claim in merged.handle(*source, event.clone()) {
                let now = winner(&merged, claim);
                prop_assert_ne!(follower.get(&claim), now.as_ref(), "claim {} at {}", claim, step);
                match now {
                    Some(now) => follower.insert(claim, now),
                    None => follower.remove(&claim),
                };
            }
            let expected = expected(&script[..=step]);
            prop_assert_eq!(&winners(&merged), &expected, "at {}", step);
            prop_assert_eq!(&follower, &expected, "at {}", step);
        }
    }

    /// A reader of shadowed values is up to date by the effects of events alone. It reads the keys
    /// that were named, and all claimants of the claims that were named. A claim is named as
    /// shadowed only if its winner stayed.
    #[test]
    fn effects_name_all_that_changed(script in script()) {
        let mut merged = merged();
        let mut known: BTreeMap<u8, Vec<(usize, Key, Value)>> = BTreeMap::new();
        let mut values = vec![BTreeMap::<Key, Value>::new(); SOURCES];
        for (source, event) in script {
            let effect = merged.apply(source, event);
            for claim in effect.winners.union(&effect.shadowed) {
                let now = claimants(&merged, *claim);
                let before = known.insert(*claim, now.clone()).unwrap_or_default();
                prop_assert_ne!(&before, &now, "claim {}", claim);
                let is_winner = effect.winners.contains(claim);
                prop_assert_eq!(before.first() != now.first(), is_winner, "claim {}", claim);
            }
            for key in effect.keys {
                match merged.get(source, &key) {
                    Some(value) => values[source].insert(key, value.clone()),
                    None => values[source].remove(&key),
                };
            }
            for claim in 0..6 {
                let known = known.get(&claim).cloned().unwrap_or_default();
                prop_assert_eq!(known, claimants(&merged, claim), "claim {}", claim);
            }
            for (source, values) in values.iter().enumerate() {
                prop_assert!(merged.values(source).eq(values));
            }
        }
    }

    /// The order in which sources are heard does not matter, and neither does their past. A table
    /// that is told their final states at once is the same.
    #[test]
    fn any_interleaving_ends_in_the_table_of_the_final_states(script in script()) {
        let mut interleaved = merged();
        for (source, event) in &script {
            interleaved.handle(*source, event.clone());
        }
        let mut one_by_one = merged();
        let mut at_once = merged();
        for source in (0..SOURCES).rev() {
            let said = script.iter().filter(|(from, _)| *from == source);
            let said: Vec<Said> = said.map(|(_, event)| event.clone()).collect();
            for event in said.clone() {
                one_by_one.handle(source, event);
            }
            for (key, value) in final_state(said) {
                at_once.handle(source, Event::Upsert(key, value));
            }
        }
        prop_assert_eq!(winners(&interleaved), winners(&one_by_one));
        prop_assert_eq!(winners(&interleaved), winners(&at_once));
        for source in 0..SOURCES {
            prop_assert!(interleaved.values(source).eq(at_once.values(source)));
        }
    }
}
