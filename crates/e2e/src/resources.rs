//! One service as xDS resources in proto JSON, for a foreign control plane to send.
//!
//! The resources are written by hand and not by Crowfly's own code, so that both cannot share a
//! mistake.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// Type URL of listeners.
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Type URL of route configurations.
pub const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// Type URL of clusters.
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of endpoints.
pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

const CONNECTION_MANAGER: &str = "type.googleapis.com/\
    envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

/// An API listener `name` that asks for the routes `name`.
pub fn api_listener(name: &str) -> Value {
    json!({
        "@type": LISTENER,
        "name": name,
        "api_listener": { "api_listener": {
            "@type": CONNECTION_MANAGER,
            "rds": { "route_config_name": name, "config_source": { "ads": {} } },
            "http_filters": http_filters(),
        } },
    })
}

/// A listener `name` on a loopback port that the kernel chooses, which speaks
/// HTTP/2 and asks for the routes `name`: for a proxy.
pub fn http2_listener(name: &str) -> Value {
    json!({
        "@type": LISTENER,
        "name": name,
        "address": address(SocketAddr::from(([127, 0, 0, 1], 0))),
        "filter_chains": [{ "filters": [{
            "name": "http",
            "typed_config": {
                "@type": CONNECTION_MANAGER,
                "stat_prefix": name,
                "codec_type": "HTTP2",
                "rds": {
                    "route_config_name": name,
                    "config_source": { "ads": {}, "resource_api_version": "V3" },
                },
                "http_filters": http_filters(),
            },
        }] }],
    })
}

/// A listener `name` for a proxy without a control plane. It speaks HTTP/2 with these
/// `Http2ProtocolOptions` and `HttpProtocolOptions`, and sends all requests to `cluster`, without a
/// timeout.
///
/// When it drains, it waits a tenth of a second between GOAWAY and refusing streams.
#[expect(clippy::needless_pass_by_value, reason = "json!() reads better")]
pub fn static_listener(name: &str, cluster: &str, http2: Value, http: Value) -> Value {
    let route = json!({ "cluster": cluster, "timeout": "0s" });
    json!({
        "name": name,
        "address": address(SocketAddr::from(([127, 0, 0, 1], 0))),
        "filter_chains": [{ "filters": [{
            "name": "http",
            "typed_config": {
                "@type": CONNECTION_MANAGER,
                "stat_prefix": name,
                "codec_type": "HTTP2",
                "http2_protocol_options": http2,
                "common_http_protocol_options": http,
                "drain_timeout": "0.1s",
                "route_config": { "virtual_hosts": [virtual_host(name, &route)] },
                "http_filters": http_filters(),
            },
        }] }],
    })
}

/// Routes `name`: all requests go to `cluster`.
pub fn routes(name: &str, cluster: &str) -> Value {
    let route = json!({ "cluster": cluster });
    json!({ "@type": ROUTES, "name": name, "virtual_hosts": [virtual_host(name, &route)] })
}

/// A cluster `name` whose endpoints have its name.
pub fn cluster(name: &str) -> Value {
    json!({
        "@type": CLUSTER,
        "name": name,
        "type": "EDS",
        "eds_cluster_config": { "eds_config": { "ads": {}, "resource_api_version": "V3" } },
    })
}

/// A cluster as [`cluster`] makes it, whose endpoints a proxy speaks HTTP/2 to.
pub fn http2_cluster(name: &str) -> Value {
    let mut cluster = cluster(name);
    cluster["typed_extension_protocol_options"] = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": { "http2_protocol_options": {} },
        },
    });
    cluster
}

/// The endpoints of cluster `name`, in one locality.
pub fn endpoints(name: &str, addresses: &[SocketAddr]) -> Value {
    let endpoint = |at: &SocketAddr| json!({ "endpoint": { "address": address(*at) } });
    json!({
        "@type": ENDPOINTS,
        "cluster_name": name,
        "endpoints": [{
            "locality": { "region": "r1", "zone": "z1" },
            "load_balancing_weight": 1,
            "lb_endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        }],
    })
}

fn virtual_host(name: &str, route: &Value) -> Value {
    json!({
        "name": name,
        "domains": ["*"],
        "routes": [{ "match": { "prefix": "/" }, "route": route }],
    })
}

pub(crate) fn address(at: SocketAddr) -> Value {
    json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } })
}

fn http_filters() -> Value {
    json!([{ "name": "router", "typed_config": { "@type": ROUTER } }])
}
