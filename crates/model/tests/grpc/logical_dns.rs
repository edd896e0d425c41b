//! Tests of clusters that are a host name (gRFC A37). They have exactly one endpoint, because gRPC
//! resolves one name for each cluster.

use crowfly_model::grpc::{
    Cluster,
    cluster::{ClusterKind, DnsName, EndpointSource},
};
use envoy_types::pb::envoy::config::{
    cluster::v3 as pb,
    core::v3::{
        Address, Pipe, SocketAddress, address::Address as AddressKind,
        socket_address::PortSpecifier,
    },
    endpoint::v3::{
        ClusterLoadAssignment, Endpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
    },
};

use crate::{
    Case, accept, check_rejections,
    messages::{address, endpoint, locality, logical_dns},
};

#[test]
fn host_and_port() {
    for (host, port, written) in [
        ("payments.example.com", 443, "payments.example.com:443"),
        ("10.0.0.1", 1, "10.0.0.1:1"),
        ("2001:db8::1", 65535, "[2001:db8::1]:65535"),
    ] {
        let mut proto = logical_dns();
        *host_of(&mut proto) = address(host, port);

        let parsed = accept::<Cluster>(&proto);

        assert_eq!(parsed.eds_name(), None);
        let name = name_of(parsed);
        assert_eq!((&*name.host, u32::from(name.port)), (host, port));
        assert_eq!(name.to_string(), written);
    }
}

/// A locality's name, weight and priority mean nothing here, nor does what EDS would ask for.
#[test]
fn rest_of_the_load_assignment_is_ignored() {
    let mut proto = logical_dns();
    let assignment = assignment(&mut proto);
    assignment.endpoints[0].locality = None;
    assignment.endpoints[0].load_balancing_weight = None;
    assignment.endpoints[0].priority = 9;

    assert_eq!(name_of(accept::<Cluster>(&proto)).host, "host");
}

/// S3-06: exactly one locality with exactly one endpoint.
#[test]
fn anything_but_one_endpoint_is_nacked() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "no load assignment",
            |p| p.load_assignment = None,
            &["load_assignment: expected it with type LOGICAL_DNS, got none"],
        ),
        (
            "no locality",
            |p| assignment(p).endpoints.clear(),
            &["load_assignment.endpoints: expected exactly one with LOGICAL_DNS, got 0"],
        ),
        (
            "two localities",
            |p| {
                let other = locality("b", 1, vec![endpoint("host", 443)]);
                assignment(p).endpoints.push(other);
            },
            &["load_assignment.endpoints: expected exactly one with LOGICAL_DNS, got 2"],
        ),
        (
            "no endpoint",
            |p| only_locality(p).lb_endpoints.clear(),
            &["load_assignment.endpoints[0].lb_endpoints: \
               expected exactly one with LOGICAL_DNS, got 0"],
        ),
        (
            "two endpoints",
            |p| only_locality(p).lb_endpoints.push(endpoint("other", 443)),
            &["load_assignment.endpoints[0].lb_endpoints: \
               expected exactly one with LOGICAL_DNS, got 2"],
        ),
    ];
    check_rejections::<Cluster, _>(logical_dns, cases);
}

/// S3-06: the endpoint is a socket address.
#[test]
fn anything_but_a_socket_address_is_nacked() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "no endpoint message",
            |p| only_locality(p).lb_endpoints[0].host_identifier = None,
            &["load_assignment.endpoints[0].lb_endpoints[0]: expected an endpoint, got none"],
        ),
        (
            "endpoint by name",
            |p| {
                let name = HostIdentifier::EndpointName("x".to_owned());
                only_locality(p).lb_endpoints[0].host_identifier = Some(name);
            },
            &[
                "load_assignment.endpoints[0].lb_endpoints[0]: expected an endpoint, got endpoint_name",
            ],
        ),
        (
            "no address",
            |p| only_endpoint(p).address = None,
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address: \
               expected a socket_address, got none",
            ],
        ),
        (
            "pipe",
            |p| host_of(p).address = Some(AddressKind::Pipe(Pipe::default())),
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address: \
               expected a socket_address, got pipe",
            ],
        ),
    ];
    check_rejections::<Cluster, _>(logical_dns, cases);
}

/// S3-06: an empty address, a missing port, a resolver name; port 0 too, which nothing listens on.
#[test]
fn anything_but_a_host_and_a_port_is_nacked() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "empty host",
            |p| socket(p).address.clear(),
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address\
               .address: expected a non-empty string, got none",
            ],
        ),
        (
            "resolver",
            |p| socket(p).resolver_name = "fancy".to_owned(),
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address\
               .resolver_name: expected none, got \"fancy\"",
            ],
        ),
        (
            "no port",
            |p| socket(p).port_specifier = None,
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address: \
               expected port_value, got none",
            ],
        ),
        (
            "named port",
            |p| socket(p).port_specifier = Some(PortSpecifier::NamedPort("https".to_owned())),
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address: \
               expected port_value, got named_port \"https\"",
            ],
        ),
        (
            "all at once",
            |p| {
                *socket(p) = SocketAddress {
                    resolver_name: "fancy".to_owned(),
                    port_specifier: Some(PortSpecifier::PortValue(65536)),
                    ..SocketAddress::default()
                }
            },
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address\
               .address: expected a non-empty string, got none",
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address\
               .resolver_name: expected none, got \"fancy\"",
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address\
               .port_value: expected 0 to 65535, got 65536",
            ],
        ),
    ];
    check_rejections::<Cluster, _>(logical_dns, cases);
}

fn name_of(cluster: Cluster) -> DnsName {
    match cluster.kind {
        ClusterKind::Leaf(leaf) => match leaf.source {
            EndpointSource::Dns(name) => name,
            other @ EndpointSource::Eds { .. } => panic!("expected DNS, got {other:?}"),
        },
        ClusterKind::Aggregate(other) => panic!("expected a leaf, got {other:?}"),
    }
}

fn assignment(cluster: &mut pb::Cluster) -> &mut ClusterLoadAssignment {
    cluster.load_assignment.as_mut().unwrap()
}

fn only_locality(cluster: &mut pb::Cluster) -> &mut LocalityLbEndpoints {
    &mut assignment(cluster).endpoints[0]
}

fn only_endpoint(cluster: &mut pb::Cluster) -> &mut Endpoint {
    match &mut only_locality(cluster).lb_endpoints[0].host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => endpoint,
        other => panic!("expected an endpoint, got {other:?}"),
    }
}

fn host_of(cluster: &mut pb::Cluster) -> &mut Address {
    only_endpoint(cluster).address.as_mut().unwrap()
}

fn socket(cluster: &mut pb::Cluster) -> &mut SocketAddress {
    match &mut host_of(cluster).address {
        Some(AddressKind::SocketAddress(address)) => address,
        other => panic!("expected a socket address, got {other:?}"),
    }
}
