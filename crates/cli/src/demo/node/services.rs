//! The service of the demo. It gives the file of the control plane and the shares that the agent is
//! to route, so that the two always agree.

use std::{
    fmt::Write,
    net::{Ipv4Addr, SocketAddr},
};

/// The address that the client connects to. Nothing in the namespace has it.
pub(super) const CLUSTER_IP: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 80);

const PORT: u16 = 8080;

/// The zones.
pub(super) const ZONES: [&str; 2] = ["a", "b"];

/// A backend, and its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) name: &'static str,
    pub(super) zone: &'static str,
    pub(super) address: SocketAddr,
    /// False if the file does not list it.
    pub(super) is_listed: bool,
}

/// The backends, and the weights of their zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) endpoints: Vec<Endpoint>,
    /// In the order of [`ZONES`].
    pub(super) weights: [u32; 2],
}

impl Service {
    /// Four backends in two zones.
    pub(super) fn new() -> Self {
        let endpoint = |name, zone, address: [u8; 4]| Endpoint {
            name,
            zone,
            address: SocketAddr::from((address, PORT)),
            is_listed: true,
        };
        Self {
            endpoints: vec![
                endpoint("a1", "a", [10, 244, 1, 1]),
                endpoint("a2", "a", [10, 244, 1, 2]),
                endpoint("b1", "b", [10, 244, 2, 1]),
                endpoint("b2", "b", [10, 244, 2, 2]),
            ],
            weights: [1, 1],
        }
    }

    fn listed<'a>(&'a self, zone: &'a str) -> impl Iterator<Item = &'a Endpoint> {
        let of_zone = move |it: &&Endpoint| it.is_listed && it.zone == zone;
        self.endpoints.iter().filter(of_zone)
    }

    /// The file of the control plane.
    pub(super) fn file(&self) -> String {
        let mut text = format!(
            "services:\n- name: web\n  cluster_ip: {}\n  ports: [{{ port: {} }}]\n  \
             load_reports: true\n  localities:\n",
            CLUSTER_IP.ip(),
            CLUSTER_IP.port()
        );
        for (zone, weight) in ZONES.iter().zip(self.weights) {
            let address = |it: &Endpoint| format!("{{ address: \"{}\" }}", it.address);
            let endpoints: Vec<_> = self.listed(zone).map(address).collect();
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "  - {{ zone: {zone}, weight: {weight}, endpoints: [{}] }}",
                endpoints.join(", ")
            );
        }
        text
    }

    /// The share of connections that each backend is to get: that of its zone, divided in the zone.
    pub(super) fn shares(&self) -> Vec<(SocketAddr, f64)> {
        let total = f64::from(self.weights.iter().sum::<u32>());
        let mut shares = Vec::new();
        for (zone, weight) in ZONES.iter().zip(self.weights) {
            let count = self.listed(zone).count();
            let share = f64::from(weight) / total / count as f64;
            shares.extend(self.listed(zone).map(|it| (it.address, share)));
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use crowfly_control::{Catalog, ConfigFile, translate};

    use super::*;

    #[test]
    fn the_control_plane_takes_the_file() {
        let mut service = Service::new();
        service.endpoints[1].is_listed = false;
        let file = ConfigFile {
            path: "mesh.yaml".into(),
            text: service.file(),
        };
        translate(&Catalog::read(&[file]).unwrap()).unwrap();
    }

    /// A zone that lost a backend keeps its share.
    #[test]
    fn zones_share_by_weight() {
        let mut service = Service::new();
        service.endpoints[1].is_listed = false;
        service.weights = [1, 3];
        let shares: Vec<_> = service.shares().into_iter().map(|(_, it)| it).collect();
        assert_eq!(shares, [0.25, 0.375, 0.375]);
    }
}
