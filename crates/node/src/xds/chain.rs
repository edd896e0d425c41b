//! Filter chains: an address, a port, and the clusters that connections go to.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::Validator;
use crowfly_model::grpc::steps;
use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::listener::v3 as pb;
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, WeightedCluster,
};
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::UdpProxyConfig;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::udp_proxy_config::{
    RouteSpecifier, hash_policy::PolicySpecifier as UdpHash,
};
use envoy_types::pb::envoy::r#type::v3::hash_policy::PolicySpecifier;

use super::address;
use super::mapping::Mapping;
use super::metadata;
use crate::cidr::bits;

/// The frontends of a filter chain: one for each address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its addresses, each of them a ClusterIP.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Its protocol.
    pub protocol: ChainProtocol,
    /// The clusters whose endpoints are its backends. At least one.
    pub clusters: Vec<ClusterShare>,
    /// True if a client returns to the backend that it used last.
    pub affinity: bool,
    /// The timeout of the affinity in the metadata of the chain. That of the cluster comes first.
    pub affinity_timeout: Option<Duration>,
}

impl Chain {
    /// True if it differs from another one in nothing but its addresses.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self {
            addresses: _,
            port,
            protocol,
            clusters,
            affinity,
            affinity_timeout,
        } = self;
        *port == other.port
            && *protocol == other.protocol
            && *clusters == other.clusters
            && *affinity == other.affinity
            && *affinity_timeout == other.affinity_timeout
    }
}

/// The protocol of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainProtocol {
    /// The one in the metadata of its cluster, or TCP.
    OfCluster,
    /// UDP, because a UDP proxy is in front of its cluster.
    Udp,
}

/// A cluster behind a chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterShare {
    /// Its name.
    pub cluster: Arc<str>,
    /// The factor of the weights of its endpoints.
    pub weight: u32,
}

/// The part of a chain that its proxy decides: the clusters, and whether there is affinity.
pub(super) struct Proxied {
    protocol: ChainProtocol,
    clusters: Vec<ClusterShare>,
    affinity: bool,
}

impl Proxied {
    /// A chain at these addresses.
    pub(super) fn at(self, addresses: Vec<IpAddr>, port: u16) -> Chain {
        Chain {
            addresses,
            port,
            protocol: self.protocol,
            clusters: self.clusters,
            affinity: self.affinity,
            affinity_timeout: None,
        }
    }
}

/// Reads a chain; `None` after an error.
pub(super) fn parse(
    proto: &pb::FilterChain,
    mapping: &Mapping,
    v: &mut Validator,
) -> Option<Chain> {
    let place = v.field("filter_chain_match", |v| {
        let Some(wanted) = &proto.filter_chain_match else {
            v.error("expected an address and a port, got none");
            return None;
        };
        only_destination(wanted, v);
        let addresses = addresses(&wanted.prefix_ranges, v);
        let port = v.field("destination_port", |v| {
            address::port(wanted.destination_port.map_or(0, |port| port.value), v)
        });
        Some((addresses?, port?))
    });
    if proto.transport_socket.is_some() {
        v.error_at("transport_socket", "cannot be done at connect()");
    }
    #[expect(deprecated, reason = "it changes what backends are sent")]
    if proto.use_proxy_proto.is_some_and(|on| on.value) {
        v.error_at("use_proxy_proto", "cannot be done at connect()");
    }
    let proxied = v.field("filters", |v| only_filter(&proto.filters, v));
    let timeout = metadata::read(proto.metadata.as_ref(), mapping, v, |fields, v| {
        metadata::affinity_timeout(fields, v)
    });
    let (addresses, port) = place?;
    Some(Chain {
        affinity_timeout: timeout,
        ..proxied?.at(addresses, port)
    })
}

/// Refuses a match by anything but the destination, which is all that `connect()` knows.
fn only_destination(proto: &pb::FilterChainMatch, v: &mut Validator) {
    let others = [
        ("address_suffix", !proto.address_suffix.is_empty()),
        ("suffix_len", proto.suffix_len.is_some()),
        (
            "direct_source_prefix_ranges",
            !proto.direct_source_prefix_ranges.is_empty(),
        ),
        ("source_type", proto.source_type != 0),
        (
            "source_prefix_ranges",
            !proto.source_prefix_ranges.is_empty(),
        ),
        ("source_ports", !proto.source_ports.is_empty()),
        ("server_names", !proto.server_names.is_empty()),
        ("transport_protocol", !proto.transport_protocol.is_empty()),
        (
            "application_protocols",
            !proto.application_protocols.is_empty(),
        ),
    ];
    refuse(&others, v);
}

/// Refuses fields that are set and cannot be honoured.
fn refuse(fields: &[(&str, bool)], v: &mut Validator) {
    for (field, is_set) in fields {
        if *is_set {
            v.error_at(field, "cannot be done at connect()");
        }
    }
}

/// Says that fields are set and have no effect, with the reason.
fn ignore(fields: &[(&str, bool)], reason: &str, v: &mut Validator) {
    for (field, is_set) in fields {
        if *is_set {
            v.unsupported_at(field, reason);
        }
    }
}

fn addresses(ranges: &[CidrRange], v: &mut Validator) -> Option<Vec<IpAddr>> {
    v.field("prefix_ranges", |v| {
        if ranges.is_empty() {
            v.error("expected an address with prefix_len 32 or 128, got none");
            return None;
        }
        let ranges = ranges.iter().enumerate();
        // All are read, so that all errors are told.
        let read: Vec<_> = ranges
            .map(|(i, range)| v.index(i, |v| single(range, v)))
            .collect();
        let mut addresses = read.into_iter().collect::<Option<Vec<_>>>()?;
        addresses.sort_unstable();
        addresses.dedup();
        Some(addresses)
    })
}

/// The only address of a range.
fn single(range: &CidrRange, v: &mut Validator) -> Option<IpAddr> {
    let address = v.field("address_prefix", |v| {
        address::cluster_ip(&range.address_prefix, v)
    })?;
    let expected = bits(address);
    match range.prefix_len.map(|length| length.value) {
        Some(length) if length == u32::from(expected) => Some(address),
        other => {
            let got = other.map_or_else(|| "none".to_owned(), |length| length.to_string());
            let message = format!("expected {expected} (a ClusterIP is one address), got {got}");
            v.error_at("prefix_len", message);
            None
        }
    }
}

fn only_filter(filters: &[pb::Filter], v: &mut Validator) -> Option<Proxied> {
    let [filter] = filters else {
        let count = filters.len();
        v.error(format!("expected one filter, a TcpProxy, got {count}"));
        return None;
    };
    v.index(0, |v| {
        let Some(ConfigType::TypedConfig(any)) = &filter.config_type else {
            v.error_at("typed_config", "expected a TcpProxy, got none");
            return None;
        };
        v.field("typed_config", |v| tcp_proxy(&steps::message(any, v)?, v))
    })
}

fn tcp_proxy(proto: &TcpProxy, v: &mut Validator) -> Option<Proxied> {
    let impossible = [
        ("on_demand", proto.on_demand.is_some()),
        ("metadata_match", proto.metadata_match.is_some()),
        ("tunneling_config", proto.tunneling_config.is_some()),
        ("proxy_protocol_tlvs", !proto.proxy_protocol_tlvs.is_empty()),
    ];
    refuse(&impossible, v);
    let limits = [
        ("idle_timeout", proto.idle_timeout.is_some()),
        (
            "downstream_idle_timeout",
            proto.downstream_idle_timeout.is_some(),
        ),
        (
            "upstream_idle_timeout",
            proto.upstream_idle_timeout.is_some(),
        ),
        (
            "max_downstream_connection_duration",
            proto.max_downstream_connection_duration.is_some(),
        ),
    ];
    ignore(&limits, "no proxy is there to end open connections", v);
    let attempts = proto.max_connect_attempts.is_some_and(|it| it.value > 1);
    let retries = [("max_connect_attempts", attempts)];
    ignore(&retries, "the client alone can try again", v);
    let logs = [("access_log", !proto.access_log.is_empty())];
    ignore(&logs, "nothing is logged", v);
    let clusters = match &proto.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => v
            .field("cluster", |v| cluster(name, 1, v))
            .map(|it| vec![it]),
        Some(ClusterSpecifier::WeightedClusters(list)) => weighted(list, v),
        None => {
            v.error_at("cluster", "expected it or weighted_clusters, got neither");
            None
        }
    };
    let mut affinity = false;
    v.field("hash_policy", |v| {
        for (i, policy) in proto.hash_policy.iter().enumerate() {
            v.index(i, |v| match &policy.policy_specifier {
                Some(PolicySpecifier::SourceIp(_)) => affinity = true,
                Some(PolicySpecifier::FilterState(_)) => {
                    v.error_at("filter_state", "cannot be done at connect()");
                }
                None => v.error("expected source_ip, got none"),
            });
        }
    });
    Some(Proxied {
        protocol: ChainProtocol::OfCluster,
        clusters: clusters?,
        affinity,
    })
}

fn cluster(name: &str, weight: u32, v: &mut Validator) -> Option<ClusterShare> {
    if name.is_empty() {
        v.error("expected the name of a cluster, got none");
        return None;
    }
    Some(ClusterShare {
        cluster: address::resource_name(name, v),
        weight,
    })
}

fn weighted(list: &WeightedCluster, v: &mut Validator) -> Option<Vec<ClusterShare>> {
    v.field("weighted_clusters.clusters", |v| {
        if list.clusters.is_empty() {
            v.error("expected a cluster, got none");
            return None;
        }
        let clusters = list.clusters.iter().enumerate();
        let read: Vec<_> = clusters
            .map(|(i, entry)| {
                v.index(i, |v| {
                    refuse(&[("metadata_match", entry.metadata_match.is_some())], v);
                    if entry.weight == 0 {
                        v.error_at("weight", "expected at least 1, got 0");
                    }
                    v.field("name", |v| cluster(&entry.name, entry.weight, v))
                })
            })
            .collect();
        let clusters = read.into_iter().collect::<Option<Vec<_>>>()?;
        let mut seen = BTreeSet::new();
        for (i, share) in clusters.iter().enumerate() {
            if !seen.insert(&share.cluster) {
                let message = format!("expected each cluster once, got {:?} again", share.cluster);
                v.index(i, |v| v.error_at("name", message));
            }
        }
        Some(clusters)
    })
}

/// Reads the proxy of a UDP listener.
pub(super) fn udp_proxy(proto: &UdpProxyConfig, v: &mut Validator) -> Option<Proxied> {
    let impossible = [
        ("use_original_src_ip", proto.use_original_src_ip),
        (
            "upstream_socket_config",
            proto.upstream_socket_config.is_some(),
        ),
        (
            "use_per_packet_load_balancing",
            proto.use_per_packet_load_balancing,
        ),
        ("session_filters", !proto.session_filters.is_empty()),
        ("tunneling_config", proto.tunneling_config.is_some()),
    ];
    refuse(&impossible, v);
    let limits = [("idle_timeout", proto.idle_timeout.is_some())];
    ignore(&limits, "no proxy is there to end sessions", v);
    let has_log = !proto.access_log.is_empty() || !proto.proxy_access_log.is_empty();
    ignore(&[("access_log", has_log)], "nothing is logged", v);
    let mut affinity = false;
    v.field("hash_policies", |v| {
        for (i, policy) in proto.hash_policies.iter().enumerate() {
            v.index(i, |v| match &policy.policy_specifier {
                Some(UdpHash::SourceIp(true)) => affinity = true,
                Some(UdpHash::Key(_)) => v.error_at("key", "cannot be done at connect()"),
                Some(UdpHash::SourceIp(false)) | None => v.error("expected source_ip, got none"),
            });
        }
    });
    #[expect(deprecated, reason = "the only way to name one cluster")]
    let cluster = match &proto.route_specifier {
        Some(RouteSpecifier::Cluster(name)) => v.field("cluster", |v| cluster(name, 1, v)),
        Some(RouteSpecifier::Matcher(_)) => {
            v.error_at("matcher", "cannot be done at connect(): expected cluster");
            None
        }
        None => {
            v.error_at("cluster", "expected the name of a cluster, got none");
            None
        }
    };
    Some(Proxied {
        protocol: ChainProtocol::Udp,
        clusters: vec![cluster?],
        affinity,
    })
}

/// The addresses of a UDP listener, and the port that they share.
pub(super) fn listener_addresses(
    proto: &pb::Listener,
    v: &mut Validator,
) -> Option<(Vec<IpAddr>, u16)> {
    let main = address::frontend(proto.address.as_ref(), v);
    let others = v.field("additional_addresses", |v| {
        let others = proto.additional_addresses.iter().enumerate();
        let read: Vec<_> = others
            .map(|(i, other)| {
                v.index(i, |v| {
                    let address = address::frontend(other.address.as_ref(), v)?;
                    let port = main.map(|main| main.port());
                    if port.is_some_and(|port| port != address.port()) {
                        let message = format!("expected the port of address, got {address}");
                        v.error_at("address.socket_address.port_value", message);
                    }
                    Some(address)
                })
            })
            .collect();
        read.into_iter().collect::<Option<Vec<_>>>()
    });
    let main = main?;
    let mut addresses = vec![main.ip()];
    addresses.extend(others?.iter().map(|other| other.ip()));
    addresses.sort_unstable();
    addresses.dedup();
    Some((addresses, main.port()))
}
