//! The states of the stream of a reporter.
//!
//! Each state holds only what is valid in it, so a report cannot be sent on a stream that is not open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::AskedReports;
use super::books::Report;

#[derive(Debug)]
pub(super) enum Stream {
    /// The client's half has ended. The server may end its own until then.
    Closing {
        until: Instant,
    },
    Connecting,
    Idle,
    Open(Open),
    Waiting {
        until: Instant,
        reason: Arc<str>,
    },
}

impl Stream {
    /// Returns whether the stream has ended or is about to.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Closing { .. } | Self::Idle)
    }

    /// Returns whether there is a report that the connection has not taken yet.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self, Self::Open(open) if matches!(open.sending, Some(Sending::Report(_))))
    }

    /// The report that the connection has not taken yet.
    pub(super) fn take_unsent(&mut self) -> Option<Report> {
        match self {
            Self::Open(open) => match open.sending.take() {
                Some(Sending::Report(report)) => Some(report),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A stream that is open.
#[derive(Debug)]
pub(super) struct Open {
    /// `None` until the server's first response.
    pub(super) asked: Option<AskedReports>,
    /// The request that the connection has not taken yet.
    pub(super) sending: Option<Sending>,
    pub(super) next_report: Option<Instant>,
    /// True if the last report of this stream said nothing.
    pub(super) last_was_zero: bool,
    /// The times at which the connection took reports, and their calls. Those that are too old to be in doubt are
    /// dropped.
    taken: VecDeque<(Instant, u64)>,
}

/// A request on its way to the connection.
#[derive(Debug)]
pub(super) enum Sending {
    First,
    Report(Report),
}

/// Reports that may be lost.
pub(super) struct InDoubt {
    pub(super) reports: u64,
    pub(super) calls: u64,
}

/// The most reports whose times are kept. With the shortest interval it is ten minutes of reports, and a
/// connection that is silent for so long has ended.
const MOST_TAKEN: usize = 600;

impl Open {
    /// A stream whose first request is on its way.
    pub(super) fn new() -> Self {
        Self {
            asked: None,
            sending: Some(Sending::First),
            next_report: None,
            last_was_zero: false,
            taken: VecDeque::new(),
        }
    }

    /// Returns whether a report can be made now.
    pub(super) fn may_report(&self) -> bool {
        self.asked.is_some() && self.sending.is_none()
    }

    /// The next report is one interval from now. While a request is on its way, this is put off until the
    /// connection has taken it.
    pub(super) fn schedule(&mut self, now: Instant) {
        self.next_report = match &self.asked {
            // An interval without an end means no report.
            Some(asked) if self.sending.is_none() => now.checked_add(asked.interval),
            _ => None,
        };
    }

    pub(super) fn note_sent(&mut self, calls: u64, now: Instant) {
        if self.taken.len() == MOST_TAKEN {
            self.taken.pop_front();
        }
        self.taken.push_back((now, calls));
    }

    /// The number of reports whose times are kept.
    pub(super) fn remembered(&self) -> u64 {
        self.taken.len() as u64
    }

    /// The reports that the connection took in the last while.
    pub(super) fn in_doubt(&self, now: Instant, within: Duration) -> InDoubt {
        let newest = self.taken.iter().rev();
        let newest = newest.take_while(|(at, _)| now.duration_since(*at) < within);
        let (mut reports, mut calls) = (0, 0);
        for (_, of_report) in newest {
            reports += 1;
            calls += of_report;
        }
        InDoubt { reports, calls }
    }
}
