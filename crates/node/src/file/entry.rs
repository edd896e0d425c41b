//! A service of a file: its fields, its mistakes, and the [`Service`] that it becomes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_names::LocalityId;
use serde::Deserialize;

use crate::model::{
    Backend, Conditions, DEFAULT_AFFINITY_TIMEOUT, Distribution, Health, Hints, InternalTraffic,
    MAX_AFFINITY_TIMEOUT, Policy, PortName, Protocol, RemoteBackends, Service, ServiceKind,
    ServiceName, ServicePort, is_of_one_host, may_be_cluster_ip,
};

/// A service, as a file has it.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a service, such as {name: web, cluster_ips: [10.96.0.10], ...}"
)]
pub(super) struct ServiceEntry {
    name: String,
    #[serde(default = "default_namespace")]
    namespace: String,
    #[serde(default, rename = "type")]
    kind: KindEntry,
    #[serde(default)]
    cluster_ips: Vec<IpAddr>,
    #[serde(default)]
    ports: Vec<PortEntry>,
    #[serde(default)]
    session_affinity: AffinityEntry,
    session_affinity_timeout_seconds: Option<u32>,
    #[serde(default)]
    internal_traffic_policy: InternalTrafficEntry,
    traffic_distribution: Option<DistributionEntry>,
    #[serde(default)]
    publish_not_ready_addresses: bool,
    #[serde(default)]
    endpoints: Vec<EndpointEntry>,
    preferred_source: Option<String>,
    #[serde(default)]
    remote_backends: RemoteEntry,
    #[serde(default)]
    shared: bool,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
enum KindEntry {
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    Headless,
    ExternalName,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
enum AffinityEntry {
    #[default]
    None,
    #[serde(rename = "ClientIP")]
    ClientIp,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum InternalTrafficEntry {
    #[default]
    Cluster,
    Local,
}

#[derive(Clone, Copy, Deserialize)]
enum DistributionEntry {
    #[serde(alias = "PreferClose")]
    PreferSameZone,
    PreferSameNode,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum RemoteEntry {
    #[default]
    Ignored,
    Added,
    Fallback,
    Preferred,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a port, such as {port: 80}")]
struct PortEntry {
    #[serde(default)]
    name: String,
    port: u32,
    #[serde(default)]
    protocol: ProtocolEntry,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum ProtocolEntry {
    #[default]
    Tcp,
    Udp,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an endpoint, such as {addresses: [10.0.0.1], ports: [{port: 8080}]}"
)]
struct EndpointEntry {
    addresses: Vec<IpAddr>,
    #[serde(default)]
    ports: Vec<PortEntry>,
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
    #[serde(default)]
    health: HealthEntry,
    cluster: Option<String>,
    node: Option<String>,
    zone: Option<String>,
    #[serde(default)]
    hints: HintsEntry,
    weight: Option<u32>,
    #[serde(default)]
    priority: u32,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HealthEntry {
    #[default]
    Healthy,
    Degraded,
    Draining,
    Unhealthy,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "hints, such as {zones: [a]}")]
struct HintsEntry {
    #[serde(default)]
    zones: Vec<String>,
    #[serde(default)]
    nodes: Vec<String>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

impl ServiceEntry {
    /// Calls `wrong` for each mistake, with the field and the reason.
    pub(super) fn validate(&self, wrong: &mut impl FnMut(&str, String)) {
        for (field, name) in [("name", &self.name), ("namespace", &self.namespace)] {
            if name.is_empty() || name.contains('/') {
                wrong(field, format!("expected a name without `/`, got {name:?}"));
            }
        }
        match (self.kind, self.cluster_ips.is_empty()) {
            // Its backends may be for a service of another source.
            (KindEntry::ClusterIp, true) if self.shared => {}
            (KindEntry::ClusterIp, true) => {
                let expected = "expected an address, or `type: Headless` or `type: ExternalName`";
                wrong("cluster_ips", expected.to_owned());
            }
            (KindEntry::Headless, false) => {
                wrong("cluster_ips", "a headless service has none".to_owned());
            }
            // Kubernetes lets such a service keep its old address; it is not routed.
            _ => {}
        }
        for (index, address) in self.cluster_ips.iter().enumerate() {
            if !may_be_cluster_ip(*address) {
                let message = format!("{address} cannot be a ClusterIP");
                wrong(&format!("cluster_ips[{index}]"), message);
            }
        }
        if let Some(timeout) = self.session_affinity_timeout_seconds {
            let field = "session_affinity_timeout_seconds";
            if !(1..=MAX_AFFINITY_TIMEOUT.as_secs()).contains(&u64::from(timeout)) {
                wrong(field, format!("expected 1 to 86400, got {timeout}"));
            }
            if self.session_affinity == AffinityEntry::None {
                wrong(
                    field,
                    "expected `session_affinity: ClientIP` with it".to_owned(),
                );
            }
        }
        validate_ports("ports", &self.ports, wrong);
        let mut numbers = BTreeSet::new();
        for (index, port) in self.ports.iter().enumerate() {
            if !numbers.insert((port.port, Protocol::from(port.protocol))) {
                let message = format!("port {} is given twice", port.port);
                wrong(&format!("ports[{index}].port"), message);
            }
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let field = format!("endpoints[{index}]");
            if endpoint.addresses.is_empty() {
                wrong(
                    &format!("{field}.addresses"),
                    "expected an address".to_owned(),
                );
            }
            for (nth, address) in endpoint.addresses.iter().enumerate() {
                if !is_of_one_host(*address) {
                    let message = format!("{address} cannot be the address of a backend");
                    wrong(&format!("{field}.addresses[{nth}]"), message);
                }
            }
            validate_ports(&format!("{field}.ports"), &endpoint.ports, wrong);
        }
    }

    pub(super) fn into_service(self) -> Service {
        let timeout = self.session_affinity_timeout_seconds;
        let timeout = timeout.map_or(DEFAULT_AFFINITY_TIMEOUT, |seconds| {
            Duration::from_secs(seconds.into())
        });
        let policy = Arc::new(Policy {
            affinity: (self.session_affinity == AffinityEntry::ClientIp).then_some(timeout),
            internal_traffic: match self.internal_traffic_policy {
                InternalTrafficEntry::Cluster => InternalTraffic::Cluster,
                InternalTrafficEntry::Local => InternalTraffic::Local,
            },
            distribution: self.traffic_distribution.map(|wish| match wish {
                DistributionEntry::PreferSameZone => Distribution::PreferSameZone,
                DistributionEntry::PreferSameNode => Distribution::PreferSameNode,
            }),
            publish_not_ready: self.publish_not_ready_addresses,
        });
        let ports = self.ports.iter().map(|entry| ServicePort {
            name: entry.name.as_str().into(),
            port: number(entry.port),
            protocol: entry.protocol.into(),
            policy: Arc::clone(&policy),
            reported_as: None,
        });
        let kind = match self.kind {
            KindEntry::ClusterIp => ServiceKind::ClusterIp(self.cluster_ips),
            KindEntry::Headless => ServiceKind::Headless,
            KindEntry::ExternalName => ServiceKind::ExternalName,
        };
        Service {
            ports: ports.collect(),
            backends: backends(self.endpoints).into(),
            preferred_source: self.preferred_source.map(Arc::from),
            remote: match self.remote_backends {
                RemoteEntry::Ignored => RemoteBackends::Ignored,
                RemoteEntry::Added => RemoteBackends::Added,
                RemoteEntry::Fallback => RemoteBackends::Fallback,
                RemoteEntry::Preferred => RemoteBackends::Preferred,
            },
            shared: self.shared,
            ..Service::new(ServiceName::new(&self.namespace, &self.name), kind)
        }
    }
}

/// The backends of a service. What is equal to that of the one before is shared, because a large file
/// says the same ports and places for very many.
fn backends(entries: Vec<EndpointEntry>) -> Vec<Backend> {
    let mut backends: Vec<Backend> = Vec::with_capacity(entries.len());
    for entry in entries {
        let mut backend = Backend::from(entry);
        if let Some(last) = backends.last() {
            backend.share_with(last);
        }
        backends.push(backend);
    }
    backends
}

impl From<EndpointEntry> for Backend {
    fn from(entry: EndpointEntry) -> Self {
        let ports = entry.ports.iter().map(|port| {
            let name = PortName {
                name: port.name.as_str().into(),
                protocol: port.protocol.into(),
            };
            (name, number(port.port))
        });
        let shared = |names: Vec<String>| names.into_iter().map(Arc::from).collect();
        Self {
            ports: Arc::new(ports.collect()),
            addresses: entry.addresses.into_iter().collect(),
            // A condition that is not said counts as in an EndpointSlice.
            conditions: Conditions {
                ready: entry.ready.unwrap_or(true),
                serving: entry.serving.unwrap_or(true),
                terminating: entry.terminating.unwrap_or(false),
            },
            health: match entry.health {
                HealthEntry::Healthy => Health::Healthy,
                HealthEntry::Degraded => Health::Degraded,
                HealthEntry::Draining => Health::Draining,
                HealthEntry::Unhealthy => Health::Unhealthy,
            },
            node: entry.node.map(Arc::from),
            // A file knows the zone of a backend alone.
            locality: match &entry.zone {
                Some(zone) => LocalityId::new("", zone, ""),
                None => LocalityId::default(),
            },
            zone: entry.zone.map(Arc::from),
            remote_cluster: entry.cluster.map(Arc::from),
            hints: Hints {
                zones: shared(entry.hints.zones),
                nodes: shared(entry.hints.nodes),
            }
            .or_none(),
            weight: entry.weight.unwrap_or(1),
            priority: entry.priority,
        }
    }
}

impl From<ProtocolEntry> for Protocol {
    fn from(entry: ProtocolEntry) -> Self {
        match entry {
            ProtocolEntry::Tcp => Self::Tcp,
            ProtocolEntry::Udp => Self::Udp,
        }
    }
}

/// Calls `wrong` for each port whose number is out of range, or whose name and protocol another one has.
fn validate_ports(field: &str, ports: &[PortEntry], wrong: &mut impl FnMut(&str, String)) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        if !(1..=65_535).contains(&port.port) {
            let message = format!("expected 1 to 65535, got {}", port.port);
            wrong(&format!("{field}[{index}].port"), message);
        }
        if !names.insert((&port.name, Protocol::from(port.protocol))) {
            let message = format!("the name {:?} is given twice", port.name);
            wrong(&format!("{field}[{index}].name"), message);
        }
    }
}

/// The number of a port. Validation has refused those that do not fit, so none becomes 0.
fn number(port: u32) -> u16 {
    u16::try_from(port).unwrap_or_default()
}
