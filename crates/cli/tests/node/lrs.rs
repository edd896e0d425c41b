//! An LRS server that a test holds by the hand: it asks for reports when it is told to, keeps each of them,
//! and breaks streams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::{
    LoadReportingService, LoadReportingServiceServer,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

const PATIENCE: Duration = Duration::from_secs(30);

/// The connections of a cluster to a zone, in all reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) opened: u64,
    pub(crate) failed: u64,
    pub(crate) closed: u64,
    /// In the last report.
    pub(crate) active: u64,
}

impl Told {
    /// The counts that are in these and not in others, which must not have more. Open connections are left out.
    pub(crate) fn less(&self, others: &Self) -> Self {
        let less = |more: u64, less| more.checked_sub(less).expect("others have no more");
        Self {
            opened: less(self.opened, others.opened),
            failed: less(self.failed, others.failed),
            closed: less(self.closed, others.closed),
            active: 0,
        }
    }
}

/// A running server.
pub(crate) struct Lrs {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _runtime: Runtime,
}

#[derive(Debug)]
struct State {
    /// The answer to every stream; `None` leaves it waiting.
    asked: watch::Sender<Option<LoadStatsResponse>>,
    /// Counted up to break all streams.
    broken: watch::Sender<u64>,
    reports: Mutex<Vec<LoadStatsRequest>>,
    /// The streams that have not ended.
    streams: AtomicUsize,
    nodes: Mutex<Vec<String>>,
}

impl Lrs {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(State {
            asked: watch::Sender::new(None),
            broken: watch::Sender::new(0),
            reports: Mutex::default(),
            streams: AtomicUsize::new(0),
            nodes: Mutex::default(),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let service = LoadReportingServiceServer::new(Service(Arc::clone(&state)));
        let incoming = TcpListenerStream::new(listener);
        let server = Server::builder().add_service(service);
        runtime.spawn(server.serve_with_incoming(incoming));
        Self {
            address,
            state,
            _runtime: runtime,
        }
    }

    /// Asks for reports, of these clusters or of all.
    pub(crate) fn ask(&self, interval: Duration, clusters: Option<&[&str]>) {
        let names = clusters.unwrap_or_default().iter();
        let response = LoadStatsResponse {
            clusters: names.map(ToString::to_string).collect(),
            send_all_clusters: clusters.is_none(),
            load_reporting_interval: Some(protobuf::Duration {
                seconds: interval.as_secs().cast_signed(),
                nanos: interval.subsec_nanos().cast_signed(),
            }),
            report_endpoint_granularity: false,
        };
        self.state.asked.send_replace(Some(response));
    }

    /// Streams from now on wait for an answer.
    pub(crate) fn be_silent(&self) {
        self.state.asked.send_replace(None);
    }

    /// Breaks all streams.
    pub(crate) fn break_streams(&self) {
        self.state.broken.send_modify(|count| *count += 1);
    }

    /// The names of the nodes that opened streams.
    pub(crate) fn nodes(&self) -> Vec<String> {
        self.state.nodes.lock().unwrap().clone()
    }

    /// Waits until all streams have ended, so that what was sent on them is here.
    pub(crate) fn wait_for_ends(&self) {
        self.wait(|lrs| lrs.state.streams.load(Ordering::SeqCst) == 0);
    }

    /// The number of reports so far.
    pub(crate) fn reports(&self) -> usize {
        self.state.reports.lock().unwrap().len()
    }

    /// The time that each report after this one says it covers, for a cluster.
    pub(crate) fn intervals(&self, cluster: &str, after: usize) -> Vec<Duration> {
        let reports = self.state.reports.lock().unwrap();
        let clusters = reports.iter().skip(after).flat_map(|it| &it.cluster_stats);
        let intervals = clusters
            .filter(|it| it.cluster_name == cluster)
            .map(|it| it.load_report_interval.unwrap())
            .map(|it| Duration::new(it.seconds.cast_unsigned(), it.nanos.cast_unsigned()));
        intervals.collect()
    }

    /// Waits for the next report that has something to say.
    pub(crate) fn wait_for_report(&self) {
        let before = self.reports();
        self.wait(|lrs| lrs.reports() > before);
    }

    /// All reports as one: a row for each cluster and zone.
    pub(crate) fn told(&self) -> BTreeMap<(String, String), Told> {
        let reports = self.state.reports.lock().unwrap();
        let mut told: BTreeMap<(String, String), Told> = BTreeMap::new();
        for report in reports.iter() {
            for row in told.values_mut() {
                row.active = 0;
            }
            for cluster in &report.cluster_stats {
                for at in &cluster.upstream_locality_stats {
                    assert_eq!(at.total_issued_requests, at.total_new_connections);
                    assert_eq!(at.total_error_requests, at.total_fail_connections);
                    assert_eq!(at.total_requests_in_progress, at.total_active_connections);
                    let zone = at.locality.as_ref().map(|it| it.zone.clone());
                    let row = told
                        .entry((cluster.cluster_name.clone(), zone.unwrap_or_default()))
                        .or_default();
                    row.opened += at.total_new_connections;
                    row.failed += at.total_fail_connections;
                    row.closed += at.total_successful_requests;
                    row.active += at.total_active_connections;
                }
            }
        }
        told
    }

    /// The sum over all clusters and zones.
    pub(crate) fn all(&self) -> Told {
        self.sum_of(|_| true)
    }

    /// The sum over all zones of a cluster.
    pub(crate) fn sum(&self, cluster: &str) -> Told {
        self.sum_of(|name| name == cluster)
    }

    fn sum_of(&self, is_counted: impl Fn(&str) -> bool) -> Told {
        let mut sum = Told::default();
        for ((name, _), row) in self.told() {
            if is_counted(&name) {
                sum.opened += row.opened;
                sum.failed += row.failed;
                sum.closed += row.closed;
                sum.active += row.active;
            }
        }
        sum
    }

    /// Waits until the reports are as wanted.
    pub(crate) fn wait(&self, wanted: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !wanted(self) {
            assert!(begin.elapsed() < PATIENCE, "{:#?}", self.told());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Service(Arc<State>);

/// The state, for a stream that ends when this is dropped.
struct Ended(Arc<State>);

impl Deref for Ended {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tonic::async_trait]
impl LoadReportingService for Service {
    type StreamLoadStatsStream = ReceiverStream<Result<LoadStatsResponse, Status>>;

    async fn stream_load_stats(
        &self,
        request: Request<Streaming<LoadStatsRequest>>,
    ) -> Result<Response<Self::StreamLoadStatsStream>, Status> {
        let (responses, receiver) = mpsc::channel(4);
        let (state, mut requests) = (Arc::clone(&self.0), request.into_inner());
        state.streams.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let state = Ended(state);
            let mut asked = state.asked.subscribe();
            asked.mark_changed();
            let mut broken = state.broken.subscribe();
            loop {
                tokio::select! {
                    biased;
                    request = requests.message() => match request {
                        Ok(Some(request)) => match &request.node {
                            Some(node) => state.nodes.lock().unwrap().push(node.id.clone()),
                            None => state.reports.lock().unwrap().push(request),
                        },
                        _ => return,
                    },
                    _ = broken.changed() => {
                        let _ = responses.send(Err(Status::unavailable("a restart"))).await;
                        return;
                    }
                    _ = asked.changed() => {
                        let response = asked.borrow_and_update().clone();
                        if let Some(response) = response {
                            let _ = responses.send(Ok(response)).await;
                        }
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
