//! Views over real sockets: each client is served what is for it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::collections::HashMap;
use std::path::Path;

use crowfly_control::{ControlPlane, Options, Ports};
use crowfly_model::Features;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use prost::Message;
use support::{AdsClient, CLUSTER, ENDPOINTS, LISTENER, any_port, channel, get, get_json, soon};
use tokio_stream::wrappers::ReceiverStream;

const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// The configuration that the documentation explains.
const EXAMPLE: &str = include_str!("../../../examples/views.yaml");

async fn start(config: &Path) -> ControlPlane {
    let options = Options::new(config, Ports::new(any_port()).admin(any_port()));
    ControlPlane::start(options).await.unwrap()
}

async fn example() -> (ControlPlane, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mesh.yaml");
    std::fs::write(&file, EXAMPLE).unwrap();
    (start(&file).await, directory)
}

fn named(id: &str) -> Node {
    Node {
        id: id.to_owned(),
        user_agent_name: "gRPC Go".to_owned(),
        ..Node::default()
    }
}

/// A stream of a client with this node, and its first answer.
async fn ask(
    plane: &ControlPlane,
    node: Node,
    type_url: &str,
    name: &str,
) -> (AdsClient, DiscoveryResponse) {
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client
        .send(DiscoveryRequest {
            node: Some(node),
            type_url: type_url.to_owned(),
            resource_names: vec![name.to_owned()],
            ..DiscoveryRequest::default()
        })
        .await;
    let response = client.next().await;
    (client, response)
}

fn read<M: Message + Default>(response: &DiscoveryResponse) -> M {
    let [resource] = &*response.resources else {
        panic!("{response:?}");
    };
    M::decode(resource.value.as_slice()).unwrap()
}

/// The addresses of each priority, by zone.
fn zones(response: &DiscoveryResponse) -> Vec<(u32, String)> {
    let assignment: ClusterLoadAssignment = read(response);
    let localities = assignment.endpoints.into_iter();
    localities
        .map(|of| (of.priority, of.locality.unwrap().zone))
        .collect()
}

/// V-01: a canary, chosen by the prefix of its id, has another split; all others have the base.
#[tokio::test]
async fn a_canary_has_another_split() {
    let (plane, _directory) = example().await;
    let weights = |response: &DiscoveryResponse| -> HashMap<String, u32> {
        use envoy_types::pb::envoy::config::route::v3::route::Action;
        use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
        let config: RouteConfiguration = read(response);
        let action = config.virtual_hosts[0].routes[0].action.clone();
        let Some(Action::Route(route)) = action else {
            return HashMap::new();
        };
        match route.cluster_specifier {
            Some(ClusterSpecifier::WeightedClusters(all)) => {
                let all = all.clusters.into_iter();
                all.map(|of| (of.name, of.weight.unwrap().value)).collect()
            }
            _ => HashMap::new(),
        }
    };
    let (_base, base) = ask(&plane, named("web-1"), ROUTES, "checkout").await;
    assert_eq!(
        weights(&base)["checkout-v2"] * 99,
        weights(&base)["checkout"]
    );
    let (_canary, canary) = ask(&plane, named("canary-1"), ROUTES, "checkout").await;
    assert_eq!(
        weights(&canary)["checkout-v2"],
        weights(&canary)["checkout"]
    );
}

/// V-01: clients of a zone see their zone first.
#[tokio::test]
async fn a_zone_sees_itself_first() {
    let (plane, _directory) = example().await;
    let in_zone = |zone: &str| Node {
        locality: Some(Locality {
            region: "eu".to_owned(),
            zone: zone.to_owned(),
            sub_zone: String::new(),
        }),
        ..named("web-1")
    };
    let (_b, b) = ask(&plane, in_zone("b"), ENDPOINTS, "payments").await;
    assert_eq!(zones(&b), [(1, "a".to_owned()), (0, "b".to_owned())]);
    let (_c, c) = ask(&plane, in_zone("c"), ENDPOINTS, "payments").await;
    assert_eq!(zones(&c), [(0, "a".to_owned()), (0, "b".to_owned())]);
}

/// V-01: a test cluster, chosen by metadata, has endpoints of its own.
#[tokio::test]
async fn a_test_cluster_has_endpoints_of_its_own() {
    let (plane, _directory) = example().await;
    let kind = Some(Kind::StringValue("test".to_owned()));
    let fields = HashMap::from([("env".to_owned(), Value { kind })]);
    let node = Node {
        metadata: Some(Struct { fields }),
        ..named("web-1")
    };
    let (_client, response) = ask(&plane, node, ENDPOINTS, "payments").await;
    let assignment: ClusterLoadAssignment = read(&response);
    let endpoint = assignment.endpoints[0].lb_endpoints[0].clone();
    let Some(HostIdentifier::Endpoint(endpoint)) = endpoint.host_identifier else {
        panic!("{endpoint:?}");
    };
    let shown = format!("{:?}", endpoint.address);
    assert!(shown.contains("10.9.0.1"), "{shown}");
}

/// V-01: a service that is hidden from a team is one that does not exist for it.
#[tokio::test]
async fn a_hidden_service_does_not_exist() {
    let (plane, _directory) = example().await;
    let team = Node {
        cluster: "partners".to_owned(),
        user_agent_name: "envoy".to_owned(),
        ..named("p-1")
    };
    for (node, is_there) in [
        (team.clone(), false),
        (
            Node {
                cluster: "x".to_owned(),
                ..team
            },
            true,
        ),
    ] {
        let mut client = AdsClient::open(plane.listen_addr()).await;
        client
            .send(DiscoveryRequest {
                node: Some(node),
                type_url: CLUSTER.to_owned(),
                ..DiscoveryRequest::default()
            })
            .await;
        let response = client.next().await;
        let mut clusters = response
            .resources
            .iter()
            .map(|any| Cluster::decode(any.value.as_slice()).unwrap().name);
        assert_eq!(clusters.any(|name| name == "ledger"), is_there);
    }
}

/// V-09: an Envoy that matches a view is sent the clusters of the view in its own form.
#[tokio::test]
async fn a_view_takes_the_form_of_its_client() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mesh.yaml");
    let text = "services: [{ name: pay }, { name: other }]
views: [{ name: v, match: { id: v-1 }, services: [{ name: pay, fallback: [other], fallback_as: resource }] }]";
    std::fs::write(&file, text).unwrap();
    let plane = start(&file).await;
    let form = |response: &DiscoveryResponse| {
        let cluster: Cluster = read(response);
        let custom = format!("{:?}", cluster.cluster_discovery_type);
        (
            cluster.lb_policy,
            custom.contains("AggregateClusterResource"),
        )
    };
    let with = |user_agent: &str, features: &[&str]| Node {
        user_agent_name: user_agent.to_owned(),
        client_features: features.iter().map(|of| (*of).to_owned()).collect(),
        ..named("v-1")
    };
    let a99 = [Features::AGGREGATE_CLUSTER_RESOURCE];
    let (round_robin, provided) = (0, 6);
    for (node, expected) in [
        (with("envoy", &[]), (provided, false)),
        (with("gRPC C-core linux", &[]), (round_robin, false)),
        (with("gRPC Node Pure JS", &[]), (round_robin, false)),
        (with("crowfly", &[]), (round_robin, false)),
        (with("crowfly", &a99), (round_robin, true)),
    ] {
        let (_client, response) = ask(&plane, node.clone(), CLUSTER, "pay").await;
        assert_eq!(form(&response), expected, "{node:?}");
    }
    let (_client, response) = ask(&plane, named("web-1"), CLUSTER, "pay").await;
    assert!(read::<Cluster>(&response).eds_cluster_config.is_some());
}

/// V-10: a client whose view changes under it is sent the difference. Other clients are sent
/// nothing.
#[tokio::test]
async fn a_changed_view_reaches_its_clients() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mesh.yaml");
    let mesh = |id: &str, port: u16| {
        format!(
            "services: [{{ name: pay, endpoints: [{{ address: '10.0.0.1:80' }}] }}]
views: [{{ name: v, match: {{ id: {id} }}, services: [{{ name: pay, endpoints: [{{ address: '10.0.0.2:{port}' }}] }}] }}]"
        )
    };
    std::fs::write(&file, mesh("v-1", 81)).unwrap();
    let plane = start(&file).await;
    let ports = |response: &DiscoveryResponse| {
        let shown = format!("{:?}", read::<ClusterLoadAssignment>(response));
        [80, 81, 82]
            .into_iter()
            .find(|port| shown.contains(&format!("PortValue({port})")))
    };
    let (mut client, response) = ask(&plane, named("v-1"), ENDPOINTS, "pay").await;
    assert_eq!(ports(&response), Some(81));
    client.ack(&response, &["pay"]).await;
    let (mut other, response) = ask(&plane, named("w-1"), ENDPOINTS, "pay").await;
    assert_eq!(ports(&response), Some(80));
    other.ack(&response, &["pay"]).await;

    std::fs::write(&file, mesh("v-1", 82)).unwrap();
    let response = client.next().await;
    assert_eq!(ports(&response), Some(82));
    client.ack(&response, &["pay"]).await;

    // The view is now for the other client. The first thing that it hears is this change.
    std::fs::write(&file, mesh("w-1", 82)).unwrap();
    let [first, second] = [client.next().await, other.next().await];
    assert_eq!([ports(&first), ports(&second)], [Some(80), Some(82)]);
    let shown = plane.reloads().borrow().result.clone().unwrap().to_string();
    assert!(shown.ends_with("views changed 1: v"), "{shown}");
}

/// V-10: a client that comes back with another view is sent what differs, because versions are hashes of content.
#[tokio::test]
async fn a_client_that_moves_is_sent_what_differs() {
    let (plane, _directory) = example().await;
    let first = delta(&plane, named("web-1"), HashMap::new()).await;
    assert!(first.resources.len() > 3, "{first:?}");
    let known = first.resources.iter();
    let known = known.map(|of| (of.name.clone(), of.version.clone()));
    let node = Node {
        cluster: "partners".to_owned(),
        ..named("web-1")
    };
    let second = delta(&plane, node, known.collect()).await;
    let names: Vec<_> = second.resources.iter().map(|of| &of.name).collect();
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(second.removed_resources, ["ledger"]);
}

/// The first response to a wildcard for listeners, on a new stream.
async fn delta(
    plane: &ControlPlane,
    node: Node,
    initial_resource_versions: HashMap<String, String>,
) -> DeltaDiscoveryResponse {
    let mut client = AggregatedDiscoveryServiceClient::new(channel(plane.listen_addr()).await);
    let request = DeltaDiscoveryRequest {
        node: Some(node),
        type_url: LISTENER.to_owned(),
        resource_names_subscribe: vec!["*".to_owned()],
        initial_resource_versions,
        ..DeltaDiscoveryRequest::default()
    };
    let (requests, receiver) = tokio::sync::mpsc::channel(1);
    requests.send(request).await.unwrap();
    let responses = client.delta_aggregated_resources(ReceiverStream::new(receiver));
    let mut responses = soon(responses).await.unwrap().into_inner();
    soon(responses.message()).await.unwrap().unwrap()
}

/// V-11: the admin page shows the base, and each view by name.
#[tokio::test]
async fn a_page_shows_a_view() {
    let (plane, _directory) = example().await;
    let admin = plane.admin_addr().unwrap();
    let resources = |of: &serde_json::Value| {
        of["types"][LISTENER]["resources"]
            .as_object()
            .unwrap()
            .len()
    };
    let base = get_json(admin, "/snapshot").await;
    let view = get_json(admin, "/snapshot?view=partners").await;
    assert_eq!(resources(&view) + 1, resources(&base));
    let (status, text) = get(admin, "/snapshot?view=nobody").await;
    assert_eq!((status, &*text), (404, "there is no view \"nobody\"\n"));
}

/// V-02: a bad view is refused at a reload, and the last good configuration stays.
#[tokio::test]
async fn a_bad_view_changes_nothing() {
    let (plane, directory) = example().await;
    let mut reloads = plane.reloads();
    let bad = EXAMPLE.replace("hide: [ledger]", "hide: [legder]");
    std::fs::write(directory.path().join("mesh.yaml"), bad).unwrap();
    soon(reloads.changed()).await.unwrap();
    let error = reloads.borrow().result.clone().unwrap_err().to_string();
    assert!(error.contains("got \"legder\": there is none"), "{error}");
    assert!(plane.snapshot().resource(LISTENER, "ledger").is_some());
}
