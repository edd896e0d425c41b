//! The counts that are not reported yet.
//!
//! They are kept apart from the stream, because a report that no connection took must be in the next stream's
//! first report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crowfly_names::{
    ClusterLoad, ClusterName, ConnectionLoad, LocalityId, LocalityLoad, MetricTotals,
};

/// A cluster and the name of its endpoints, as the cluster gives it.
pub(super) type ClusterKey = (ClusterName, Option<Arc<str>>);

/// The counts of every cluster that no connection has taken.
#[derive(Debug, Default)]
pub(super) struct Books {
    clusters: BTreeMap<ClusterKey, Book>,
    /// The last time that counts were added.
    collected: Option<Instant>,
}

/// The counts of one cluster since a time.
#[derive(Debug)]
pub(super) struct Book {
    /// The end of the last report of the cluster, or the time at which it was first seen.
    pub(super) since: Instant,
    pub(super) counts: Counts,
    /// False if the source does not know the cluster any more.
    is_live: bool,
}

/// The load of one cluster.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) drops: BTreeMap<Arc<str>, u64>,
    pub(super) uncategorized_drops: u64,
    pub(super) localities: BTreeMap<LocalityId, LocalityLoad>,
}

/// One report: the clusters that it lists.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) clusters: BTreeMap<ClusterKey, Book>,
}

impl Books {
    /// Adds counts, and takes over how many calls are in progress and how many connections are open now.
    pub(super) fn collect(&mut self, loads: Vec<ClusterLoad>, now: Instant) {
        for book in self.clusters.values_mut() {
            book.is_live = false;
            let localities = book.counts.localities.values_mut();
            localities.for_each(clear_gauges);
        }
        let before = self.collected.replace(now).unwrap_or(now);
        for load in loads {
            let since = if load.is_sparse { before } else { now };
            let key = (load.cluster.clone(), load.eds_service_name.clone());
            let book = self.clusters.entry(key).or_insert_with(|| Book::new(since));
            book.is_live = true;
            book.counts.add(load);
        }
        self.clusters
            .retain(|_, book| book.is_live || !book.counts.is_zero());
    }

    /// Takes a report of the clusters that the server asks for. The counts of all other clusters are dropped,
    /// because the server may ask for them later. It would then take old counts for those of the last interval.
    pub(super) fn report(&mut self, is_asked: impl Fn(&str) -> bool, now: Instant) -> Report {
        let mut clusters = BTreeMap::new();
        for (key, book) in &mut self.clusters {
            let fresh = Book {
                is_live: book.is_live,
                ..Book::new(now)
            };
            let taken = std::mem::replace(book, fresh);
            if is_asked(key.0.as_str()) {
                clusters.insert(key.clone(), taken);
            }
        }
        Report { clusters }
    }

    /// Takes a report back that no connection has taken. How many calls are in progress is asked for again.
    pub(super) fn put_back(&mut self, report: Report) {
        for (key, mut returned) in report.clusters {
            match self.clusters.get_mut(&key) {
                Some(book) => {
                    book.since = book.since.min(returned.since);
                    book.counts.add_counts(returned.counts);
                }
                None => {
                    returned.is_live = false;
                    self.clusters.insert(key, returned);
                }
            }
        }
    }

    /// Returns whether there is something to report beside zeros.
    pub(super) fn has_counts(&self) -> bool {
        self.clusters.values().any(|book| !book.counts.is_zero())
    }

    /// Drops all counts, and returns the number of attempts that began in them.
    pub(super) fn clear(&mut self) -> u64 {
        let clusters = std::mem::take(&mut self.clusters);
        clusters.values().map(|book| book.counts.calls()).sum()
    }
}

impl Book {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            counts: Counts::default(),
            is_live: true,
        }
    }
}

impl Counts {
    fn add(&mut self, load: ClusterLoad) {
        self.uncategorized_drops += load.uncategorized_drops;
        for (category, count) in load.drops {
            *self.drops.entry(category).or_default() += count;
        }
        for locality in load.localities {
            self.add_locality(locality);
        }
    }

    fn add_counts(&mut self, other: Self) {
        self.uncategorized_drops += other.uncategorized_drops;
        for (category, count) in other.drops {
            *self.drops.entry(category).or_default() += count;
        }
        for mut locality in other.localities.into_values() {
            clear_gauges(&mut locality);
            self.add_locality(locality);
        }
    }

    fn add_locality(&mut self, load: LocalityLoad) {
        let key = load.locality.clone();
        let known = self.localities.entry(key).or_insert_with(|| LocalityLoad {
            locality: load.locality.clone(),
            ..LocalityLoad::default()
        });
        known.issued += load.issued;
        known.succeeded += load.succeeded;
        known.errors += load.errors;
        known.in_progress += load.in_progress;
        known.connections.opened += load.connections.opened;
        known.connections.failed += load.connections.failed;
        known.connections.active += load.connections.active;
        known.metrics.add(load.metrics);
    }

    /// The attempts that began.
    pub(super) fn calls(&self) -> u64 {
        self.localities.values().map(|load| load.issued).sum()
    }

    fn metrics_left_out(&self) -> u64 {
        let localities = self.localities.values();
        localities.map(|load| load.metrics.left_out).sum()
    }

    fn is_zero(&self) -> bool {
        let is_zero = |load: &LocalityLoad| {
            [load.issued, load.succeeded, load.errors, load.in_progress] == [0; 4]
                && load.connections == ConnectionLoad::default()
                && load.metrics == MetricTotals::default()
        };
        self.uncategorized_drops == 0
            && self.drops.values().all(|count| *count == 0)
            && self.localities.values().all(is_zero)
    }
}

/// Gauges are asked for again, so they are no part of what is kept.
fn clear_gauges(locality: &mut LocalityLoad) {
    locality.in_progress = 0;
    locality.connections.active = 0;
}

impl Report {
    /// Returns whether the report says nothing.
    pub(super) fn is_zero(&self) -> bool {
        self.clusters.values().all(|book| book.counts.is_zero())
    }

    /// The attempts that began.
    pub(super) fn calls(&self) -> u64 {
        self.clusters.values().map(|book| book.counts.calls()).sum()
    }

    /// The values of metrics that are not in the report, because there were too many names.
    pub(super) fn metrics_left_out(&self) -> u64 {
        let books = self.clusters.values();
        books.map(|book| book.counts.metrics_left_out()).sum()
    }
}
