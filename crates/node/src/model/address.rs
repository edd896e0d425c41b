//! The addresses that backends and ClusterIPs may have, by one rule for the mesh, xDS and files.
//!
//! Services of Kubernetes are not asked for theirs, because the API server gives ClusterIPs out of its own
//! ranges, and kube-proxy takes what it gives.

use std::net::IpAddr;

/// True for an address that one host can have, so that a connection to it has one end.
///
/// IPv4 in the form of IPv6 does not count, because it would be a second name of the same address.
pub(crate) fn is_of_one_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    let is_for_many = address.is_unspecified() || address.is_multicast() || is_broadcast;
    !is_for_many && address.to_canonical() == address
}

/// True for an address that may be a ClusterIP.
///
/// A loopback or link-local address is none, because every host has connections to its own, which the
/// service would take. For example, a service at 127.0.0.1:53 would take DNS from a resolver on the host.
pub(crate) fn may_be_cluster_ip(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_of_one_host(address) && !address.is_loopback() && !is_link_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_host_alone_is_no_cluster_ip() {
        for (text, of_one_host, cluster_ip) in [
            ("10.96.0.1", true, true),
            ("fd00:96::1", true, true),
            ("127.0.0.1", true, false),
            ("::1", true, false),
            ("169.254.0.1", true, false),
            ("fe80::1", true, false),
            ("0.0.0.0", false, false),
            ("::", false, false),
            ("224.0.0.1", false, false),
            ("ff02::1", false, false),
            ("255.255.255.255", false, false),
            ("::ffff:10.96.0.1", false, false),
        ] {
            let address = text.parse().unwrap();
            let found = (is_of_one_host(address), may_be_cluster_ip(address));
            assert_eq!(found, (of_one_host, cluster_ip), "{text}");
        }
    }
}
