//! Builders of plans, from the leaves up, so that a test names only the parts that it is about.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use crowfly_lb::{
    ClusterPlan, DropCategory, Leaf, Locality, LocalityId, Node, OverrideHost, Plan, Policy,
    Priority, PriorityChild, RingSize, timing::RETENTION,
};

use super::{CLUSTER, Port, endpoints_at};

/// No limit that a test would reach.
pub(crate) const NO_LIMIT: u32 = 1024;

/// A plan of [`CLUSTER`].
pub(crate) fn tree_of(root: Node) -> Plan {
    named_tree_of(CLUSTER, root)
}

pub(crate) fn named_tree_of(cluster: &str, root: Node) -> Plan {
    Plan {
        cluster: cluster.into(),
        root,
        note: None,
    }
}

/// Localities `(zone, weight, ports)`.
pub(crate) fn localities(localities: &[(&str, u32, &[Port])]) -> Node {
    let localities = localities.iter().map(|&(zone, weight, ports)| Locality {
        id: LocalityId::new("us", zone, ""),
        weight: NonZeroU32::new(weight).expect("a weight"),
        child: Node::round_robin(endpoints_at(ports)),
    });
    Node::Localities(localities.collect())
}

/// A `ring_hash` leaf.
pub(crate) fn ring_hash(ports: &[Port]) -> Node {
    Node::Leaf(Leaf {
        policy: Policy::RingHash {
            size: RingSize::default(),
            request_hash_header: None,
        },
        endpoints: endpoints_at(ports),
    })
}

/// One locality.
pub(crate) fn zone(ports: &[Port]) -> Node {
    localities(&[("a", 1, ports)])
}

/// The priorities of a cluster: named children, which go at once when they leave the plan (A115).
pub(crate) fn priority(children: &[(&str, Node)]) -> Node {
    priority_kept_for(Duration::ZERO, children)
}

/// The priorities of a cluster, each of one locality, with a name per place.
pub(crate) fn priorities(ports: &[&[Port]]) -> Node {
    let children = ports.iter().enumerate();
    let children = children.map(|(index, ports)| (format!("child{index}"), zone(ports)));
    let children: Vec<_> = children.collect();
    let children: Vec<_> = children
        .iter()
        .map(|(name, node)| (name.as_str(), node.clone()))
        .collect();
    priority(&children)
}

pub(crate) fn priority_kept_for(keep_removed: Duration, children: &[(&str, Node)]) -> Node {
    let children = children.iter().map(|(name, node)| PriorityChild {
        name: (*name).into(),
        node: node.clone(),
        ignore_reresolution: true,
    });
    Node::Priority(Arc::new(Priority {
        children: children.collect(),
        keep_removed,
    }))
}

/// A leaf cluster without drops, whose limit no test reaches.
pub(crate) fn cluster(name: &str, child: Node) -> Node {
    gate(name, &[], NO_LIMIT, child)
}

/// A leaf cluster with drops `(category, per million)` and a limit.
pub(crate) fn gate(name: &str, drops: &[(&str, u32)], limit: u32, child: Node) -> Node {
    let drops = drops.iter().map(|&(name, per_million)| DropCategory {
        name: name.into(),
        per_million,
    });
    Node::Cluster(Arc::new(ClusterPlan {
        name: name.into(),
        eds_service_name: None,
        drops: drops.collect(),
        max_concurrent_requests: limit,
        load: None,
        outlier_detection: None,
        note: None,
        override_host: OverrideHost::default(),
        draining: Arc::from([]),
        child,
    }))
}

/// An aggregate cluster: the leaf clusters with their names, the most preferred first.
pub(crate) fn aggregate(leaves: &[(&str, Node)]) -> Node {
    let children = leaves.iter().map(|(name, node)| PriorityChild {
        name: (*name).into(),
        node: cluster(name, node.clone()),
        ignore_reresolution: false,
    });
    Node::Priority(Arc::new(Priority {
        children: children.collect(),
        keep_removed: RETENTION,
    }))
}
