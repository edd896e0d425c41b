//! CSDS over a real socket: the status of all connected clients.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use crowfly_control::{ControlPlane, Limits, Ports};
use envoy_types::pb::envoy::admin::v3::ClientResourceStatus;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::service::status::v3::{
    ClientStatusRequest, ClientStatusResponse, ConfigStatus,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    NodeMatcher, RegexMatcher, StringMatcher, StructMatcher,
};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use support::{
    AdsClient, ENDPOINTS, any_port, channel, metric, plane, services, snapshot, soon,
    until as eventually,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

async fn client(address: SocketAddr, id: &str, type_url: &str, names: &[&str]) -> AdsClient {
    let client = AdsClient::open(address).await;
    client
        .send(DiscoveryRequest {
            node: Some(Node {
                id: id.to_owned(),
                user_agent_name: "gRPC Test".to_owned(),
                ..Node::default()
            }),
            type_url: type_url.to_owned(),
            resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..DiscoveryRequest::default()
        })
        .await;
    client
}

async fn fetch(address: SocketAddr, request: ClientStatusRequest) -> ClientStatusResponse {
    let mut csds = ClientStatusDiscoveryServiceClient::new(channel(address).await);
    let response = soon(csds.fetch_client_status(request)).await;
    response.unwrap().into_inner()
}

/// Asks until the answer is as expected; what a client sends arrives when it arrives.
async fn until(
    address: SocketAddr,
    request: &ClientStatusRequest,
    expected: impl Fn(&ClientStatusResponse) -> bool,
) -> ClientStatusResponse {
    soon(async {
        loop {
            let response = fetch(address, request.clone()).await;
            if expected(&response) {
                return response;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn only_with(id: MatchPattern) -> ClientStatusRequest {
    ClientStatusRequest {
        node_matchers: vec![NodeMatcher {
            node_id: Some(StringMatcher {
                match_pattern: Some(id),
                ..StringMatcher::default()
            }),
            ..NodeMatcher::default()
        }],
        ..ClientStatusRequest::default()
    }
}

fn resource<'a>(response: &'a ClientStatusResponse, id: &str, name: &str) -> &'a GenericXdsConfig {
    let has_id = |node: &Option<Node>| node.as_ref().is_some_and(|node| node.id == id);
    let mut clients = response.config.iter();
    let client = clients.find(|client| has_id(&client.node)).unwrap();
    let mut resources = client.generic_xds_configs.iter();
    resources.find(|of| of.name == name).unwrap()
}

/// F-09: each client is shown with each resource: what it accepted, refused, and waits for.
#[tokio::test]
async fn all_clients_are_shown() {
    let plane = plane(&services(&[("a", 1), ("b", 1)])).await;
    let address = plane.listen_addr();
    let mut good = client(address, "good", ENDPOINTS, &["a", "gone"]).await;
    let first = good.next().await;
    good.ack(&first, &["a", "gone"]).await;
    let mut bad = client(address, "bad", ENDPOINTS, &["b"]).await;
    let response = bad.next().await;
    bad.ack(&response, &["b"]).await;
    let before = plane
        .snapshot()
        .resource(ENDPOINTS, "b")
        .unwrap()
        .version
        .clone();
    plane.set_snapshot(snapshot(&services(&[("a", 1), ("b", 2)])));
    let response = bad.next().await;
    let request = ClientStatusRequest::default();
    let shown = until(address, &request, |shown| {
        shown.config.len() == 2
            && resource(shown, "bad", "b").config_status() == ConfigStatus::Stale
            && resource(shown, "good", "a").config_status() == ConfigStatus::Synced
    })
    .await;
    let b = resource(&shown, "bad", "b");
    assert_eq!(b.client_status(), ClientResourceStatus::Acked);
    assert_eq!(b.version_info, *before, "the version that it accepted");
    bad.nack(&response, &["b"], "b: no such port").await;
    let shown = until(address, &request, |shown| {
        resource(shown, "bad", "b").config_status() == ConfigStatus::Error
    })
    .await;
    let b = resource(&shown, "bad", "b");
    assert_eq!(b.client_status(), ClientResourceStatus::Nacked);
    assert_eq!(
        (b.type_url.as_str(), &*b.version_info),
        (ENDPOINTS, &*before)
    );
    let error = b.error_state.as_ref().unwrap();
    let refused = plane.snapshot().resource(ENDPOINTS, "b").unwrap().clone();
    assert_eq!(error.details, "b: no such port");
    assert_eq!(error.version_info, *refused.version);
    assert!(error.last_update_attempt.is_some() && b.last_updated.is_some());
    assert_eq!(b.xds_config.as_ref().unwrap().value, refused.any.value);
    let gone = resource(&shown, "good", "gone");
    assert_eq!(gone.client_status(), ClientResourceStatus::DoesNotExist);
    assert_eq!(gone.config_status(), ConfigStatus::Unknown);
    assert!(
        shown.config[0]
            .client_scope
            .starts_with("stream 1 from 127.0.0.1:")
    );
    assert!(resource(&shown, "good", "a").error_state.is_none());
}

/// F-10: clients are chosen by node id, and contents can be left out.
#[tokio::test]
async fn a_request_chooses_clients() {
    let plane = plane(&services(&[("a", 1)])).await;
    let address = plane.listen_addr();
    let mut streams = Vec::new();
    for id in ["web-1", "web-2", "api-1"] {
        let mut stream = client(address, id, ENDPOINTS, &["a"]).await;
        stream.next().await;
        streams.push(stream);
    }
    for (pattern, expected) in [
        (MatchPattern::Prefix("web-".into()), 2),
        (MatchPattern::Exact("api-1".into()), 1),
        (MatchPattern::Exact("api".into()), 0),
    ] {
        let shown = fetch(address, only_with(pattern)).await;
        assert_eq!(shown.config.len(), expected);
    }
    let metadata = ClientStatusRequest {
        node_matchers: vec![NodeMatcher {
            node_metadatas: vec![StructMatcher::default()],
            ..NodeMatcher::default()
        }],
        ..ClientStatusRequest::default()
    };
    let mut csds = ClientStatusDiscoveryServiceClient::new(channel(address).await);
    let status = soon(csds.fetch_client_status(metadata)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let expected = "node_matchers[0].node_metadatas: ";
    assert!(status.message().starts_with(expected), "{status}");

    let brief = ClientStatusRequest {
        exclude_resource_contents: true,
        ..only_with(MatchPattern::Exact("web-1".into()))
    };
    let requests = tokio_stream::iter([brief, ClientStatusRequest::default()]);
    let answers = soon(csds.stream_client_status(requests)).await.unwrap();
    let mut answers = answers.into_inner();
    let first = soon(answers.message()).await.unwrap().unwrap();
    assert_eq!(first.config.len(), 1);
    assert!(resource(&first, "web-1", "a").xds_config.is_none());
    let second = soon(answers.message()).await.unwrap().unwrap();
    assert_eq!(second.config.len(), 3);
    assert!(resource(&second, "web-1", "a").xds_config.is_some());
    assert!(soon(answers.message()).await.unwrap().is_none());
}

/// F-11: an answer has no secrets.
#[tokio::test]
async fn secrets_are_not_shown() {
    let text = format!(
        r#"
resources:
- "@type": {SECRET}
  name: certificate
  tls_certificate:
    certificate_chain: {{ inline_string: public }}
    private_key: {{ inline_string: hidden }}
"#
    );
    let plane = plane(&text).await;
    let mut stream = client(plane.listen_addr(), "x", SECRET, &["certificate"]).await;
    let sent = stream.next().await;
    let has = |bytes: &[u8], text: &str| {
        let mut windows = bytes.windows(text.len());
        windows.any(|window| window == text.as_bytes())
    };
    assert!(has(&sent.resources[0].value, "hidden"));
    let shown = fetch(plane.listen_addr(), ClientStatusRequest::default()).await;
    let shown = resource(&shown, "x", "certificate").xds_config.as_ref();
    let shown = &shown.unwrap().value;
    assert!(has(shown, "public") && has(shown, "[redacted]"));
    assert!(!has(shown, "hidden"));
}

/// F-09: an operator can turn the service off. It is then neither served nor listed.
#[tokio::test]
async fn csds_can_be_turned_off() {
    let ports = Ports::new(any_port()).without_csds();
    let served = snapshot(&services(&[("a", 1)]));
    let plane = ControlPlane::with_ports(served, ports).await.unwrap();
    let channel = channel(plane.listen_addr()).await;
    let status = try_fetch(&channel, ClientStatusRequest::default()).await;
    assert_eq!(status.unwrap_err().code(), Code::Unimplemented);
    let mut health = HealthClient::new(channel);
    let service = "envoy.service.status.v3.ClientStatusDiscoveryService".to_owned();
    let status = soon(health.check(HealthCheckRequest { service })).await;
    assert_eq!(status.unwrap_err().code(), Code::NotFound);
}

async fn limited_plane(limits: Limits) -> ControlPlane {
    let ports = Ports::new(any_port()).admin(any_port()).limits(limits);
    let snapshot = snapshot(&services(&[("a", 1)]));
    ControlPlane::with_ports(snapshot, ports).await.unwrap()
}

async fn try_fetch(channel: &Channel, request: ClientStatusRequest) -> Result<(), Status> {
    let mut csds = ClientStatusDiscoveryServiceClient::new(channel.clone());
    soon(csds.fetch_client_status(request)).await.map(drop)
}

/// L-14: a request with thousands of expressions is refused before any is compiled, by both methods.
#[tokio::test]
async fn thousands_of_conditions_are_refused() {
    let plane = plane(&services(&[("a", 1)])).await;
    let channel = channel(plane.listen_addr()).await;
    let regexes = |count| {
        let regex = RegexMatcher {
            regex: "[a-z]{9}".to_owned(),
            ..RegexMatcher::default()
        };
        let one = only_with(MatchPattern::SafeRegex(regex)).node_matchers;
        ClientStatusRequest {
            node_matchers: vec![one[0].clone(); count],
            ..ClientStatusRequest::default()
        }
    };
    try_fetch(&channel, regexes(64)).await.unwrap();
    let status = try_fetch(&channel, regexes(65)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let expected = "node_matchers: expected at most 64, got 65";
    assert_eq!(status.message(), expected);
    let status = try_fetch(&channel, regexes(200_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let message = status.message();
    assert!(message.starts_with("limit request_bytes: "), "{message}");

    let mut csds = ClientStatusDiscoveryServiceClient::new(channel);
    let requests = tokio_stream::iter([regexes(200_000)]);
    let answers = soon(csds.stream_client_status(requests)).await.unwrap();
    let status = soon(answers.into_inner().message()).await.unwrap_err();
    assert!(
        status.message().starts_with("limit request_bytes: "),
        "{status}"
    );
}

/// L-14: each expression counts for sixteen requests, because it is compiled for each request anew.
#[tokio::test]
async fn expressions_are_paid_for() {
    let limits = Limits {
        requests_per_second: 20,
        ..Limits::default()
    };
    let plane = limited_plane(limits).await;
    let admin = plane.admin_addr().unwrap();
    let ours = channel(plane.listen_addr()).await;
    let of = |pattern: MatchPattern| {
        let one = only_with(pattern).node_matchers;
        ClientStatusRequest {
            node_matchers: vec![one[0].clone(); 14],
            ..ClientStatusRequest::default()
        }
    };
    let slowed = "crowfly_control_limited_total{limit=\"requests_per_second\",node=\"\"}";
    let exact = of(MatchPattern::Exact("x".to_owned()));
    try_fetch(&ours, exact).await.unwrap();
    assert!(metric(admin, slowed).await < 1.0, "texts are cheap");
    let regex = RegexMatcher {
        regex: "[a-z]{9}".to_owned(),
        ..RegexMatcher::default()
    };
    let regexes = of(MatchPattern::SafeRegex(regex));
    // Two hundred requests are free at once, and fourteen expressions count for more.
    let ask = try_fetch(&ours, regexes);
    let named = eventually(async || metric(admin, slowed).await >= 1.0);
    let (answer, ()) = tokio::join!(ask, named);
    answer.unwrap();
}

/// L-14: those who ask for the status of clients have the limits of streams and requests.
#[tokio::test]
async fn askers_are_admitted_and_paced() {
    let request = ClientStatusRequest::default();
    let limits = Limits {
        streams: 2,
        address_share: 1.0,
        ..Limits::default()
    };
    let plane = limited_plane(limits).await;
    let ours = channel(plane.listen_addr()).await;
    try_fetch(&ours, request.clone()).await.unwrap();
    let _streams = [
        client(plane.listen_addr(), "x", ENDPOINTS, &["a"]).await,
        client(plane.listen_addr(), "y", ENDPOINTS, &["a"]).await,
    ];
    let status = try_fetch(&ours, request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "limit streams: there are 2 streams");

    let limits = Limits {
        requests_per_second: 1,
        ..Limits::default()
    };
    let plane = limited_plane(limits).await;
    let ours = channel(plane.listen_addr()).await;
    // Each costs two: a new stream and its request. Ten are free at once. Those after wait up to 5 s, and more are refused.
    let asks = (0..30).map(|_| try_fetch(&ours, request.clone()));
    let mut asks = asks.collect::<FuturesUnordered<_>>();
    let refused = loop {
        if let Err(status) = asks.next().await.unwrap() {
            break status;
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let expected = "limit requests_per_second: ";
    assert!(refused.message().starts_with(expected), "{refused}");
}

/// L-14: an answer is on the account of its asker. One that does not take it is closed.
#[tokio::test]
async fn answers_that_are_not_taken_are_bounded() {
    let limits = Limits {
        held_bytes: 100_000,
        close_after: Duration::from_millis(300),
        ..Limits::default()
    };
    let plane = limited_plane(limits).await;
    let names: Vec<String> = (0..300)
        .map(|index| format!("{index}-{}", "x".repeat(100)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut clients = Vec::new();
    for id in ["one", "two", "three"] {
        clients.push(client(plane.listen_addr(), id, ENDPOINTS, &names).await);
    }
    let address = plane.listen_addr();
    let ours = channel(address).await;
    let large = eventually(async || {
        let status = try_fetch(&ours, ClientStatusRequest::default()).await;
        status.is_err_and(|status| status.message().starts_with("limit held_bytes: "))
    });
    large.await;

    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1 << 10);
    let stuck = endpoint.connect().await.unwrap();
    let mut csds = ClientStatusDiscoveryServiceClient::new(stuck);
    let requests = tokio_stream::iter([only_with(MatchPattern::Exact("one".into()))]);
    // It takes the head, and reads no more.
    let _answers = soon(csds.stream_client_status(requests)).await.unwrap();
    let closed = "crowfly_control_limited_total{limit=\"close_after\",node=\"\"}";
    let admin = plane.admin_addr().unwrap();
    eventually(async || metric(admin, closed).await > 0.0).await;
}
