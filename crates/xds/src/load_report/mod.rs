//! Load reports to one server (LRS, gRFC A27), without I/O.
//!
//! A [`LoadReporter`] decides when a stream is open, and what is in each report. The counts come from a
//! [`LoadSource`], which is asked when a report is due.
//!
//! ```text
//!   Idle ──(a cluster is in use)──> Connecting ──> Open ──(none is)──> Closing ──> Idle
//!                                      ^             │
//!                                      └── Waiting <─┘ (the stream ended)
//! ```
//!
//! LRS has no acknowledgement, so a report is sent at most once. Counts belong to the reporter until the
//! connection has taken the report that they are in. If the stream breaks before, they are in the first report of
//! the next stream. If it breaks soon after, the report may be lost; it is not repeated, because a server would
//! then count calls twice. [`LoadReportTotals`] tells how many reports those were, and how many calls.

mod books;
mod encode;
mod ending;
mod stream;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_names::{ClusterLoad, MAX_METRIC_NAMES};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use tracing::{debug, info, warn};

use self::books::{Books, Report};
use self::ending::{Endings, Life, Next};
use self::stream::{Open, Sending, Stream};

/// The shortest time between two reports, whatever the server asks for, as in gRPC C-core.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The time for which the rest of the counts is offered to the server once no cluster is in use.
const LINGER: Duration = Duration::from_secs(10);

/// The time that a server has to end a stream that the client has ended.
const CLOSING: Duration = Duration::from_secs(5);

/// A report that the connection took less than this before the server ended the stream may not have been read.
const UNREAD: Duration = Duration::from_secs(5);

/// The client feature by which a server knows that it may ask for all clusters without naming them.
const SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";

/// The source of the counts.
pub trait LoadSource {
    /// Returns whether the load of a cluster is counted now.
    fn is_in_use(&self) -> bool;

    /// Takes the load since the last time. A cluster may be in it more than once, and is in it once more after
    /// its last use.
    fn take(&mut self) -> Vec<ClusterLoad>;

    /// Notes that all that was taken so far is about to be sent. A source whose counts outlive this process stores
    /// that here, so that no report is ever repeated. [`sent`](Self::sent) or [`unsent`](Self::unsent) follows.
    ///
    /// # Errors
    /// It cannot be stored: the report is not sent, and its counts are in the next one.
    fn sending(&mut self) -> Result<(), Arc<str>> {
        Ok(())
    }

    /// Notes that the connection has taken the report.
    fn sent(&mut self) {}

    /// Notes that no connection has taken the report, and that none will. Its counts are in the next report, unless
    /// this process ends before.
    fn unsent(&mut self) {}
}

/// An event that the owner of a reporter tells it.
#[derive(Clone, Debug)]
pub enum LoadInput {
    /// A cluster is in use from now on, or no longer.
    Changed,
    /// The stream has ended, or could not be opened.
    Closed(StreamEnd),
    /// The stream is open.
    Opened,
    /// The server sent this.
    Response(LoadStatsResponse),
    /// The connection has taken the last [`LoadOutput::Send`].
    Sent,
}

/// The end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// The reason, as text for people.
    pub reason: Arc<str>,
    /// The time for which the other side may have been silent before. It is not zero if the connection timed
    /// out: all reports of that time may be lost.
    pub silence: Duration,
    /// True if the server ended the stream with a status that says that it does not want the reports, such as
    /// INVALID_ARGUMENT. It may refuse the next report for the same reason.
    pub is_refusal: bool,
}

impl StreamEnd {
    /// An end that the other side has brought about.
    pub fn told(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            silence: Duration::ZERO,
            is_refusal: false,
        }
    }

    /// An end by which the server refuses the stream or a report.
    pub fn refused(reason: impl Into<Arc<str>>) -> Self {
        Self {
            is_refusal: true,
            ..Self::told(reason)
        }
    }
}

/// An action that the owner of a reporter has to take.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadOutput {
    /// Drop the stream. No [`LoadInput::Closed`] is due for it.
    Close,
    /// End the client's half of the stream; [`LoadInput::Closed`] follows when the server ends its own.
    Finish,
    /// Open a stream; answer with [`LoadInput::Opened`] or [`LoadInput::Closed`].
    Open,
    /// Send this request; answer with [`LoadInput::Sent`]. Only one request is being sent at a time.
    Send(Box<LoadStatsRequest>),
}

/// The reports so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReportTotals {
    /// The streams that were opened, or tried to.
    pub streams: u64,
    /// The reports that a connection has taken.
    pub reports: u64,
    /// The attempts that those reports tell the beginning of.
    pub calls: u64,
    /// The reports among them that may not have arrived, because the stream broke soon after. They are not
    /// repeated.
    pub reports_in_doubt: u64,
    /// The attempts that those reports tell the beginning of.
    pub calls_in_doubt: u64,
    /// The attempts that were never reported, because the server could not be reached until the client gave up.
    pub calls_given_up: u64,
    /// The values of metrics of backends that the reports left out, because a locality had over
    /// [`MAX_METRIC_NAMES`] names.
    pub metrics_left_out: u64,
}

/// The reports that a server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedReports {
    /// The time between two reports.
    pub interval: Duration,
    /// The clusters that are reported; `None` for all.
    pub clusters: Option<BTreeSet<String>>,
}

/// Reports load to one server.
#[derive(Debug)]
pub struct LoadReporter {
    node: Arc<Node>,
    /// The server's name in the log.
    server: Arc<str>,
    endings: Endings,
    stream: Stream,
    books: Books,
    outputs: VecDeque<LoadOutput>,
    totals: LoadReportTotals,
    /// The time at which the rest of the counts is given up, while no cluster is in use.
    linger: Option<Instant>,
    told_granularity: bool,
    told_left_out: bool,
}

impl LoadReporter {
    /// A reporter without a stream. `seed` is for the jitter of the backoff.
    pub fn new(node: impl Into<Arc<Node>>, server: impl Into<Arc<str>>, seed: u64) -> Self {
        Self {
            node: node.into(),
            server: server.into(),
            endings: Endings::new(seed),
            stream: Stream::Idle,
            books: Books::default(),
            outputs: VecDeque::new(),
            totals: LoadReportTotals::default(),
            linger: None,
            told_granularity: false,
            told_left_out: false,
        }
    }

    /// Takes an event.
    pub fn handle(&mut self, input: LoadInput, source: &mut dyn LoadSource, now: Instant) {
        match input {
            LoadInput::Changed => self.books.collect(source.take(), now),
            LoadInput::Closed(end) => self.closed(&end, source, now),
            LoadInput::Opened => self.opened(),
            LoadInput::Response(response) => self.response(response, now),
            LoadInput::Sent => self.sent(source, now),
        }
        self.settle(source, now);
    }

    /// Does what is due. Call it when [`next_timeout`](Self::next_timeout) has come.
    pub fn handle_timeout(&mut self, source: &mut dyn LoadSource, now: Instant) {
        match &mut self.stream {
            Stream::Waiting { until, .. } if *until <= now => self.open(),
            Stream::Closing { until } if *until <= now => self.drop_stream(),
            Stream::Open(open) if open.next_report.is_some_and(|at| at <= now) => {
                open.next_report = None;
                self.report(source, now);
            }
            _ => {}
        }
        self.settle(source, now);
    }

    /// The time at which [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_stream = match &self.stream {
            Stream::Waiting { until, .. } | Stream::Closing { until } => Some(*until),
            Stream::Open(open) => open.next_report,
            Stream::Connecting | Stream::Idle => None,
        };
        of_stream.into_iter().chain(self.linger).min()
    }

    /// The next action, or `None` if there is none.
    pub fn poll_output(&mut self) -> Option<LoadOutput> {
        self.outputs.pop_front()
    }

    /// The reports so far.
    pub fn totals(&self) -> LoadReportTotals {
        self.totals
    }

    /// The reports that the server has asked for on the present stream.
    pub fn asked(&self) -> Option<&AskedReports> {
        match &self.stream {
            Stream::Open(open) => open.asked.as_ref(),
            _ => None,
        }
    }

    /// Returns whether there is neither a stream nor anything to report.
    pub fn is_idle(&self) -> bool {
        matches!(self.stream, Stream::Idle) && self.outputs.is_empty()
    }

    /// The reason why there is no stream, while the next one waits for its time.
    pub fn trouble(&self) -> Option<&Arc<str>> {
        match &self.stream {
            Stream::Waiting { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Draws the conclusions from the use of clusters: a stream is there while one is in use, or while there is
    /// something left to report.
    fn settle(&mut self, source: &mut dyn LoadSource, now: Instant) {
        if source.is_in_use() {
            self.linger = None;
            if matches!(self.stream, Stream::Idle) {
                self.open();
            }
            return;
        }
        // The last counts. The source has no more of them from now on.
        self.books.collect(source.take(), now);
        if self.stream.is_over() {
            return;
        }
        // Calls that a report told to be in progress have ended since, and their ends are counts.
        let is_told = !self.stream.has_unsent() && !self.books.has_counts();
        let until = *self.linger.get_or_insert(now + LINGER);
        if is_told || until <= now {
            self.finish(source, now);
        } else if matches!(&self.stream, Stream::Open(open) if open.may_report()) {
            self.report(source, now);
        }
    }

    /// Ends the stream. What could not be reported is given up.
    fn finish(&mut self, source: &mut dyn LoadSource, now: Instant) {
        let unsent = self.stream.take_unsent();
        if unsent.is_some() {
            source.unsent();
        }
        let calls = self.books.clear() + unsent.as_ref().map_or(0, Report::calls);
        if calls > 0 {
            self.totals.calls_given_up += calls;
            warn!(server = &*self.server, calls, "load was not reported");
        }
        self.linger = None;
        match &self.stream {
            // The report that waits for the connection is given up, so it must not go out any more.
            Stream::Open(_) if unsent.is_some() => self.drop_stream(),
            Stream::Open(_) => {
                debug!(server = &*self.server, "the last load report is sent");
                self.outputs.push_back(LoadOutput::Finish);
                let until = now + CLOSING;
                self.stream = Stream::Closing { until };
            }
            Stream::Connecting => self.drop_stream(),
            Stream::Waiting { .. } => self.stream = Stream::Idle,
            Stream::Closing { .. } | Stream::Idle => {}
        }
    }

    fn drop_stream(&mut self) {
        self.outputs.push_back(LoadOutput::Close);
        self.stream = Stream::Idle;
    }

    fn open(&mut self) {
        self.totals.streams += 1;
        self.stream = Stream::Connecting;
        self.outputs.push_back(LoadOutput::Open);
    }

    /// gRFC A27: the first request has the node, and no load.
    fn opened(&mut self) {
        if !matches!(self.stream, Stream::Connecting) {
            return;
        }
        let mut node = (*self.node).clone();
        node.client_features.push(SEND_ALL_CLUSTERS.to_owned());
        self.outputs
            .push_back(LoadOutput::Send(Box::new(LoadStatsRequest {
                node: Some(node),
                cluster_stats: Vec::new(),
            })));
        self.stream = Stream::Open(Open::new());
    }

    /// Every response counts, not only the first. The time of the next report changes only with the interval.
    fn response(&mut self, response: LoadStatsResponse, now: Instant) {
        let Stream::Open(open) = &mut self.stream else {
            return;
        };
        if response.report_endpoint_granularity && !self.told_granularity {
            self.told_granularity = true;
            let server = &*self.server;
            warn!(
                server,
                "report_endpoint_granularity is not supported: load is reported by locality"
            );
        }
        let asked = AskedReports::from(response);
        if open.asked.as_ref() == Some(&asked) {
            return;
        }
        let (server, interval) = (&*self.server, asked.interval);
        info!(
            server,
            ?interval,
            clusters = asked.names(),
            "load reports are asked for"
        );
        let before = open.asked.replace(asked);
        if before.is_none_or(|before| before.interval != interval) {
            open.schedule(now);
        }
    }

    fn sent(&mut self, source: &mut dyn LoadSource, now: Instant) {
        let Stream::Open(open) = &mut self.stream else {
            return;
        };
        if let Some(Sending::Report(report)) = open.sending.take() {
            source.sent();
            self.totals.reports += 1;
            self.totals.calls += report.calls();
            open.note_sent(report.calls(), now);
            let left_out = report.metrics_left_out();
            self.totals.metrics_left_out += left_out;
            if left_out > 0 && !std::mem::replace(&mut self.told_left_out, true) {
                let (server, limit) = (&*self.server, MAX_METRIC_NAMES);
                warn!(
                    server,
                    limit,
                    "backends send metrics under too many names; load reports leave some out"
                );
            }
        }
        open.schedule(now);
    }

    fn closed(&mut self, end: &StreamEnd, source: &mut dyn LoadSource, now: Instant) {
        let life = match &mut self.stream {
            Stream::Open(open) => {
                // Not handed over, so it goes into the next report.
                if let Some(Sending::Report(report)) = open.sending.take() {
                    source.unsent();
                    self.books.put_back(report);
                }
                let doubt = open.in_doubt(now, UNREAD.max(end.silence));
                self.totals.reports_in_doubt += doubt.reports;
                self.totals.calls_in_doubt += doubt.calls;
                Life {
                    answered: open.asked.is_some(),
                    reports: open.remembered(),
                    in_doubt: doubt.reports,
                }
            }
            Stream::Connecting => Life::default(),
            Stream::Closing { .. } => {
                self.stream = Stream::Idle;
                self.tell_last_end(end);
                return;
            }
            Stream::Idle | Stream::Waiting { .. } => return,
        };
        let (server, reason) = (&*self.server, &end.reason);
        match self.endings.note(end, life, now) {
            Next::AtOnce => {
                info!(server, %reason, "LRS stream ended; opening the next at once");
                self.open();
            }
            Next::Wait { wait, is_news } => {
                match (is_news, end.is_refusal) {
                    (true, true) => {
                        warn!(server, %reason, ?wait, "the LRS server refuses load reports");
                    }
                    (true, false) => warn!(server, %reason, ?wait, "LRS stream failed"),
                    (false, _) => debug!(server, %reason, ?wait, "LRS stream failed again"),
                }
                self.stream = Stream::Waiting {
                    until: now + wait,
                    reason: Arc::clone(reason),
                };
            }
        }
    }

    /// The end of a stream whose last report is sent.
    fn tell_last_end(&mut self, end: &StreamEnd) {
        let (server, reason) = (&*self.server, &end.reason);
        if end.is_refusal && self.endings.is_news(end) {
            warn!(server, %reason, "the LRS server refuses the last load report");
        } else {
            debug!(server, %reason, "load reports have ended");
        }
    }

    /// Makes the report that is due, and sends it unless it and the one before say nothing.
    fn report(&mut self, source: &mut dyn LoadSource, now: Instant) {
        self.books.collect(source.take(), now);
        let Stream::Open(open) = &mut self.stream else {
            return;
        };
        let Some(asked) = &open.asked else { return };
        let report: Report = self.books.report(|cluster| asked.includes(cluster), now);
        if let Err(reason) = source.sending() {
            warn!(server = &*self.server, %reason, "a load report is put off");
            self.books.put_back(report);
            open.schedule(now);
            return;
        }
        let was_zero = std::mem::replace(&mut open.last_was_zero, report.is_zero());
        if was_zero && open.last_was_zero {
            // What was counted for clusters that nobody asks for is dropped as well.
            source.sent();
            open.schedule(now);
            return;
        }
        let calls = report.calls();
        debug!(server = &*self.server, calls, "load report");
        let request = encode::request(&report, now);
        open.sending = Some(Sending::Report(report));
        // The last report comes before its time. The time must not bring another while this one waits.
        open.next_report = None;
        self.outputs.push_back(LoadOutput::Send(Box::new(request)));
    }
}

impl AskedReports {
    fn includes(&self, cluster: &str) -> bool {
        let names = self.clusters.as_ref();
        names.is_none_or(|names| names.contains(cluster))
    }

    fn names(&self) -> String {
        match &self.clusters {
            None => "all".to_owned(),
            Some(names) => names
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

impl From<LoadStatsResponse> for AskedReports {
    fn from(response: LoadStatsResponse) -> Self {
        let interval = response.load_reporting_interval.unwrap_or_default();
        // An interval that is negative is as short as can be.
        let seconds = interval.seconds.try_into().map(Duration::from_secs);
        let nanos = interval.nanos.try_into().map(Duration::from_nanos);
        let interval = seconds
            .unwrap_or_default()
            .saturating_add(nanos.unwrap_or_default());
        let names = response.clusters.into_iter().collect();
        Self {
            interval: interval.max(MIN_INTERVAL),
            clusters: (!response.send_all_clusters).then_some(names),
        }
    }
}
