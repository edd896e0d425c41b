//! The state of one source.
//!
//! Sources list again after each interruption. A reader that cleared its table at `Init` would take
//! everything away for a moment. So a value stays until the listing is complete without it.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::Event;

/// The values of one source, by key.
///
/// ```
/// use crowfly_source::{Event, Status, Table};
///
/// let mut table = Table::default();
/// table.handle(Event::Init);
/// table.handle(Event::Upsert("a", 1));
/// table.handle(Event::InitDone);
/// assert_eq!(*table.status(), Status::Synced);
///
/// // Cut off, it keeps what it has, until a listing without `a` is complete.
/// table.handle(Event::Failed("connection reset".into()));
/// table.handle(Event::Init);
/// assert_eq!(table.get(&"a"), Some(&1));
/// table.handle(Event::InitDone);
/// assert_eq!(table.get(&"a"), None);
/// ```
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    values: BTreeMap<K, Listed<V>>,
    status: Status,
    has_synced: bool,
    /// The number of listings that began.
    listing: u64,
}

#[derive(Clone, Debug)]
struct Listed<V> {
    value: V,
    /// The listing in which, or after which, the value was mentioned last.
    listing: u64,
}

/// The state that a source is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The source has not begun a listing.
    #[default]
    Silent,
    /// The source has begun a listing that is not complete.
    Listing,
    /// The listing of the source is complete, and changes are told as they happen.
    Synced,
    /// The source was cut off for this reason. Its last values are kept.
    Failed(Arc<str>),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("silent"),
            Self::Listing => f.write_str("listing"),
            Self::Synced => f.write_str("synced"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
        }
    }
}

/// A key whose value is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced<K, V> {
    /// The key. The table has its value now, if there is one.
    pub key: K,
    /// The value until now, if there was one.
    pub before: Option<V>,
}

impl<K: Clone + Ord, V: PartialEq> Table<K, V> {
    /// Takes an event, and returns the keys whose value it changed.
    ///
    /// `InitDone` without an `Init` before it concludes nothing, because there is no listing that a
    /// key could be missing from. That is so after `Failed` as well.
    pub fn handle(&mut self, event: Event<K, V>) -> Vec<Replaced<K, V>> {
        match event {
            Event::Init => {
                self.listing += 1;
                self.status = Status::Listing;
                Vec::new()
            }
            Event::Upsert(key, value) => Vec::from_iter(self.upsert(key, value)),
            Event::Delete(key) => {
                let before = self.values.remove(&key).map(|listed| listed.value);
                let before = before.map(Some);
                Vec::from_iter(before.map(|before| Replaced { key, before }))
            }
            Event::InitDone if self.status == Status::Listing => {
                self.status = Status::Synced;
                self.has_synced = true;
                self.drop_unlisted()
            }
            Event::InitDone => Vec::new(),
            Event::Failed(reason) => {
                self.status = Status::Failed(reason);
                Vec::new()
            }
        }
    }

    fn upsert(&mut self, key: K, value: V) -> Option<Replaced<K, V>> {
        let listing = self.listing;
        if let Some(known) = self.values.get_mut(&key) {
            known.listing = listing;
            if known.value == value {
                return None;
            }
            let before = Some(std::mem::replace(&mut known.value, value));
            return Some(Replaced { key, before });
        }
        self.values.insert(key.clone(), Listed { value, listing });
        Some(Replaced { key, before: None })
    }

    fn drop_unlisted(&mut self) -> Vec<Replaced<K, V>> {
        let unlisted = self.values.iter();
        let unlisted = unlisted.filter(|(_, listed)| listed.listing != self.listing);
        let unlisted: Vec<K> = unlisted.map(|(key, _)| key.clone()).collect();
        let mut dropped = Vec::new();
        for key in unlisted {
            let before = self.values.remove(&key).map(|listed| listed.value);
            dropped.push(Replaced { key, before });
        }
        dropped
    }
}

impl<K: Ord, V> Table<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.values.get(key).map(|listed| &listed.value)
    }
}

impl<K, V> Table<K, V> {
    /// Every key with its value, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let values = self.values.iter();
        values.map(|(key, listed)| (key, &listed.value))
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The state of the source.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// True once a listing was completed, even if the source has failed since.
    pub fn has_synced(&self) -> bool {
        self.has_synced
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            values: BTreeMap::new(),
            status: Status::default(),
            has_synced: false,
            listing: 0,
        }
    }
}
