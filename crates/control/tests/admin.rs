//! The admin port, and what tools find on the gRPC port.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::net::SocketAddr;

use serde_json::Value;
use support::{
    AdsClient, ENDPOINTS, channel, get, get_json, plane, service, services, snapshot, soon,
};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const ADS: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
const CSDS: &str = "envoy.service.status.v3.ClientStatusDiscoveryService";

/// Asks until the answer is as expected; what a client sends arrives when it arrives.
async fn until(admin: SocketAddr, path: &str, expected: impl Fn(&Value) -> bool) -> Value {
    soon(async {
        loop {
            let value = get_json(admin, path).await;
            if expected(&value) {
                return value;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn the_snapshot_is_shown_as_json() {
    let plane = plane(&service("payments", 80)).await;
    let admin = plane.admin_addr().unwrap();
    assert_eq!(get(admin, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(admin, "/nowhere").await.0, 404);

    let shown = get_json(admin, "/snapshot").await;
    assert_eq!(shown["last_reload"]["ok"], true);
    assert_eq!(shown["types"].as_object().unwrap().len(), 4);
    let of = &shown["types"][ENDPOINTS];
    let current = plane.snapshot();
    assert_eq!(of["version"], current.of(ENDPOINTS).unwrap().version());
    let payments = &of["resources"]["payments"];
    assert_eq!(payments["resource"]["cluster_name"], "payments");
    let version = &current.resource(ENDPOINTS, "payments").unwrap().version;
    assert_eq!(payments["version"], **version);
}

#[tokio::test]
async fn a_part_of_the_snapshot_can_be_asked_for() {
    let plane = plane(&services(&[("a", 1), ("b", 2)])).await;
    let admin = plane.admin_addr().unwrap();
    let shown = get_json(admin, "/snapshot?type=ClusterLoadAssignment&name=b").await;
    let types = shown["types"].as_object().unwrap();
    assert_eq!(types.keys().collect::<Vec<_>>(), [ENDPOINTS]);
    let resources = types[ENDPOINTS]["resources"].as_object().unwrap();
    assert_eq!(resources.keys().collect::<Vec<_>>(), ["b"]);

    let (status, told) = get(admin, "/snapshot?name=c").await;
    assert_eq!(status, 404);
    assert!(told.contains("no resource named \"c\" is served"), "{told}");
    let (status, told) = get(admin, "/snapshot?nmae=b").await;
    assert_eq!(status, 400);
    assert!(told.contains("nmae"), "{told}");
}

/// The page of clients shows the versions that each accepted, and those that it refused, with the
/// reason.
#[tokio::test]
async fn clients_are_shown_with_what_they_accepted_and_refused() {
    let plane = plane(&service("payments", 1)).await;
    let admin = plane.admin_addr().unwrap();
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client
        .subscribe("gRPC Test", ENDPOINTS, &["payments"])
        .await;
    let first = client.next().await;
    client.ack(&first, &["payments"]).await;
    let state = |state: &'static str| {
        move |shown: &Value| shown["clients"][0]["types"][ENDPOINTS]["state"] == state
    };
    let shown = until(admin, "/clients", state("acked")).await;
    let shown = &shown["clients"][0];
    assert_eq!(shown["protocol"], "state_of_the_world");
    assert_eq!(shown["node"]["id"], "node-1");
    assert_eq!(shown["node"]["user_agent"], "gRPC Test");
    assert_eq!(
        shown["types"][ENDPOINTS]["acked_version"],
        first.version_info
    );

    plane.set_snapshot(snapshot(&service("payments", 2)));
    let second = client.next().await;
    client
        .nack(&second, &["payments"], "endpoints: no such port")
        .await;
    let shown = until(admin, "/clients", state("nacked")).await;
    let of = &shown["clients"][0]["types"][ENDPOINTS];
    assert_eq!(of["acked_version"], first.version_info);
    assert_eq!(of["last_nack"]["version"], second.version_info);
    assert_eq!(of["last_nack"]["message"], "endpoints: no such port");

    drop(client);
    until(admin, "/clients", |shown| {
        shown["clients"].as_array().unwrap().is_empty()
    })
    .await;
}

/// F-06: the page of a node has each resource, refused ones first.
#[tokio::test]
async fn the_resources_of_a_client_are_shown() {
    let plane = plane(&services(&[("a", 1), ("b", 1), ("c", 1)])).await;
    let admin = plane.admin_addr().unwrap();
    let mut client = AdsClient::open(plane.listen_addr()).await;
    let names = ["a", "b", "gone"];
    client.subscribe("gRPC Test", ENDPOINTS, &names).await;
    let first = client.next().await;
    client.ack(&first, &names).await;
    plane.set_snapshot(snapshot(&services(&[("a", 1), ("b", 2), ("c", 1)])));
    let second = client.next().await;
    client.nack(&second, &names, "b: no such port").await;

    let is_refused = |shown: &Value| shown["clients"][0]["resources"][0]["state"] == "nacked";
    let shown = until(admin, "/clients?node=node-1", is_refused).await;
    assert_eq!(shown["clients"].as_array().unwrap().len(), 1);
    let client = &shown["clients"][0];
    let kind = &client["node"]["kind"];
    assert_eq!(
        (kind, &client["view"]),
        (&Value::from("grpc"), &Value::Null)
    );
    let of = &client["types"][ENDPOINTS];
    assert_eq!(
        (&of["state"], &of["refused"]),
        (&"nacked".into(), &1.into())
    );
    let resources = client["resources"].as_array().unwrap();
    let states: Vec<_> = resources
        .iter()
        .map(|row| format!("{} {}", row["name"], row["state"]))
        .collect();
    assert_eq!(
        states,
        [r#""b" "nacked""#, r#""gone" "missing""#, r#""a" "acked""#]
    );
    let b = &resources[0];
    let served = &plane
        .snapshot()
        .resource(ENDPOINTS, "b")
        .unwrap()
        .version
        .clone();
    assert_eq!(b["nack"]["message"], "b: no such port");
    assert_eq!(b["nack"]["version"], **served);
    assert_eq!(
        (&b["version"], &b["sent_version"]),
        (&Value::from(&**served), &Value::from(&**served))
    );
    assert!(
        b["acked_version"].is_string() && b["acked_version"] != b["version"],
        "{b}"
    );
    assert!(b["lag_seconds"].as_f64().unwrap() >= 0.0, "{b}");
    assert_eq!(resources[2]["acked_version"], resources[2]["version"]);
}

/// F-06: a node id that nobody has is an error, with the ids that are nearly the same.
#[tokio::test]
async fn a_node_that_is_not_there_is_told() {
    let plane = plane(&service("payments", 1)).await;
    let admin = plane.admin_addr().unwrap();
    let client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe("x", ENDPOINTS, &["payments"]).await;
    until(admin, "/clients", |shown| {
        shown["clients"][0]["node"]["id"] == "node-1"
    })
    .await;
    let (status, told) = get(admin, "/clients?node=nod-1").await;
    let expected = "no client with the node id \"nod-1\" is connected; did you mean \"node-1\"?\n";
    assert_eq!((status, told.as_str()), (404, expected));
    let (status, told) = get(admin, "/clients?node=zebra").await;
    let expected = "no client with the node id \"zebra\" is connected\n";
    assert_eq!((status, told.as_str()), (404, expected));
    let (status, told) = get(admin, "/clients?nod=x").await;
    assert_eq!(status, 400);
    assert!(told.contains("nod"), "{told}");
}

/// F-07: the metrics that operators watch, by type; a client does not make labels.
#[tokio::test]
async fn metrics_count_what_happens() {
    let plane = plane(&service("payments", 1)).await;
    let admin = plane.admin_addr().unwrap();
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe("x", ENDPOINTS, &["payments"]).await;
    client
        .subscribe("x", "type.googleapis.com/made.Up", &["y"])
        .await;
    let first = client.next().await;
    client.nack(&first, &["payments"], "no").await;
    until(admin, "/clients", |shown| {
        shown["clients"][0]["types"][ENDPOINTS]["state"] == "nacked"
    })
    .await;

    let (_, text) = get(admin, "/metrics").await;
    let label = "type=\"envoy.config.endpoint.v3.ClusterLoadAssignment\"";
    for line in [
        "crowfly_control_streams 1".to_owned(),
        format!("crowfly_control_responses_total{{{label}}} 1"),
        format!("crowfly_control_nacks_total{{{label}}} 1"),
        format!("crowfly_control_resources{{{label}}} 1"),
        format!("crowfly_control_clients_refusing{{{label}}} 1"),
        format!("crowfly_control_response_bytes_count{{{label}}} 1"),
        "crowfly_control_snapshots_total 1".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
    }
    assert!(
        !text.contains("made.Up"),
        "a client must not make labels:\n{text}"
    );
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn health_says_serving() {
    let plane = plane("").await;
    let mut health = HealthClient::new(channel(plane.listen_addr()).await);
    for service in ["", ADS, CSDS] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let response = soon(health.check(request)).await.unwrap().into_inner();
        assert_eq!(response.status(), ServingStatus::Serving, "{service:?}");
    }
}

macro_rules! reflection_test {
    ($name:ident, $version:ident) => {
        #[tokio::test]
        async fn $name() {
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

            let plane = plane("").await;
            let mut client = ServerReflectionClient::new(channel(plane.listen_addr()).await);
            let questions = [
                MessageRequest::ListServices(String::new()),
                MessageRequest::FileContainingSymbol("envoy.config.cluster.v3.Cluster".to_owned()),
            ];
            let requests = questions.map(|question| ServerReflectionRequest {
                host: String::new(),
                message_request: Some(question),
            });
            let answers = client.server_reflection_info(tokio_stream::iter(requests));
            let mut answers = soon(answers).await.unwrap().into_inner();

            let services = soon(answers.message()).await.unwrap().unwrap();
            let Some(MessageResponse::ListServicesResponse(list)) = services.message_response
            else {
                return assert!(false, "{services:?}");
            };
            for name in [ADS, CSDS] {
                let mut services = list.service.iter();
                assert!(services.any(|service| service.name == name), "{list:?}");
            }
            let file = soon(answers.message()).await.unwrap().unwrap();
            let found = file.message_response.unwrap();
            assert!(
                matches!(found, MessageResponse::FileDescriptorResponse(_)),
                "{found:?}"
            );
        }
    };
}

reflection_test!(reflection_v1_knows_services_and_messages, v1);
reflection_test!(reflection_v1alpha_knows_services_and_messages, v1alpha);
