//! The ClusterIPs of a service, which node agents route (CFP-30235). The rules of agents are
//! checked here, so that the author of the file is told of a bad address.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;

use crowfly_model::Validator;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::Service;
use super::text::Time;

/// The longest timeout of session affinity, as in Kubernetes.
const MAX_AFFINITY_SECONDS: u64 = 86_400;

/// The namespace of a service whose name has none.
const DEFAULT_NAMESPACE: &str = "default";

/// A port of a ClusterIP.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, expecting = "a port, such as {port: 80}")]
pub(crate) struct ServicePort {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) port: NonZeroU16,
    /// The port of the endpoints; if it is not given, the one in their addresses.
    pub(crate) target_port: Option<NonZeroU16>,
    #[serde(default)]
    pub(crate) protocol: Protocol,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Protocol {
    #[default]
    Tcp,
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// The endpoints that clients on a node may use.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum InternalTrafficPolicy {
    Cluster,
    Local,
}

/// The endpoints that are preferred.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum TrafficDistribution {
    PreferSameZone,
    PreferSameNode,
}

/// The affinity of clients: a client returns to the endpoint that it used last, for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientIpAffinity {
    Off,
    /// The affinity lasts as long as agents have it by default.
    On,
    For(Time),
}

impl<'de> Deserialize<'de> for ClientIpAffinity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AffinityVisitor;

        impl Visitor<'_> for AffinityVisitor {
            type Value = ClientIpAffinity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a time in whole seconds, such as 10m")
            }

            fn visit_bool<E>(self, is_on: bool) -> Result<ClientIpAffinity, E> {
                Ok(if is_on {
                    ClientIpAffinity::On
                } else {
                    ClientIpAffinity::Off
                })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ClientIpAffinity, E> {
                let time = Time::deserialize(serde::de::value::StrDeserializer::new(text))?;
                let is_allowed = time.0.subsec_nanos() == 0
                    && (1..=MAX_AFFINITY_SECONDS).contains(&time.0.as_secs());
                if is_allowed {
                    return Ok(ClientIpAffinity::For(time));
                }
                let expected = format_args!(
                    "expected 1s to {MAX_AFFINITY_SECONDS}s in whole seconds, got {text:?}"
                );
                Err(E::custom(expected))
            }
        }

        deserializer.deserialize_any(AffinityVisitor)
    }
}

impl Service {
    /// The addresses that node agents route.
    pub(crate) fn cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        self.cluster_ip.iter().chain(&self.cluster_ips).copied()
    }

    /// The namespace and the name of the service, for node agents.
    pub(crate) fn namespaced(&self) -> (&str, &str) {
        self.name
            .split_once('/')
            .unwrap_or((DEFAULT_NAMESPACE, &self.name))
    }

    /// Checks the rules of ClusterIPs that the types cannot express.
    pub(super) fn validate_cluster_ips(&self, v: &mut Validator) {
        if self.cluster_ip.is_none() && self.cluster_ips.is_empty() {
            return self.refuse_without_cluster_ip(v);
        }
        if self.cluster_ip.is_some() && !self.cluster_ips.is_empty() {
            v.error_at(
                "cluster_ips",
                "expected either `cluster_ip` or `cluster_ips`, got both",
            );
        }
        let (namespace, name) = self.namespaced();
        if namespace.is_empty() || name.is_empty() || name.contains('/') {
            let message = "expected NAME or NAMESPACE/NAME, because it has a ClusterIP";
            v.error_at("name", message);
        }
        if let Some(address) = &self.cluster_ip {
            v.field("cluster_ip", |v| check_address(address, v));
        }
        let mut addresses = HashSet::new();
        for (index, address) in self.cluster_ips.iter().enumerate() {
            v.field("cluster_ips", |v| {
                v.index(index, |v| {
                    check_address(address, v);
                    if !addresses.insert(address) {
                        v.error(format!("{address} is given twice"));
                    }
                });
            });
        }
        v.field("ports", |v| check_ports(&self.ports, v));
    }

    /// Refuses keys that have no effect without a ClusterIP.
    fn refuse_without_cluster_ip(&self, v: &mut Validator) {
        let keys = [
            ("ports", !self.ports.is_empty()),
            ("client_ip_affinity", self.client_ip_affinity.is_some()),
            (
                "internal_traffic_policy",
                self.internal_traffic_policy.is_some(),
            ),
            ("traffic_distribution", self.traffic_distribution.is_some()),
        ];
        for (key, is_given) in keys {
            if is_given {
                v.error_at(key, "expected `cluster_ip` with it");
            }
        }
    }
}

/// Node agents refuse the same addresses. A loopback or link-local ClusterIP would take connections that each host has
/// to its own.
fn check_address(address: &IpAddr, v: &mut Validator) {
    let (is_broadcast, is_link_local) = match address {
        IpAddr::V4(v4) => (v4.is_broadcast(), v4.is_link_local()),
        IpAddr::V6(v6) => (false, v6.is_unicast_link_local()),
    };
    let is_for_many = address.is_unspecified() || address.is_multicast() || is_broadcast;
    let is_own = address.is_loopback() || is_link_local;
    if is_for_many || is_own || address.to_canonical() != *address {
        v.error(format!("{address} cannot be a ClusterIP"));
    }
}

fn check_ports(ports: &[ServicePort], v: &mut Validator) {
    if ports.is_empty() {
        v.error("expected a port of the ClusterIP, got none");
    }
    let (mut numbers, mut names) = (HashSet::new(), HashSet::new());
    for (index, port) in ports.iter().enumerate() {
        v.index(index, |v| {
            if !numbers.insert((port.port, port.protocol)) {
                let message = format!("{}/{} is given twice", port.port, port.protocol);
                v.error_at("port", message);
            }
            if !names.insert((&port.name, port.protocol)) {
                let message = format!("expected a name of its own, got {:?} again", port.name);
                v.error_at("name", message);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::{Catalog, ConfigFile, translate};

    fn errors(text: &str) -> String {
        let file = ConfigFile {
            path: "mesh.yaml".into(),
            text: text.to_owned(),
        };
        let read = Catalog::read(&[file]);
        let made = read.and_then(|catalog| translate(&catalog).map(drop));
        made.map_or_else(|errors| errors.to_string(), |()| String::new())
    }

    /// N-61, on the side of the control plane: a mistake has its file, line and field.
    #[test]
    fn mistakes_have_their_place_and_field() {
        let cases = [
            (
                "ports: [{ port: 80 }]",
                "mesh.yaml:1:32: services[0].ports: expected `cluster_ip` with it",
            ),
            (
                "cluster_ip: 10.96.0.1",
                "services[0].ports: expected a port of the ClusterIP, got none",
            ),
            (
                "cluster_ip: 10.96.0.300, ports: [{ port: 80 }]",
                "services[0].cluster_ip: ",
            ),
            (
                "cluster_ip: 0.0.0.0, ports: [{ port: 80 }]",
                "services[0].cluster_ip: 0.0.0.0 cannot be a ClusterIP",
            ),
            (
                "cluster_ips: [10.96.0.1, \"fe80::1\"], ports: [{ port: 80 }]",
                "services[0].cluster_ips[1]: fe80::1 cannot be a ClusterIP",
            ),
            (
                "cluster_ip: 127.0.0.1, ports: [{ port: 80 }]",
                "services[0].cluster_ip: 127.0.0.1 cannot be a ClusterIP",
            ),
            (
                "cluster_ips: [10.96.0.1, 10.96.0.1], ports: [{ port: 80 }]",
                "services[0].cluster_ips[1]: 10.96.0.1 is given twice",
            ),
            (
                "cluster_ip: 10.96.0.1, cluster_ips: [10.96.0.2], ports: [{ port: 80 }]",
                "got both",
            ),
            (
                "cluster_ip: 10.96.0.1, ports: [{ port: 0 }]",
                "services[0].ports[0].port: ",
            ),
            (
                "cluster_ip: 10.96.0.1, ports: [{ port: 80 }, { name: b, port: 80 }]",
                "services[0].ports[1].port: 80/TCP is given twice",
            ),
            (
                "cluster_ip: 10.96.0.1, ports: [{ port: 80 }, { port: 81 }]",
                "services[0].ports[1].name: expected a name of its own, got \"\" again",
            ),
            (
                "cluster_ip: 10.96.0.1, ports: [{ port: 80, protocol: SCTP }]",
                "services[0].ports[0].protocol: ",
            ),
            (
                "cluster_ip: 10.96.0.1, ports: [{ port: 80 }], client_ip_affinity: 25h",
                "services[0].client_ip_affinity: expected 1s to 86400s in whole seconds, got \"25h\"",
            ),
            (
                "cluster_ip: 10.96.0.1, ports: [{ port: 80 }], client_ip_affinity: 1500ms",
                "in whole seconds",
            ),
            (
                "cluster_ip: 10.96.0.1, ports: [{ port: 80 }], internal_traffic_policy: Nowhere",
                "services[0].internal_traffic_policy: ",
            ),
        ];
        for (keys, expected) in cases {
            let found = errors(&format!("services: [{{ name: web, {keys} }}]"));
            assert!(found.contains(expected), "{keys}: {found}");
        }
        let found =
            errors("services: [{ name: a/b/c, cluster_ip: 10.96.0.1, ports: [{ port: 80 }] }]");
        assert!(
            found.contains("services[0].name: expected NAME or NAMESPACE/NAME"),
            "{found}"
        );
        let good = "services: [{ name: web, cluster_ip: 10.96.0.1, ports: [{ port: 80 }, { name: b, port: 80, protocol: UDP }], client_ip_affinity: 10m }]";
        assert_eq!(errors(good), "");
    }

    /// An address belongs to one service.
    #[test]
    fn two_services_cannot_have_one_address() {
        let found = errors(
            "services:\n- { name: a, cluster_ip: 10.96.0.1, ports: [{ port: 80 }] }\n\
             - { name: b, cluster_ips: [10.96.0.1], ports: [{ port: 81 }] }",
        );
        assert!(found.contains("mesh.yaml:3:3: services[1]: "), "{found}");
        assert!(found.contains("`cluster_ip:10.96.0.1`"), "{found}");
        assert!(
            found.contains("first at mesh.yaml:2:3: services[0]"),
            "{found}"
        );
    }
}
