//! Clients that mean harm, over real sockets, with an honest client beside them that still gets its updates.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod logs;
mod memory;
mod slow;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::time::Duration;

use crowfly_control::{ControlPlane, Limits, Ports};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, ResourceLocator,
};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient;
use envoy_types::pb::google::rpc;
use support::{
    AdsClient, ENDPOINTS, any_port, channel, get_json, metric, service, services, snapshot, soon,
    until,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

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

/// L-05: a request that makes us look at thousands of refused resources counts by them.
#[tokio::test]
async fn requests_beside_many_refusals_count_by_them() {
    let names: Vec<String> = (0..8_192).map(|index| format!("s{index}")).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let limits = Limits {
        requests_per_second: 20,
        ..Limits::default()
    };
    let plane = plane(&services(&all), limits).await;
    let mut hostile = Hostile::open(plane.listen_addr()).await;
    hostile.send(subscribe(["*".to_owned()])).await;
    let response = soon(hostile.responses.message()).await.unwrap().unwrap();
    assert_eq!(response.resources.len(), names.len());
    let refusal = DeltaDiscoveryRequest {
        response_nonce: response.nonce,
        error_detail: Some(rpc::Status::default()),
        ..subscribe([])
    };
    hostile.send(refusal).await;
    // By themselves these are not half of what is free at once.
    for index in 0..80 {
        let mut request = subscribe([]);
        request.resource_names_unsubscribe = vec![format!("new-{index}")];
        hostile.send(request).await;
    }
    until(async || limited(&plane, "requests_per_second").await > 0.0).await;
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
