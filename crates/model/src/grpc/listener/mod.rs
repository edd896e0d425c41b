//! `envoy.config.listener.v3.Listener`: the root of a channel's configuration.
//!
//! A gRPC client uses API listeners only. A socket listener is meant for a server. A socket
//! listener is valid, so that a client does not NACK a wildcard response, which may hold many of
//! them. A channel whose listener is a socket listener reports a resolver error (gRFC A27, A36,
//! A74).

use std::sync::Arc;

use envoy_types::pb::{
    envoy::{
        config::{listener::v3 as pb, route::v3::RouteConfiguration},
        extensions::filters::network::http_connection_manager::v3::{
            HttpConnectionManager, Rds, http_connection_manager::RouteSpecifier,
        },
    },
    google::protobuf::Any,
};
use prost::Name;

use super::{
    any::type_name,
    config_source::require_ads_or_self,
    decode::{decode, require_text},
    filter::{self, FilterChain},
    route::{MaxDuration, RouteConfig, parse_max_duration},
};
use crate::{Decoded, Features, ResourceType, Unsupported, Validator, wire};

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The resource's name: for a client, the server name of its target.
    pub name: String,
    /// The use of the listener: by a client, or by a server.
    pub kind: ListenerKind,
    /// Fields of the listener that are set and have no effect yet; inline routes have their own list.
    pub unsupported: Box<[Unsupported]>,
}

impl ResourceType for Listener {
    type Parsed = Self;
    type Context = Features;

    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.listener.v3.Listener";
    const NOUN: &'static str = "listener";
    const ALL_IN_SOTW: bool = true;

    fn parse(bytes: &[u8], features: &Features) -> Decoded<Self> {
        decode(
            bytes,
            "name",
            |proto: &pb::Listener| &proto.name,
            |proto, v| parse(proto, features, v),
        )
    }

    fn unsupported(parsed: &Self) -> Vec<Unsupported> {
        let inline = match &parsed.kind {
            ListenerKind::Api(ApiListener {
                routes: RouteSource::Inline(routes),
                ..
            }) => &routes.unsupported[..],
            _ => &[],
        };
        let inline = inline.iter().map(|wish| wish.at(INLINE_ROUTES));
        parsed.unsupported.iter().cloned().chain(inline).collect()
    }
}

/// The path of the inline routes of a listener.
const INLINE_ROUTES: &str = "api_listener.api_listener.route_config";

/// The kinds of listeners: those for clients, and those for servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// A listener for clients.
    Api(ApiListener),
    /// A listener for a server that binds an address. A client cannot use it.
    Socket,
}

/// A listener for clients. The listener has the routes of calls, or the name of their resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiListener {
    /// The place of the routes.
    pub routes: RouteSource,
    /// The longest time that a call may take, for routes that set none (gRFC A31).
    pub max_duration: MaxDuration,
    /// The filters that calls pass before they are balanced (gRFC A39).
    pub filters: FilterChain,
}

/// The place of the routes of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// In the listener itself.
    Inline(Arc<RouteConfig>),
    /// In the route configuration of this name, on the same stream.
    Rds(String),
}

fn parse(proto: pb::Listener, features: &Features, v: &mut Validator) -> Option<Listener> {
    let name = proto.name;
    let (kind, unsupported) = v.take_unsupported(|v| match (proto.api_listener, proto.address) {
        (Some(api), _) => {
            let api = v.field("api_listener", |v| parse_api(api, &name, features, v));
            api.map(ListenerKind::Api)
        }
        (None, Some(_)) => Some(ListenerKind::Socket),
        (None, None) => {
            v.error("expected api_listener or address, got neither");
            None
        }
    });
    Some(Listener {
        name,
        kind: kind?,
        unsupported,
    })
}

fn parse_api(
    proto: pb::ApiListener,
    listener: &str,
    features: &Features,
    v: &mut Validator,
) -> Option<ApiListener> {
    v.field("api_listener", |v| match proto.api_listener {
        Some(any) => parse_manager(&decode_manager(&any, v)?, listener, features, v),
        None => {
            v.error("expected an HttpConnectionManager, got none");
            None
        }
    })
}

fn decode_manager(any: &Any, v: &mut Validator) -> Option<HttpConnectionManager> {
    let expected = HttpConnectionManager::full_name();
    match type_name(&any.type_url) {
        Ok(name) if name == expected => {}
        Ok(name) => {
            v.error(format!("expected {expected}, got {name}"));
            return None;
        }
        Err(message) => {
            v.error_at("type_url", message);
            return None;
        }
    }
    wire::decode::<HttpConnectionManager>(&any.value)
        .inspect_err(|error| v.error(format!("cannot be decoded: {error}")))
        .ok()
}

fn parse_manager(
    proto: &HttpConnectionManager,
    listener: &str,
    features: &Features,
    v: &mut Validator,
) -> Option<ApiListener> {
    let filters = filter::parse_chain(&proto.http_filters, &features.custom_filters, v);
    // gRFC A41: a client address taken from a header cannot be honoured, so it must not be asked for.
    if proto.xff_num_trusted_hops != 0 {
        let hops = proto.xff_num_trusted_hops;
        v.error_at("xff_num_trusted_hops", format!("expected 0, got {hops}"));
    }
    if !proto.original_ip_detection_extensions.is_empty() {
        let count = proto.original_ip_detection_extensions.len();
        v.error_at(
            "original_ip_detection_extensions",
            format!("expected none, got {count}"),
        );
    }
    let options = proto.common_http_protocol_options.as_ref();
    let max_duration = parse_max_duration(
        options.and_then(|options| options.max_stream_duration.as_ref()),
        "common_http_protocol_options.max_stream_duration",
        v,
    );
    let routes = match &proto.route_specifier {
        Some(RouteSpecifier::RouteConfig(config)) => parse_inline(config, listener, features, v),
        Some(RouteSpecifier::Rds(rds)) => v.field("rds", |v| parse_rds(rds, v)),
        Some(RouteSpecifier::ScopedRoutes(_)) => {
            v.error("expected rds or route_config, got scoped_routes");
            None
        }
        None => {
            v.error("expected rds or route_config, got neither");
            None
        }
    };
    Some(ApiListener {
        routes: routes?,
        max_duration,
        filters,
    })
}

/// An inline route configuration is not looked up by its name, so the name may be empty. An empty
/// name is replaced by the listener's name, because errors must name something that can be looked
/// up.
fn parse_inline(
    config: &RouteConfiguration,
    listener: &str,
    features: &Features,
    v: &mut Validator,
) -> Option<RouteSource> {
    let mut config = v.field("route_config", |v| super::route::parse(config, features, v));
    if config.name.is_empty() {
        listener.clone_into(&mut config.name);
    }
    Some(RouteSource::Inline(Arc::new(config)))
}

fn parse_rds(rds: &Rds, v: &mut Validator) -> Option<RouteSource> {
    require_ads_or_self(rds.config_source.as_ref(), "config_source", v);
    require_text(&rds.route_config_name, "route_config_name", v);
    Some(RouteSource::Rds(rds.route_config_name.clone()))
}
