//! The ports of an address: chains with the backends behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crowfly_names::LocalityId;

use super::super::chain::{Chain, ChainProtocol, ClusterShare};
use super::super::cluster::{EndpointsFrom, NodeCluster};
use super::super::endpoints::NodeEndpoints;
use super::super::weights;
use super::{Joiner, Known};
use crate::model::{
    Addresses, DEFAULT_AFFINITY_TIMEOUT, Health, Policy, Protocol, ReportedAs, ServiceName,
};
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
    pub(super) clusters: Vec<ClusterShare>,
    pub(super) backends: Vec<PortBackend>,
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

/// A chain that claims a frontend, with what is known of its cluster.
struct Claim<'a> {
    listener: &'a Arc<str>,
    chain: &'a Chain,
    /// The first of its clusters that is known.
    cluster: Option<&'a Arc<NodeCluster>>,
}

impl Joiner {
    /// The ports of an address, in order, and the problems with them.
    pub(super) fn ports_of(
        &self,
        address: IpAddr,
        before: &[Arc<Port>],
    ) -> (Vec<Arc<Port>>, BTreeSet<String>) {
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
            ports.push(Arc::new(self.port(frontend, &claim, &mut say)));
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
        let listeners = self.claims.get(&address).into_iter().flatten();
        let chains = listeners.flat_map(|listener| {
            let chains = self.listeners.get(listener);
            let chains = chains.and_then(|chains| chains.get(&address));
            let chains = chains.into_iter().flatten();
            chains.map(move |chain| (listener, chain))
        });
        let mut claims: Vec<Claim<'_>> = chains
            .map(|(listener, chain)| {
                let mut clusters = chain.clusters.iter();
                let cluster = clusters.find_map(|share| self.clusters.get(&share.cluster));
                Claim {
                    listener,
                    chain,
                    cluster,
                }
            })
            .collect();
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
            let cluster = self.clusters.get(&share.cluster);
            match cluster.map(|cluster| &cluster.endpoints) {
                Some(EndpointsFrom::Eds(name)) => self
                    .endpoints
                    .get(name)
                    .is_none_or(|known| *known == Known::Pending),
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
        let rules = cluster.map(|cluster| &cluster.policy);
        let timeout = rules.and_then(|rules| rules.affinity_timeout);
        let timeout = timeout
            .or(chain.affinity_timeout)
            .unwrap_or(DEFAULT_AFFINITY_TIMEOUT);
        let policy = Policy {
            affinity: chain.affinity.then_some(timeout),
            internal_traffic: rules.map(|it| it.internal_traffic).unwrap_or_default(),
            distribution: rules.and_then(|rules| rules.distribution),
            publish_not_ready: false,
        };
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
            clusters: chain.clusters.clone(),
            backends: self.backends(frontend.protocol, chain, say),
        }
    }

    /// Connections are counted for a frontend and its backends. So they can be reported for a cluster if it
    /// is the only one behind the frontend.
    fn reported_as(&self, chain: &Chain, say: &mut impl FnMut(String)) -> Option<ReportedAs> {
        let clusters = chain.clusters.iter();
        let clusters = clusters.filter_map(|share| self.clusters.get_key_value(&share.cluster));
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

    fn backends(
        &self,
        protocol: Protocol,
        chain: &Chain,
        say: &mut impl FnMut(String),
    ) -> Vec<PortBackend> {
        let mut found = Vec::new();
        for share in &chain.clusters {
            match self.endpoints_of(&share.cluster, protocol, chain.protocol) {
                Ok(endpoints) => found.push((endpoints, share.weight)),
                Err(problem) => say(problem),
            }
        }
        let shares: Vec<_> = found
            .iter()
            .flat_map(|(endpoints, factor)| {
                let endpoints = endpoints.endpoints.iter();
                endpoints.map(|endpoint| (endpoint.share, *factor))
            })
            .collect();
        let weights = weights::whole(&shares);
        let endpoints = found.iter().enumerate();
        let endpoints = endpoints.flat_map(|(nth, (found, _))| {
            let endpoints = found.endpoints.iter();
            endpoints.map(move |endpoint| (nth, endpoint))
        });
        let mut backends = Vec::new();
        let mut known: BTreeMap<(BackendAt, u16), (usize, usize)> = BTreeMap::new();
        for ((nth, endpoint), weight) in endpoints.zip(weights) {
            // A backend has one port, so addresses with other ports are backends of their own.
            let mut by_port: BTreeMap<u16, Addresses> = BTreeMap::new();
            for address in &endpoint.addresses {
                let addresses = by_port.entry(address.port()).or_default();
                addresses.push(address.ip());
            }
            let health = HEALTHS.iter().position(|health| *health == endpoint.health);
            let addresses: Addresses = endpoint.addresses.iter().map(SocketAddr::ip).collect();
            let node = endpoint.node.as_ref();
            let node = node.or_else(|| self.pods.node_of(&addresses));
            for (port, addresses) in by_port {
                let mut at = BackendAt {
                    addresses,
                    node: node.cloned(),
                    locality: endpoint.locality.clone(),
                    health: health
                        .and_then(|it| u8::try_from(it).ok())
                        .unwrap_or_default(),
                    priority: endpoint.priority,
                    weight: 0,
                };
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

    /// The endpoints of a cluster, or the reason why it has none.
    fn endpoints_of(
        &self,
        name: &Arc<str>,
        protocol: Protocol,
        of_chain: ChainProtocol,
    ) -> Result<&NodeEndpoints, String> {
        let Some(cluster) = self.clusters.get(name) else {
            return Err(format!("cluster {name:?} does not exist"));
        };
        let its = match of_chain {
            ChainProtocol::OfCluster => cluster.protocol.unwrap_or_default(),
            ChainProtocol::Udp => cluster.protocol.unwrap_or(Protocol::Udp),
        };
        if its != protocol {
            return Err(format!("cluster {name:?} is of {its} and not used"));
        }
        match &cluster.endpoints {
            EndpointsFrom::Inline(endpoints) => Ok(endpoints),
            EndpointsFrom::Eds(eds) => match self.endpoints.get(eds) {
                Some(Known::Value(endpoints)) => Ok(endpoints),
                Some(Known::Missing(reason)) => {
                    Err(format!("cluster {name:?} has no endpoints: {reason}"))
                }
                // A chain that waits is not looked at.
                Some(Known::Pending) | None => Err(format!("cluster {name:?} has none yet")),
            },
        }
    }
}
