//! An LRS server that the test controls by hand, on the socket of an ADS server.
//!
//! The server only reads and writes messages, so that it shares no rule with our client or our server.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::LoadReportingService;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::ads::PATIENCE;

/// The LRS streams that clients open.
#[derive(Debug)]
pub struct LrsServer {
    streams: mpsc::UnboundedReceiver<LrsStream>,
}

/// An LRS stream, from the server's side. Dropping it ends the stream with OK.
#[derive(Debug)]
pub struct LrsStream {
    requests: Streaming<LoadStatsRequest>,
    responses: mpsc::UnboundedSender<Result<LoadStatsResponse, Status>>,
}

#[derive(Clone, Debug)]
pub(crate) struct LrsService {
    streams: mpsc::UnboundedSender<LrsStream>,
}

/// A server, and the service that belongs on a socket.
pub(crate) fn lrs() -> (LrsServer, LrsService) {
    let (sender, streams) = mpsc::unbounded_channel();
    (LrsServer { streams }, LrsService { streams: sender })
}

impl LrsServer {
    /// Waits for the next stream of a client.
    pub async fn accept(&mut self) -> LrsStream {
        let stream = timeout(PATIENCE, self.streams.recv()).await;
        stream
            .expect("the client opens a stream")
            .expect("the service lives as long as this")
    }

    /// Waits for the next stream, for as long as it takes; `None` once the server is gone.
    pub async fn next(&mut self) -> Option<LrsStream> {
        self.streams.recv().await
    }

    /// Waits for the next stream, reads its first request, and asks for all clusters.
    pub async fn accept_and_ask(&mut self, interval: Duration) -> LrsStream {
        let mut stream = self.accept().await;
        stream.report().await;
        stream.ask(interval, None);
        stream
    }

    /// Returns whether no stream was opened that the test has not accepted.
    pub fn is_quiet(&mut self) -> bool {
        self.streams.is_empty()
    }
}

impl LrsStream {
    /// Waits for the next request.
    pub async fn report(&mut self) -> LoadStatsRequest {
        let request = timeout(PATIENCE, self.next()).await;
        request
            .expect("the client sends a report")
            .expect("the client keeps the stream")
    }

    /// The next request; `None` once the client has ended the stream, or its connection is gone.
    pub async fn next(&mut self) -> Option<LoadStatsRequest> {
        self.requests.message().await.ok().flatten()
    }

    /// Waits until the client ends the stream.
    pub async fn ended(&mut self) {
        let request = timeout(PATIENCE, self.next()).await;
        let request = request.expect("the client ends the stream");
        assert_eq!(request, None, "another report");
    }

    /// Asks for reports of these clusters, or of all.
    pub fn ask(&self, interval: Duration, clusters: Option<&[&str]>) {
        let names = clusters.unwrap_or_default();
        let response = LoadStatsResponse {
            clusters: names.iter().map(ToString::to_string).collect(),
            send_all_clusters: clusters.is_none(),
            load_reporting_interval: Some(protobuf::Duration {
                seconds: interval.as_secs() as i64,
                nanos: interval.subsec_nanos() as i32,
            }),
            report_endpoint_granularity: false,
        };
        // The client may have gone.
        let _ = self.responses.send(Ok(response));
    }

    /// Ends the stream with an error.
    pub fn fail(self, status: Status) {
        let _ = self.responses.send(Err(status));
    }
}

#[tonic::async_trait]
impl LoadReportingService for LrsService {
    type StreamLoadStatsStream =
        Pin<Box<dyn Stream<Item = Result<LoadStatsResponse, Status>> + Send>>;

    async fn stream_load_stats(
        &self,
        requests: Request<Streaming<LoadStatsRequest>>,
    ) -> Result<Response<Self::StreamLoadStatsStream>, Status> {
        let (responses, outgoing) = mpsc::unbounded_channel();
        let stream = LrsStream {
            requests: requests.into_inner(),
            responses,
        };
        let sent = self.streams.send(stream);
        sent.map_err(|_| Status::unavailable("the test has ended"))?;
        let outgoing = UnboundedReceiverStream::new(outgoing);
        Ok(Response::new(Box::pin(outgoing)))
    }
}

/// The sums of reports, as a server keeps them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadSums {
    /// The calls by cluster and locality (`region/zone/sub_zone`).
    pub localities: BTreeMap<(String, String), LoadRow>,
    /// The drops by cluster and category; the empty category has the drops without one.
    pub drops: BTreeMap<(String, String), u64>,
    /// The number of reports.
    pub reports: u64,
}

/// The calls of one locality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadRow {
    /// The sum of `total_issued_requests`.
    pub issued: u64,
    /// The sum of `total_successful_requests`.
    pub succeeded: u64,
    /// The sum of `total_error_requests`.
    pub errors: u64,
    /// The last `total_requests_in_progress`.
    pub in_progress: u64,
}

impl LoadSums {
    /// Adds a report.
    pub fn add(&mut self, report: &LoadStatsRequest) {
        self.reports += 1;
        for stats in &report.cluster_stats {
            self.add_drops(stats);
            for locality in &stats.upstream_locality_stats {
                let key = (stats.cluster_name.clone(), place(locality));
                let row = self.localities.entry(key).or_default();
                row.issued += locality.total_issued_requests;
                row.succeeded += locality.total_successful_requests;
                row.errors += locality.total_error_requests;
                row.in_progress = locality.total_requests_in_progress;
            }
        }
    }

    /// The sums over all clusters and localities.
    pub fn total(&self) -> LoadRow {
        let mut total = LoadRow::default();
        for row in self.localities.values() {
            total.issued += row.issued;
            total.succeeded += row.succeeded;
            total.errors += row.errors;
            total.in_progress += row.in_progress;
        }
        total
    }

    /// The row of one locality of a cluster: issued, succeeded, errors, in progress.
    pub fn row(&self, cluster: &str, locality: &str) -> [u64; 4] {
        let key = (cluster.to_owned(), locality.to_owned());
        let row = self.localities.get(&key).copied().unwrap_or_default();
        [row.issued, row.succeeded, row.errors, row.in_progress]
    }

    fn add_drops(&mut self, stats: &ClusterStats) {
        let mut without = stats.total_dropped_requests;
        let mut add = |category: &str, count| {
            let key = (stats.cluster_name.clone(), category.to_owned());
            if count > 0 {
                *self.drops.entry(key).or_default() += count;
            }
        };
        for drop in &stats.dropped_requests {
            add(&drop.category, drop.dropped_count);
            without -= drop.dropped_count;
        }
        add("", without);
    }
}

fn place(stats: &UpstreamLocalityStats) -> String {
    let locality = stats.locality.clone().unwrap_or_default();
    format!(
        "{}/{}/{}",
        locality.region, locality.zone, locality.sub_zone
    )
}
