//! The action of a route: the cluster of a call, and all that the route decides about the call besides.
//!
//! All parts that the attempts of a call need are in one shared value, [`Forward`]. A call keeps the decision of its
//! route even if the routes change meanwhile (gRFC A31).

use std::sync::Arc;

use super::{HashPolicies, MaxDuration, RetryPolicy, WeightedCluster, WeightedClusters};

/// The action of a route for a call that matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAction {
    /// The call goes to a cluster.
    Forward(Arc<Forward>),
    /// An action that a gRPC client does not support (redirect, direct response, non-forwarding). The call fails as
    /// UNAVAILABLE (gRFC A28, A36).
    NonForwarding,
}

impl RouteAction {
    /// The clusters that a call may go to: none, if the route does not forward it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use crowfly_model::grpc::route::{ClusterChoice, Forward, RouteAction};
    /// let forward = Forward::to(ClusterChoice::Cluster("payments".to_owned()));
    /// let action = RouteAction::Forward(Arc::new(forward));
    /// assert_eq!(action.clusters().collect::<Vec<_>>(), ["payments"]);
    /// ```
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let forward = match self {
            Self::Forward(forward) => Some(forward),
            Self::NonForwarding => None,
        };
        forward
            .into_iter()
            .flat_map(|forward| forward.clusters.names())
    }
}

/// The clusters that a route sends a call to, and the settings of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The cluster, or the clusters among which one is drawn.
    pub clusters: ClusterChoice,
    /// The longest time that the call may take.
    pub max_duration: MaxDuration,
    /// The policies that give the call its hash, for `ring_hash` (gRFC A42).
    pub hash_policies: HashPolicies,
    /// True if calls have the host name of their endpoint as `:authority`, if it has one (gRFC A81).
    pub auto_host_rewrite: bool,
    /// The rule by which failed attempts are repeated; `None` if they are not (gRFC A44).
    pub retry: Option<Arc<RetryPolicy>>,
}

impl Forward {
    /// Sends calls to these clusters, and sets nothing else.
    ///
    /// ```
    /// # use crowfly_model::grpc::route::{ClusterChoice, Forward, MaxDuration};
    /// let forward = Forward::to(ClusterChoice::Cluster("payments".to_owned()));
    /// assert_eq!(forward.max_duration, MaxDuration::Unset);
    /// ```
    pub fn to(clusters: ClusterChoice) -> Self {
        Self {
            clusters,
            max_duration: MaxDuration::Unset,
            hash_policies: HashPolicies::default(),
            auto_host_rewrite: false,
            retry: None,
        }
    }
}

/// The clusters of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChoice {
    /// Every call goes to the cluster of this name.
    Cluster(String),
    /// Each call goes to one of these clusters, by their weights.
    Weighted(WeightedClusters),
}

impl ClusterChoice {
    /// The names of the clusters, in the order of the resource. A name may come more than once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (one, weighted) = match self {
            Self::Cluster(name) => (Some(name.as_str()), &[][..]),
            Self::Weighted(clusters) => (None, clusters.entries()),
        };
        let weighted = weighted.iter().map(|entry| entry.name.as_str());
        one.into_iter().chain(weighted)
    }

    /// The place, in [`names`](Self::names), of the cluster for a call. A split takes a number from `draw`,
    /// uniform over all of `u64`.
    ///
    /// ```
    /// # use crowfly_model::grpc::route::ClusterChoice;
    /// let one = ClusterChoice::Cluster("payments".to_owned());
    /// assert_eq!(one.choose(|| unreachable!("there is one cluster")), 0);
    /// ```
    pub fn choose(&self, draw: impl FnOnce() -> u64) -> usize {
        match self {
            Self::Cluster(_) => 0,
            Self::Weighted(clusters) => clusters.choose(draw()),
        }
    }

    /// The entry in this place, if the choice is by weights.
    pub fn weighted(&self, place: usize) -> Option<&WeightedCluster> {
        match self {
            Self::Cluster(_) => None,
            Self::Weighted(clusters) => clusters.entries().get(place),
        }
    }
}
