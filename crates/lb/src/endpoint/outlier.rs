//! Outlier detection (A50, A61, A75): the record of past calls and ejections that a leaf cluster
//! keeps about its endpoints.
//!
//! The record is in the roster, above priorities and localities, so an endpoint that moves stays
//! ejected. At the end of each interval the calls of all endpoints are compared with the last look
//! at them. The [`rule`] says which endpoints are ejected. An ejected endpoint keeps its
//! connection; balancing sees it as failing ([`Record::seen`](super::Record::seen)).

mod rule;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use self::rule::{Host, Verdict, has_candidates, judge};
use super::{EndpointId, Pool, RosterId, ready::Settled, record::Failed};
use crate::{
    ClusterName, Command,
    plan::{Endpoint, OutlierDetection},
};

/// An event of outlier detection, for logs and metrics (A91).
#[derive(Clone, Debug)]
pub struct OutlierEvent {
    /// The leaf cluster.
    pub cluster: ClusterName,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The addresses of the endpoint, the main one first.
    pub addresses: Arc<[SocketAddr]>,
    /// The verdict on it.
    pub change: OutlierChange,
}

/// The verdict on an endpoint.
#[derive(Clone, PartialEq, Debug)]
pub enum OutlierChange {
    /// It gets no calls for a while.
    Ejected(Ejection),
    /// It gets calls again.
    Returned,
    /// It is an outlier, and was not ejected.
    Spared {
        /// The rule by which it is an outlier.
        rule: OutlierRule,
        /// The reason why it was not ejected.
        reason: SpareReason,
    },
}

/// The rules by which an endpoint is an outlier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OutlierRule {
    /// More than a percentage of its calls failed.
    FailurePercentage,
    /// The share of its calls that succeeded is far below the mean of all endpoints.
    SuccessRate,
}

impl OutlierRule {
    /// The name that metrics know it by (A91).
    pub fn name(self) -> &'static str {
        match self {
            Self::FailurePercentage => "failure_percentage",
            Self::SuccessRate => "success_rate",
        }
    }
}

/// The reasons why an outlier is not ejected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpareReason {
    /// The rule is enforced on a part of the outliers only.
    EnforcementPercentage,
    /// As many endpoints are ejected as may be at a time.
    MaxEjectionOverflow,
}

impl SpareReason {
    /// The name that metrics know it by (A91).
    pub fn name(self) -> &'static str {
        match self {
            Self::EnforcementPercentage => "enforcement_percentage",
            Self::MaxEjectionOverflow => "max_ejection_overflow",
        }
    }
}

/// The ejection of an endpoint. It prints as `ejected for 30s by outlier detection: 9 of 10 calls failed,
/// over 85%`.
#[derive(Clone, PartialEq, Debug)]
pub struct Ejection {
    /// The rule, and its limit.
    pub cause: EjectionCause,
    /// The number of calls of the interval that succeeded.
    pub succeeded: u64,
    /// The number of calls of the interval that failed.
    pub failed: u64,
    /// The time at which it was ejected.
    pub since: Instant,
    /// The time for which it is ejected. It gets calls again at the first look after that.
    pub time: Duration,
}

/// The rule by which an endpoint was ejected, and the limit that its calls crossed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum EjectionCause {
    /// More calls failed than are tolerated.
    FailurePercentage {
        /// The percentage of failed calls that is tolerated.
        tolerated: u32,
    },
    /// Fewer calls succeeded than the mean of all endpoints asks for.
    SuccessRate {
        /// The percentage of successful calls below which an endpoint was an outlier.
        needed: f64,
    },
}

impl EjectionCause {
    /// The rule.
    pub fn rule(self) -> OutlierRule {
        match self {
            Self::FailurePercentage { .. } => OutlierRule::FailurePercentage,
            Self::SuccessRate { .. } => OutlierRule::SuccessRate,
        }
    }
}

impl Ejection {
    /// A50: an endpoint returns at the first look after its time, not at that very instant.
    fn is_over(&self, now: Instant) -> bool {
        let until = self.since.checked_add(self.time);
        until.is_some_and(|until| until < now)
    }
}

impl fmt::Display for Ejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (succeeded, failed) = (self.succeeded, self.failed);
        let calls = succeeded + failed;
        write!(f, "ejected for {:?} by outlier detection: ", self.time)?;
        match self.cause {
            EjectionCause::FailurePercentage { tolerated } => {
                write!(f, "{failed} of {calls} calls failed, over {tolerated}%")
            }
            EjectionCause::SuccessRate { needed } => write!(
                f,
                "{succeeded} of {calls} calls succeeded, below the {needed:.1}% that others allow"
            ),
        }
    }
}

/// The outlier detection of one leaf cluster, while it is on.
#[derive(Debug)]
pub(super) struct Outliers {
    settings: Arc<OutlierDetection>,
    /// The time of the last look, from which the interval is counted.
    started: Instant,
    books: BTreeMap<EndpointId, Book>,
}

/// The past calls and ejections of one endpoint.
#[derive(Debug, Default)]
struct Book {
    /// The ended calls at the last look.
    seen: Settled,
    /// The number of ejections in a row. Each interval without an ejection takes one off.
    multiplier: u32,
    ejection: Option<Ejection>,
}

impl Book {
    /// The calls since the last look, given the calls so far.
    fn turn(&mut self, now: Settled) -> Settled {
        let calls = Settled {
            succeeded: now.succeeded.saturating_sub(self.seen.succeeded),
            failed: now.failed.saturating_sub(self.seen.failed),
        };
        // A look can miss calls of a connection that just goes. They belong to the next interval then.
        self.seen += calls;
        calls
    }
}

impl Outliers {
    /// Begins to look at a new endpoint.
    pub(super) fn add(&mut self, id: EndpointId) {
        self.books.insert(id, Book::default());
    }

    /// Forgets an endpoint that is gone.
    pub(super) fn remove(&mut self, id: EndpointId) {
        self.books.remove(&id);
    }

    pub(super) fn ejection(&self, id: EndpointId) -> Option<&Ejection> {
        self.books.get(&id)?.ejection.as_ref()
    }

    /// Goes on with other settings. Returns the endpoints whose ejection has another time now, with its text.
    fn change(&mut self, settings: &Arc<OutlierDetection>) -> Vec<(EndpointId, String)> {
        self.settings = settings.clone();
        let mut changed = Vec::new();
        for (&endpoint, book) in &mut self.books {
            let time = settings.ejection_time(book.multiplier);
            if let Some(ejection) = &mut book.ejection
                && ejection.time != time
            {
                ejection.time = time;
                changed.push((endpoint, ejection.to_string()));
            }
        }
        changed
    }

    fn eject(
        &mut self,
        id: EndpointId,
        cause: EjectionCause,
        calls: Settled,
        now: Instant,
    ) -> Option<Ejection> {
        let book = self.books.get_mut(&id)?;
        book.multiplier = book.multiplier.saturating_add(1);
        let ejection = Ejection {
            cause,
            succeeded: calls.succeeded,
            failed: calls.failed,
            since: now,
            time: self.settings.ejection_time(book.multiplier),
        };
        book.ejection = Some(ejection.clone());
        Some(ejection)
    }

    /// The time of the next look; `None` if it is too far away to be told. A new interval keeps the start
    /// of the one before.
    fn next_look(&self) -> Option<Instant> {
        self.started.checked_add(self.settings.interval)
    }
}

impl<T> Pool<T> {
    /// Takes the settings of a cluster: begins to detect outliers, goes on with other settings, or stops.
    pub(crate) fn detect_outliers(
        &mut self,
        id: RosterId,
        settings: Option<&Arc<OutlierDetection>>,
        now: Instant,
    ) {
        let settings = settings.filter(|settings| settings.is_on());
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        match (settings, &mut roster.outliers) {
            (None, None) => {}
            (None, Some(_)) => self.stop_detection(id),
            (Some(settings), Some(outliers)) => {
                if outliers.settings != *settings {
                    let changed = outliers.change(settings);
                    for (endpoint, text) in changed {
                        self.show_ejection(endpoint, text);
                    }
                }
            }
            (Some(settings), None) => {
                let records = &self.records;
                let ids = roster.index.ids();
                // Calls from before the detection count for nothing.
                let books = ids.filter_map(|id| {
                    let seen = records.get(id.0)?.settled();
                    let book = Book {
                        seen,
                        ..Book::default()
                    };
                    Some((id, book))
                });
                roster.outliers = Some(Box::new(Outliers {
                    settings: settings.clone(),
                    started: now,
                    books: books.collect(),
                }));
            }
        }
    }

    /// All endpoints return, and nothing is known about them any more.
    fn stop_detection(&mut self, id: RosterId) {
        let outliers = self.rosters.get_mut(id.0);
        let outliers = outliers.and_then(|roster| roster.outliers.take());
        let books = outliers.into_iter().flat_map(|outliers| outliers.books);
        for (endpoint, book) in books {
            if book.ejection.is_some() {
                self.return_to_service(endpoint);
            }
        }
    }

    /// Looks at the calls of all endpoints of a cluster, if an interval is over. Returns the time of the
    /// next look. `each_listed` visits the endpoints of the cluster's plan, in all priorities.
    pub(crate) fn look_for_outliers(
        &mut self,
        id: RosterId,
        now: Instant,
        rng: &mut fastrand::Rng,
        each_listed: impl FnOnce(&mut dyn FnMut(&Endpoint)),
    ) -> Option<Instant> {
        let outliers = self.rosters.get(id.0)?.outliers.as_ref()?;
        if outliers.next_look().is_none_or(|at| at > now) {
            return outliers.next_look();
        }
        // Taken out of the pool, because the look changes the pool.
        let mut outliers = self.rosters.get_mut(id.0)?.outliers.take()?;
        outliers.started = now;
        self.look(id, &mut outliers, now, rng, each_listed);
        let next = outliers.next_look();
        if let Some(roster) = self.rosters.get_mut(id.0) {
            roster.outliers = Some(outliers);
        }
        next
    }

    fn look(
        &mut self,
        id: RosterId,
        outliers: &mut Outliers,
        now: Instant,
        rng: &mut fastrand::Rng,
        each_listed: impl FnOnce(&mut dyn FnMut(&Endpoint)),
    ) {
        self.visits += outliers.books.len() as u64;
        let books = outliers.books.iter_mut();
        let calls = books.map(|(id, book)| {
            let settled = self.records.get(id.0).map(|record| record.settled());
            book.turn(settled.unwrap_or_default())
        });
        let calls: Vec<_> = calls.collect();
        let mut books = outliers.books.values();
        if books.any(|book| book.ejection.is_some()) || has_candidates(&outliers.settings, &calls) {
            let listed = self.mark_listed(id, each_listed);
            self.judge_all(outliers, &calls, &listed, now, rng);
        }
        for (&endpoint, book) in &mut outliers.books {
            match &book.ejection {
                None => book.multiplier = book.multiplier.saturating_sub(1),
                Some(ejection) if ejection.is_over(now) => {
                    book.ejection = None;
                    self.return_to_service(endpoint);
                }
                Some(_) => {}
            }
        }
    }

    /// Ejects outliers. `calls` are those of each endpoint in the interval.
    fn judge_all(
        &mut self,
        outliers: &mut Outliers,
        calls: &[Settled],
        listed: &Listed,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) {
        let mut judged = Vec::with_capacity(calls.len());
        let mut hosts = Vec::with_capacity(calls.len() + listed.others);
        for ((&endpoint, book), &calls) in outliers.books.iter_mut().zip(calls) {
            let record = self.records.get(endpoint.0);
            if record.is_some_and(|record| record.mark == listed.mark) {
                judged.push(endpoint);
                hosts.push(Host {
                    calls,
                    is_ejected: book.ejection.is_some(),
                });
            } else {
                // The cluster does not have it any more, and a leaf keeps it in case it comes back.
                book.multiplier = 0;
                if book.ejection.take().is_some() {
                    self.return_to_service(endpoint);
                }
            }
        }
        // Endpoints of priorities that were never needed count as well, although nothing is known of them.
        hosts.extend(std::iter::repeat_n(Host::default(), listed.others));
        for (index, verdict) in judge(&outliers.settings, &hosts, rng) {
            let Some(&endpoint) = judged.get(index) else {
                continue;
            };
            let change = match verdict {
                Verdict::Eject(cause) => {
                    let calls = hosts[index].calls;
                    let Some(ejection) = outliers.eject(endpoint, cause, calls, now) else {
                        continue;
                    };
                    self.show_ejection(endpoint, ejection.to_string());
                    OutlierChange::Ejected(ejection)
                }
                Verdict::Spare(rule, reason) => OutlierChange::Spared { rule, reason },
            };
            self.tell_outlier(endpoint, change);
        }
    }

    /// Marks the endpoints of a plan that the roster knows, and counts the others.
    fn mark_listed(
        &mut self,
        id: RosterId,
        each_listed: impl FnOnce(&mut dyn FnMut(&Endpoint)),
    ) -> Listed {
        let mark = self.next_mark();
        let mut others = HashSet::new();
        each_listed(&mut |endpoint| {
            self.visits += 1;
            let identity = endpoint.identity();
            match self.find(id, &identity) {
                Some(known) => _ = self.mark(known, mark),
                None => _ = others.insert(identity),
            }
        });
        Listed {
            mark,
            others: others.len(),
        }
    }

    /// Balancing sees the endpoint as failing from now on, for this reason.
    fn show_ejection(&mut self, id: EndpointId, reason: String) {
        self.failures += 1;
        if let Some(record) = self.records.get_mut(id.0) {
            record.ejected = Some(Box::new(Failed {
                reason: reason.into(),
                at: self.failures,
                is_ejection: true,
            }));
            self.affected.extend(record.leaves());
        }
    }

    fn return_to_service(&mut self, id: EndpointId) {
        if let Some(record) = self.records.get_mut(id.0) {
            record.ejected = None;
            self.affected.extend(record.leaves());
            self.tell_outlier(id, OutlierChange::Returned);
        }
    }

    fn tell_outlier(&mut self, endpoint: EndpointId, change: OutlierChange) {
        let Some(record) = self.records.get(endpoint.0) else {
            return;
        };
        if let Some(roster) = self.rosters.get(record.roster.0) {
            let event = OutlierEvent {
                cluster: roster.cluster.clone(),
                endpoint,
                addresses: record.addresses.clone(),
                change,
            };
            self.after_pickers
                .push_back(Command::Outlier(Box::new(event)));
        }
    }
}

/// The endpoints of a plan: those that the roster knows have the mark, and the others are counted.
struct Listed {
    mark: u64,
    others: usize,
}
