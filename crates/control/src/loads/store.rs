//! The store of all load reports. It has totals by cluster and localities, and the newest report of each client,
//! because rates and open calls are those of the newest reports.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::history;
use super::limits::Limits;
use super::report::{ClusterReport, Report};
use super::row::{Part, Row, RowKey, Time};
use super::view::{Loads, ReporterView};
use crate::limits::network;

/// The time after which a row of which no reporter speaks is dropped, with its totals.
const FORGET: Duration = Duration::from_secs(3600);

/// The time between two looks for rows to drop.
const SWEEP: Duration = Duration::from_secs(60);

/// The time between two looks for room in full books, because each look is at all rows.
const CLEARING: Duration = Duration::from_secs(10);

/// A row of a cluster that we do not serve makes room after this many intervals without a report.
const UNSPOKEN: u32 = 3;

/// The number of a stream of reports.
pub(crate) type ReporterId = u64;

/// The books.
#[derive(Debug)]
pub(crate) struct LoadStore {
    started: Instant,
    limits: Limits,
    opened: ReporterId,
    reporters: BTreeMap<ReporterId, State>,
    rows: BTreeMap<Arc<RowKey>, Row>,
    /// The number of rows that the clients of each address have brought.
    brought: BTreeMap<Option<IpAddr>, usize>,
    /// The number of entries in all rows.
    entries: usize,
    reports: u64,
    refused_reports: u64,
    refused_rows: u64,
    refused_metrics: u64,
    swept: Instant,
    cleared: Option<Instant>,
}

/// The place of a cluster in the resources that are served now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The service to which the cluster belongs; the cluster's own name if that is unknown.
    pub(crate) service: String,
    pub(crate) is_served: bool,
}

/// The figures of a report that were not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Rows and categories of drops.
    pub(crate) rows: u64,
    pub(crate) metrics: u64,
}

/// A client that reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporter {
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) node: String,
    pub(crate) cluster: String,
    pub(crate) user_agent: String,
    pub(crate) locality: String,
}

/// A reporter, and the rows of its last report.
#[derive(Debug)]
struct State {
    reporter: Reporter,
    locality: Arc<str>,
    opened: Instant,
    reports: u64,
    reported: Option<Instant>,
    rows: Vec<Arc<RowKey>>,
    /// The number of entries that its last report took.
    taken: usize,
}

impl LoadStore {
    /// Empty books. `of_address` is the part of a total that one address may take.
    pub(crate) fn new(now: Instant, of_address: impl Fn(usize) -> usize) -> Self {
        Self::with_limits(Limits::new(of_address), now)
    }

    pub(super) fn with_limits(limits: Limits, now: Instant) -> Self {
        Self {
            started: now,
            limits,
            opened: 0,
            reporters: BTreeMap::new(),
            rows: BTreeMap::new(),
            brought: BTreeMap::new(),
            entries: 0,
            reports: 0,
            refused_reports: 0,
            refused_rows: 0,
            refused_metrics: 0,
            swept: now,
            cleared: None,
        }
    }

    /// Takes in a new stream.
    pub(crate) fn open(&mut self, reporter: Reporter, now: Instant) -> ReporterId {
        self.opened += 1;
        let state = State {
            locality: reporter.locality.as_str().into(),
            reporter,
            opened: now,
            reports: 0,
            reported: None,
            rows: Vec::new(),
            taken: 0,
        };
        self.reporters.insert(self.opened, state);
        self.opened
    }

    /// Ends a stream. Its calls in progress go with it; its counts stay.
    pub(crate) fn close(&mut self, id: ReporterId) {
        self.forget(id);
        self.reporters.remove(&id);
    }

    /// Takes a report of an open stream, which was asked for one per `interval`. `is_served` says if
    /// we serve a cluster. Returns what was not kept.
    pub(crate) fn report(
        &mut self,
        id: ReporterId,
        report: Report,
        interval: Duration,
        now: Instant,
        is_served: impl Fn(&str) -> bool,
    ) -> Refused {
        self.sweep(interval, now);
        let unspoken = interval.saturating_mul(UNSPOKEN).max(SWEEP);
        self.forget(id);
        let Some(state) = self.reporters.get_mut(&id) else {
            return Refused::default();
        };
        let since = state.reported.unwrap_or(state.opened);
        let between = now.saturating_duration_since(since);
        state.reported = Some(now);
        state.reports += 1;
        self.reports += 1;
        let client = state.locality.clone();
        let moment = history::number(now.saturating_duration_since(self.started));
        let mut refused = Refused {
            rows: 0,
            metrics: report.refused_metrics,
        };
        for cluster in report.clusters {
            let time = Time {
                now,
                moment,
                // A client that does not say for how long it counted has counted since its last
                // report.
                interval: cluster.interval.unwrap_or(between),
            };
            for (key, part) in parts(cluster, &client) {
                if self.is_full_for(&key) {
                    self.clear(unspoken, now, &is_served);
                }
                refused.add(self.add(id, key, part, time));
            }
        }
        self.refused_rows = self.refused_rows.saturating_add(refused.rows);
        self.refused_metrics = self.refused_metrics.saturating_add(refused.metrics);
        refused
    }

    /// Notes that a report was refused.
    pub(crate) fn refused(&mut self) {
        self.refused_reports += 1;
    }

    /// The loads at `now`, for clients that were asked for a report per `interval`. `owner_of`
    /// tells of a cluster by the resources that are served now: a client may report a cluster before
    /// its service is there.
    pub(crate) fn view(
        &self,
        interval: Duration,
        now: Instant,
        owner_of: impl Fn(&str) -> Owner,
    ) -> Loads {
        let age = now.saturating_duration_since(self.started);
        let rows = self.rows.iter().map(|(key, row)| {
            let owner = owner_of(&key.cluster);
            row.view(owner, key, now, age)
        });
        let mut rows: Vec<_> = rows.collect();
        // The rows of a service are together, even if it has several clusters.
        rows.sort_by(|a, b| a.service.cmp(&b.service));
        let reporters = self.reporters.iter();
        let reporters = reporters.map(|(id, state)| state.view(*id, now));
        Loads {
            up_seconds: age.as_secs_f64(),
            interval_seconds: interval.as_secs_f64(),
            reports: self.reports,
            refused_reports: self.refused_reports,
            refused_rows: self.refused_rows,
            refused_metrics: self.refused_metrics,
            reporters: reporters.collect(),
            rows,
        }
    }

    fn add(&mut self, id: ReporterId, key: RowKey, part: Part, time: Time) -> Refused {
        let row = Refused {
            rows: 1,
            metrics: part.metrics.len() as u64,
        };
        let key = match self.rows.get_key_value(&key) {
            Some((key, _)) => key.clone(),
            None => match self.bring(id, key, time.now) {
                Some(key) => key,
                None => return row,
            },
        };
        let (Some(row), Some(state)) = (self.rows.get_mut(&key), self.reporters.get_mut(&id))
        else {
            return Refused::default();
        };
        let share = self.limits.entries_of_stream.saturating_sub(state.taken);
        let room = share.min(self.limits.entries.saturating_sub(self.entries));
        let (mut left, was_told) = (room, row.is_told_by(id));
        let refused = row.add(id, part, time, &mut left);
        if row.is_told_by(id) && !was_told {
            state.rows.push(key);
        }
        state.taken += room - left;
        self.entries += room - left;
        refused
    }

    /// Makes a row; `None` if there is no room for it, or the address of the client has had its share.
    fn bring(&mut self, id: ReporterId, key: RowKey, now: Instant) -> Option<Arc<RowKey>> {
        let peer = self.reporters.get(&id)?.reporter.peer;
        let address = peer.map(|peer| network(peer.ip()));
        let brought = self.brought.get(&address).copied().unwrap_or_default();
        if self.rows.len() >= self.limits.rows || brought >= self.limits.rows_of_address {
            return None;
        }
        self.brought.insert(address, brought + 1);
        let key = Arc::new(key);
        self.rows.insert(key.clone(), Row::new(address, now));
        Some(key)
    }

    fn is_full_for(&self, key: &RowKey) -> bool {
        self.rows.len() >= self.limits.rows && !self.rows.contains_key(key)
    }

    /// Makes room for the clusters that we serve: drops rows of others of which nobody has spoken
    /// for `unspoken`.
    fn clear(&mut self, unspoken: Duration, now: Instant, is_served: impl Fn(&str) -> bool) {
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.cleared.is_some_and(|then| since(then) < CLEARING) {
            return;
        }
        self.cleared = Some(now);
        self.drop_rows(|key, row| since(row.reported) >= unspoken && !is_served(&key.cluster));
    }

    fn drop_rows(&mut self, is_dropped: impl Fn(&RowKey, &Row) -> bool) {
        let (brought, entries) = (&mut self.brought, &mut self.entries);
        self.rows.retain(|key, row| {
            let is_dropped = is_dropped(key, row);
            if is_dropped {
                *entries -= row.entries();
                if let Some(of_address) = brought.get_mut(&row.brought_by) {
                    *of_address -= 1;
                }
            }
            !is_dropped
        });
        brought.retain(|_, of_address| *of_address > 0);
    }

    /// Forgets the last report of a stream.
    fn forget(&mut self, id: ReporterId) {
        let Some(state) = self.reporters.get_mut(&id) else {
            return;
        };
        for key in state.rows.drain(..) {
            if let Some(row) = self.rows.get_mut(&key) {
                self.entries -= row.forget(id);
            }
        }
        state.taken = 0;
    }

    /// The number of entries as it is known, and as one counts it.
    #[cfg(test)]
    pub(super) fn entries(&self) -> (usize, usize) {
        (self.entries, self.rows.values().map(Row::entries).sum())
    }

    /// Drops rows of which nobody has spoken for long. A stream that is silent for as long, and for
    /// three intervals, counts as gone, because a client that lives reports in each interval.
    fn sweep(&mut self, interval: Duration, now: Instant) {
        let since = |then: Instant| now.saturating_duration_since(then);
        if since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let silence = interval.saturating_mul(UNSPOKEN).max(FORGET);
        let silent = self.reporters.iter().filter(|(_, state)| {
            let last = state.reported.unwrap_or(state.opened);
            since(last) >= silence && !state.rows.is_empty()
        });
        let silent: Vec<_> = silent.map(|(id, _)| *id).collect();
        for id in silent {
            self.forget(id);
        }
        self.drop_rows(|_, row| row.is_abandoned() && since(row.reported) >= FORGET);
    }
}

impl Refused {
    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.metrics += other.metrics;
    }
}

impl State {
    fn view(&self, stream: ReporterId, now: Instant) -> ReporterView {
        let since = |then: Instant| now.saturating_duration_since(then).as_secs_f64();
        let reporter = self.reporter.clone();
        ReporterView {
            stream,
            peer: reporter.peer,
            node: reporter.node,
            cluster: reporter.cluster,
            user_agent: reporter.user_agent,
            locality: reporter.locality,
            connected_seconds: since(self.opened),
            reports: self.reports,
            last_report_seconds: self.reported.map(since),
        }
    }
}

/// The parts of a cluster's report, each with its row. Those that say nothing are left out.
fn parts(report: ClusterReport, client: &Arc<str>) -> Vec<(RowKey, Part)> {
    let key = |backend| RowKey {
        cluster: report.cluster.clone(),
        client: client.clone(),
        backend,
    };
    let busy = report.localities.into_iter().filter(|of| !of.is_idle());
    let mut parts: Vec<_> = busy
        .map(|of| {
            let part = Part {
                counts: of.counts,
                gauges: of.gauges,
                metrics: of.metrics,
                ..Part::default()
            };
            (key(Some(of.locality)), part)
        })
        .collect();
    if report.dropped > 0 {
        let part = Part {
            dropped: report.dropped,
            categories: report.categories,
            ..Part::default()
        };
        parts.push((key(None), part));
    }
    parts
}
