//! LRS over tonic: clients report loads on the port of ADS, because gRPC clients open the stream
//! there (`lrs_server: self`).
//!
//! One task for each stream moves messages between the socket and the [`LoadStore`]. A client is
//! asked for all of its clusters, if it can do that. Else it is asked for the clusters that we
//! serve, and asked again when their names change.

mod clusters;
mod server;
mod wire;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Listener};
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};

use crate::admission::Admission;
use crate::clients::{NodeView, logged};
use crate::ending::{End, too_large};
use crate::incoming::{Peer, Share};
use crate::limits::{Beyond, Limit, Limits, Ticket};
use crate::loads::{LoadStore, Loads, Owner, Pace, Report, Reporter, ReporterId, client_locality};
use crate::seat::Seat;
use crate::store::{Served, Store};
use crate::translate;

use self::clusters::ServedClusters;
pub(crate) use self::server::LrsServer;

/// The feature of a client that can report all of its clusters.
const SUPPORTS_ALL: &str = "envoy.lrs.supports_send_all_clusters";

/// The most problems of a bad report that its client is told.
const MAX_PROBLEMS: usize = 5;

/// The number of bytes in memory for each byte of an encoded node, whose metadata is a tree.
const NODE_FACTOR: usize = 8;

/// The books of loads, and the interval of reports; clones share both.
#[derive(Clone, Debug)]
pub(crate) struct LoadBooks {
    books: Arc<Mutex<LoadStore>>,
    /// The configuration, which has the services.
    store: Arc<Store>,
    interval: watch::Receiver<Duration>,
}

impl LoadBooks {
    pub(crate) fn new(
        store: Arc<Store>,
        interval: watch::Receiver<Duration>,
        limits: &Limits,
    ) -> Self {
        let books = LoadStore::new(Instant::now(), |total| limits.of_address(total));
        Self {
            books: Arc::new(Mutex::new(books)),
            store,
            interval,
        }
    }

    /// The loads now.
    pub(crate) fn view(&self) -> Loads {
        let interval = *self.interval.borrow();
        let snapshot = self.store.snapshot();
        let served = self.store.served();
        let owner = |cluster: &str| Owner {
            service: service_of(&snapshot, cluster).to_owned(),
            is_served: served.has(Cluster::TYPE_URL, cluster),
        };
        self.lock().view(interval, Instant::now(), owner)
    }

    fn lock(&self) -> MutexGuard<'_, LoadStore> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the reports of clients.
#[derive(Debug)]
pub(crate) struct Lrs {
    store: Arc<Store>,
    books: LoadBooks,
    admission: Arc<Admission>,
    stopping: watch::Receiver<bool>,
}

impl Lrs {
    pub(crate) fn new(
        store: Arc<Store>,
        books: LoadBooks,
        admission: Arc<Admission>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            store,
            books,
            admission,
            stopping,
        }
    }

    /// Serves a stream that was admitted.
    fn serve(
        &self,
        peer: Peer,
        ticket: Arc<Ticket>,
        from: Instant,
        requests: Streaming<LoadStatsRequest>,
    ) -> ReceiverStream<Result<LoadStatsResponse, Status>> {
        // The channel holds one response. A client that does not read is sent the newest one, later.
        let (responses, receiver) = mpsc::channel(1);
        let stream = Stream {
            store: self.store.clone(),
            seat: Seat::new(&self.store),
            admission: Arc::clone(&self.admission),
            interval: self.books.interval.clone(),
            books: self.books.clone(),
            client: None,
            due: false,
            paused_until: Some(from),
            held: peer.share(),
            peer,
            _ticket: ticket,
        };
        tokio::spawn(stream.run(requests, responses, self.stopping.clone()));
        ReceiverStream::new(receiver)
    }
}

type Responses = mpsc::Sender<Result<LoadStatsResponse, Status>>;

/// Drives one stream.
struct Stream {
    peer: Peer,
    held: Share,
    _ticket: Arc<Ticket>,
    store: Arc<Store>,
    admission: Arc<Admission>,
    seat: Seat,
    interval: watch::Receiver<Duration>,
    books: LoadBooks,
    /// The client, once it has introduced itself.
    client: Option<Client>,
    /// True if the client is to be sent a response.
    due: bool,
    /// The time until which no report is read.
    paused_until: Option<Instant>,
}

/// A client that has introduced itself. Its calls in progress end with this value.
struct Client {
    id: ReporterId,
    books: LoadBooks,
    peer: Peer,
    node: Node,
    pace: Pace,
    asked: Asked,
    /// True if the log has the client, so that it has its end, too.
    is_told: bool,
    /// True once the log has a warning that rows of this client are not kept.
    warned_of_rows: bool,
    /// True once the log has a warning that metrics of this client are left out.
    warned_of_metrics: bool,
}

/// The clusters that a client is asked for.
enum Asked {
    All,
    Listed(ServedClusters),
}

impl Stream {
    /// Serves the stream until one side ends it.
    async fn run(
        mut self,
        mut requests: Streaming<LoadStatsRequest>,
        responses: Responses,
        mut stopping: watch::Receiver<bool>,
    ) {
        let end = loop {
            let paused_until = self.paused_until;
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => break End::stopping(),
                request = requests.message(), if paused_until.is_none() => match request {
                    Ok(Some(request)) => if let Err(status) = self.handle(request) {
                        break End::Ours(status);
                    },
                    Ok(None) => break End::Theirs("it ended the stream".to_owned()),
                    Err(status) => break self.unread(&status),
                },
                changed = self.seat.changed() => match changed {
                    Ok(()) => self.refresh(),
                    Err(_) => break End::gone(),
                },
                changed = self.interval.changed() => match changed {
                    Ok(()) => self.due = self.client.is_some(),
                    Err(_) => break End::gone(),
                },
                permit = responses.reserve(), if self.due => match permit {
                    Ok(permit) => permit.send(Ok(self.response())),
                    Err(_) => break End::closed(),
                },
                () = responses.closed(), if paused_until.is_some() => break End::closed(),
                () = until(paused_until) => self.paused_until = None,
            }
        };
        if let Some(client) = self.client.take() {
            let arrivals = self.admission.arrivals();
            if client.is_told || arrivals.may_tell(Instant::now()).is_some() {
                let (stream, node) = (client.id, client.node.id.as_str());
                let reason = &*logged(end.reason());
                info!(stream, node, reason, "client reports no loads any more");
            }
        }
        let tell = |status| responses.send(Err(status));
        end.tell(tell, &self.peer).await;
    }

    fn handle(&mut self, request: LoadStatsRequest) -> Result<(), Status> {
        let bytes = request.encoded_len();
        self.take(request)?;
        self.pace(bytes, Instant::now());
        Ok(())
    }

    /// Counts a report to the requests of the connection, which all of its streams share. A client that reports
    /// too fast is read more slowly.
    fn pace(&mut self, bytes: usize, now: Instant) {
        let until = self.peer.pace(bytes, Duration::MAX, now);
        self.paused_until = until.filter(|until| *until > now);
        if self.paused_until.is_some() {
            let limit = Limit::RequestsPerSecond;
            self.peer.reached(limit, self.node_id());
            if let Some(left_out) = self.peer.may_tell() {
                let (node, peer) = (self.node_id(), self.peer.address());
                let reason = "it is read more slowly: too many reports";
                warn!(node, %peer, limit = limit.name(), reason, left_out, "client at a limit");
            }
        }
    }

    /// The node id of the client; empty if it has not introduced itself on any stream.
    fn node_id(&self) -> &str {
        let own = self.client.as_ref().map(|client| client.node.id.as_str());
        own.unwrap_or_else(|| self.peer.node_id())
    }

    fn take(&mut self, mut request: LoadStatsRequest) -> Result<(), Status> {
        if self.client.is_none() {
            self.introduce(request.node.take())?;
            // An Envoy that lost its stream sends here what it has counted since; gRPC clients send
            // nothing.
            if request.cluster_stats.is_empty() {
                return Ok(());
            }
        }
        let interval = *self.interval.borrow();
        let Some(client) = &mut self.client else {
            return Ok(());
        };
        client.report(request, interval, &self.store.served())
    }

    /// The end after a message that could not be read.
    fn unread(&self, status: &Status) -> End {
        match too_large(status) {
            Some(beyond) => End::Ours(self.refused(&beyond)),
            None => End::broken(status),
        }
    }

    /// The status of a client that went beyond a limit.
    fn refused(&self, beyond: &Beyond) -> Status {
        self.books.lock().refused();
        let node = self.node_id();
        self.peer.reached(beyond.limit, node);
        if let Some(left_out) = self.peer.may_tell() {
            let (peer, limit, reason) = (self.peer.address(), beyond.limit.name(), &beyond.text);
            let told = format_args!("load report refused: {}", logged(reason));
            warn!(%peer, node, limit, left_out, "{told}");
        }
        beyond.status()
    }

    fn introduce(&mut self, node: Option<Node>) -> Result<(), Status> {
        let refused = |problem: String| {
            self.books.lock().refused();
            if let Some(left_out) = self.peer.may_tell() {
                let told = format_args!("load reports refused: {}", logged(&problem));
                warn!(peer = %self.peer.address(), left_out, "{told}");
            }
            Status::invalid_argument(problem)
        };
        let node = node.ok_or_else(|| {
            refused("node: must be set in the first message of a stream".to_owned())
        })?;
        let locality = client_locality(&node).map_err(|errors| refused(shortened(&errors)))?;
        let within = self
            .held
            .set(node.encoded_len().saturating_mul(NODE_FACTOR));
        within.map_err(|beyond| self.refused(&beyond))?;
        let shown = NodeView::new(&node);
        let reporter = Reporter {
            peer: Some(self.peer.address()),
            node: shown.id,
            cluster: shown.cluster,
            user_agent: shown.user_agent,
            locality,
        };
        let id = self.books.lock().open(reporter, Instant::now());
        let left_out = self.admission.arrivals().may_tell(Instant::now());
        if let Some(left_out) = left_out {
            let (stream, agent, node) = (id, &node.user_agent_name, &node.id);
            let left_out = (left_out > 0).then_some(left_out);
            info!(stream, node, agent, left_out, "client reports loads");
        }
        let supports_all = node.client_features.iter().any(|of| of == SUPPORTS_ALL);
        let asked = match supports_all {
            true => Asked::All,
            false => {
                let snapshot = self.seat.snapshot(|| Some(Cow::Borrowed(&node)));
                Asked::Listed(ServedClusters::of(&snapshot))
            }
        };
        self.client = Some(Client {
            id,
            books: self.books.clone(),
            peer: self.peer.clone(),
            node,
            pace: Pace::default(),
            asked,
            is_told: left_out.is_some(),
            warned_of_rows: false,
            warned_of_metrics: false,
        });
        self.due = true;
        Ok(())
    }

    /// Looks for changes in the names of the clusters.
    fn refresh(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        if let Asked::Listed(listed) = &mut client.asked {
            let snapshot = self.seat.snapshot(|| Some(Cow::Borrowed(&client.node)));
            self.due |= listed.update(&snapshot);
        }
    }

    fn response(&mut self) -> LoadStatsResponse {
        self.due = false;
        let interval = *self.interval.borrow_and_update();
        let asked = self.client.as_ref().map(|client| &client.asked);
        let (send_all_clusters, clusters) = match asked {
            Some(Asked::Listed(listed)) => {
                let names = listed.names.iter();
                (false, names.map(ToString::to_string).collect())
            }
            Some(Asked::All) | None => (true, Vec::new()),
        };
        LoadStatsResponse {
            clusters,
            send_all_clusters,
            load_reporting_interval: Some(translate::duration(interval)),
            report_endpoint_granularity: false,
        }
    }
}

impl Client {
    /// Takes a report.
    fn report(
        &mut self,
        request: LoadStatsRequest,
        interval: Duration,
        served: &Served,
    ) -> Result<(), Status> {
        let (now, stream, node) = (Instant::now(), self.id, self.node.id.as_str());
        if !self.pace.take(interval, now) {
            let problem = format!("too many reports: expected one each {interval:?}");
            self.refused(&problem);
            return Err(Status::resource_exhausted(problem));
        }
        let report = Report::parse(request.cluster_stats).map_err(|errors| {
            let problem = shortened(&errors);
            self.refused(&problem);
            Status::invalid_argument(problem)
        })?;
        let is_served = |name: &str| served.has(Cluster::TYPE_URL, name);
        let mut books = self.books.lock();
        let refused = books.report(self.id, report, interval, now, is_served);
        drop(books);
        debug!(stream, node, "load report");
        let is_first = |count, warned: &mut bool| count > 0 && !std::mem::replace(warned, true);
        if is_first(refused.rows, &mut self.warned_of_rows)
            && let Some(left_out) = self.peer.may_tell()
        {
            let refused = refused.rows;
            let told = "figures of a load report are not kept: there are too many";
            warn!(stream, node, refused, left_out, "{told}");
        }
        if is_first(refused.metrics, &mut self.warned_of_metrics)
            && let Some(left_out) = self.peer.may_tell()
        {
            let refused = refused.metrics;
            let told = "metrics of a load report are left out: they are beyond a limit";
            warn!(stream, node, refused, left_out, "{told}");
        }
        Ok(())
    }
}

impl Client {
    /// Counts and logs a report that is refused.
    fn refused(&self, problem: &str) {
        self.books.lock().refused();
        if let Some(left_out) = self.peer.may_tell() {
            let (stream, node) = (self.id, self.node.id.as_str());
            let told = format_args!("load report refused: {}", logged(problem));
            warn!(stream, node, left_out, "{told}");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.books.lock().close(self.id);
    }
}

/// Waits for a time; without one, for ever.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// The service to which a cluster belongs; the cluster's own name if that is unknown. A service has
/// a listener of its name.
fn service_of<'a>(snapshot: &Snapshot, cluster: &'a str) -> &'a str {
    let is_service = |name: &str| snapshot.resource(Listener::TYPE_URL, name).is_some();
    match translate::service_of_cluster(cluster) {
        Some(service) if !is_service(cluster) && is_service(service) => service,
        _ => cluster,
    }
}

/// The first problems of a report. A status has little room.
fn shortened(errors: &crowfly_model::Errors) -> String {
    let problems: Vec<_> = errors
        .iter()
        .take(MAX_PROBLEMS)
        .map(ToString::to_string)
        .collect();
    let problems = problems.join("; ");
    match errors.iter().count().saturating_sub(MAX_PROBLEMS) {
        0 => problems,
        more => format!("{problems}; and {more} more"),
    }
}
