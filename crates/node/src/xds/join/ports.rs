//! The ports of an address: chains with the backends behind them.
//!
//! Several chains may claim a port, and several clusters may be behind one. Here one chain wins, and its clusters become
//! one set of backends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crowfly_names::LocalityId;

use super::super::chain::{Chain, ChainProtocol, ClusterShare};
use super::super::cluster::{EndpointsFrom, NodeCluster};
use super::super::endpoints::{NodeEndpoint, NodeEndpoints};
use super::super::mapping::Pods;
use super::super::weights;
use super::ResourceJoiner;
use super::state::{ClusterState, Known};
use crate::model::{Addresses, Health, Policy, Protocol, ReportedAs, ServiceName};
use crate::select::Frontend;

/// A port of an address.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Port {
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// The name that the cluster gives it. Other ports may have the same.
    pub(super) name: Arc<str>,
    pub(super) service: ServiceName,
    /// False if its clusters do not exist.
    pub(super) has_cluster: bool,
    pub(super) policy: Arc<Policy>,
    pub(super) reported_as: Option<ReportedAs>,
    pub(super) clusters: Box<[ClusterShare]>,
    /// The endpoints of those clusters that have some, with the factors of their weights. They are backends only in
    /// the service, because two copies of all backends would be much.
    endpoints: Box<[(Arc<NodeEndpoints>, u32)]>,
}

/// A backend of one port.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PortBackend {
    /// Its addresses with this port.
    pub(super) at: BackendAt,
    pub(super) port: u16,
}

/// A backend but for its port. Two ports may share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BackendAt {
    pub(super) addresses: Addresses,
    pub(super) node: Option<Arc<str>>,
    pub(super) locality: LocalityId,
    pub(super) health: u8,
    pub(super) priority: u32,
    pub(super) weight: u32,
}

const HEALTHS: [Health; 4] = [
    Health::Healthy,
    Health::Degraded,
    Health::Draining,
    Health::Unhealthy,
];

impl BackendAt {
    pub(super) fn health(&self) -> Health {
        HEALTHS[usize::from(self.health)]
    }
}

impl Port {
    /// True if another port of the same clusters has the same backends.
    pub(super) fn has_backends_of(&self, other: &Self) -> bool {
        let mut pairs = self.endpoints.iter().zip(&other.endpoints);
        self.endpoints.len() == other.endpoints.len()
            && pairs.all(|((one, of_one), (two, of_two))| of_one == of_two && Arc::ptr_eq(one, two))
    }

    /// The number of addresses of each of its endpoints.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = usize> {
        let endpoints = self
            .endpoints
            .iter()
            .flat_map(|(found, _)| found.endpoints());
        endpoints.map(|endpoint| endpoint.addresses.len().max(1))
    }

    /// Its backends, in the order of its clusters.
    pub(super) fn backends(&self, pods: &Pods) -> Vec<PortBackend> {
        let endpoints = || {
            let found = self.endpoints.iter().enumerate();
            found.flat_map(|(nth, (found, factor))| {
                let endpoints = found.endpoints();
                endpoints.map(move |endpoint| (nth, *factor, endpoint))
            })
        };
        let shares: Vec<_> = endpoints()
            .map(|(_, factor, endpoint)| (endpoint.share, factor))
            .collect();
        let weights = weights::whole(&shares);
        let mut backends = Vec::new();
        let mut known: BTreeMap<(BackendAt, u16), (usize, usize)> = BTreeMap::new();
        for ((nth, _, endpoint), weight) in endpoints().zip(weights) {
            for (port, mut at) in BackendAt::of(&endpoint, pods) {
                let key = (at.clone(), port);
                // A backend of two clusters has the weights of both.
                match known.get(&key) {
                    Some((of, index)) if *of != nth => {
                        let known: &mut PortBackend = &mut backends[*index];
                        known.at.weight = known.at.weight.saturating_add(weight);
                    }
                    _ => {
                        known.insert(key, (nth, backends.len()));
                        at.weight = weight;
                        backends.push(PortBackend { at, port });
                    }
                }
            }
        }
        backends
    }
}

impl BackendAt {
    /// The backends of an endpoint, still without a weight. A backend has one port, so addresses with other ports are
    /// backends of their own.
    fn of(endpoint: &NodeEndpoint, pods: &Pods) -> impl Iterator<Item = (u16, Self)> + use<> {
        let mut by_port: BTreeMap<u16, Addresses> = BTreeMap::new();
        for address in &endpoint.addresses {
            let addresses = by_port.entry(address.port()).or_default();
            addresses.push(address.ip());
        }
        let health = HEALTHS.iter().position(|health| *health == endpoint.health);
        let addresses: Addresses = endpoint.addresses.iter().map(SocketAddr::ip).collect();
        let node = endpoint.node.as_ref();
        let node = node.or_else(|| pods.node_of(&addresses)).cloned();
        let locality = endpoint.locality.clone();
        let priority = endpoint.priority;
        by_port.into_iter().map(move |(port, addresses)| {
            let at = Self {
                addresses,
                node: node.clone(),
                locality: locality.clone(),
                health: health
                    .and_then(|it| u8::try_from(it).ok())
                    .unwrap_or_default(),
                priority,
                weight: 0,
            };
            (port, at)
        })
    }
}

/// A chain that claims a frontend, with what is known of its cluster.
struct Claim<'a> {
    listener: &'a Arc<str>,
    chain: &'a Chain,
    /// The first of its clusters that is known.
    cluster: Option<&'a Arc<NodeCluster>>,
}

impl ResourceJoiner {
    /// The ports of an address, in order, and the problems with them.
    pub(super) fn ports_of(
        &self,
        address: IpAddr,
        before: &[Port],
    ) -> (Vec<Port>, BTreeSet<String>) {
        let mut problems = BTreeSet::new();
        let mut ports = Vec::new();
        for ((number, protocol), claim) in self.claims_of(address, &mut problems) {
            let frontend = Frontend {
                address,
                port: number,
                protocol,
            };
            if self.is_pending(claim.chain) {
                let mut before = before.iter();
                ports.extend(
                    before
                        .find(|port| (port.port, port.protocol) == (number, protocol))
                        .cloned(),
                );
                continue;
            }
            let mut say = |problem: String| {
                problems.insert(format!("{frontend}: {problem}"));
            };
            ports.push(self.port(frontend, &claim, &mut say));
        }
        (ports, problems)
    }

    /// The chain of each frontend of an address. A chain whose cluster is known comes before one whose
    /// cluster is not, because only the cluster knows the protocol. Then the name of the listener decides.
    fn claims_of(
        &self,
        address: IpAddr,
        problems: &mut BTreeSet<String>,
    ) -> BTreeMap<(u16, Protocol), Claim<'_>> {
        let claims = self.addresses.get(&address).map(|state| &state.claims);
        let claims = claims
            .into_iter()
            .flatten()
            .filter_map(|(listener, place)| {
                let place = usize::try_from(*place).ok()?;
                let chain = self.listeners.get(listener)?.chains.get(place)?;
                let mut clusters = chain.clusters.iter();
                let cluster = clusters.find_map(|share| self.cluster_of(&share.cluster));
                Some(Claim {
                    listener,
                    chain,
                    cluster,
                })
            });
        let mut claims: Vec<Claim<'_>> = claims.collect();
        claims.sort_by_key(|claim| claim.cluster.is_none());
        let mut winners: BTreeMap<(u16, Protocol), Claim<'_>> = BTreeMap::new();
        for claim in claims {
            let protocol = match claim.chain.protocol {
                ChainProtocol::Udp => Protocol::Udp,
                ChainProtocol::OfCluster => {
                    let said = claim.cluster.and_then(|cluster| cluster.protocol);
                    said.unwrap_or_default()
                }
            };
            let key = (claim.chain.port, protocol);
            if let Some(winner) = winners.get(&key) {
                let (port, listener) = (claim.chain.port, claim.listener);
                let frontend = Frontend {
                    address,
                    port,
                    protocol,
                };
                problems.insert(format!(
                    "{frontend}: a chain of listener {listener:?} is not used, because one of {:?} \
                     has the same address",
                    winner.listener
                ));
                continue;
            }
            winners.insert(key, claim);
        }
        winners
    }

    /// True if endpoints of a chain were asked for and did not arrive.
    fn is_pending(&self, chain: &Chain) -> bool {
        chain.clusters.iter().any(|share| {
            let cluster = self.cluster_of(&share.cluster);
            match cluster.map(|cluster| &cluster.endpoints) {
                Some(EndpointsFrom::Eds(name)) => {
                    let known = self.endpoints.get(name).and_then(|it| it.known.as_ref());
                    known.is_none_or(|known| *known == Known::Pending)
                }
                Some(EndpointsFrom::Inline(_)) | None => false,
            }
        })
    }

    fn port(&self, frontend: Frontend, claim: &Claim<'_>, say: &mut impl FnMut(String)) -> Port {
        let Claim { chain, cluster, .. } = claim;
        let service = cluster.map(|cluster| cluster.service.clone());
        let service = service.unwrap_or_else(|| {
            let first = chain.clusters.first();
            NodeCluster::synthetic_service(first.map_or("", |share| &share.cluster))
        });
        let policy = self.policy_of(frontend.protocol, chain, say);
        Port {
            port: frontend.port,
            protocol: frontend.protocol,
            name: cluster
                .map(|it| Arc::clone(&it.port_name))
                .unwrap_or_default(),
            service,
            has_cluster: cluster.is_some(),
            policy: Arc::new(policy),
            reported_as: self.reported_as(chain, say),
            clusters: chain.clusters.as_slice().into(),
            endpoints: self.endpoints_behind(frontend.protocol, chain, say),
        }
    }

    /// Connections are counted for a frontend and its backends. So they can be reported for a cluster if it
    /// is the only one behind the frontend.
    fn reported_as(&self, chain: &Chain, say: &mut impl FnMut(String)) -> Option<ReportedAs> {
        let clusters = chain.clusters.iter();
        let clusters = clusters.filter_map(|share| {
            let (name, state) = self.clusters.get_key_value(&share.cluster)?;
            Some((name, state.cluster.as_ref()?))
        });
        let mut reporting = clusters.filter(|(_, cluster)| cluster.reports_load);
        let (name, cluster) = reporting.next()?;
        if chain.clusters.len() > 1 {
            say("its load is not reported, because several clusters are behind it".to_owned());
            return None;
        }
        let eds_service = match &cluster.endpoints {
            EndpointsFrom::Eds(service) if service != name => Some(Arc::clone(service)),
            _ => None,
        };
        Some(ReportedAs {
            cluster: Arc::clone(name),
            eds_service,
        })
    }

    /// The endpoints of the clusters of a chain, with the weights of the clusters.
    fn endpoints_behind(
        &self,
        protocol: Protocol,
        chain: &Chain,
        say: &mut impl FnMut(String),
    ) -> Box<[(Arc<NodeEndpoints>, u32)]> {
        let mut found = Vec::new();
        for share in &chain.clusters {
            match self.endpoints_of(&share.cluster, protocol, chain.protocol) {
                Ok(endpoints) => found.push((Arc::clone(endpoints), share.weight)),
                Err(problem) => say(problem),
            }
        }
        found.into()
    }

    /// A cluster, if it exists.
    pub(super) fn cluster_of(&self, name: &Arc<str>) -> Option<&Arc<NodeCluster>> {
        let state: &ClusterState = self.clusters.get(name)?;
        state.cluster.as_ref()
    }

    /// The endpoints of a cluster, or the reason why it has none.
    fn endpoints_of(
        &self,
        name: &Arc<str>,
        protocol: Protocol,
        of_chain: ChainProtocol,
    ) -> Result<&Arc<NodeEndpoints>, String> {
        let Some(cluster) = self.cluster_of(name) else {
            return Err(format!("cluster {name:?} does not exist"));
        };
        let its = cluster.protocol_behind(of_chain);
        if its != protocol {
            return Err(format!("cluster {name:?} is of {its} and not used"));
        }
        match &cluster.endpoints {
            EndpointsFrom::Inline(endpoints) => Ok(endpoints),
            EndpointsFrom::Eds(eds) => {
                match self.endpoints.get(eds).and_then(|it| it.known.as_ref()) {
                    Some(Known::Value(endpoints)) => Ok(endpoints),
                    Some(Known::Missing(reason)) => {
                        Err(format!("cluster {name:?} has no endpoints: {reason}"))
                    }
                    // A chain that waits is not looked at.
                    Some(Known::Pending) | None => Err(format!("cluster {name:?} has none yet")),
                }
            }
        }
    }
}
