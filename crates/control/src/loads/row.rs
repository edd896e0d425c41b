//! One row of the store: the totals since the start, and what the newest report of each client says about the row.
//! Reports are apart, because the open calls of a client must go when it goes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::history::{self, Bucket, History};
use super::report::{Counts, Gauges, MetricSum};
use super::store::{Owner, Refused, ReporterId};
use super::view::{Connections, LoadRow, Metric, Moment};

/// The most categories and metrics that a row keeps.
pub(super) const MAX_NAMES: usize = 100;

/// The rate of a reporter counts for this many intervals after its report.
const STALE: u32 = 3;

/// The identity of a row. A row without a backend locality holds the drops of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowKey {
    pub(super) cluster: String,
    pub(super) client: Arc<str>,
    pub(super) backend: Option<String>,
}

/// The loads of one row.
#[derive(Debug)]
pub(super) struct Row {
    counts: Counts,
    dropped: u64,
    categories: BTreeMap<String, u64>,
    metrics: BTreeMap<String, MetricSum>,
    history: History,
    latest: BTreeMap<ReporterId, Latest>,
    /// The address of the client that spoke of this row first.
    pub(super) brought_by: Option<IpAddr>,
    /// The time of the newest report about this row.
    pub(super) reported: Instant,
}

/// The part of a report that a row takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) counts: Counts,
    pub(super) gauges: Gauges,
    pub(super) metrics: Vec<(String, MetricSum)>,
    pub(super) dropped: u64,
    pub(super) categories: Vec<(String, u64)>,
}

/// The time of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) now: Instant,
    /// The number of the moment in the history.
    pub(super) moment: u64,
    /// The time that the counts cover.
    pub(super) interval: Duration,
}

/// The newest report of one reporter about a row.
#[derive(Debug)]
struct Latest {
    at: Instant,
    interval: Duration,
    issued: u64,
    errors: u64,
    dropped: u64,
    gauges: Gauges,
    metrics: BTreeMap<String, MetricSum>,
}

impl Row {
    pub(super) fn new(brought_by: Option<IpAddr>, now: Instant) -> Self {
        Self {
            brought_by,
            counts: Counts::default(),
            dropped: 0,
            categories: BTreeMap::new(),
            metrics: BTreeMap::new(),
            history: History::default(),
            latest: BTreeMap::new(),
            reported: now,
        }
    }

    /// Adds a part of a report. `room` is the number of entries that may be new. Returns the entries
    /// for which there was no room; only the totals of the row have those.
    ///
    /// A report may have several parts for one row, because a locality may be in two priorities. A cluster may also
    /// have had two names for its endpoints since the report before.
    pub(super) fn add(
        &mut self,
        reporter: ReporterId,
        part: Part,
        time: Time,
        room: &mut usize,
    ) -> Refused {
        let Part {
            counts,
            gauges,
            metrics,
            dropped,
            categories,
        } = part;
        self.reported = time.now;
        self.counts.add(counts);
        self.dropped = self.dropped.saturating_add(dropped);
        self.history.add(Bucket {
            number: time.moment,
            issued: counts.issued,
            errors: counts.errors,
            dropped,
        });
        let mut refused = Refused::default();
        for (category, dropped) in categories {
            match named(&mut self.categories, &category, room) {
                Some(kept) => *kept = kept.saturating_add(dropped),
                None => refused.rows += 1,
            }
        }
        if !self.is_told_by(reporter) {
            if !take(room) {
                refused.rows += 1;
                refused.metrics += metrics.len() as u64;
                return refused;
            }
            self.latest.insert(reporter, Latest::new(time));
        }
        let Some(latest) = self.latest.get_mut(&reporter) else {
            return refused;
        };
        for (sum, added) in [
            (&mut latest.issued, counts.issued),
            (&mut latest.errors, counts.errors),
            (&mut latest.dropped, dropped),
            (&mut latest.gauges.in_progress, gauges.in_progress),
            (&mut latest.gauges.connections, gauges.connections),
        ] {
            *sum = sum.saturating_add(added);
        }
        for (metric, sum) in metrics {
            let (total, recent) = (&mut self.metrics, &mut latest.metrics);
            let total = named(total, &metric, room).map(|kept| kept.add(sum));
            let recent = total.and_then(|()| named(recent, &metric, room));
            match recent {
                Some(kept) => kept.add(sum),
                None => refused.metrics += 1,
            }
        }
        refused
    }

    /// Forgets the last report of a reporter, which is gone or sends a newer one. Returns the number
    /// of entries that this was.
    pub(super) fn forget(&mut self, reporter: ReporterId) -> usize {
        let latest = self.latest.remove(&reporter);
        latest.map_or(0, |latest| latest.entries())
    }

    /// True if the last report of a reporter spoke of this row.
    pub(super) fn is_told_by(&self, reporter: ReporterId) -> bool {
        self.latest.contains_key(&reporter)
    }

    /// The number of entries in this row.
    pub(super) fn entries(&self) -> usize {
        let latest: usize = self.latest.values().map(Latest::entries).sum();
        self.categories.len() + self.metrics.len() + latest
    }

    /// True if no reporter that is connected spoke of this row in its last report.
    pub(super) fn is_abandoned(&self) -> bool {
        self.latest.is_empty()
    }

    /// The row of a service as it is at `now`, in the given moment of the history.
    pub(super) fn view(&self, owner: Owner, key: &RowKey, now: Instant, age: Duration) -> LoadRow {
        let sum =
            |of: fn(&Latest) -> u64| self.latest.values().map(of).fold(0, u64::saturating_add);
        let rate = |of: fn(&Latest) -> u64| -> f64 {
            let fresh = self.latest.values().filter(|latest| latest.is_fresh(now));
            // The sum of no floats would be a negative zero.
            fresh.fold(0.0, |sum, latest| sum + latest.per_second(of(latest)))
        };
        LoadRow {
            service: owner.service,
            cluster: key.cluster.clone(),
            is_served: owner.is_served,
            client_locality: key.client.to_string(),
            backend_locality: key.backend.clone(),
            issued: self.counts.issued,
            succeeded: self.counts.succeeded,
            errors: self.counts.errors,
            dropped: self.dropped,
            in_progress: sum(|latest| latest.gauges.in_progress),
            calls_per_second: rate(|latest| latest.issued),
            errors_per_second: rate(|latest| latest.errors),
            drops_per_second: rate(|latest| latest.dropped),
            dropped_by_category: self.categories.clone(),
            connections: Connections {
                opened: self.counts.opened,
                failed: self.counts.failed,
                active: sum(|latest| latest.gauges.connections),
            },
            metrics: self.metrics(now),
            history: self.history(age),
        }
    }

    fn metrics(&self, now: Instant) -> BTreeMap<String, Metric> {
        let metrics = self.metrics.iter().map(|(name, sum)| {
            let mut recent = MetricSum::default();
            let fresh = self.latest.values().filter(|latest| latest.is_fresh(now));
            for sum in fresh.filter_map(|latest| latest.metrics.get(name)) {
                recent.add(*sum);
            }
            let metric = Metric {
                calls: sum.calls,
                total: sum.total,
                recent_mean: (recent.calls > 0).then(|| recent.total / recent.calls as f64),
            };
            (name.clone(), metric)
        });
        metrics.collect()
    }

    fn history(&self, age: Duration) -> Vec<Moment> {
        let moments = self.history.since(history::number(age));
        let moments = moments.map(|bucket| {
            let begun = history::WIDTH * u32::try_from(bucket.number).unwrap_or(u32::MAX);
            Moment {
                seconds_ago: age.saturating_sub(begun).as_secs_f64(),
                issued: bucket.issued,
                errors: bucket.errors,
                dropped: bucket.dropped,
            }
        });
        moments.collect()
    }
}

impl Latest {
    fn new(time: Time) -> Self {
        Self {
            at: time.now,
            interval: time.interval,
            issued: 0,
            errors: 0,
            dropped: 0,
            gauges: Gauges::default(),
            metrics: BTreeMap::new(),
        }
    }

    fn entries(&self) -> usize {
        1 + self.metrics.len()
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) <= self.interval.saturating_mul(STALE)
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.interval.as_secs_f64();
        if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        }
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        for (sum, added) in [
            (&mut self.issued, other.issued),
            (&mut self.succeeded, other.succeeded),
            (&mut self.errors, other.errors),
            (&mut self.opened, other.opened),
            (&mut self.failed, other.failed),
        ] {
            *sum = sum.saturating_add(added);
        }
    }
}

impl MetricSum {
    fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.total += other.total;
    }
}

/// The entry of a name; `None` if the name is new and there are too many, or there is no room.
fn named<'a, T: Default>(
    entries: &'a mut BTreeMap<String, T>,
    name: &str,
    room: &mut usize,
) -> Option<&'a mut T> {
    if !entries.contains_key(name) {
        if entries.len() >= MAX_NAMES || !take(room) {
            return None;
        }
        entries.insert(name.to_owned(), T::default());
    }
    entries.get_mut(name)
}

/// Takes room for one entry. False if there is none.
fn take(room: &mut usize) -> bool {
    let left = room.checked_sub(1);
    *room = left.unwrap_or(0);
    left.is_some()
}
