//! The service of the demo, as the agent's file has it.

use std::{
    fmt::Write,
    net::{Ipv4Addr, SocketAddr},
};

/// The address that the client connects to. Nothing in the namespace has it.
pub(super) const CLUSTER_IP: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 80);

const PORT: u16 = 8080;

/// A backend, and its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) name: &'static str,
    pub(super) zone: &'static str,
    pub(super) address: SocketAddr,
    pub(super) weight: u32,
    /// False if the file does not list it.
    pub(super) is_listed: bool,
}

/// Four backends in two zones.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let endpoint = |name, zone, address: [u8; 4]| Endpoint {
        name,
        zone,
        address: SocketAddr::from((address, PORT)),
        weight: 1,
        is_listed: true,
    };
    vec![
        endpoint("a1", "a", [10, 244, 1, 1]),
        endpoint("a2", "a", [10, 244, 1, 2]),
        endpoint("b1", "b", [10, 244, 2, 1]),
        endpoint("b2", "b", [10, 244, 2, 2]),
    ]
}

/// The file of the agent.
pub(super) fn file(endpoints: &[Endpoint]) -> String {
    let mut text = format!(
        "services:\n- name: web\n  cluster_ips: [{}]\n  ports: [{{ port: {} }}]\n  endpoints:\n",
        CLUSTER_IP.ip(),
        CLUSTER_IP.port()
    );
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.is_listed) {
        let Endpoint {
            zone,
            address,
            weight,
            ..
        } = endpoint;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  - {{ addresses: [{}], ports: [{{ port: {} }}], zone: {zone}, weight: {weight} }}",
            address.ip(),
            address.port()
        );
    }
    text
}

/// A file with a mistake, which the agent must refuse.
pub(super) fn bad_file(endpoints: &[Endpoint]) -> String {
    file(endpoints).replacen("port: 80 ", "port: 80000 ", 1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crowfly_node::file::read;

    use super::*;

    #[test]
    fn the_agent_takes_the_file_and_refuses_the_bad_one() {
        let mut endpoints = endpoints();
        endpoints[1].is_listed = false;
        let services = read(Path::new("node.yaml"), &file(&endpoints)).unwrap();
        assert_eq!(services[0].backends.len(), 3);
        let errors = read(Path::new("node.yaml"), &bad_file(&endpoints)).unwrap_err();
        assert!(errors.to_string().contains("80000"), "{errors}");
    }
}
