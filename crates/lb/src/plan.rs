//! The balancing tree of one cluster, as data.
//!
//! A plan says which endpoints there are and how calls are spread over them. It holds no state, so
//! plans can be compared, printed and built by a pure function. [`Balancer`](crate::Balancer) turns
//! the difference between two plans into commands.
//!
//! ```text
//! leaf cluster                    aggregate cluster (A75)
//! cluster_impl drops, limit       priority
//! └ priority                      ├ leaf cluster, most preferred
//!   ├ child0                      │ └ cluster_impl ...
//!   │ └ localities                └ leaf cluster
//!   │   └ us/a weight 70            └ cluster_impl ...
//!   │     └ round_robin
//!   └ child1 ...
//! ```

mod outlier_detection;
mod override_host;

use std::{
    fmt,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
    time::Duration,
};

pub use self::{
    outlier_detection::{FailurePercentageEjection, OutlierDetection, SuccessRateEjection},
    override_host::{HealthSet, OverrideHost},
};
use crate::{
    ClusterName, CustomPolicy, LoadStore, LocalityId, MetricFilter, Tree, endpoint::AddressList,
};

/// The balancing tree of one cluster, down to its endpoints.
///
/// It prints as the tree that an operator reads:
///
/// ```
/// # use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};
/// # use crowfly_lb::{Endpoint, Locality, LocalityId, Node, Plan};
/// # let endpoint = |port| Endpoint::from(SocketAddr::from(([127, 0, 0, 1], port)));
/// let locality = |zone, weight, endpoints| Locality {
///     id: LocalityId::new("us", zone, ""),
///     weight: NonZeroU32::new(weight).unwrap(),
///     child: Node::round_robin(endpoints),
/// };
/// let plan = Plan {
///     cluster: "payments".into(),
///     root: Node::Localities(Arc::from([
///         locality("a", 70, vec![endpoint(1234), endpoint(1235)]),
///         locality("b", 30, vec![endpoint(1236)]),
///     ])),
///     note: None,
/// };
/// assert_eq!(plan.to_string(), "\
/// cluster payments
/// └ localities
///   ├ us/a weight 70
///   │ └ round_robin
///   │   ├ 127.0.0.1:1234
///   │   └ 127.0.0.1:1235
///   └ us/b weight 30
///     └ round_robin
///       └ 127.0.0.1:1236
/// ");
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The cluster that the plan is for.
    pub cluster: ClusterName,
    /// The root of the tree.
    pub root: Node,
    /// The resolution note (A88), which is added to the text of a failed call, such as `EDS
    /// resource payments-eds does not exist`.
    pub note: Option<Arc<str>>,
}

/// One node of the tree.
#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    /// `xds_cluster_impl`: a cluster that is no aggregate, with its drops and its limit.
    Cluster(Arc<ClusterPlan>),
    /// Every call fails for this reason, because there is nothing to balance over.
    Failing(Arc<str>),
    /// Endpoints, and how one of them is chosen.
    Leaf(Leaf),
    /// `xds_wrr_locality`: a random locality, by weight, among those that can take a call.
    Localities(Arc<[Locality]>),
    /// `priority`: the first child that can take a call.
    Priority(Arc<Priority>),
}

impl Node {
    /// Calls `visit` with every endpoint below, but not with those of leaf clusters below.
    pub(crate) fn each_endpoint(&self, visit: &mut dyn FnMut(&Endpoint)) {
        match self {
            Self::Cluster(_) | Self::Failing(_) => {}
            Self::Leaf(leaf) => leaf.endpoints.iter().for_each(visit),
            Self::Localities(localities) => {
                let nodes = localities.iter().map(|locality| &locality.child);
                nodes.for_each(|node| node.each_endpoint(visit));
            }
            Self::Priority(priority) => {
                let nodes = priority.children.iter().map(|child| &child.node);
                nodes.for_each(|node| node.each_endpoint(visit));
            }
        }
    }

    /// Calls `visit` with every endpoint below and its locality, but not with those of leaf clusters
    /// below. `within` is the locality of the node.
    fn each_placed<'a>(
        &'a self,
        within: &'a LocalityId,
        visit: &mut dyn FnMut(&'a Endpoint, &'a LocalityId),
    ) {
        match self {
            Self::Cluster(_) | Self::Failing(_) => {}
            Self::Leaf(leaf) => {
                for endpoint in leaf.endpoints.iter() {
                    visit(endpoint, endpoint.locality.as_ref().unwrap_or(within));
                }
            }
            Self::Localities(localities) => {
                for locality in localities.iter() {
                    locality.child.each_placed(&locality.id, visit);
                }
            }
            Self::Priority(priority) => {
                for child in &priority.children {
                    child.node.each_placed(within, visit);
                }
            }
        }
    }

    /// A `round_robin` leaf.
    pub fn round_robin(endpoints: impl Into<Arc<[Endpoint]>>) -> Self {
        Self::Leaf(Leaf {
            policy: Policy::RoundRobin,
            endpoints: endpoints.into(),
        })
    }
}

/// `xds_cluster_impl` (A32, A37): the drops and the limit that apply to all calls of a cluster.
///
/// Outlier detection is part of it, because both are about all endpoints of the cluster. Session affinity is
/// below (A75), and its settings are here, because sessions stick to endpoints of all priorities.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterPlan {
    /// The cluster.
    pub name: ClusterName,
    /// The name of its EDS resource, as the cluster gives it. Open calls are counted per cluster
    /// name and EDS name (A32).
    pub eds_service_name: Option<Arc<str>>,
    /// The shares of calls to be dropped, in the order in which they are tried.
    pub drops: Arc<[DropCategory]>,
    /// The most calls that may be open at a time. Further calls are dropped.
    pub max_concurrent_requests: u32,
    /// The store that counts the load of the cluster for reports (A27); `None` if no report is
    /// wanted.
    pub load: Option<LoadPlan>,
    /// The ejection of endpoints that fail too often (A50); `None` if none is ejected.
    pub outlier_detection: Option<Arc<OutlierDetection>>,
    /// The resolution note (A88), which is added to the text of a failed call.
    pub note: Option<Arc<str>>,
    /// Endpoints whose health is DRAINING (A55). The cluster knows them, because sessions may stick
    /// to them. No leaf has them, because they get no other calls.
    pub draining: Arc<[Endpoint]>,
    /// The settings by which sessions stick to endpoints (`xds_override_host`, A75).
    pub override_host: OverrideHost,
    /// The tree that calls are balanced over.
    pub child: Node,
}

impl ClusterPlan {
    /// Calls `visit` with every endpoint of the cluster, its health and its locality: those of all
    /// priorities, and the draining ones.
    pub(crate) fn each_endpoint(&self, visit: &mut dyn FnMut(&Endpoint, Health, &LocalityId)) {
        let nowhere = LocalityId::default();
        let child = &self.child;
        child.each_placed(&nowhere, &mut |endpoint, locality| {
            visit(endpoint, endpoint.health, locality);
        });
        for endpoint in self.draining.iter() {
            let locality = endpoint.locality.as_ref().unwrap_or(&nowhere);
            visit(endpoint, Health::Draining, locality);
        }
    }
}

/// The load counting of a cluster: each leaf cluster has its own, under an aggregate too (A75).
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The counts for one server. They are compared by identity.
    pub store: Arc<LoadStore>,
    /// The metrics of backends that are added up (A85).
    pub metrics: Arc<MetricFilter>,
}

impl PartialEq for LoadPlan {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store) && self.metrics == other.metrics
    }
}

/// A share of calls that is dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropCategory {
    /// The name of the category in load reports.
    pub name: Arc<str>,
    /// The number of calls, of each million, that are dropped.
    pub per_million: u32,
}

impl DropCategory {
    /// The share that drops every call.
    pub const ALL: u32 = 1_000_000;
}

/// The children of a `priority` node (A56).
#[derive(Clone, PartialEq, Debug)]
pub struct Priority {
    /// The most preferred first. No name comes twice.
    pub children: Vec<PriorityChild>,
    /// The time for which a child that left the list is kept, because it may come back.
    pub keep_removed: Duration,
}

/// One child of a `priority` node.
#[derive(Clone, PartialEq, Debug)]
pub struct PriorityChild {
    /// Its identity: a child that moves up or down keeps its connections.
    pub name: Arc<str>,
    /// The tree of the child.
    pub node: Node,
    /// True if the loss of an endpoint is no reason to look names up again, because the endpoints
    /// come from EDS (A37).
    pub ignore_reresolution: bool,
}

/// A locality and its share of the calls.
#[derive(Clone, PartialEq, Debug)]
pub struct Locality {
    /// Its identity: a locality that stays keeps its connections.
    pub id: LocalityId,
    /// Its share among its siblings. A locality of weight 0 never reaches a plan (A52).
    pub weight: NonZeroU32,
    /// The tree of the locality.
    pub child: Node,
}

/// Endpoints, and how one of them is chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Leaf {
    /// The policy by which an endpoint is chosen.
    pub policy: Policy,
    /// The endpoints to choose from. Two entries with the same addresses are one endpoint (A61).
    pub endpoints: Arc<[Endpoint]>,
}

/// The policy by which a leaf chooses an endpoint.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Policy {
    /// A policy of the user's own.
    Custom(Arc<dyn CustomPolicy>),
    /// `least_request`: the least busy of a few endpoints taken at random.
    LeastRequest(ChoiceCount),
    /// `pick_first`: all calls to one endpoint, the first that can be reached.
    PickFirst {
        /// True if the endpoints are tried in a random order, by weight (A62, A113).
        shuffle: bool,
    },
    /// `ring_hash`: calls of one hash to one endpoint.
    RingHash {
        /// The limits for the number of entries on the ring.
        size: RingSize,
        /// The header whose value is hashed (A76). Without it, the hash is what the channel gives
        /// the call.
        request_hash_header: Option<Arc<str>>,
    },
    /// `round_robin`: each endpoint in turn.
    RoundRobin,
}

impl Policy {
    /// The name that gRPC knows it by.
    pub fn name(&self) -> &str {
        match self {
            Self::Custom(policy) => policy.name(),
            Self::LeastRequest(_) => "least_request",
            Self::PickFirst { .. } => "pick_first",
            Self::RingHash { .. } => "ring_hash",
            Self::RoundRobin => "round_robin",
        }
    }
}

/// The limits for the number of entries on the ring of `ring_hash` (A42).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSize {
    min: u64,
    max: u64,
}

impl RingSize {
    /// The most entries that a client allows by default, because a control plane must not be able
    /// to fill its memory.
    pub const CAP: u64 = 4096;

    /// At least `min` and at most `max`, neither of them more than `cap`.
    pub fn new(min: u64, max: u64, cap: u64) -> Self {
        let max = max.min(cap).max(1);
        Self {
            min: min.clamp(1, max),
            max,
        }
    }

    /// The least number of entries.
    pub fn min(self) -> u64 {
        self.min
    }

    /// The greatest number of entries.
    pub fn max(self) -> u64 {
        self.max
    }
}

impl Default for RingSize {
    fn default() -> Self {
        Self::new(1024, Self::CAP, Self::CAP)
    }
}

/// The number of endpoints that `least_request` compares: 2 to 10 (A48).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChoiceCount(u32);

impl ChoiceCount {
    /// The most endpoints that are compared, because more would not balance better.
    pub const MAX: u32 = 10;

    /// The count of a configuration, but at most [`MAX`](Self::MAX). `None` for less than two,
    /// because such a configuration is not valid.
    pub fn new(count: u32) -> Option<Self> {
        (count >= 2).then_some(Self(count.min(Self::MAX)))
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for ChoiceCount {
    fn default() -> Self {
        Self(2)
    }
}

/// The health of an endpoint, as the control plane reports it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Health {
    /// The control plane does not know. The endpoint is used like a healthy one.
    #[default]
    Unknown,
    /// The endpoint is healthy.
    Healthy,
    /// The endpoint gets calls of its sessions alone (A55). No leaf has such an endpoint.
    Draining,
}

/// One backend: at least one address, the main one first.
///
/// Several addresses are several ways to reach the same backend (A61), so it counts once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    addresses: Arc<[SocketAddr]>,
    /// Its share of the calls, for policies that weigh endpoints.
    pub weight: NonZeroU64,
    /// The locality of the endpoint, if it differs from that of its place in the tree.
    pub locality: Option<LocalityId>,
    /// Its health. Sessions may be limited to endpoints of some health (A55).
    pub health: Health,
    /// The text that is hashed for its place on a hash ring, instead of its first address (A76).
    pub hash_key: Option<Arc<str>>,
}

impl Endpoint {
    /// An endpoint reachable at any of `addresses`, or `None` if there are none.
    pub fn new(addresses: impl Into<Arc<[SocketAddr]>>) -> Option<Self> {
        let addresses = addresses.into();
        (!addresses.is_empty()).then_some(Self {
            addresses,
            weight: NonZeroU64::MIN,
            locality: None,
            health: Health::Unknown,
            hash_key: None,
        })
    }

    /// Its addresses, the main one first.
    pub fn addresses(&self) -> &Arc<[SocketAddr]> {
        &self.addresses
    }

    /// Writes the text that is hashed for its place on a hash ring: the hash key, or else the first
    /// address.
    pub(crate) fn write_hash_key(&self, into: &mut String) {
        match (self.hash_key.as_deref(), self.addresses.first()) {
            (Some(key), _) if !key.is_empty() => into.push_str(key),
            (_, address) => into.extend(address.map(ToString::to_string)),
        }
    }

    /// Identifies the endpoint inside its leaf cluster: A61 treats its addresses as a set.
    pub(crate) fn identity(&self) -> Arc<[SocketAddr]> {
        if self.addresses.is_sorted_by(|left, right| left < right) {
            return self.addresses.clone();
        }
        let mut sorted = self.addresses.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.into()
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            addresses: Arc::from([address]),
            weight: NonZeroU64::MIN,
            locality: None,
            health: Health::Unknown,
            hash_key: None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AddressList(&self.addresses).fmt(f)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Tree::from(self).fmt(f)
    }
}
