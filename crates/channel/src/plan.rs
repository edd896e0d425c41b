//! From a cluster's configuration to the tree that balances over it.

use std::sync::Arc;

use crowfly_lb::{Endpoint, Locality, LocalityId, Node, Plan};
use crowfly_model::grpc::cluster::{ClusterKind, EndpointSource, LbPolicy};
use crowfly_model::grpc::endpoints::{self, Health};
use crowfly_xds::{ClusterResult, ClusterState, XdsConfig};

use crate::routing::joined;

/// The plan for one cluster of a config. A cluster in trouble has an empty plan, whose note tells
/// every call what the trouble is; otherwise the note names the node (gRFC A88).
pub(crate) fn plan(name: &str, state: &ClusterResult, config: &XdsConfig, node: &str) -> Plan {
    let leaf = match state {
        Ok(state) => Leaf::of(state, config),
        Err(error) => Leaf {
            note: Some(error.to_string()),
            ..Leaf::default()
        },
    };
    let root = if leaf.regardless_of_locality {
        Node::RoundRobin(regardless_of_locality(&leaf.localities))
    } else {
        Node::Localities(leaf.localities)
    };
    Plan {
        cluster: name.into(),
        root,
        note: Some(leaf.note.unwrap_or_else(|| format!("node {node}")).into()),
        reresolves: leaf.reresolves,
    }
}

/// What is balanced over: a cluster that is no aggregate, or the one that an aggregate uses.
#[derive(Default)]
struct Leaf {
    localities: Vec<Locality>,
    regardless_of_locality: bool,
    reresolves: bool,
    note: Option<String>,
}

impl Leaf {
    /// Of an aggregate, the first leaf that has endpoints is used.
    fn of(state: &ClusterState, config: &XdsConfig) -> Self {
        let leaves = state.leaves().iter().filter_map(|name| {
            let leaf = config.clusters.get(name)?.as_ref().ok()?;
            Some(Self::of_leaf(leaf))
        });
        let mut notes = Vec::from_iter(joined(&state.notes));
        let mut used: Option<Self> = None;
        for leaf in leaves {
            if !leaf.localities.is_empty() {
                used = Some(leaf);
                break;
            }
            notes.extend(leaf.note.clone());
            used.get_or_insert(leaf);
        }
        let Some(mut used) = used else {
            return Self::of_leaf(state);
        };
        if used.localities.is_empty() || used.note.is_none() {
            used.note = (!notes.is_empty()).then(|| notes.join("; "));
        }
        used
    }

    fn of_leaf(state: &ClusterState) -> Self {
        let localities = state.endpoints().and_then(|e| usable(e));
        let note = joined(&state.notes).or_else(|| match (&localities, state.endpoints()) {
            (None, Some(endpoints)) => Some(nothing_usable(endpoints)),
            _ => None,
        });
        let (by_endpoint, from_dns) = match &state.cluster.kind {
            ClusterKind::Leaf(leaf) => (
                matches!(leaf.lb_policy, LbPolicy::Endpoints(_)),
                matches!(leaf.source, EndpointSource::Dns(_)),
            ),
            ClusterKind::Aggregate(_) => (false, false),
        };
        Self {
            localities: localities.unwrap_or_default(),
            regardless_of_locality: by_endpoint,
            reresolves: from_dns,
            note,
        }
    }
}

/// For a policy that is not below `wrr_locality`: it sees the endpoints, not where they are.
fn regardless_of_locality(localities: &[Locality]) -> Arc<[Endpoint]> {
    let lists = localities
        .iter()
        .filter_map(|locality| match &locality.child {
            Node::RoundRobin(endpoints) => Some(endpoints),
            Node::Localities(_) => None,
        });
    lists
        .flat_map(|endpoints| endpoints.iter().cloned())
        .collect()
}

/// The localities of the highest priority that has an endpoint to send to.
fn usable(endpoints: &endpoints::Endpoints) -> Option<Vec<Locality>> {
    endpoints.priorities.iter().find_map(|localities| {
        let localities: Vec<Locality> = localities.iter().filter_map(locality).collect();
        (!localities.is_empty()).then_some(localities)
    })
}

fn locality(locality: &endpoints::Locality) -> Option<Locality> {
    let members: Vec<Endpoint> = locality
        .endpoints
        .iter()
        // A draining endpoint keeps its sessions (gRFC A55) and gets no others.
        .filter(|endpoint| endpoint.health != Health::Draining)
        .filter_map(|endpoint| Endpoint::new(endpoint.addresses.clone()))
        .collect();
    let endpoints::LocalityId {
        region,
        zone,
        sub_zone,
    } = &locality.id;
    (!members.is_empty()).then(|| Locality {
        id: LocalityId::new(region, zone, sub_zone),
        weight: locality.weight,
        child: Node::RoundRobin(members.into()),
    })
}

fn nothing_usable(endpoints: &endpoints::Endpoints) -> String {
    let name = &endpoints.name;
    if endpoints.priorities.iter().all(Vec::is_empty) {
        format!("endpoints {name}: no localities")
    } else {
        format!("endpoints {name}: no healthy endpoint in any locality")
    }
}
