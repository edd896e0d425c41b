//! The idle timeout of a cluster's sessions.
//!
//! gRFC A75 has it in `upstream_config`, with HTTP options as its message. An Envoy takes that field
//! for the way in which connections are made, and refuses HTTP options there.

use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use prost::Name;

/// Takes HTTP options out of `upstream_config`. Returns false if there are none.
pub(super) fn adapt(cluster: &mut ClusterProto) -> bool {
    let config = cluster.upstream_config.as_ref();
    let any = config.and_then(|config| config.typed_config.as_ref());
    let name = any.and_then(|any| any.type_url.rsplit_once('/'));
    let is_options = name.is_some_and(|(_, name)| name == HttpProtocolOptions::full_name());
    if is_options {
        cluster.upstream_config = None;
    }
    is_options
}
