//! A balancing tree as an operator reads it.

use std::{fmt, num::NonZeroU32, sync::Arc};

use crate::{
    Connectivity, LocalityId,
    plan::{Endpoint, Locality, Node, Plan},
};

/// A printable tree: the shape of a [`Plan`], or that shape with live states
/// ([`Balancer::tree`](crate::Balancer::tree)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// What the node is, such as `us/a weight 70` or `127.0.0.1:50051`.
    pub label: String,
    /// Its state; `None` when the tree shows a plan only.
    pub state: Option<Connectivity>,
    /// Why it is in that state, or what else there is to know.
    pub note: Option<Arc<str>>,
    /// What is below it.
    pub children: Vec<Self>,
}

impl Tree {
    pub(crate) fn new(label: impl Into<String>, children: Vec<Self>) -> Self {
        Self {
            label: label.into(),
            state: None,
            note: None,
            children,
        }
    }

    pub(crate) fn with_state(mut self, state: Connectivity) -> Self {
        self.state = Some(state);
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
            Node::Localities(localities) => {
                Self::new(LOCALITIES, localities.iter().map(Self::from).collect())
            }
            Node::RoundRobin(endpoints) => {
                let leaf = |endpoint: &Endpoint| Self::new(endpoint.to_string(), vec![]);
                Self::new(ROUND_ROBIN, endpoints.iter().map(leaf).collect())
            }
        }
    }
}

impl From<&Locality> for Tree {
    fn from(locality: &Locality) -> Self {
        let label = locality_label(&locality.id, locality.weight);
        Self::new(label, vec![Self::from(&locality.child)])
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_line(f)?;
        self.write_children(f, "")
    }
}

pub(crate) const LOCALITIES: &str = "localities";
pub(crate) const ROUND_ROBIN: &str = "round_robin";

pub(crate) fn cluster_label(plan: &Plan) -> String {
    format!("cluster {}", plan.cluster)
}

pub(crate) fn locality_label(id: &LocalityId, weight: NonZeroU32) -> String {
    format!("{id} weight {weight}")
}
