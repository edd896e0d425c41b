//! A reporter, a source of counts and a server in simulated time.
//!
//! A test says what happens and how much time goes by, because no report depends on anything else.

use std::time::{Duration, Instant};

use crowfly_xds::load_report::{LoadInput, LoadOutput, LoadReporter};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;

use crate::source::{Fake, FakeCluster};

/// The interval that the server asks for, unless a test says another.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// A reporter, a source of counts, and a server that takes what is sent.
pub(crate) struct Sim {
    pub(crate) reporter: LoadReporter,
    pub(crate) source: Fake,
    pub(crate) now: Instant,
    /// True if the connection takes requests at once.
    pub(crate) takes_requests: bool,
    pub(crate) waiting: Option<LoadStatsRequest>,
    pub(crate) sent: Vec<LoadStatsRequest>,
    pub(crate) taken: Vec<LoadStatsRequest>,
    pub(crate) last: Option<LoadStatsRequest>,
    pub(crate) opened: u32,
    pub(crate) closed: u32,
    pub(crate) finished: u32,
}

impl Sim {
    pub(crate) fn new() -> Self {
        let node = Node {
            id: "web-1".to_owned(),
            client_features: vec!["envoy.lb.other".to_owned()],
            ..Node::default()
        };
        Self {
            reporter: LoadReporter::new(node, "127.0.0.1:18000", 7),
            source: Fake::default(),
            now: Instant::now(),
            takes_requests: true,
            waiting: None,
            sent: Vec::new(),
            taken: Vec::new(),
            last: None,
            opened: 0,
            closed: 0,
            finished: 0,
        }
    }

    /// A stream on which the server has answered.
    pub(crate) fn open(response: &LoadStatsResponse, clusters: &[&str]) -> Self {
        let mut sim = Self::new();
        clusters.iter().for_each(|name| sim.use_cluster(name));
        sim.reopen(response);
        sim
    }

    pub(crate) fn reopen(&mut self, response: &LoadStatsResponse) {
        while let Some(at) = self.reporter.next_timeout()
            && self.reporter.trouble().is_some()
        {
            self.advance(at - self.now);
        }
        let stalled = !std::mem::replace(&mut self.takes_requests, true);
        self.input(LoadInput::Opened);
        self.takes_requests = !stalled;
        self.sent.clear();
        self.answer(response);
    }

    pub(crate) fn use_cluster(&mut self, name: &str) {
        let fake = self.source.clusters.entry(name.to_owned());
        fake.or_insert_with(|| FakeCluster::new(name)).is_used = true;
        self.input(LoadInput::Changed);
    }

    pub(crate) fn stop_using(&mut self, name: &str) {
        self.source.clusters.get_mut(name).unwrap().is_used = false;
        self.input(LoadInput::Changed);
    }

    pub(crate) fn count(&mut self, name: &str, issued: u64, succeeded: u64, errors: u64) {
        let cluster = self.source.clusters.get_mut(name).unwrap();
        let locality = &mut cluster.load.localities[0];
        locality.issued += issued;
        locality.succeeded += succeeded;
        locality.errors += errors;
        locality.in_progress = locality.in_progress + issued - succeeded - errors;
    }

    pub(crate) fn answer(&mut self, response: &LoadStatsResponse) {
        self.input(LoadInput::Response(response.clone()));
    }

    pub(crate) fn input(&mut self, input: LoadInput) {
        if let LoadInput::Closed(_) = input {
            self.waiting = None;
        }
        self.reporter.handle(input, &mut self.source, self.now);
        self.act();
    }

    /// Lets time pass, with every timer in it.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.reporter.next_timeout()
            && at <= end
        {
            self.now = at.max(self.now);
            self.reporter.handle_timeout(&mut self.source, self.now);
            self.act();
        }
        self.now = end;
    }

    pub(crate) fn act(&mut self) {
        while let Some(output) = self.reporter.poll_output() {
            match output {
                LoadOutput::Close => self.closed += 1,
                LoadOutput::Finish => self.finished += 1,
                LoadOutput::Open => self.opened += 1,
                LoadOutput::Send(request) => {
                    assert!(self.waiting.is_none(), "one request at a time");
                    self.sent.push((*request).clone());
                    self.waiting = Some(*request);
                    if self.takes_requests {
                        self.take_request();
                    }
                }
            }
        }
    }

    /// The connection takes the request that waits for it.
    pub(crate) fn take_request(&mut self) {
        if let Some(request) = self.waiting.take() {
            self.taken.push(request);
            self.input(LoadInput::Sent);
        }
    }

    /// The calls in the requests that connections have taken since this was last asked.
    pub(crate) fn taken_calls(&mut self) -> u64 {
        let taken = std::mem::take(&mut self.taken).into_iter();
        let stats = taken.flat_map(|request| request.cluster_stats);
        let localities = stats.flat_map(|stats| stats.upstream_locality_stats);
        localities
            .map(|locality| locality.total_issued_requests)
            .sum()
    }

    /// The report that was sent since this was last asked: a row for each cluster with issued, succeeded, errors
    /// and in progress.
    pub(crate) fn rows(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        let [request] = &sent[..] else {
            panic!("expected one report, got {sent:?}");
        };
        self.last = Some(request.clone());
        let row = |stats: &ClusterStats| {
            let at = &stats.upstream_locality_stats[0];
            format!(
                "{}: {} {} {} {}",
                stats.cluster_name,
                at.total_issued_requests,
                at.total_successful_requests,
                at.total_error_requests,
                at.total_requests_in_progress
            )
        };
        request.cluster_stats.iter().map(row).collect()
    }

    pub(crate) fn last_stats(&mut self, cluster: &str) -> ClusterStats {
        if !self.sent.is_empty() {
            self.rows();
        }
        let mut stats = self.last.as_ref().unwrap().cluster_stats.iter();
        let found = stats.find(|stats| stats.cluster_name == cluster);
        found.unwrap().clone()
    }

    pub(crate) fn interval_of(&mut self, cluster: &str) -> Duration {
        let interval = self.last_stats(cluster).load_report_interval.unwrap();
        Duration::new(interval.seconds as u64, interval.nanos as u32)
    }
}

/// The answer of a server that wants all clusters.
pub(crate) fn all(interval: Duration) -> LoadStatsResponse {
    LoadStatsResponse {
        send_all_clusters: true,
        ..listed(interval, &[])
    }
}

/// The answer of a server that wants these clusters.
pub(crate) fn listed(interval: Duration, names: &[&str]) -> LoadStatsResponse {
    LoadStatsResponse {
        clusters: names.iter().map(ToString::to_string).collect(),
        load_reporting_interval: Some(protobuf::Duration {
            seconds: interval.as_secs() as i64,
            nanos: interval.subsec_nanos() as i32,
        }),
        ..LoadStatsResponse::default()
    }
}
