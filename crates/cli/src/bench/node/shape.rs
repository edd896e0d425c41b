//! The services of the benchmark. The addresses of services follow from their numbers, so that no list of them is kept.

use std::fmt::Write;
use std::net::Ipv4Addr;

use serde_json::json;

use crate::peer::Targets;

/// The first ClusterIP.
const FRONTENDS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The first backend. All of 198.18.0.0/15, which is for benchmarks, is local to the server's namespace.
const BACKENDS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// A backend that no service has at first.
const SPARE: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 1);

/// The cluster whose services are in the etcd.
pub(super) const CLUSTER: &str = "bench";

pub(super) const FRONTEND_PORT: u16 = 80;
pub(super) const BACKEND_PORT: u16 = 8080;

/// A number of services, each with a number of backends that no other service has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) services: u32,
    pub(super) backends: u32,
}

impl Shape {
    /// The addresses of all services.
    pub(super) fn frontends(&self) -> Targets {
        Targets {
            first: FRONTENDS,
            count: self.services,
            each: 1,
            port: FRONTEND_PORT,
        }
    }

    /// The addresses of all backends.
    pub(super) fn all_backends(&self) -> Targets {
        Targets {
            first: BACKENDS,
            count: self.services,
            each: self.backends,
            port: BACKEND_PORT,
        }
    }

    pub(super) fn frontend(service: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(FRONTENDS.to_bits() + service)
    }

    pub(super) fn backends_of(&self, service: u32) -> Vec<Ipv4Addr> {
        let first = BACKENDS.to_bits() + service * self.backends;
        let addresses = (0..self.backends).map(|index| Ipv4Addr::from_bits(first + index));
        addresses.collect()
    }

    /// Other backends than [`Self::backends_of`], so that a connection shows the change.
    pub(super) fn spare_backends(turn: u32) -> Vec<Ipv4Addr> {
        vec![Ipv4Addr::from_bits(SPARE.to_bits() + turn % 200)]
    }

    /// The agent's file.
    pub(super) fn file(&self) -> String {
        self.file_with(u32::MAX, &[])
    }

    /// The agent's file, where one service has other backends.
    pub(super) fn file_with(&self, changed: u32, backends: &[Ipv4Addr]) -> String {
        let mut text = "services:\n".to_owned();
        for service in 0..self.services {
            let own = self.backends_of(service);
            let backends = if service == changed { backends } else { &own };
            text.push_str(&entry(service, backends));
        }
        text
    }
}

/// A service in the control plane's file.
pub(super) fn mesh_entry(service: u32, backends: &[Ipv4Addr]) -> String {
    let address = Shape::frontend(service);
    let endpoint = |backend| format!("{{ address: \"{backend}:{BACKEND_PORT}\" }}");
    let endpoints: Vec<_> = backends.iter().map(endpoint).collect();
    format!(
        "- name: s{service}\n  cluster_ip: {address}\n  ports: [{{ port: {FRONTEND_PORT} }}]\n  \
         endpoints: [{}]\n",
        endpoints.join(", ")
    )
}

/// A service in the etcd of a ClusterMesh: its key, and its value.
pub(super) fn mesh_key(service: u32, backends: &[Ipv4Addr]) -> (String, String) {
    let name = format!("s{service}");
    let at = |port: u16| json!({ "http": { "Protocol": "TCP", "Port": port } });
    let backends = backends.iter();
    let backends = backends.map(|backend| (backend.to_string(), at(BACKEND_PORT)));
    let value = json!({
        "cluster": CLUSTER, "namespace": "bench", "name": name, "clusterID": 1, "shared": true,
        "includeExternal": true, "labels": {}, "selector": null,
        "frontends": { Shape::frontend(service).to_string(): at(FRONTEND_PORT) },
        "backends": backends.collect::<serde_json::Map<_, _>>(),
    });
    let key = format!("cilium/state/services/v1/{CLUSTER}/bench/{name}");
    (key, value.to_string())
}

/// A service in the agent's file.
pub(super) fn entry(service: u32, backends: &[Ipv4Addr]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "- name: s{service}\n  cluster_ips: [{}]\n  ports: [{{ port: {FRONTEND_PORT} }}]\n  endpoints:",
        Shape::frontend(service)
    );
    for backend in backends {
        let _ = writeln!(
            text,
            "  - {{ addresses: [{backend}], ports: [{{ port: {BACKEND_PORT} }}] }}"
        );
    }
    text
}
