//! ADS over a real socket, as a client without a library would see it.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::service::discovery::v3::{
    DiscoveryRequest, DiscoveryResponse, Resource,
};
use prost::Message;
use support::{AdsClient, ENDPOINTS, LISTENER, plane, service, snapshot, soon};
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

/// An ACK is not answered: the next response after it is that of the change.
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

/// A refused version is not sent again; the next one is.
#[tokio::test]
async fn what_was_refused_is_not_repeated() {
    let plane = plane(&service("payments", 1)).await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(GRPC, ENDPOINTS, &["payments"]).await;
    let refused = client.next().await;
    client.nack(&refused, &["payments"], "no").await;

    plane.set_snapshot(snapshot(&service("payments", 2)));
    assert_eq!(port(&client.next().await), 2);
}

#[tokio::test]
async fn a_resource_that_appears_later_is_sent_then() {
    let plane = plane("").await;
    let mut client = AdsClient::open(plane.listen_addr()).await;
    client.subscribe(GRPC, ENDPOINTS, &["payments"]).await;
    plane.set_snapshot(snapshot(&service("payments", 7)));
    assert_eq!(port(&client.next().await), 7);
}

/// One snapshot serves both kinds of client: Envoy has no use for gRPC's API listeners.
#[tokio::test]
async fn envoys_are_not_sent_api_listeners() {
    let text = format!(
        "{}resources: [{{ \"@type\": {LISTENER}, name: ingress }}]\n",
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
