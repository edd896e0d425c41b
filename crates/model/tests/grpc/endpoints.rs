//! Tests of endpoint resources: priorities, localities, addresses and drops. An invalid entry
//! refuses the whole resource, so the exceptions are tested as well.

use crowfly_model::grpc::{
    Endpoints,
    endpoints::{Health, LocalityId},
};
use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::{
                Address, HealthStatus, Metadata, Pipe, address, socket_address::PortSpecifier,
            },
            endpoint::v3::{
                self as pb,
                cluster_load_assignment::{Policy, policy::DropOverload},
                endpoint::AdditionalAddress,
                lb_endpoint::HostIdentifier,
            },
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::{Struct, UInt32Value, Value, value::Kind},
};

use crate::{
    Case, accept, check_rejections,
    messages::{self, assignment, endpoint, locality},
    reject,
};

#[test]
fn localities_by_priority_and_sorted() {
    let parsed = accept::<Endpoints>(&assignment());
    assert_eq!(parsed.name, "payments");
    let zones: Vec<Vec<_>> = parsed
        .priorities
        .iter()
        .map(|localities| localities.iter().map(|l| l.id.to_string()).collect())
        .collect();
    assert_eq!(zones, [vec!["eu/a", "eu/b"], vec!["eu/c"]]);
    let endpoint = &parsed.priorities[0][0].endpoints[0];
    assert_eq!(endpoint.addresses, ["10.0.0.1:80".parse().unwrap()]);
    assert_eq!(endpoint.weight.get(), 1);
    assert_eq!(endpoint.health, Health::Unknown);
    assert_eq!(
        parsed.priorities[1][0].endpoints[0].addresses,
        ["[::1]:80".parse().unwrap()]
    );

    let mut reordered = assignment();
    reordered.endpoints.reverse();
    assert_eq!(accept::<Endpoints>(&reordered), parsed);
}

#[test]
fn locality_ids_print_short() {
    let cases = [
        (LocalityId::default(), "(no locality)"),
        (LocalityId::new("eu", "", ""), "eu"),
        (LocalityId::new("eu", "a", "rack-1"), "eu/a/rack-1"),
        (LocalityId::new("", "a", ""), "/a"),
    ];
    for (id, expected) in cases {
        assert_eq!(id.to_string(), expected);
    }
}

/// S3-10: gap in priorities, locality twice in one, address twice, sums of weights, weight 0.
#[test]
fn what_is_nacked() {
    let cases: &[Case<pb::ClusterLoadAssignment>] = &[
        (
            "name",
            |p| p.cluster_name.clear(),
            &["cluster_name: expected a non-empty string, got none"],
        ),
        (
            "gap",
            |p| p.endpoints[2].priority = 2,
            &["endpoints: expected priorities without a gap, got 2 without 1"],
        ),
        (
            "huge gap",
            |p| p.endpoints[2].priority = u32::MAX,
            &["endpoints: expected priorities without a gap, got 4294967295 without 1"],
        ),
        (
            "gap at 0, since a locality without a weight is none",
            |p| {
                p.endpoints[0].load_balancing_weight = None;
                p.endpoints[1].load_balancing_weight = weight(0);
            },
            &["endpoints: expected priorities without a gap, got 1 without 0"],
        ),
        (
            "locality twice",
            |p| p.endpoints[1].locality = p.endpoints[0].locality.clone(),
            &["endpoints[1].locality: expected it once in priority 0, got eu/b again"],
        ),
        (
            "no locality",
            |p| p.endpoints[1].locality = None,
            &["endpoints[1].locality: expected a locality, got none"],
        ),
        (
            "sum of locality weights",
            |p| {
                p.endpoints[0].load_balancing_weight = weight(u32::MAX);
                // Other priorities do not count.
                p.endpoints[2].load_balancing_weight = weight(u32::MAX);
            },
            &["endpoints: priority 0: \
               expected weights that add up to at most 4294967295, got 4294967296"],
        ),
        (
            "sum of endpoint weights",
            |p| {
                p.endpoints[2].lb_endpoints.push(endpoint("10.0.0.3", 80));
                p.endpoints[2].lb_endpoints[0].load_balancing_weight = weight(u32::MAX);
            },
            &["endpoints[2].lb_endpoints: \
               expected weights that add up to at most 4294967295, got 4294967296"],
        ),
        (
            "endpoint weight 0",
            |p| p.endpoints[1].lb_endpoints[0].load_balancing_weight = weight(0),
            &["endpoints[1].lb_endpoints[0].load_balancing_weight: expected at least 1, got 0"],
        ),
    ];
    check_rejections::<Endpoints, _>(assignment, cases);
}

/// S3-10 (part): addresses, of which none may occur twice in a resource.
#[test]
fn addresses_that_are_nacked() {
    let cases: &[Case<pb::ClusterLoadAssignment>] = &[
        (
            "same address in another priority",
            |p| p.endpoints[2].lb_endpoints[0] = endpoint("10.0.0.1", 80),
            &["endpoints[2].lb_endpoints[0].endpoint.address: \
               expected a unique address, got 10.0.0.1:80 again"],
        ),
        (
            "same address as an additional one",
            |p| add_address(p, messages::address("10.0.0.2", 80)),
            &[
                "endpoints[0].lb_endpoints[0].endpoint.additional_addresses[0].address: \
               expected a unique address, got 10.0.0.2:80 again",
            ],
        ),
        (
            "host name and port too big",
            |p| p.endpoints[0].lb_endpoints[0] = endpoint("localhost", 70_000),
            &[
                "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address: \
                 expected an IP address, got \"localhost\"",
                "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value: \
                 expected 0 to 65535, got 70000",
            ],
        ),
        (
            "port too big, in two endpoints",
            |p| {
                p.endpoints[0].lb_endpoints[0] = endpoint("10.0.0.1", 65_536);
                add_address(p, messages::address("10.0.0.9", u32::MAX));
            },
            &[
                "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value: \
                 expected 0 to 65535, got 65536",
                "endpoints[0].lb_endpoints[0].endpoint.additional_addresses[0].address\
                 .socket_address.port_value: expected 0 to 65535, got 4294967295",
            ],
        ),
    ];
    check_rejections::<Endpoints, _>(assignment, cases);
}

/// gRFC A27: `port_value` must be set. It may be set to 0, which costs that endpoint its calls and
/// the others nothing, as in C-core.
#[test]
fn port_0_is_no_reason_to_refuse_the_others() {
    let mut proto = assignment();
    proto.endpoints[0].lb_endpoints[0] = endpoint("10.0.0.1", 0);
    let parsed = accept::<Endpoints>(&proto);
    let all = parsed
        .priorities
        .iter()
        .flatten()
        .flat_map(|l| &l.endpoints);
    let addresses: Vec<_> = all.map(|one| one.addresses[0].to_string()).collect();
    assert_eq!(addresses, ["10.0.0.1:80", "10.0.0.1:0", "[::1]:80"]);
}

/// gRFC A27 asks for an IPv4 or IPv6 address; RFC 4007 writes an IPv6 address with its zone, a
/// number or the name of an interface of this machine.
#[test]
fn ipv6_addresses_may_have_a_zone() {
    let zoned = |text: &str| {
        let mut proto = assignment();
        proto.endpoints[0].lb_endpoints[0] = endpoint(text, 80);
        proto
    };
    let address = |text: &str| {
        let parsed = accept::<Endpoints>(&zoned(text));
        parsed.priorities[0][1].endpoints[0].addresses[0]
    };
    assert_eq!(address("fe80::1%7").to_string(), "[fe80::1%7]:80");
    assert_eq!(address("fe80::1%0").to_string(), "[fe80::1]:80");
    let bad = [
        (
            "fe80::1%no-such-zone",
            "expected a zone of this machine, got \"no-such-zone\"",
        ),
        ("fe80::1%", "expected a zone of this machine, got \"\""),
        ("10.0.0.1%1", "expected an IP address, got \"10.0.0.1%1\""),
        ("localhost%1", "expected an IP address, got \"localhost%1\""),
    ];
    for (text, expected) in bad {
        let path = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address";
        assert_eq!(
            reject::<Endpoints>(&zoned(text)),
            [format!("{path}: {expected}")]
        );
    }
}

/// An interface has a number on every machine, but `lo` is the name of one on Linux only.
#[cfg(target_os = "linux")]
#[test]
fn an_ipv6_zone_may_be_the_name_of_an_interface() {
    let mut proto = assignment();
    proto.endpoints[0].lb_endpoints[0] = endpoint("fe80::1%lo", 80);
    let parsed = accept::<Endpoints>(&proto);
    let address = parsed.priorities[0][1].endpoints[0].addresses[0].to_string();
    assert_eq!(address, "[fe80::1%1]:80");
}

/// gRFC A27: only IP addresses with a port number are addresses of endpoints.
#[test]
fn other_kinds_of_addresses_are_nacked() {
    let cases: &[Case<pb::ClusterLoadAssignment>] = &[
        (
            "named port",
            |p| set_port(p, Some(PortSpecifier::NamedPort("http".to_owned()))),
            &[
                "endpoints[0].lb_endpoints[0].endpoint.address.socket_address: \
               expected port_value, got named_port \"http\"",
            ],
        ),
        (
            "no port",
            |p| set_port(p, None),
            &[
                "endpoints[0].lb_endpoints[0].endpoint.address.socket_address: \
               expected port_value, got none",
            ],
        ),
        (
            "pipe",
            |p| {
                let pipe = address::Address::Pipe(Pipe::default());
                host(p).address = Some(Address {
                    address: Some(pipe),
                });
            },
            &["endpoints[0].lb_endpoints[0].endpoint.address: \
               expected a socket_address, got pipe"],
        ),
        (
            "no address",
            |p| host(p).address = None,
            &["endpoints[0].lb_endpoints[0].endpoint.address: \
               expected a socket_address, got none"],
        ),
        (
            "no endpoint",
            |p| p.endpoints[0].lb_endpoints[0].host_identifier = None,
            &["endpoints[0].lb_endpoints[0].endpoint: expected an endpoint, got none"],
        ),
        (
            "named endpoint",
            |p| {
                let name = HostIdentifier::EndpointName("x".to_owned());
                p.endpoints[0].lb_endpoints[0].host_identifier = Some(name);
            },
            &["endpoints[0].lb_endpoints[0].endpoint: \
               expected an endpoint, got endpoint_name \"x\""],
        ),
    ];
    check_rejections::<Endpoints, _>(assignment, cases);
}

/// S3-11: a locality of weight 0 is skipped, whatever else is wrong with it.
#[test]
fn locality_without_weight_is_skipped() {
    let expected = accept::<Endpoints>(&assignment());
    for none in [None, weight(0)] {
        let mut proto = assignment();
        let mut skipped = locality("b", 9, vec![endpoint("not an address", 0)]);
        skipped.locality = None;
        skipped.load_balancing_weight = none;
        proto.endpoints.insert(0, skipped);
        assert_eq!(accept::<Endpoints>(&proto), expected);
    }
}

/// S3-11: a locality may be in two priorities.
#[test]
fn locality_in_two_priorities() {
    let mut proto = assignment();
    proto.endpoints[2].locality = proto.endpoints[0].locality.clone();
    let parsed = accept::<Endpoints>(&proto);
    assert_eq!(parsed.priorities[0][1].id, parsed.priorities[1][0].id);
}

/// S3-13 (part): no localities is valid, and so is one without endpoints.
#[test]
fn no_localities() {
    let mut proto = assignment();
    proto.endpoints.clear();
    assert!(accept::<Endpoints>(&proto).priorities.is_empty());

    proto.endpoints = vec![locality("a", 0, vec![])];
    let parsed = accept::<Endpoints>(&proto);
    assert!(parsed.priorities[0][0].endpoints.is_empty());
}

/// gRFC A76: metadata may say what decides an endpoint's place on a hash ring.
#[test]
fn hash_key() {
    let text = |text: &str| Kind::StringValue(text.to_owned());
    let cases = [
        ("envoy.lb", text("backend-7"), Some("backend-7")),
        ("envoy.lb", text(""), None),
        ("envoy.lb", Kind::BoolValue(true), None),
        ("other", text("backend-7"), None),
    ];
    for (filter, kind, expected) in cases {
        let value = Value { kind: Some(kind) };
        let fields = Struct {
            fields: [("hash_key".to_owned(), value)].into(),
        };
        let mut proto = assignment();
        proto.endpoints[2].lb_endpoints[0].metadata = Some(Metadata {
            filter_metadata: [(filter.to_owned(), fields)].into(),
            ..Metadata::default()
        });
        let parsed = accept::<Endpoints>(&proto);
        let endpoint = &parsed.priorities[1][0].endpoints[0];
        assert_eq!(endpoint.hash_key.as_deref(), expected, "{filter}");
    }
}

/// S7-03 (part): only endpoints that may get calls are kept; the others are not looked at.
#[test]
fn health() {
    let cases = [
        (HealthStatus::Unknown as i32, Some(Health::Unknown)),
        (HealthStatus::Healthy as i32, Some(Health::Healthy)),
        (HealthStatus::Draining as i32, Some(Health::Draining)),
        (HealthStatus::Unhealthy as i32, None),
        (HealthStatus::Timeout as i32, None),
        (HealthStatus::Degraded as i32, None),
        (77, None),
    ];
    for (status, expected) in cases {
        let mut proto = assignment();
        proto.endpoints[2].lb_endpoints[0].health_status = status;
        let parsed = accept::<Endpoints>(&proto);
        let endpoints = &parsed.priorities[1][0].endpoints;
        assert_eq!(endpoints.first().map(|e| e.health), expected, "{status}");
    }

    let mut proto = assignment();
    let mut twin = endpoint("10.0.0.1", 80);
    twin.health_status = HealthStatus::Unhealthy as i32;
    proto.endpoints[0].lb_endpoints.push(twin);
    accept::<Endpoints>(&proto);
}

/// S7-08 (part): all addresses belong to one endpoint, in order (gRFC A61).
#[test]
fn additional_addresses() {
    let mut proto = assignment();
    add_address(&mut proto, messages::address("fd00::2", 80));
    add_address(&mut proto, messages::address("10.0.0.2", 81));
    let parsed = accept::<Endpoints>(&proto);
    let endpoints = &parsed.priorities[0][1].endpoints;
    assert_eq!(endpoints.len(), 1);
    let expected = ["10.0.0.2:80", "[fd00::2]:80", "10.0.0.2:81"];
    assert_eq!(endpoints[0].addresses, expected.map(|a| a.parse().unwrap()));
}

/// S3-12: scaled to a million, capped, and without wrapping.
#[test]
fn drops_are_scaled_and_capped() {
    let cases = [
        (0, DenominatorType::Hundred, 0),
        (25, DenominatorType::Hundred, 250_000),
        (100, DenominatorType::Hundred, 1_000_000),
        (101, DenominatorType::Hundred, 1_000_000),
        // 429,497 x 10,000 is 2,704 in 32 bits.
        (429_497, DenominatorType::Hundred, 1_000_000),
        (u32::MAX, DenominatorType::Hundred, 1_000_000),
        (1, DenominatorType::TenThousand, 100),
        (10_001, DenominatorType::TenThousand, 1_000_000),
        (1, DenominatorType::Million, 1),
        (u32::MAX, DenominatorType::Million, 1_000_000),
    ];
    for (numerator, denominator, expected) in cases {
        let mut proto = assignment();
        proto.policy = Some(drop("throttle", numerator, denominator as i32));
        let drops = accept::<Endpoints>(&proto).drops;
        assert_eq!(drops.len(), 1);
        assert_eq!(drops[0].category, "throttle");
        assert_eq!(
            drops[0].per_million, expected,
            "{numerator} {denominator:?}"
        );
    }
}

#[test]
fn drops_that_are_nacked() {
    let cases: &[Case<pb::ClusterLoadAssignment>] = &[
        (
            "no category, unknown denominator",
            |p| p.policy = Some(drop("", 1, 77)),
            &[
                "policy.drop_overloads[0].category: expected a non-empty string, got none",
                "policy.drop_overloads[0].drop_percentage.denominator: \
                 expected HUNDRED, TEN_THOUSAND or MILLION, got 77",
            ],
        ),
        (
            "no share",
            |p| {
                let mut policy = drop("x", 1, 0);
                policy.drop_overloads[0].drop_percentage = None;
                p.policy = Some(policy);
            },
            &["policy.drop_overloads[0].drop_percentage: expected a share, got none"],
        ),
    ];
    check_rejections::<Endpoints, _>(assignment, cases);
}

fn weight(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

fn drop(category: &str, numerator: u32, denominator: i32) -> Policy {
    Policy {
        drop_overloads: vec![DropOverload {
            category: category.to_owned(),
            drop_percentage: Some(FractionalPercent {
                numerator,
                denominator,
            }),
        }],
        ..Policy::default()
    }
}

/// The endpoint of the first locality.
fn host(proto: &mut pb::ClusterLoadAssignment) -> &mut pb::Endpoint {
    match &mut proto.endpoints[0].lb_endpoints[0].host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => endpoint,
        other => panic!("expected an endpoint, got {other:?}"),
    }
}

fn add_address(proto: &mut pb::ClusterLoadAssignment, address: Address) {
    host(proto).additional_addresses.push(AdditionalAddress {
        address: Some(address),
    });
}

fn set_port(proto: &mut pb::ClusterLoadAssignment, port: Option<PortSpecifier>) {
    match &mut host(proto).address.as_mut().unwrap().address {
        Some(address::Address::SocketAddress(address)) => address.port_specifier = port,
        other => panic!("expected a socket address, got {other:?}"),
    }
}
