//! Clients that mean harm, over real sockets, with an honest client beside them that still gets its updates.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crowfly_control::{ControlPlane, Limits, Ports};
use envoy_types::pb::envoy::config::core::v3::{Extension, Node};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    ResourceLocator,
};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::google::rpc;
use support::{
    AdsClient, CLUSTER, ENDPOINTS, any_port, channel, get_json, metric, service, services,
    snapshot, soon, until,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tracing::field::Field;
use tracing::{Event, Metadata, Subscriber, span};

const HOSTILE: &str = "hostile-1";
const HONEST: &str = "gRPC C-core";

async fn plane(config: &str, limits: Limits) -> ControlPlane {
    let ports = Ports::new(any_port()).admin(any_port()).limits(limits);
    ControlPlane::with_ports(snapshot(config), ports)
        .await
        .unwrap()
}

/// A delta stream of a client that says that it is [`HOSTILE`].
struct Hostile {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Hostile {
    async fn open(address: SocketAddr) -> Self {
        Self::open_on(channel(address).await).await.unwrap()
    }

    async fn open_on(channel: Channel) -> Result<Self, Status> {
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let (requests, receiver) = mpsc::channel(16);
        let responses = client.delta_aggregated_resources(ReceiverStream::new(receiver));
        Ok(Self {
            requests,
            responses: soon(responses).await?.into_inner(),
        })
    }

    /// False if the stream is over.
    async fn send(&self, request: DeltaDiscoveryRequest) -> bool {
        self.requests.send(request).await.is_ok()
    }

    /// The status with which the stream ends, after any number of responses.
    async fn end(mut self) -> Status {
        soon(async move {
            loop {
                match self.responses.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it ended without a reason"),
                    Err(status) => return status,
                }
            }
        })
        .await
    }
}

fn subscribe(names: impl IntoIterator<Item = String>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(Node {
            id: HOSTILE.to_owned(),
            ..Node::default()
        }),
        type_url: ENDPOINTS.to_owned(),
        resource_names_subscribe: names.into_iter().collect(),
        ..DeltaDiscoveryRequest::default()
    }
}

async fn limited(plane: &ControlPlane, limit: &str) -> f64 {
    let name = format!("crowfly_control_limited_total{{limit=\"{limit}\",node=\"{HOSTILE}\"}}");
    metric(plane.admin_addr().unwrap(), &name).await
}

/// An honest client gets every one of ten changes.
async fn honest_client_is_served(plane: &ControlPlane) {
    let mut honest = AdsClient::open(plane.listen_addr()).await;
    honest.subscribe(HONEST, ENDPOINTS, &["honest"]).await;
    let mut version = String::new();
    for port in 1..10 {
        plane.set_snapshot(snapshot(&services(&[("honest", port), ("a", port)])));
        let response = honest.next().await;
        assert_ne!(response.version_info, version);
        version.clone_from(&response.version_info);
        honest.ack(&response, &["honest"]).await;
    }
}

fn honest() -> String {
    services(&[("honest", 1), ("a", 1)])
}

/// L-05: a client that changes its subscriptions without end is read more slowly and named. Its stream goes on,
/// and an honest one gets its updates.
#[tokio::test]
async fn endless_changes_are_slowed() {
    let limits = Limits {
        requests_per_second: 20,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let Hostile {
        requests,
        mut responses,
    } = Hostile::open(plane.listen_addr()).await;
    let reader = tokio::spawn(async move { while let Ok(Some(_)) = responses.message().await {} });
    let flood = tokio::spawn(async move {
        let mut sent = 0_u32;
        loop {
            let mut request = subscribe([format!("new-{sent}")]);
            request.resource_names_unsubscribe = vec![format!("new-{}", sent.wrapping_sub(1))];
            request.response_nonce = "stale".to_owned();
            if requests.send(request).await.is_err() {
                return;
            }
            sent += 1;
        }
    });
    until(async || limited(&plane, "requests_per_second").await > 0.0).await;
    honest_client_is_served(&plane).await;
    assert!(
        !flood.is_finished() && !reader.is_finished(),
        "it is slowed, not ended"
    );

    let shown = get_json(plane.admin_addr().unwrap(), "/clients").await;
    let shown = shown["clients"].as_array().unwrap();
    let hostile = shown
        .iter()
        .find(|client| client["node"]["id"] == HOSTILE)
        .unwrap();
    let reached = &hostile["limits_reached"]["requests_per_second"];
    assert!(reached["times"].as_u64() > Some(0), "{hostile}");
    flood.abort();
    reader.abort();
}

/// L-04: names beyond a limit end the stream, with a status that names the limit.
#[tokio::test]
async fn too_many_names_end_the_stream() {
    let limits = Limits {
        types: 3,
        names: 100,
        held_bytes: 8 << 20,
        request_bytes: 3 << 20,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let many = (0..101).map(|index| format!("name-{index}"));
    let long = |count: usize| (0..count).map(|index| format!("{index}-{}", "x".repeat(1 << 20)));
    for (limit, requests) in [
        ("names", vec![subscribe(many)]),
        (
            "held_bytes",
            (0..8)
                .map(|index| subscribe(long(index + 1).skip(index)))
                .collect(),
        ),
        ("request_bytes", vec![subscribe([]), subscribe(long(4))]),
        (
            "types",
            (0..4)
                .map(|index| DeltaDiscoveryRequest {
                    type_url: format!("type.googleapis.com/x.Y{index}"),
                    ..subscribe([])
                })
                .collect(),
        ),
    ] {
        let hostile = Hostile::open(plane.listen_addr()).await;
        for request in requests {
            hostile.send(request).await;
        }
        let status = hostile.end().await;
        assert_eq!(status.code(), Code::ResourceExhausted, "{limit}: {status}");
        assert!(
            status.message().starts_with(&format!("limit {limit}: ")),
            "{status}"
        );
        until(async || limited(&plane, limit).await >= 1.0).await;
    }
    honest_client_is_served(&plane).await;
}

/// L-08: the streams of one connection share what may be held for it, half-read requests included.
#[tokio::test]
async fn streams_of_a_connection_share_their_limit() {
    let limits = Limits {
        held_bytes: 4 << 20,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let channel = channel(plane.listen_addr()).await;
    let mut streams = Vec::new();
    let mut ended = 0;
    for index in 0..8 {
        let hostile = Hostile::open_on(channel.clone()).await.unwrap();
        hostile
            .send(subscribe([format!("{index}-{}", "x".repeat(1 << 20))]))
            .await;
        let mut hostile = hostile;
        match soon(hostile.responses.message()).await {
            Ok(_) => streams.push(hostile),
            Err(status) => {
                assert!(
                    status.message().starts_with("limit held_bytes: "),
                    "{status}"
                );
                ended += 1;
            }
        }
    }
    assert!(
        !streams.is_empty() && streams.len() <= 3,
        "{} streams hold a name",
        streams.len()
    );
    assert_eq!(streams.len() + ended, 8);
    drop(streams);
    honest_client_is_served(&plane).await;
}

/// L-07: a client that never reads is named, and then its connection is closed. Nothing waits for it but one
/// response.
#[tokio::test]
async fn a_client_that_never_reads_is_named_and_closed() {
    let limits = Limits {
        slow_after: Duration::from_millis(200),
        close_after: Duration::from_secs(4),
        ..Limits::default()
    };
    let large = large_services(1);
    let plane = plane(&large, limits).await;
    let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
    let endpoint = endpoint
        .initial_stream_window_size(1 << 10)
        .initial_connection_window_size(1 << 16);
    let hostile = Hostile::open_on(endpoint.connect().await.unwrap())
        .await
        .unwrap();
    let mut wildcard = subscribe([]);
    wildcard.type_url = CLUSTER.to_owned();
    hostile.send(wildcard).await;
    let admin = plane.admin_addr().unwrap();
    // It does not read, and everything changes, again and again.
    let mut turn = 2;
    until(async || {
        turn += 1;
        plane.set_snapshot(snapshot(&large_services(turn)));
        limited(&plane, "slow_after").await > 0.0
    })
    .await;
    let shown = get_json(admin, "/clients").await;
    assert!(
        shown["clients"][0]["slow_since"].as_u64().is_some(),
        "{shown}"
    );
    assert_eq!(shown["clients"][0]["node"]["id"], HOSTILE, "{shown}");
    honest_client_is_served(&plane).await;

    until(async || limited(&plane, "close_after").await > 0.0).await;
    let open = "crowfly_control_streams";
    until(async || metric(admin, open).await == 0.0).await;
    let connections = "crowfly_control_connections";
    until(async || metric(admin, connections).await == 0.0).await;
}

/// A client by state of the world that asks for all clusters, takes a part of the response, and reads no more.
struct Stuck {
    requests: mpsc::Sender<DiscoveryRequest>,
    _responses: Streaming<DiscoveryResponse>,
}

impl Stuck {
    async fn open(plane: &ControlPlane) -> Self {
        let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
        let endpoint = endpoint.initial_stream_window_size(1 << 15);
        let mut client = AggregatedDiscoveryServiceClient::new(endpoint.connect().await.unwrap());
        let (requests, receiver) = mpsc::channel(16);
        let responses = client.stream_aggregated_resources(ReceiverStream::new(receiver));
        let stuck = Self {
            requests,
            _responses: soon(responses).await.unwrap().into_inner(),
        };
        stuck.ask(CLUSTER).await;
        let sent = "crowfly_control_responses_total{type=\"envoy.config.cluster.v3.Cluster\"}";
        let admin = plane.admin_addr().unwrap();
        until(async || metric(admin, sent).await >= 1.0).await;
        stuck
    }

    async fn ask(&self, type_url: &str) {
        let request = DiscoveryRequest {
            node: Some(Node {
                id: HOSTILE.to_owned(),
                ..Node::default()
            }),
            type_url: type_url.to_owned(),
            ..DiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }
}

async fn all_connections_end(plane: &ControlPlane) {
    let admin = plane.admin_addr().unwrap();
    for open in ["crowfly_control_streams", "crowfly_control_connections"] {
        until(async || metric(admin, open).await == 0.0).await;
    }
}

/// L-07: a client that stops in the middle of a response is named and closed, although it is to be sent nothing
/// else.
#[tokio::test]
async fn a_client_that_stops_in_a_response_is_named_and_closed() {
    let limits = Limits {
        slow_after: Duration::from_millis(100),
        close_after: Duration::from_millis(500),
        ..Limits::default()
    };
    let plane = plane(&large_services(1), limits).await;
    let _stuck = Stuck::open(&plane).await;
    until(async || limited(&plane, "slow_after").await > 0.0).await;
    until(async || limited(&plane, "close_after").await > 0.0).await;
    all_connections_end(&plane).await;
}

/// L-07: a client that reports loads and does not take what it is asked for is closed, too.
#[tokio::test]
async fn a_reporter_that_never_reads_is_closed() {
    let limits = Limits {
        close_after: Duration::from_millis(300),
        ..Limits::default()
    };
    let plane = plane(&large_services(1), limits).await;
    let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1 << 10);
    let mut loads = LoadReportingServiceClient::new(endpoint.connect().await.unwrap());
    let node = Node {
        id: HOSTILE.to_owned(),
        ..Node::default()
    };
    let (reports, receiver) = mpsc::channel(1);
    let first = LoadStatsRequest {
        node: Some(node),
        ..LoadStatsRequest::default()
    };
    reports.send(first).await.unwrap();
    let asked = loads.stream_load_stats(ReceiverStream::new(receiver));
    let _unread = soon(asked).await.unwrap();
    let closed = "crowfly_control_limited_total{limit=\"close_after\",node=\"\"}";
    let admin = plane.admin_addr().unwrap();
    until(async || metric(admin, closed).await > 0.0).await;
    let open = "crowfly_control_connections";
    until(async || metric(admin, open).await == 0.0).await;
}

/// L-07: the status of a stream that we end is told when the client has taken all before it. Else the connection is
/// closed, so that no stream lives on that does not count.
#[tokio::test]
async fn a_stuck_stream_that_we_end_does_not_live_on() {
    let plane = plane(&large_services(1), Limits::default()).await;
    let stuck = Stuck::open(&plane).await;
    stuck.ask("").await;
    all_connections_end(&plane).await;
}

fn large_services(port: u16) -> String {
    let names: Vec<String> = (0..200)
        .map(|index| format!("service-{index}-{port}-{}", "x".repeat(200)))
        .collect();
    let all: Vec<(&str, u16)> = names.iter().map(|name| (name.as_str(), port)).collect();
    services(&all)
}

/// L-12: shutdown does not wait for a client that does not read, and tells the others.
#[tokio::test]
async fn shutdown_does_not_wait_for_slow_readers() {
    let plane = plane(&large_services(1), Limits::default()).await;
    let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1 << 10);
    let hostile = Hostile::open_on(endpoint.connect().await.unwrap())
        .await
        .unwrap();
    let mut wildcard = subscribe([]);
    wildcard.type_url = CLUSTER.to_owned();
    hostile.send(wildcard).await;
    let mut honest = AdsClient::open(plane.listen_addr()).await;
    honest.subscribe(HONEST, ENDPOINTS, &["absent"]).await;
    let admin = plane.admin_addr().unwrap();
    let responses = "crowfly_control_responses_total{type=\"envoy.config.cluster.v3.Cluster\"}";
    until(async || metric(admin, responses).await >= 1.0).await;
    plane.set_snapshot(snapshot(&large_services(2)));

    let told = async {
        loop {
            if let Err(status) = honest.try_next().await {
                return status;
            }
        }
    };
    let (status, ()) = tokio::join!(told, soon(plane.shutdown()));
    assert_eq!(status.code(), Code::Unavailable);
    // Its connection is closed, although it did not read.
    let end = hostile.end().await;
    assert_ne!(end.code(), Code::Ok);
}

/// L-05: stale nonces and refusals of everything change nothing for the others. A refused version is not sent again,
/// and a long reason is not kept.
#[tokio::test]
async fn stale_nonces_and_refusals_are_harmless() {
    let plane = plane(&honest(), Limits::default()).await;
    let mut hostile = Hostile::open(plane.listen_addr()).await;
    hostile.send(subscribe(["a".to_owned()])).await;
    let first = soon(hostile.responses.message()).await.unwrap().unwrap();
    let refusal = |nonce: &str| DeltaDiscoveryRequest {
        response_nonce: nonce.to_owned(),
        error_detail: Some(rpc::Status {
            message: "é".repeat(1 << 20),
            ..rpc::Status::default()
        }),
        ..subscribe([])
    };
    hostile.send(refusal(&first.nonce)).await;
    for _ in 0..10 {
        hostile.send(refusal("stale")).await;
    }
    honest_client_is_served(&plane).await;
    let shown = get_json(plane.admin_addr().unwrap(), "/clients").await;
    let shown = shown["clients"].as_array().unwrap();
    let hostile = shown
        .iter()
        .find(|client| client["node"]["id"] == HOSTILE)
        .unwrap();
    let message = hostile["types"][ENDPOINTS]["last_nack"]["message"]
        .as_str()
        .unwrap();
    assert!(
        message.len() < 5_000,
        "{} bytes of the reason are kept",
        message.len()
    );
    assert!(
        message.ends_with("é [2093056 more bytes]"),
        "{}",
        &message[4_000..]
    );
}

/// Counts the log lines that begin with a text.
#[derive(Clone)]
struct LogLines {
    begin: &'static str,
    count: Arc<AtomicUsize>,
}

impl Subscriber for LogLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut begins = false;
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            begins |= field.name() == "message" && format!("{value:?}").starts_with(self.begin);
        });
        self.count.fetch_add(begins.into(), Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// L-05: a client that refuses without end writes a line of log in a second, after ten.
#[tokio::test]
async fn endless_refusals_do_not_fill_the_log() {
    let lines = LogLines {
        begin: "refused: ",
        count: Arc::default(),
    };
    let _guard = tracing::subscriber::set_default(lines.clone());
    let plane = plane(&honest(), Limits::default()).await;
    let mut hostile = Hostile::open(plane.listen_addr()).await;
    let started = Instant::now();
    for _ in 0..100 {
        // A name that is asked for again is sent again.
        hostile.send(subscribe(["a".to_owned()])).await;
        let response = soon(hostile.responses.message()).await.unwrap().unwrap();
        let refusal = DeltaDiscoveryRequest {
            response_nonce: response.nonce,
            error_detail: Some(rpc::Status::default()),
            ..subscribe([])
        };
        hostile.send(refusal).await;
    }
    let refused =
        "crowfly_control_nacks_total{type=\"envoy.config.endpoint.v3.ClusterLoadAssignment\"}";
    let admin = plane.admin_addr().unwrap();
    until(async || metric(admin, refused).await >= 100.0).await;
    let count = lines.count.load(Ordering::Relaxed);
    let most = 11 + usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!((1..=most).contains(&count), "{count} lines");
}

/// L-06: streams and connections beyond their number are refused. They are free again when others end.
#[tokio::test]
async fn streams_and_connections_are_limited() {
    let limits = Limits {
        connections: 4,
        streams: 6,
        address_share: 0.5,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let first = channel(plane.listen_addr()).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(Hostile::open_on(first.clone()).await.unwrap());
    }
    let refused = Hostile::open_on(first.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let told = "limit streams: there are 3 streams of this address";
    assert_eq!(refused.message(), told);
    let mut loads = LoadReportingServiceClient::new(first.clone());
    let reports = tokio_stream::iter([LoadStatsRequest::default()]);
    let refused = soon(loads.stream_load_stats(reports)).await.unwrap_err();
    assert_eq!(refused.message(), told, "load reports are streams, too");
    let limited = "crowfly_control_limited_total{limit=\"streams\",node=\"\"}";
    let count = metric(plane.admin_addr().unwrap(), limited).await;
    assert!((count - 2.0).abs() < f64::EPSILON, "{count}");

    streams.pop();
    until(async || Hostile::open_on(first.clone()).await.is_ok()).await;

    let _second = channel(plane.listen_addr()).await;
    let third = async {
        let endpoint = Endpoint::try_from(format!("http://{}", plane.listen_addr())).unwrap();
        let channel = endpoint.connect().await?;
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let nothing = tokio_stream::pending::<DeltaDiscoveryRequest>();
        let outcome = client.delta_aggregated_resources(nothing).await;
        Ok::<_, tonic::transport::Error>(outcome.map(drop))
    };
    assert!(
        !matches!(soon(third).await, Ok(Ok(()))),
        "the connection is closed"
    );
    let name = "crowfly_control_refused_connections_total{reason=\"connections\"}";
    until(async || metric(plane.admin_addr().unwrap(), name).await >= 1.0).await;
}

/// L-06: a connection that is closed counts no more, although its client may still have had time to speak.
#[tokio::test]
async fn a_closed_connection_is_free_at_once() {
    let limits = Limits {
        handshake_timeout: Duration::from_secs(3_600),
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let admin = plane.admin_addr().unwrap();
    let open = "crowfly_control_connections";
    let silent = TcpStream::connect(plane.listen_addr()).await.unwrap();
    until(async || metric(admin, open).await == 1.0).await;
    drop(silent);
    until(async || metric(admin, open).await == 0.0).await;
}

/// A type URL without end is refused before it is kept.
#[tokio::test]
async fn a_long_type_url_is_refused() {
    let plane = plane(&service("a", 1), Limits::default()).await;
    let hostile = Hostile::open(plane.listen_addr()).await;
    let mut request = subscribe([]);
    request.type_url = "x".repeat(257);
    hostile.send(request).await;
    let status = hostile.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status.message(),
        "type_url: expected at most 256 bytes, got 257"
    );
}

/// L-08: a client that asks for two hundred megabytes of names on many streams makes us hold a few of them. The
/// client itself is on the same thread, and counts.
#[test]
fn memory_is_bounded() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let held = allocation_counter::measure(|| {
        runtime.block_on(async {
            let limits = Limits {
                held_bytes: 8 << 20,
                requests_per_second: 1_000_000,
                ..Limits::default()
            };
            let plane = plane(&honest(), limits).await;
            let channel = channel(plane.listen_addr()).await;
            let mut streams = Vec::new();
            for stream in 0..20 {
                let hostile = Hostile::open_on(channel.clone()).await.unwrap();
                for name in 0..10 {
                    let name = format!("{stream}-{name}-{}", "x".repeat(1 << 20));
                    if !hostile.send(subscribe([name])).await {
                        break;
                    }
                    // One at a time, so that the client does not hold them all.
                    while hostile.requests.capacity() < hostile.requests.max_capacity()
                        && !hostile.requests.is_closed()
                    {
                        tokio::task::yield_now().await;
                    }
                }
                streams.push(hostile);
            }
            // Also streams whose first request is too much are counted for the node, which other streams have named.
            until(async || limited(&plane, "held_bytes").await >= 15.0).await;
            honest_client_is_served(&plane).await;
        });
    });
    assert!(held.bytes_max < 120 << 20, "{held:?}");
}

/// L-08: lists of small elements are refused before they are decoded, and the client is told.
#[tokio::test]
async fn a_node_of_endless_lists_is_not_decoded() {
    let plane = plane(&honest(), Limits::default()).await;
    let hostile = Hostile::open(plane.listen_addr()).await;
    let mut request = subscribe([]);
    request.node.as_mut().unwrap().extensions = vec![Extension::default(); 10_000];
    hostile.send(request).await;
    let status = hostile.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let told = "limit request_bytes: expected at most 524288 bytes of node";
    assert!(status.message().starts_with(told), "{status}");
    honest_client_is_served(&plane).await;
}

/// P-34: names with parameters are not served, and the client is told the field.
#[tokio::test]
async fn names_with_parameters_are_refused() {
    let plane = plane(&honest(), Limits::default()).await;
    let hostile = Hostile::open(plane.listen_addr()).await;
    let mut request = subscribe([]);
    request.resource_locators_subscribe = vec![ResourceLocator::default()];
    hostile.send(request).await;
    let status = hostile.end().await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let told = "resource_locators_subscribe: not supported, expected names without parameters";
    assert_eq!(status.message(), told);
}

/// L-05: answers of a megabyte are slowed, although each answers a response.
#[tokio::test]
async fn large_answers_are_slowed() {
    let limits = Limits {
        requests_per_second: 20,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let mut hostile = Hostile::open(plane.listen_addr()).await;
    // Thirty short requests are far from the limit of 200, and their answers count for 16 requests each.
    for _ in 0..30 {
        hostile.send(subscribe(["a".to_owned()])).await;
        let response = soon(hostile.responses.message()).await.unwrap().unwrap();
        let refusal = DeltaDiscoveryRequest {
            response_nonce: response.nonce,
            error_detail: Some(rpc::Status {
                message: "x".repeat(1 << 20),
                ..rpc::Status::default()
            }),
            type_url: ENDPOINTS.to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        hostile.send(refusal).await;
        if limited(&plane, "requests_per_second").await > 0.0 {
            break;
        }
    }
    until(async || limited(&plane, "requests_per_second").await > 0.0).await;
    honest_client_is_served(&plane).await;
}

/// L-15: clients that come and go without end write ten lines of log in a second, after three hundred.
#[tokio::test]
async fn clients_that_come_and_go_do_not_fill_the_log() {
    const STREAMS: u32 = 1_000;
    let lines = LogLines {
        begin: "client gone",
        count: Arc::default(),
    };
    let _guard = tracing::subscriber::set_default(lines.clone());
    let limits = Limits {
        requests_per_second: 1_000_000,
        ..Limits::default()
    };
    let plane = plane(&honest(), limits).await;
    let channel = channel(plane.listen_addr()).await;
    let started = Instant::now();
    for _ in 0..STREAMS {
        let mut hostile = Hostile::open_on(channel.clone()).await.unwrap();
        hostile.send(subscribe(["a".to_owned()])).await;
        soon(hostile.responses.message()).await.unwrap().unwrap();
    }
    let admin = plane.admin_addr().unwrap();
    until(async || metric(admin, "crowfly_control_streams").await == 0.0).await;
    let count = lines.count.load(Ordering::Relaxed);
    let most = 311 + 10 * usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!((1..=most).contains(&count), "{count} lines");
}

/// L-15: a name of a node that is too long for the log is refused by its field.
#[tokio::test]
async fn a_long_name_of_a_node_is_refused() {
    let plane = plane(&honest(), Limits::default()).await;
    let long = || "x".repeat(513);
    for (node, field) in [
        (
            Node {
                id: long(),
                ..Node::default()
            },
            "id",
        ),
        (
            Node {
                cluster: long(),
                ..Node::default()
            },
            "cluster",
        ),
        (
            Node {
                user_agent_name: long(),
                ..Node::default()
            },
            "user_agent_name",
        ),
    ] {
        let hostile = Hostile::open(plane.listen_addr()).await;
        let request = DeltaDiscoveryRequest {
            node: Some(node),
            ..subscribe([])
        };
        hostile.send(request).await;
        let status = hostile.end().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        let told = format!("node.{field}: expected at most 512 bytes, got 513");
        assert_eq!(status.message(), told);
    }
}
