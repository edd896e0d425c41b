//! A balancing tree as an operator reads it.

use std::{fmt, num::NonZeroU32, sync::Arc};

use crate::{
    ClusterName, Connectivity, EndpointId, LocalityId,
    plan::{DropCategory, Endpoint, Locality, Node, Plan, PriorityChild},
};

/// A printable tree: the shape of a [`Plan`], or that shape with live states
/// ([`Balancer::tree`](crate::Balancer::tree)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// What the node is, such as `us/a weight 70` or `127.0.0.1:50051`.
    pub label: String,
    /// Its state; `None` when the tree shows a plan only.
    pub state: Option<Connectivity>,
    /// The endpoint that it is, in a live tree.
    pub endpoint: Option<EndpointId>,
    /// How many calls are open on it, those that wait included, for a cluster or an endpoint.
    pub in_flight: Option<u64>,
    /// How many calls wait for their turn on its connection. Only a driver knows: a balancer leaves
    /// it out.
    pub waiting: Option<u64>,
    /// Why it is in that state, or what else there is to know.
    pub note: Option<Arc<str>>,
    /// What is below it.
    pub children: Vec<Self>,
}

impl Tree {
    /// Calls `visit` with this node and every node below it.
    pub fn visit_mut(&mut self, visit: &mut impl FnMut(&mut Self)) {
        visit(self);
        for child in &mut self.children {
            child.visit_mut(visit);
        }
    }

    pub(crate) fn new(label: impl Into<String>, children: Vec<Self>) -> Self {
        Self {
            label: label.into(),
            state: None,
            endpoint: None,
            in_flight: None,
            waiting: None,
            note: None,
            children,
        }
    }

    pub(crate) fn with_state(mut self, state: Connectivity) -> Self {
        self.state = Some(state);
        self
    }

    pub(crate) fn with_endpoint(mut self, endpoint: EndpointId) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    pub(crate) fn with_in_flight(mut self, in_flight: u64) -> Self {
        self.in_flight = Some(in_flight);
        self
    }

    pub(crate) fn with_note(mut self, note: Option<Arc<str>>) -> Self {
        self.note = note;
        self
    }

    fn write_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)?;
        if let Some(state) = self.state {
            write!(f, " {state}")?;
        }
        let mut separator = "";
        for (count, what) in [(self.in_flight, "in flight"), (self.waiting, "waiting")] {
            if let Some(count) = count.filter(|count| *count > 0) {
                write!(f, "{separator} {count} {what}")?;
                separator = ",";
            }
        }
        if let Some(note) = &self.note {
            write!(f, " ({note})")?;
        }
        f.write_str("\n")
    }

    fn write_children(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        for (index, child) in self.children.iter().enumerate() {
            let is_last = index + 1 == self.children.len();
            let (branch, below) = if is_last {
                ("└ ", "  ")
            } else {
                ("├ ", "│ ")
            };
            write!(f, "{indent}{branch}")?;
            child.write_line(f)?;
            child.write_children(f, &format!("{indent}{below}"))?;
        }
        Ok(())
    }
}

impl From<&Plan> for Tree {
    fn from(plan: &Plan) -> Self {
        Self::new(cluster_label(plan), vec![Self::from(&plan.root)]).with_note(plan.note.clone())
    }
}

impl From<&Node> for Tree {
    fn from(node: &Node) -> Self {
        match node {
            Node::Cluster(cluster) => {
                let label = impl_label(
                    &cluster.name,
                    &cluster.drops,
                    cluster.max_concurrent_requests,
                );
                Self::new(label, vec![Self::from(&cluster.child)]).with_note(cluster.note.clone())
            }
            Node::Failing(reason) => Self::new(FAILING, vec![]).with_note(Some(reason.clone())),
            Node::Leaf(leaf) => {
                let endpoint = |endpoint: &Endpoint| Self::new(endpoint.to_string(), vec![]);
                let endpoints = leaf.endpoints.iter().map(endpoint).collect();
                Self::new(leaf.policy.name(), endpoints)
            }
            Node::Localities(localities) => {
                Self::new(LOCALITIES, localities.iter().map(Self::from).collect())
            }
            Node::Priority(priority) => {
                let child =
                    |child: &PriorityChild| Self::new(&*child.name, vec![Self::from(&child.node)]);
                Self::new(PRIORITY, priority.children.iter().map(child).collect())
            }
        }
    }
}

impl From<&Locality> for Tree {
    fn from(locality: &Locality) -> Self {
        let label = locality_label(&locality.id, Some(locality.weight));
        Self::new(label, vec![Self::from(&locality.child)])
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_line(f)?;
        self.write_children(f, "")
    }
}

pub(crate) const FAILING: &str = "failing";
pub(crate) const LOCALITIES: &str = "localities";
pub(crate) const PRIORITY: &str = "priority";

pub(crate) fn cluster_label(plan: &Plan) -> String {
    format!("cluster {}", plan.cluster)
}

/// `cluster_impl payments limit 1024, drops throttle 10%`.
pub(crate) fn impl_label(name: &ClusterName, drops: &[DropCategory], limit: u32) -> String {
    let mut label = format!("cluster_impl {name} limit {limit}");
    for (i, drop) in drops.iter().enumerate() {
        let separator = if i == 0 { ", drops " } else { " + " };
        let percent = f64::from(drop.per_million) / 10_000.0;
        label.push_str(&format!("{separator}{} {percent}%", drop.name));
    }
    label
}

/// A locality without a weight is kept in case it comes back.
pub(crate) fn locality_label(id: &LocalityId, weight: Option<NonZeroU32>) -> String {
    match weight {
        Some(weight) => format!("{id} weight {weight}"),
        None => id.to_string(),
    }
}
