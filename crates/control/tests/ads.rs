//! ADS over a real socket, as a client without a library would see it.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, LbPolicy};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::pb::envoy::service::discovery::v3::{
    DiscoveryRequest, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use support::{
    AdsClient, CLUSTER, CLUSTER_CONFIG, CROWFLY, ENDPOINTS, LISTENER, cluster_lists, plane,
    service, snapshot, soon,
};
use tonic::Code;

const GRPC: &str = "gRPC C-core";

/// The port of the only endpoint in a response.
fn port(response: &DiscoveryResponse) -> u32 {
    use envoy_types::pb::envoy::config::core::v3::address::Address;
    use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
    use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;

    let bytes = response.resources[0].value.as_slice();
    let assignment = ClusterLoadAssignment::decode(bytes).unwrap();
    let endpoint = assignment.endpoints[0].lb_endpoints[0].clone();
    let Some(HostIdentifier::Endpoint(endpoint)) = endpoint.host_identifier else {
        return 0;
    };
    match endpoint.address.and_then(|address| address.address) {
        Some(Address::SocketAddress(socket)) => match socket.port_specifier {
            Some(PortSpecifier::PortValue(port)) => port,
            _ => 0,
        },
        _ => 0,
    }
}

fn listener_names(response: &DiscoveryResponse) -> Vec<String> {
    let resources = response.resources.iter();
    let decoded = resources.map(|any| Listener::decode(any.value.as_slice()).unwrap());
    decoded.map(|listener| listener.name).collect()
}

/// P-07: an ACK is not answered: the next response after it is that of the change.
#[tokio::test]
async fn a_change_is_pushed_and_an_ack_is_not_answered() {
    let plane = plane(&service("payments", 1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(GRPC, ENDPOINTS, &["payments"]).await;

    let first = client.next().await;
    assert_eq!((first.type_url.as_str(), port(&first)), (ENDPOINTS, 1));
    client.ack(&first, &["payments"]).await;
    // A new type on the same stream: once it is answered, so would be the ACK before it.
    client.subscribe(GRPC, LISTENER, &["payments"]).await;
    let listener = client.next().await;
    assert_eq!(listener.type_url, LISTENER);
    client.ack(&listener, &["payments"]).await;

    plane.set_snapshot(snapshot(&service("payments", 2)));
    let second = client.next().await;
    assert_eq!((second.type_url.as_str(), port(&second)), (ENDPOINTS, 2));
    assert_ne!(second.version_info, first.version_info);
    assert_ne!(second.nonce, first.nonce);
}

/// P-19: a name that does not exist stays subscribed.
#[tokio::test]
async fn a_resource_that_appears_later_is_sent_then() {
    let plane = plane("").await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(GRPC, ENDPOINTS, &["payments"]).await;
    let missing = client.next().await;
    assert_eq!(
        (missing.resource_errors.len(), missing.resources.len()),
        (1, 0)
    );
    client.ack(&missing, &["payments"]).await;
    plane.set_snapshot(snapshot(&service("payments", 7)));
    assert_eq!(port(&client.next().await), 7);
}

/// One snapshot serves both kinds of client: Envoy has no use for gRPC's API listeners.
#[tokio::test]
async fn envoys_are_not_sent_api_listeners() {
    let text = format!(
        "{}resources: [{{ \"@type\": {LISTENER}, name: ingress, address: {{ pipe: {{ path: /in }} }} }}]\n",
        service("payments", 1)
    );
    let plane = plane(&text).await;
    for (agent, expected) in [
        ("envoy", vec!["ingress"]),
        (GRPC, vec!["ingress", "payments"]),
    ] {
        let mut client = AdsClient::open(plane.listen_addr()).await;
        client.subscribe(agent, LISTENER, &[]).await;
        assert_eq!(listener_names(&client.next().await), expected, "{agent}");
    }
}

#[tokio::test]
async fn a_resource_without_a_name_of_its_own_travels_wrapped() {
    let url = "type.googleapis.com/envoy.config.core.v3.RuntimeUInt32";
    let resource = format!("{{ \"@type\": {url}, default_value: 7 }}");
    let plane = plane(&format!(
        "resources: [{{ name: limits, resource: {resource} }}]"
    ))
    .await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(GRPC, url, &["limits"]).await;

    let response = client.next().await;
    assert_eq!(response.type_url, url);
    let wrapper = Resource::decode(response.resources[0].value.as_slice()).unwrap();
    assert_eq!(wrapper.name, "limits");
    assert_eq!(wrapper.resource.unwrap().type_url, url);
}

/// gRFC A99: the lists of aggregates.
#[tokio::test]
async fn lists_of_clusters_are_named_by_their_wrappers() {
    let plane = plane(&cluster_lists()).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    let names = ["payments", "raw"];
    client.subscribe(CROWFLY, CLUSTER_CONFIG, &names).await;
    let first = client.next().await;
    assert_eq!(first.type_url, CLUSTER_CONFIG);
    let lists: Vec<_> = first.resources.iter().map(list).collect();
    let expected = [
        ("payments", ["payments/endpoints", "other"]),
        ("raw", ["other", "payments"]),
    ];
    let expected = expected.map(|(name, list)| (name.to_owned(), list.map(str::to_owned).to_vec()));
    assert_eq!(lists, expected);
    client.ack(&first, &names).await;
    client.subscribe(CROWFLY, CLUSTER, &["payments"]).await;
    let clusters = client.next().await;
    client.ack(&clusters, &["payments"]).await;

    plane.set_snapshot(snapshot(
        "services: [{ name: payments, fallback_as: resource, fallback: [{ dns: \"a:1\" }] }]",
    ));
    let changed = client.next().await;
    assert_eq!(changed.type_url, CLUSTER_CONFIG, "the cluster is the same");
    let dns = ["payments/endpoints", "dns:a:1"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(list(&changed.resources[0]), ("payments".to_owned(), dns));
}

/// In whichever order they were asked for, a client hears of clusters before their lists.
#[tokio::test]
async fn lists_of_clusters_come_after_clusters() {
    let plane = plane("").await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe("x", CLUSTER_CONFIG, &["payments"]).await;
    client.subscribe("x", CLUSTER, &["payments"]).await;
    let none = client.next().await;
    assert_eq!((none.type_url.as_str(), none.resources.len()), (CLUSTER, 0));
    client.ack(&none, &["payments"]).await;

    plane.set_snapshot(snapshot(&cluster_lists()));
    assert_eq!(client.next().await.type_url, CLUSTER);
    assert_eq!(client.next().await.type_url, CLUSTER_CONFIG);
}

/// The name and the clusters of a list.
fn list(resource: &Any) -> (String, Vec<String>) {
    let wrapper = Resource::decode(resource.value.as_slice()).unwrap();
    let inner = wrapper.resource.unwrap();
    assert_eq!(inner.type_url, CLUSTER_CONFIG);
    let list = ClusterConfig::decode(inner.value.as_slice()).unwrap();
    (wrapper.name, list.clusters)
}

/// V-08: each kind of client is sent aggregates in the form that it accepts. C-core and Node refuse gRFC A99.
#[tokio::test]
async fn aggregates_differ_by_the_kind_of_client() {
    let text =
        "services: [{ name: payments, fallback: [{ dns: \"a:1\" }], fallback_as: resource }]";
    let plane = plane(text).await;
    for (agent, policy, config) in [
        ("envoy", LbPolicy::ClusterProvided, "ClusterConfig"),
        (GRPC, LbPolicy::RoundRobin, "ClusterConfig"),
        ("gRPC Go", LbPolicy::RoundRobin, "ClusterConfig"),
        ("gRPC Node Pure JS", LbPolicy::RoundRobin, "ClusterConfig"),
        (CROWFLY, LbPolicy::RoundRobin, "AggregateClusterResource"),
    ] {
        let mut client = AdsClient::open(plane.listen_addr()).await;
        client.subscribe(agent, CLUSTER, &["payments"]).await;
        let response = client.next().await;
        let cluster = Cluster::decode(response.resources[0].value.as_slice()).unwrap();
        assert_eq!(cluster.lb_policy(), policy, "{agent}");
        let Some(ClusterDiscoveryType::ClusterType(custom)) = cluster.cluster_discovery_type else {
            panic!("{agent}: {cluster:?}");
        };
        let url = custom.typed_config.unwrap().type_url;
        assert_eq!(url.rsplit('.').next(), Some(config), "{agent}");
    }
}

#[tokio::test]
async fn a_request_without_a_type_is_an_error() {
    let plane = plane("").await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.send(DiscoveryRequest::default()).await;
    let status = client.try_next().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

/// Streams end with UNAVAILABLE, so that clients look for another server, and the port is free.
#[tokio::test]
async fn shutdown_ends_the_streams() {
    let plane = plane(&service("payments", 1)).await;
    let address = plane.listen_addr();
    let mut client = AdsClient::open(address).await;
    client.subscribe(GRPC, ENDPOINTS, &["payments"]).await;
    client.next().await;

    let ended = async {
        let status = client.try_next().await.unwrap_err();
        drop(client);
        status
    };
    let (status, ()) = tokio::join!(ended, soon(plane.shutdown()));
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "the control plane is shutting down");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

/// A service of one type takes its own type alone, which a request may leave out.
#[tokio::test]
async fn a_service_of_one_type_refuses_other_types() {
    use envoy_types::pb::envoy::service::cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient;

    let plane = plane(&service("payments", 1)).await;
    let channel = support::channel(plane.listen_addr()).await;
    let mut client = ClusterDiscoveryServiceClient::new(channel);
    for (type_url, answered) in [("", true), (CLUSTER, true), (LISTENER, false)] {
        let request = DiscoveryRequest {
            type_url: type_url.to_owned(),
            ..DiscoveryRequest::default()
        };
        let requests =
            tokio_stream::StreamExt::chain(tokio_stream::once(request), tokio_stream::pending());
        let mut responses = client.stream_clusters(requests).await.unwrap().into_inner();
        match soon(responses.message()).await {
            Ok(response) => {
                assert!(answered, "{type_url}");
                assert_eq!(response.unwrap().type_url, CLUSTER);
            }
            Err(status) => {
                assert!(!answered, "{status}");
                assert_eq!(status.code(), Code::InvalidArgument);
                assert!(status.message().contains(CLUSTER), "{status}");
            }
        }
    }
}
