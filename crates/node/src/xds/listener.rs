//! Listeners: the addresses that clients connect to, and the clusters behind them.
//!
//! A filter chain whose match is one address and one port is a frontend. A chain with any other match is
//! refused, because `connect()` knows the destination and nothing else.

use crowfly_model::grpc::steps;
use crowfly_model::{Decoded, ResourceType, Unsupported, Validator};
use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::Protocol as SocketProtocol;
use envoy_types::pb::envoy::config::listener::v3 as pb;
use envoy_types::pb::envoy::config::listener::v3::listener_filter::ConfigType;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::UdpProxyConfig;
use prost::Name;

use super::chain::{self, Chain};
use super::mapping::Mapping;

/// Filters of listeners that look at a connection and do not change it. Nothing here matches what they find.
const LOOK_ONLY: [&str; 3] = [
    "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
    "envoy.extensions.filters.listener.original_dst.v3.OriginalDst",
    "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
];

/// A listener, as the agent reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeListener {
    /// Its frontends. A listener that is for gRPC clients has none.
    pub chains: Vec<Chain>,
    /// Fields that are set and have no effect.
    pub unsupported: Box<[Unsupported]>,
}

impl ResourceType for NodeListener {
    type Parsed = Self;
    type Context = Mapping;

    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.listener.v3.Listener";
    const NOUN: &'static str = "listener";
    const ALL_IN_SOTW: bool = true;
    const KEEPS_BYTES: bool = false;

    fn parse(bytes: &[u8], mapping: &Mapping) -> Decoded<Self> {
        steps::decode(
            bytes,
            "name",
            |proto: &pb::Listener| &proto.name,
            |proto, v| {
                let (chains, unsupported) = v.take_unsupported(|v| parse(&proto, mapping, v));
                Some(Self {
                    chains,
                    unsupported,
                })
            },
        )
    }

    fn unsupported(parsed: &Self) -> Vec<Unsupported> {
        parsed.unsupported.to_vec()
    }
}

fn parse(proto: &pb::Listener, mapping: &Mapping, v: &mut Validator) -> Vec<Chain> {
    if proto.api_listener.is_some() {
        v.unsupported_at("api_listener", "it is for gRPC clients: nothing is routed");
        return Vec::new();
    }
    let proxy = listener_filters(proto, v);
    if proto.filter_chain_matcher.is_some() {
        let message = "expected filter_chain_match in each chain, got a matcher tree";
        v.error_at("filter_chain_matcher", message);
    }
    let mut chains = v.field("filter_chains", |v| {
        let chains = proto.filter_chains.iter().enumerate();
        let read = |(i, chain)| v.index(i, |v| chain::parse(chain, mapping, v));
        chains.filter_map(read).collect::<Vec<_>>()
    });
    match proxy {
        Some((index, proxy)) if proto.filter_chains.is_empty() => {
            chains.extend(udp_chain(proto, index, &proxy, v));
        }
        Some(_) => v.error_at(
            "filter_chains",
            "expected none beside a UDP proxy in listener_filters, got some",
        ),
        None if proto.filter_chains.is_empty() => v.error_at(
            "filter_chains",
            "expected a chain with an address, a port and a TCP proxy, got none",
        ),
        None => other_routing(proto, v),
    }
    chains.shrink_to_fit();
    chains
}

/// Says that ways of routing beside the chains have no effect.
fn other_routing(proto: &pb::Listener, v: &mut Validator) {
    if proto.default_filter_chain.is_some() {
        let message = "connections that match no chain are not routed";
        v.unsupported_at("default_filter_chain", message);
    }
    if proto.fcds_config.is_some() {
        v.unsupported_at("fcds_config", "only the chains in the listener are routed");
    }
}

/// Reads the filters of the listener, of which one may be a UDP proxy. Returns it with its place.
fn listener_filters(proto: &pb::Listener, v: &mut Validator) -> Option<(usize, UdpProxyConfig)> {
    let mut found = None;
    v.field("listener_filters", |v| {
        for (index, filter) in proto.listener_filters.iter().enumerate() {
            v.index(index, |v| {
                let Some(ConfigType::TypedConfig(any)) = &filter.config_type else {
                    return v.error_at("typed_config", "expected a typed_config, got none");
                };
                v.field("typed_config", |v| match steps::type_name(&any.type_url) {
                    Ok(name) if name == UdpProxyConfig::full_name() && found.is_none() => {
                        found = steps::message(any, v).map(|proxy| (index, proxy));
                    }
                    Ok(name) if LOOK_ONLY.contains(&name) => {}
                    Ok(name) => v.error(format!("{name} cannot be done at connect()")),
                    Err(message) => v.error(message),
                });
            });
        }
    });
    found
}

/// A UDP listener has no chains in Envoy: its own addresses are those of the service.
fn udp_chain(
    proto: &pb::Listener,
    index: usize,
    proxy: &UdpProxyConfig,
    v: &mut Validator,
) -> Option<Chain> {
    let is_udp = proto.address.as_ref().is_some_and(|address| {
        matches!(
            &address.address,
            Some(AddressKind::SocketAddress(address)) if address.protocol() == SocketProtocol::Udp
        )
    });
    if !is_udp {
        let message = "expected UDP with a UDP proxy in listener_filters";
        v.error_at("address.socket_address.protocol", message);
    }
    let addresses = chain::listener_addresses(proto, v);
    let destination = v.field("listener_filters", |v| {
        v.index(index, |v| {
            v.field("typed_config", |v| chain::udp_proxy(proxy, v))
        })
    });
    let (addresses, port) = addresses?;
    Some(destination?.at(addresses, port))
}
