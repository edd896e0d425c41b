//! Our channel and gRPC C-core get the same resources, and must accept and refuse them alike. Where
//! they do not, the case names the rule that we follow.

mod regexes;
mod sessions;

use std::collections::HashSet;
use std::net::SocketAddr;

use crowfly_e2e::ads_server::AdsServer;
use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::resources::{CLUSTER, ENDPOINTS, LISTENER, ROUTES};
use crowfly_e2e::{peers, rpc};
use crowfly_testkit::builders::{
    ClusterBuilder, EndpointsBuilder, RoutesBuilder, cluster, custom_policy, endpoints, listener,
    routes, wrr_locality,
};
use envoy_types::pb::envoy::config::cluster::v3::cluster::{LbConfig, LbPolicy, RingHashLbConfig};
use envoy_types::pb::envoy::config::core::v3::{
    SocketAddress, TypedExtensionConfig, address::Address, socket_address::PortSpecifier,
};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, RouteMatch, header_matcher::HeaderMatchSpecifier, route_match,
    route_match::PathSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::RingHash;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    FilterStateMatcher, MetadataMatcher, RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::envoy::r#type::v3::Int64Range;
use envoy_types::pb::google::protobuf::{Any, UInt32Value, UInt64Value};
use envoy_types::util::pack_any;
use serde_json::{Value, json};

use crate::{CROWFLY, channel};

/// A client takes a resource, or answers with an error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    Taken,
    Refused,
}

use Reading::{Refused, Taken};

/// A resource named `svc`, and the expected answer of each of the two.
struct Case {
    what: &'static str,
    type_url: &'static str,
    resource: Any,
    ours: Reading,
    c_core: Reading,
}

/// gRFC A27, A28, A39, A42, A52, A55, A75: the cases of each are below, with the rule where we differ.
#[tokio::test(flavor = "multi_thread")]
async fn resources_are_read_as_c_core_reads_them() {
    let Some(python) = peers::python() else {
        return;
    };
    let b1 = CROWFLY.backend("b1");
    let mut ours = Judge::new(AdsServer::start(python), b1.address);
    let mut theirs = Judge::new(AdsServer::start(python), b1.address);
    let channel = channel(ours.address());
    rpc::until_served_by(&channel, &["b1"]).await;
    let mut c_core = CCoreClient::start(python, theirs.address(), "xds:///svc");
    c_core.until_served_by(&["b1"]);

    let mut wrong = Vec::new();
    for case in cases() {
        let got = [&mut ours, &mut theirs].map(|judge| judge.reading(&case));
        if got.each_ref().map(|(reading, _)| *reading) != [case.ours, case.c_core] {
            let expected = (case.ours, case.c_core);
            wrong.push(format!("{}: expected {expected:?}, got {got:?}", case.what));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// gRFC A28: a route with a matcher that gRPC ignores is used by both, as if it were not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_route_with_an_ignored_matcher_is_used_by_both() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mut ours = Judge::new(AdsServer::start(python), b1.address);
    let mut theirs = Judge::new(AdsServer::start(python), b1.address);
    let channel = channel(ours.address());
    rpc::until_served_by(&channel, &["b1"]).await;
    let mut c_core = CCoreClient::start(python, theirs.address(), "xds:///svc");
    c_core.until_served_by(&["b1"]);

    let narrow = routes("svc")
        .host("*")
        .route("/", "other")
        .route("/", "svc");
    let narrow = narrow.edit(|config| {
        let matcher = config.virtual_hosts[0].routes[0].r#match.as_mut().unwrap();
        matcher.tls_context = Some(route_match::TlsContextMatchOptions::default());
    });
    for judge in [&mut ours, &mut theirs] {
        judge.add("other", b2.address);
        judge.serve(ROUTES, &narrow.any());
    }
    rpc::until_served_by(&channel, &["b2"]).await;
    c_core.until_served_by(&["b2"]);
}

/// An ADS server and its one client, whose answers it tells.
struct Judge {
    ads: AdsServer,
    versions: u32,
    nonces: HashSet<String>,
    backend: SocketAddr,
    others: Vec<(&'static str, &'static str, Any)>,
}

impl Judge {
    fn new(ads: AdsServer, backend: SocketAddr) -> Self {
        let mut judge = Self {
            ads,
            versions: 0,
            nonces: HashSet::new(),
            backend,
            others: Vec::new(),
        };
        for type_url in [LISTENER, ROUTES, CLUSTER, ENDPOINTS] {
            judge.restore(type_url);
        }
        judge
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ads.port()))
    }

    /// Serves one more cluster with its endpoints.
    fn add(&mut self, name: &'static str, backend: SocketAddr) {
        let list = endpoints(name).locality("eu/a", 1, [&*backend.to_string()]);
        self.others.push((ENDPOINTS, name, list.any()));
        self.others.push((CLUSTER, name, cluster(name).any()));
        self.restore(CLUSTER);
        self.restore(ENDPOINTS);
    }

    /// Serves `svc` of a type with nothing special about it; returns the version.
    fn restore(&mut self, type_url: &str) -> String {
        let valid = match type_url {
            LISTENER => listener("svc").rds("svc").any(),
            ROUTES => all_to("svc").any(),
            CLUSTER => cluster("svc").any(),
            _ => only(self.backend).any(),
        };
        self.serve(type_url, &valid)
    }

    /// Serves `resource` as `svc`, among others of its type; returns the version.
    fn serve(&mut self, type_url: &str, resource: &Any) -> String {
        self.versions += 1;
        let version = self.versions.to_string();
        let others = self.others.iter().filter(|(of, ..)| *of == type_url);
        let mut all: Vec<Value> = others
            .map(|(_, name, any)| raw(type_url, name, any))
            .collect();
        all.push(raw(type_url, "svc", resource));
        self.ads.set(&version, &all);
        version
    }

    /// Serves a resource and returns the client's answer. The resource is then replaced by a valid
    /// one.
    fn reading(&mut self, case: &Case) -> (Reading, Option<String>) {
        let version = self.serve(case.type_url, &case.resource);
        let answer = self.ads.wait_for_request(case.what, |request| {
            let is_ack = request.error.is_none() && request.version == version;
            let is_nack = request.error.is_some() && !self.nonces.contains(&request.nonce);
            request.type_url == case.type_url && (is_ack || is_nack)
        });
        self.nonces.insert(answer.nonce);
        let version = self.restore(case.type_url);
        self.ads.wait_for_ack(case.type_url, &version);
        let reading = if answer.error.is_some() {
            Refused
        } else {
            Taken
        };
        (reading, answer.error)
    }
}

fn raw(type_url: &str, name: &str, resource: &Any) -> Value {
    let hex: String = resource
        .value
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let field = if type_url == ENDPOINTS {
        "cluster_name"
    } else {
        "name"
    };
    json!({ "@type": type_url, field: name, "@raw": hex })
}

fn cases() -> Vec<Case> {
    let mut cases = route_cases();
    cases.extend(regexes::cases());
    cases.extend(listener_cases());
    cases.extend(sessions::cases());
    cases.extend(cluster_cases());
    cases.extend(endpoint_cases());
    cases
}

fn route_cases() -> Vec<Case> {
    let both = |what, reading, edit: fn(&mut RouteMatch)| {
        let resource = all_to("svc").edit(|config| {
            edit(config.virtual_hosts[0].routes[0].r#match.as_mut().unwrap());
        });
        case(what, ROUTES, resource.any(), reading, reading)
    };
    let domain = |what, reading| {
        let resource = routes("svc").hosts(&["*", what]).route("/", "svc");
        case(what, ROUTES, resource.any(), reading, reading)
    };
    vec![
        // gRFC A28: ignored.
        both("tls_context", Taken, |m| {
            m.tls_context = Some(route_match::TlsContextMatchOptions::default());
        }),
        both("dynamic_metadata", Taken, |m| {
            m.dynamic_metadata = vec![MetadataMatcher::default()];
        }),
        both("filter_state", Taken, |m| {
            m.filter_state = vec![FilterStateMatcher::default()];
        }),
        // gRFC A28: a path specifier, and one of three.
        both("no path specifier", Refused, |m| m.path_specifier = None),
        both("connect_matcher", Refused, |m| {
            let connect = route_match::ConnectMatcher {};
            m.path_specifier = Some(PathSpecifier::ConnectMatcher(connect));
        }),
        both("path_separated_prefix", Refused, |m| {
            m.path_specifier = Some(PathSpecifier::PathSeparatedPrefix("/a".to_owned()));
        }),
        both("path_match_policy", Refused, |m| {
            let policy = TypedExtensionConfig::default();
            m.path_specifier = Some(PathSpecifier::PathMatchPolicy(policy));
        }),
        // gRFC A28: a range has a start and an end.
        case(
            "range that ends before it starts",
            ROUTES,
            with_header(HeaderMatchSpecifier::RangeMatch(Int64Range {
                start: 8,
                end: 7,
            })),
            Refused,
            Refused,
        ),
        // gRFC A63: the flag is ignored for a pattern.
        case(
            "ignore_case beside safe_regex",
            ROUTES,
            with_header(HeaderMatchSpecifier::StringMatch(StringMatcher {
                ignore_case: true,
                match_pattern: Some(MatchPattern::SafeRegex(RegexMatcher {
                    regex: "a".to_owned(),
                    ..RegexMatcher::default()
                })),
            })),
            Taken,
            Refused,
        ),
        // gRFC A27.
        domain("**", Taken),
        domain("*a*", Taken),
        domain("a**", Taken),
        domain("a*b", Refused),
        domain("", Refused),
    ]
}

/// Routes with a condition on a header.
fn with_header(specifier: HeaderMatchSpecifier) -> Any {
    let routes = all_to("svc").edit(|config| {
        let matcher = config.virtual_hosts[0].routes[0].r#match.as_mut().unwrap();
        matcher.headers = vec![HeaderMatcher {
            name: "x-user".to_owned(),
            header_match_specifier: Some(specifier),
            ..HeaderMatcher::default()
        }];
    });
    routes.any()
}

fn listener_cases() -> Vec<Case> {
    let name = "envoy.extensions.filters.http.router.v3.Router";
    let as_json = listener("svc").rds("svc").edit(|manager| {
        let router = custom_policy(name, &json!({}));
        manager.http_filters[0].config_type = Some(ConfigType::TypedConfig(router));
    });
    // gRFC A39: the router's configuration is a message.
    vec![case(
        "router in a TypedStruct",
        LISTENER,
        as_json.any(),
        Refused,
        Refused,
    )]
}

fn cluster_cases() -> Vec<Case> {
    let both = |what, reading, resource: ClusterBuilder| {
        case(what, CLUSTER, resource.any(), reading, reading)
    };
    let named = |name: &'static str, config: Value, reading| {
        let policy = custom_policy(name, &config);
        both(name, reading, cluster("svc").policies([policy]))
    };
    let ring = |max| RingHash {
        maximum_ring_size: Some(UInt64Value { value: max }),
        ..RingHash::default()
    };
    let wrong_type = {
        // Field 4, connect_timeout, is a message, and no number.
        let mut any = cluster("svc").any();
        any.value.extend([0x20, 0x01]);
        case("wire type", CLUSTER, any, Taken, Taken)
    };
    vec![
        // gRFC A52: any policy that is registered.
        named("round_robin", json!({}), Taken),
        named("pick_first", json!({ "shuffleAddressList": true }), Taken),
        named("pick_first", json!({ "shuffleAddressList": 1 }), Refused),
        named("ring_hash_experimental", json!({}), Taken),
        named(
            "ring_hash_experimental",
            json!({ "minRingSize": 5000 }),
            Refused,
        ),
        named(
            "xds_wrr_locality_experimental",
            json!({ "childPolicy": [{ "round_robin": {} }] }),
            Taken,
        ),
        named("nobody.HasIt", json!({}), Refused),
        // Protobuf: a field of another wire type is an unknown field.
        wrong_type,
        // gRFC A75: the policy of an aggregate counts for nothing, so none is wrong. Envoy requires
        // CLUSTER_PROVIDED.
        case(
            "aggregate with CLUSTER_PROVIDED",
            CLUSTER,
            cluster("svc").aggregate(["svc"]).any(),
            Taken,
            Refused,
        ),
        // gRFC A42: the minimum is 1024 unless it is given, and not above the maximum. C-core has
        // that rule in one of two places.
        case(
            "maximum_ring_size 1023",
            CLUSTER,
            cluster("svc").policies([pack_any(ring(1023))]).any(),
            Refused,
            Refused,
        ),
        case(
            "maximum_ring_size 1023 beside lb_policy",
            CLUSTER,
            cluster("svc")
                .edit(|proto| {
                    proto.lb_policy = LbPolicy::RingHash as i32;
                    proto.lb_config = Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
                        maximum_ring_size: Some(UInt64Value { value: 1023 }),
                        ..RingHashLbConfig::default()
                    }));
                })
                .any(),
            Refused,
            Taken,
        ),
        // gRFC A52: any policy may be inside wrr_locality.
        case(
            "wrr_locality over ring_hash",
            CLUSTER,
            cluster("svc")
                .policies([wrr_locality([pack_any(RingHash::default())])])
                .any(),
            Taken,
            Taken,
        ),
    ]
}

fn endpoint_cases() -> Vec<Case> {
    let both = |what, reading, resource: EndpointsBuilder| {
        case(what, ENDPOINTS, resource.any(), reading, reading)
    };
    let heavy = at("10.0.0.1", 1).edit(|proto| {
        let mut second = proto.endpoints[0].lb_endpoints[0].clone();
        set_address(&mut second.host_identifier, |a| {
            a.address = "10.0.0.2".to_owned();
        });
        let heaviest = Some(UInt32Value { value: u32::MAX });
        proto.endpoints[0].lb_endpoints[0].load_balancing_weight = heaviest;
        second.load_balancing_weight = heaviest;
        proto.endpoints[0].lb_endpoints.push(second);
    });
    let no_port = at("10.0.0.1", 1).edit(|proto| {
        let endpoint = &mut proto.endpoints[0].lb_endpoints[0];
        set_address(&mut endpoint.host_identifier, |a| a.port_specifier = None);
    });
    vec![
        // gRFC A27: a port that is set, if to 0.
        both("port 0", Taken, at("10.0.0.1", 0)),
        both("port 65536", Refused, at("10.0.0.1", 65_536)),
        // gRFC A27: an IPv6 address, with its zone.
        both("zone by number", Taken, at("fe80::1%1", 1)),
        both("zone by name", Taken, at("fe80::1%lo", 1)),
        both("unknown zone", Refused, at("fe80::1%no-such-zone", 1)),
        both("IPv4 with a zone", Refused, at("10.0.0.1%1", 1)),
        // gRFC A27: `port_value` must be set.
        case("no port", ENDPOINTS, no_port.any(), Refused, Taken),
        // Pickers keep sums of weights in 32 bits: A27 says so of localities, and grpc-go holds it
        // for endpoints as well.
        case(
            "weights over 32 bits",
            ENDPOINTS,
            heavy.any(),
            Refused,
            Taken,
        ),
    ]
}

fn case(
    what: &'static str,
    type_url: &'static str,
    resource: Any,
    ours: Reading,
    c_core: Reading,
) -> Case {
    Case {
        what,
        type_url,
        resource,
        ours,
        c_core,
    }
}

fn all_to(cluster: &str) -> RoutesBuilder {
    routes("svc").host("*").route("/", cluster)
}

fn only(backend: SocketAddr) -> EndpointsBuilder {
    endpoints("svc").locality("eu/a", 1, [&*backend.to_string()])
}

/// An endpoint at any text, which need not be an address.
fn at(address: &str, port: u32) -> EndpointsBuilder {
    only(SocketAddr::from(([127, 0, 0, 1], 1))).edit(|proto| {
        let endpoint = &mut proto.endpoints[0].lb_endpoints[0];
        set_address(&mut endpoint.host_identifier, |a| {
            address.clone_into(&mut a.address);
            a.port_specifier = Some(PortSpecifier::PortValue(port));
        });
    })
}

fn set_address(identifier: &mut Option<HostIdentifier>, edit: impl FnOnce(&mut SocketAddress)) {
    let Some(HostIdentifier::Endpoint(endpoint)) = identifier else {
        panic!("expected an endpoint");
    };
    match endpoint.address.as_mut().and_then(|a| a.address.as_mut()) {
        Some(Address::SocketAddress(address)) => edit(address),
        other => panic!("expected a socket address, got {other:?}"),
    }
}
