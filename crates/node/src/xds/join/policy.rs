//! The policy of a frontend: the traffic policies of its clusters as one.
//!
//! A chain with `weighted_clusters` may lead to clusters with different policies. A frontend has one policy, because
//! the clusters are one set of backends for it. The strictest value of each rule is used: `Local`, the closest
//! preference, the shortest timeout. So nothing goes where one of the clusters forbids it, and neither the order of
//! the list nor that of arrival matters.

use std::sync::Arc;

use super::super::chain::Chain;
use super::super::cluster::NodeCluster;
use super::super::traffic_policy::TrafficPolicy;
use super::ResourceJoiner;
use crate::model::{DEFAULT_AFFINITY_TIMEOUT, Policy, Protocol};

impl ResourceJoiner {
    /// The policy of a chain, from those of its clusters that exist. Clusters that differ are a problem.
    pub(super) fn policy_of(
        &self,
        protocol: Protocol,
        chain: &Chain,
        say: &mut impl FnMut(String),
    ) -> Policy {
        let clusters = chain.clusters.iter().filter_map(|share| {
            let cluster: &Arc<NodeCluster> = self.cluster_of(&share.cluster)?;
            let is_used = cluster.protocol_behind(chain.protocol) == protocol;
            is_used.then(|| (&share.cluster, rules_for(chain, &cluster.policy)))
        });
        let mut rules = TrafficPolicy::default();
        let mut first: Option<(&Arc<str>, TrafficPolicy)> = None;
        let mut differing = None;
        for (name, of_cluster) in clusters {
            // The default is the least strict of all.
            rules = rules.strictest(&of_cluster);
            match &first {
                None => first = Some((name, of_cluster)),
                Some((_, known)) if *known != of_cluster => {
                    differing.get_or_insert(name);
                }
                Some(_) => {}
            }
        }
        if let (Some((first, _)), Some(other)) = (first, differing) {
            say(format!(
                "its clusters {first:?} and {other:?} have different traffic policies; the strictest value of each \
                 rule is used"
            ));
        }
        let timeout = rules.affinity_timeout.or(chain.affinity_timeout);
        let timeout = timeout.unwrap_or(DEFAULT_AFFINITY_TIMEOUT);
        Policy {
            affinity: chain.affinity.then_some(timeout),
            internal_traffic: rules.internal_traffic,
            distribution: rules.distribution,
            publish_not_ready: false,
        }
    }
}

/// The rules of a cluster that matter for a chain. Without affinity, its timeout does not.
fn rules_for(chain: &Chain, policy: &TrafficPolicy) -> TrafficPolicy {
    TrafficPolicy {
        affinity_timeout: policy.affinity_timeout.filter(|_| chain.affinity),
        ..policy.clone()
    }
}
