//! From a cluster's configuration to the tree that balances over it.

use std::sync::Arc;

use crowfly_lb::{Endpoint, Locality, LocalityId, Node, Plan};
use crowfly_model::grpc::cluster::{ClusterKind, LbPolicy};
use crowfly_model::grpc::endpoints::{self, Health};
use crowfly_xds::{ClusterState, ResourceError};

/// The plan for one cluster of a config. A cluster in trouble has an empty plan, whose note tells
/// every call what the trouble is; otherwise the note names the node (gRFC A88).
pub(crate) fn plan(
    name: &str,
    state: &Result<Arc<ClusterState>, ResourceError>,
    node: &str,
) -> Plan {
    let (root, note) = match state {
        Ok(state) => root(state),
        Err(error) => (Node::Localities(Vec::new()), Some(error.to_string())),
    };
    Plan {
        cluster: name.into(),
        root,
        note: Some(note.unwrap_or_else(|| format!("node {node}")).into()),
    }
}

fn root(state: &ClusterState) -> (Node, Option<String>) {
    let note = state.note.as_ref().map(ToString::to_string);
    let localities = state.endpoints.as_deref().and_then(usable);
    let note = match (&localities, &state.endpoints) {
        (None, Some(endpoints)) => note.or_else(|| Some(nothing_usable(endpoints))),
        _ => note,
    };
    let localities = localities.unwrap_or_default();
    let root = match &state.cluster.kind {
        ClusterKind::Leaf(leaf) if matches!(leaf.lb_policy, LbPolicy::Endpoints(_)) => {
            Node::RoundRobin(regardless_of_locality(&localities))
        }
        _ => Node::Localities(localities),
    };
    (root, note)
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
