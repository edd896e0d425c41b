//! A balancing tree as fields, because text, JSON and a dashboard are made from the same values.
//!
//! Nothing that reads a tree parses text: `text` makes the lines that people read, last of all.

mod text;

use std::{net::SocketAddr, num::NonZeroU64, sync::Arc, time::Duration};

use crate::{
    Connectivity, Ejection, EndpointId, LocalityId,
    plan::{ClusterPlan, DropCategory, Locality, Node, OverrideHost, Plan, Policy, PriorityChild},
};

/// One node of a balancing tree, and the nodes below it.
///
/// A tree of a [`Plan`] has no states. One of [`Balancer::tree`](crate::Balancer::tree) has the
/// state and the counters of every node. `Display` prints it as an operator reads it.
///
/// ```
/// use crowfly_lb::{Connectivity, Tree, TreeKind, TreeRole};
///
/// let mut child = Tree::new(TreeKind::PriorityChild, "child0");
/// child.state = Some(Connectivity::Ready);
/// child.role = Some(TreeRole::InUse);
/// assert_eq!(child.to_string(), "child0 READY (in use)\n");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tree {
    /// The kind of the node. It decides which of the other fields can be set.
    pub kind: TreeKind,
    /// The name of the cluster, priority child, locality or policy; the main address of an
    /// endpoint. Empty for nodes without a name.
    pub name: String,
    /// The addresses of an endpoint, the main one first.
    pub addresses: Vec<String>,
    /// The share of calls of a locality or an endpoint among its siblings. A locality that was
    /// removed and is kept has none.
    pub weight: Option<u64>,
    /// The limit on open calls of a `cluster_impl` (A32).
    pub limit: Option<u32>,
    /// The shares of calls that a `cluster_impl` drops, in the order in which they are tried.
    pub drops: Vec<DropCategory>,
    /// The security of connections to the endpoints of a `cluster_impl` (A29), as a text, because a
    /// balancer knows nothing of it. The driver that makes connections sets it.
    pub security: Option<Arc<str>>,
    /// The settings of an `override_host` (A55, A75).
    pub override_host: Option<OverrideHost>,
    /// The connectivity of the node; `None` in the tree of a plan, and for children that a
    /// `priority` has not created.
    pub state: Option<Connectivity>,
    /// The part that the node plays among its siblings, where siblings differ in that.
    pub role: Option<TreeRole>,
    /// True for a priority child that is CONNECTING and gets no more time. Its failover timer (A56)
    /// expired, or did not start again because the child had failed before.
    pub failover_timer_expired: bool,
    /// The number of open calls of a `cluster_impl` or an endpoint, those that wait included.
    pub in_flight: Option<u64>,
    /// The number of calls that picks have given to an endpoint so far.
    pub picks: Option<u64>,
    /// The number of calls that wait for the stream limit of an endpoint's connection. A balancer
    /// leaves it out, because only the driver that owns the connection knows it.
    pub waiting: Option<u64>,
    /// The reason of the state, such as the last connect error, or the resolution note of a
    /// cluster (A88).
    pub note: Option<Arc<str>>,
    /// The ejection of an endpoint that outlier detection took out of service (A50).
    pub ejection: Option<TreeEjection>,
    /// The id of an endpoint in a live tree, by which a driver finds its connection.
    pub endpoint: Option<EndpointId>,
    /// The nodes below this one.
    pub children: Vec<Self>,
}

/// The kind of a [`Tree`] node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TreeKind {
    /// The root: a cluster that routes name.
    Cluster,
    /// `xds_cluster_impl`: the drops and the limit of a cluster that is no aggregate.
    ClusterImpl,
    /// One backend.
    Endpoint,
    /// A node that fails every call, for the reason in [`note`](Tree::note).
    Failing,
    /// The policy that chooses among endpoints, such as `round_robin`.
    LeafPolicy,
    /// `xds_override_host` (A75): calls of sessions go to their own backends. A live tree has it once there are
    /// sessions. Endpoints that are connected for sessions alone are below it.
    OverrideHost,
    /// `xds_wrr_locality`: a choice among localities by weight.
    Localities,
    /// One locality below [`Localities`](Self::Localities).
    Locality,
    /// `priority` (A56): a choice of the first child that can take calls.
    Priority,
    /// One child of a [`Priority`](Self::Priority).
    PriorityChild,
    /// A kind that this version does not know, in a tree that another process sent.
    Unknown,
}

/// The ejection of an endpoint in a [`Tree`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeEjection {
    /// The name of the rule that ejected it, as metrics know it (A91).
    pub rule: String,
    /// The number of its calls, in the interval before the ejection, that succeeded.
    pub succeeded: u64,
    /// The number of its calls, in the interval before the ejection, that failed.
    pub failed: u64,
    /// The time for which it is ejected.
    pub time: Duration,
    /// The part of that time that is left. It gets calls again at the first look after that. A balancer
    /// leaves it out, because only its driver knows the time.
    pub left: Option<Duration>,
}

impl From<&Ejection> for TreeEjection {
    fn from(ejection: &Ejection) -> Self {
        Self {
            rule: ejection.cause.rule().name().to_owned(),
            succeeded: ejection.succeeded,
            failed: ejection.failed,
            time: ejection.time,
            left: None,
        }
    }
}

/// The part that a [`Tree`] node plays among its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TreeRole {
    /// The priority child that takes the calls.
    InUse,
    /// An endpoint that is draining (A55), and is connected for its sessions alone.
    Draining,
    /// A priority child or a locality that takes no calls, and is kept for a while because it may be
    /// needed again. An endpoint that is connected for its sessions alone.
    Kept,
    /// An endpoint that goes when the pending endpoints of its leaf take over.
    Leaving,
    /// A priority child that was not created, because one before it can take the calls.
    NotNeeded,
    /// An endpoint or a subtree that replaces the one in use as soon as it is READY (graceful switch).
    Pending,
}

impl Tree {
    /// A node with a kind and a name, and no other field set.
    pub fn new(kind: TreeKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            addresses: Vec::new(),
            weight: None,
            limit: None,
            drops: Vec::new(),
            security: None,
            override_host: None,
            state: None,
            role: None,
            failover_timer_expired: false,
            in_flight: None,
            picks: None,
            waiting: None,
            note: None,
            ejection: None,
            endpoint: None,
            children: Vec::new(),
        }
    }

    /// Calls `visit` with this node and every node below it.
    pub fn visit_mut(&mut self, visit: &mut impl FnMut(&mut Self)) {
        visit(self);
        for child in &mut self.children {
            child.visit_mut(visit);
        }
    }
}

/// The nodes of each kind, with the fields that a plan gives them.
impl Tree {
    pub(crate) fn cluster(plan: &Plan) -> Self {
        Self {
            note: plan.note.clone(),
            ..Self::new(TreeKind::Cluster, plan.cluster.as_str())
        }
    }

    pub(crate) fn cluster_impl(cluster: &ClusterPlan) -> Self {
        Self {
            limit: Some(cluster.max_concurrent_requests),
            drops: cluster.drops.to_vec(),
            note: cluster.note.clone(),
            ..Self::new(TreeKind::ClusterImpl, cluster.name.as_str())
        }
    }

    pub(crate) fn override_host(settings: OverrideHost) -> Self {
        Self {
            override_host: Some(settings),
            ..Self::new(TreeKind::OverrideHost, "")
        }
    }

    pub(crate) fn failing(reason: Option<Arc<str>>) -> Self {
        Self::new(TreeKind::Failing, "").with_note(reason)
    }

    pub(crate) fn leaf_policy(policy: &Policy) -> Self {
        Self::new(TreeKind::LeafPolicy, policy.name())
    }

    pub(crate) fn endpoint(addresses: &[SocketAddr], weight: Option<NonZeroU64>) -> Self {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let name = addresses.first().cloned().unwrap_or_default();
        Self {
            addresses,
            weight: weight.map(NonZeroU64::get),
            ..Self::new(TreeKind::Endpoint, name)
        }
    }

    pub(crate) fn localities() -> Self {
        Self::new(TreeKind::Localities, "")
    }

    pub(crate) fn locality(id: &LocalityId) -> Self {
        Self::new(TreeKind::Locality, id.to_string())
    }

    pub(crate) fn priority() -> Self {
        Self::new(TreeKind::Priority, "")
    }

    pub(crate) fn priority_child(name: &str) -> Self {
        Self::new(TreeKind::PriorityChild, name)
    }

    pub(crate) fn with_children(mut self, children: Vec<Self>) -> Self {
        self.children = children;
        self
    }

    pub(crate) fn with_note(mut self, note: Option<Arc<str>>) -> Self {
        self.note = note;
        self
    }

    pub(crate) fn with_role(mut self, role: Option<TreeRole>) -> Self {
        self.role = role;
        self
    }

    pub(crate) fn with_state(mut self, state: Connectivity) -> Self {
        self.state = Some(state);
        self
    }

    pub(crate) fn with_weight(mut self, weight: Option<u32>) -> Self {
        self.weight = weight.map(u64::from);
        self
    }
}

impl From<&Plan> for Tree {
    fn from(plan: &Plan) -> Self {
        Self::cluster(plan).with_children(vec![Self::from(&plan.root)])
    }
}

impl From<&Node> for Tree {
    fn from(node: &Node) -> Self {
        match node {
            Node::Cluster(cluster) => {
                Self::cluster_impl(cluster).with_children(vec![Self::from(&cluster.child)])
            }
            Node::Failing(reason) => Self::failing(Some(reason.clone())),
            Node::Leaf(leaf) => {
                let endpoints = leaf.endpoints.iter();
                let endpoints = endpoints.map(|e| Self::endpoint(e.addresses(), Some(e.weight)));
                let endpoints = endpoints.collect();
                Self::leaf_policy(&leaf.policy).with_children(endpoints)
            }
            Node::Localities(localities) => {
                Self::localities().with_children(localities.iter().map(Self::from).collect())
            }
            Node::Priority(priority) => {
                Self::priority().with_children(priority.children.iter().map(Self::from).collect())
            }
        }
    }
}

impl From<&Locality> for Tree {
    fn from(locality: &Locality) -> Self {
        Self::locality(&locality.id)
            .with_weight(Some(locality.weight.get()))
            .with_children(vec![Self::from(&locality.child)])
    }
}

impl From<&PriorityChild> for Tree {
    fn from(child: &PriorityChild) -> Self {
        Self::priority_child(&child.name).with_children(vec![Self::from(&child.node)])
    }
}
