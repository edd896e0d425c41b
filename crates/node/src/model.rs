//! Services and their backends, as every source tells them.
//!
//! The model is close to that of Kubernetes, because Kubernetes is the richest of the sources. xDS, a key-value store
//! and files each say a part of it. A source turns what it reads into these values, and nothing behind it knows where
//! they came from.

mod address;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_names::LocalityId;
use serde::Serialize;
use smallvec::SmallVec;

pub(crate) use address::{is_of_one_host, may_be_cluster_ip};

/// The timeout of session affinity unless a service gives one, as in Kubernetes.
pub const DEFAULT_AFFINITY_TIMEOUT: Duration = Duration::from_secs(10_800);

/// The longest timeout of session affinity, as in Kubernetes.
pub const MAX_AFFINITY_TIMEOUT: Duration = Duration::from_secs(86_400);

/// The name of a service: `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name in its namespace.
    pub name: Arc<str>,
}

impl ServiceName {
    /// A name of these two parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for ServiceName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A transport protocol whose sockets are routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Its number in an IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The protocol of a number in an IP header.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Tcp, Self::Udp]
            .into_iter()
            .find(|protocol| protocol.number() == number)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// A service with its backends, as one source tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: ServiceName,
    /// How it is reached. Only services with ClusterIPs are routed.
    pub kind: ServiceKind,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Its backends, in the order of the source. They are shared with the source that read them, because there are
    /// very many.
    pub backends: Arc<[Backend]>,
    /// The source that should route its ClusterIPs, although this one comes first. It is the annotation
    /// `crowfly.io/source` of Kubernetes.
    pub preferred_source: Option<Arc<str>>,
    /// The use of backends that other clusters have under the same name.
    pub remote: RemoteBackends,
    /// True if its backends may be added to a service of the same name in another source.
    pub shared: bool,
}

impl Service {
    /// A service without ports and backends.
    pub fn new(name: ServiceName, kind: ServiceKind) -> Self {
        Self {
            name,
            kind,
            ports: Vec::new(),
            backends: Arc::new([]),
            preferred_source: None,
            remote: RemoteBackends::default(),
            shared: false,
        }
    }

    /// The ClusterIPs that it claims; none if it has no frontend that could be routed.
    pub fn cluster_ips(&self) -> &[IpAddr] {
        match &self.kind {
            ServiceKind::ClusterIp(addresses) => addresses,
            ServiceKind::Headless | ServiceKind::ExternalName => &[],
        }
    }
}

/// How a service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// By these virtual addresses, of either family.
    ClusterIp(Vec<IpAddr>),
    /// By the addresses of its backends, which DNS gives: nothing is routed.
    Headless,
    /// By a name elsewhere: nothing is routed.
    ExternalName,
}

/// The use of backends that other clusters have for a service, as the annotations
/// `service.cilium.io/global` and `service.cilium.io/affinity` say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteBackends {
    /// They are not used, because the service is not a global one.
    #[default]
    Ignored,
    /// They are used as local ones are.
    Added,
    /// They are used while no local one can be used.
    Fallback,
    /// They are used, and local ones only while no remote one can be used.
    Preferred,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The name by which backends say their own port for it. It may be empty.
    pub name: Arc<str>,
    /// The port of the ClusterIP.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The rules of choosing among its backends. They belong to the port, because xDS says them for
    /// each filter chain.
    pub policy: Arc<Policy>,
    /// The cluster that its connections are counted for in load reports, if a source names one.
    pub reported_as: Option<ReportedAs>,
}

/// A cluster in load reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReportedAs {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// The name of its endpoints (the EDS service name), if it is another one.
    pub eds_service: Option<Arc<str>>,
}

/// The rules of choosing among the backends of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Policy {
    /// If set, a client returns to the backend that it used last, unless it was away for so long.
    pub affinity: Option<Duration>,
    /// Which backends clients on this node may use.
    pub internal_traffic: InternalTraffic,
    /// The backends that are preferred where they have no hints. It is `None` for services of Kubernetes,
    /// because its controller writes hints, and kube-proxy follows those alone.
    pub distribution: Option<Distribution>,
    /// True if backends that are not ready are used as well.
    pub publish_not_ready: bool,
}

/// `internalTrafficPolicy` of Kubernetes. A later value is stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum InternalTraffic {
    /// All backends.
    #[default]
    Cluster,
    /// Backends on this node, and no others.
    Local,
}

/// A preference for close backends, with the names that `trafficDistribution` of Kubernetes has. A later value is
/// stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distribution {
    /// Backends in the zone of this node, if every backend says its zone.
    PreferSameZone,
    /// Backends on this node, then those in its zone.
    PreferSameNode,
}

/// A backend of a service: one pod, host or process with its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its addresses, of either family. Each is an endpoint of its own.
    pub addresses: Addresses,
    /// Its port for each port of the service that it serves. Backends that have the same share them,
    /// because there are many of those.
    pub ports: Arc<BTreeMap<PortName, u16>>,
    /// Its own state, as Kubernetes tells it.
    pub conditions: Conditions,
    /// Its health, as xDS tells it.
    pub health: Health,
    /// The node that it runs on. A backend without one is local nowhere, as for kube-proxy.
    pub node: Option<Arc<str>>,
    /// The zone that it is in.
    pub zone: Option<Arc<str>>,
    /// The locality that its connections are counted for in load reports.
    pub locality: LocalityId,
    /// The cluster that it is in, if that is not the cluster of the agent.
    pub remote_cluster: Option<Arc<str>>,
    /// The clients that it is meant for, if that is said.
    pub hints: Option<Arc<Hints>>,
    /// Its share of new connections, relative to others. 0 takes it out of use.
    pub weight: u32,
    /// Only backends of the lowest number that has usable ones get new connections.
    pub priority: u32,
}

/// The addresses of a backend. Nearly all have one, which needs no memory of its own.
pub type Addresses = SmallVec<[IpAddr; 1]>;

impl Backend {
    /// Shares the parts that are equal to those of another backend, because the many backends of a service often differ
    /// in their addresses alone.
    pub(crate) fn share_with(&mut self, other: &Self) {
        share(&mut self.ports, &other.ports);
        share(&mut self.locality, &other.locality);
        share(&mut self.node, &other.node);
        share(&mut self.zone, &other.zone);
        share(&mut self.remote_cluster, &other.remote_cluster);
        share(&mut self.hints, &other.hints);
    }
}

fn share<T: Clone + PartialEq>(value: &mut T, other: &T) {
    if value == other {
        value.clone_from(other);
    }
}

/// The name and protocol by which ports of services and backends find each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortName {
    /// The name, which may be empty.
    pub name: Arc<str>,
    /// The protocol.
    pub protocol: Protocol,
}

/// The conditions of a Kubernetes endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// The endpoint takes connections.
    pub ready: bool,
    /// The endpoint can serve, even while it is terminating.
    pub serving: bool,
    /// The endpoint is being deleted.
    pub terminating: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            ready: true,
            serving: true,
            terminating: false,
        }
    }
}

/// The health of an xDS endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// The endpoint works, or its health is not known.
    #[default]
    Healthy,
    /// The endpoint works badly. It is a fallback.
    Degraded,
    /// The endpoint is about to go. It is a fallback, and keeps its open connections.
    Draining,
    /// The endpoint gets no new connections.
    Unhealthy,
}

/// Topology hints: the clients that a backend is meant for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Clients in these zones.
    pub zones: Vec<Arc<str>>,
    /// Clients on these nodes.
    pub nodes: Vec<Arc<str>>,
}

impl Hints {
    /// These hints; `None` if they name neither a zone nor a node.
    pub(crate) fn or_none(self) -> Option<Arc<Self>> {
        let says = !self.zones.is_empty() || !self.nodes.is_empty();
        says.then(|| Arc::new(self))
    }
}

/// The node that the agent runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The name of the node.
    pub node: Option<Arc<str>>,
    /// The zone of the node.
    pub zone: Option<Arc<str>>,
}
