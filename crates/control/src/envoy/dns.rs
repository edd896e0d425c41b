//! The addresses of a DNS name.
//!
//! gRPC tries all addresses of a name, of both families. An Envoy uses IPv6 alone if the name has such
//! an address, unless the cluster asks for both. Then a host that listens on IPv4 alone is never reached.

use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, DnsLookupFamily,
};

use crate::translate::is_of_dns;

/// Asks for all addresses of the DNS name of a service. Raw clusters stay as they are. Returns false if
/// the cluster is of another kind.
pub(super) fn adapt(cluster: &mut ClusterProto) -> bool {
    let logical_dns = ClusterDiscoveryType::Type(DiscoveryType::LogicalDns.into());
    let is_dns = cluster.cluster_discovery_type == Some(logical_dns) && is_of_dns(&cluster.name);
    if is_dns {
        cluster.dns_lookup_family = DnsLookupFamily::All.into();
    }
    is_dns
}
