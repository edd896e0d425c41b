//! From a configuration to the trees that balance over its clusters.
//!
//! The model and the balancer do not know each other, so that each can be tested alone. Only this module translates
//! from the model's types to the balancer's.

mod endpoints;
mod names;

use std::sync::Arc;
use std::time::Duration;

use crowfly_lb::timing::RETENTION;
use crowfly_lb::{
    ChoiceCount, ClusterPlan, DropCategory, Endpoint, FailurePercentageEjection, Leaf, Locality,
    Node, OutlierDetection, OverrideHost, Plan, Policy, Priority, PriorityChild, RingSize,
    SuccessRateEjection,
};
use crowfly_model::bootstrap::is_switched_on;
use crowfly_model::grpc::cluster::{self, ClusterKind, EndpointPolicy, EndpointSource, LbPolicy};
use crowfly_model::grpc::endpoints as model;
use crowfly_names::FewOrMany;
use crowfly_xds::{ClusterResult, ClusterState, XdsConfig};

use self::endpoints::{Weighing, draining, takes_calls};
use self::names::ChildNames;
use crate::load_reports::LoadStores;
use crate::policy;
use crate::routing::joined;

/// The environment variable that balances leaf clusters by the policy of their aggregate, as before A75.
const BACKWARD_COMPAT: &str = "GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT";

/// The environment variable that keeps priorities for a while after they left a cluster, as before A115.
const CHILD_POLICY_CACHE: &str = "GRPC_EXPERIMENTAL_ENABLE_PRIORITY_LB_CHILD_POLICY_CACHE";

/// Makes the plans of one channel. The planner keeps the last plans for two reasons. A priority that moves keeps its
/// name, and the plan of a leaf cluster that did not change is used again.
#[derive(Debug)]
pub(crate) struct Planner {
    choice: EndpointChoice,
    by_aggregate: bool,
    weighing: Weighing,
    keep_priorities: Duration,
    loads: LoadStores,
    leaves: FewOrMany<LeafKey, Box<Known>>,
}

/// The settings of a program for the choice of endpoints.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointChoice {
    /// The header whose value `ring_hash` hashes (gRFC A76).
    pub(crate) hash_header: Option<Arc<str>>,
    /// The policy that replaces one that the program knows by name only. Without it, calls of such a cluster fail.
    pub(crate) stand_in: Option<Policy>,
}

impl EndpointChoice {
    /// The balancer's form of a policy. The error is for a policy that the program knows by name only.
    fn policy(&self, policy: &EndpointPolicy) -> Result<Policy, String> {
        Ok(match policy {
            EndpointPolicy::Custom(policy) => {
                let made = policy::made(policy).map(Policy::Custom);
                made.or_else(|| self.stand_in.clone())
                    .ok_or_else(|| format!("this program has no policy {}", policy.name))?
            }
            EndpointPolicy::LeastRequest { choice_count } => {
                Policy::LeastRequest(ChoiceCount::new(*choice_count).unwrap_or_default())
            }
            EndpointPolicy::PickFirst { shuffle } => Policy::PickFirst { shuffle: *shuffle },
            EndpointPolicy::RingHash(size) => Policy::RingHash {
                size: RingSize::new(size.min, size.max, RingSize::CAP),
                request_hash_header: self.hash_header.clone(),
            },
            EndpointPolicy::RoundRobin => Policy::RoundRobin,
        })
    }
}

/// The name of a leaf cluster, and of the aggregate whose policy balances it; `None` if its own policy does.
type LeafKey = (Arc<str>, Option<Arc<str>>);

#[derive(Debug)]
struct Known {
    state: Arc<ClusterState>,
    policy: LbPolicy,
    names: ChildNames,
    made: Node,
}

impl Planner {
    pub(crate) fn new(choice: EndpointChoice) -> Self {
        let keep = is_switched_on(CHILD_POLICY_CACHE);
        Self {
            choice,
            by_aggregate: is_switched_on(BACKWARD_COMPAT),
            weighing: Weighing::from_env(),
            keep_priorities: if keep { RETENTION } else { Duration::ZERO },
            loads: LoadStores::default(),
            leaves: FewOrMany::default(),
        }
    }

    /// Makes the clusters that ask for load reports count their load.
    pub(crate) fn with_loads(self, loads: LoadStores) -> Self {
        Self { loads, ..self }
    }

    /// The plan for one cluster of a config. The notes are the errors of its resources (gRFC A88).
    pub(crate) fn plan(
        &mut self,
        name: &Arc<str>,
        state: &ClusterResult,
        config: &XdsConfig,
    ) -> Plan {
        let (root, note) = match state {
            Ok(state) => (self.root(name, state, config), joined(&state.notes)),
            // The failure of a plan names the cluster already.
            Err(error) => (Node::Failing(error.reason().into()), None),
        };
        Plan {
            cluster: Arc::clone(name).into(),
            root,
            note: note.map(Into::into),
        }
    }

    /// Forgets clusters that are no longer in use.
    pub(crate) fn retain(&mut self, in_use: impl Fn(&str) -> bool) {
        self.leaves.retain(|(leaf, _), _| in_use(leaf));
    }

    /// A75: an aggregate is a list of its leaves, each a tree of its own.
    fn root(&mut self, name: &Arc<str>, state: &Arc<ClusterState>, config: &XdsConfig) -> Node {
        let ClusterKind::Aggregate(aggregate) = &state.cluster.kind else {
            return self.leaf(name, state, None);
        };
        let imposed = aggregate.lb_policy.as_ref().filter(|_| self.by_aggregate);
        let imposed = imposed.map(|policy| (Arc::clone(name), policy));
        let child = |leaf: &Arc<str>| {
            let state = config.clusters.get(leaf)?.as_ref().ok()?;
            Some(PriorityChild {
                name: Arc::clone(leaf),
                node: self.leaf(leaf, state, imposed.clone()),
                ignore_reresolution: false,
            })
        };
        Node::Priority(Arc::new(Priority {
            children: state.leaves().iter().filter_map(child).collect(),
            // The children are clusters, whose names come back (gRFC A115 is about names that do not).
            keep_removed: RETENTION,
        }))
    }

    fn leaf(
        &mut self,
        name: &Arc<str>,
        state: &Arc<ClusterState>,
        imposed: Option<(Arc<str>, &LbPolicy)>,
    ) -> Node {
        let ClusterKind::Leaf(leaf) = &state.cluster.kind else {
            return Node::Failing("is an aggregate in an aggregate".into());
        };
        let (aggregate, policy) = imposed.unzip();
        let policy = policy.unwrap_or(&leaf.lb_policy);
        let key = (Arc::clone(name), aggregate);
        let (policy, names) = match self.leaves.remove(&key) {
            Some(known) if known.policy == *policy => {
                if Arc::ptr_eq(&known.state, state) {
                    let made = known.made.clone();
                    self.leaves.insert(key, known);
                    return made;
                }
                // The balancer compares policies of the program by identity. So a policy that was read again from the
                // same configuration is replaced by the one in use.
                (known.policy, known.names)
            }
            Some(known) => (policy.clone(), known.names),
            None => (policy.clone(), ChildNames::default()),
        };
        let (made, names) = self.make(name, state, leaf, &policy, names);
        let known = Known {
            state: Arc::clone(state),
            policy,
            names,
            made: made.clone(),
        };
        self.leaves.insert(key, Box::new(known));
        made
    }

    fn make(
        &mut self,
        name: &Arc<str>,
        state: &ClusterState,
        leaf: &cluster::LeafCluster,
        policy: &LbPolicy,
        mut names: ChildNames,
    ) -> (Node, ChildNames) {
        let reporting = leaf.load_reporting.as_ref();
        let load = reporting.and_then(|reporting| self.loads.plan(reporting));
        let endpoints = state.endpoints();
        let none = Vec::new();
        let priorities = endpoints.map_or(&none, |endpoints| &endpoints.priorities);
        // There is at least one priority, because its picker gives calls the reason why they fail.
        let priorities: Vec<&[model::EdsLocality]> = match priorities.as_slice() {
            [] => vec![&[]],
            priorities => priorities.iter().map(Vec::as_slice).collect(),
        };
        let localities = priorities.iter().map(|localities| {
            let ids = localities.iter().map(|locality| locality.id.clone());
            ids.collect::<Vec<_>>()
        });
        let numbers = names.assign(localities.collect());
        let from_eds = matches!(leaf.source, EndpointSource::Eds { .. });
        let children = priorities.iter().zip(numbers);
        let children = children.map(|(localities, number)| PriorityChild {
            name: format!("child{number}").into(),
            node: self.spread(localities, policy),
            ignore_reresolution: from_eds,
        });
        let child = Node::Priority(Arc::new(Priority {
            children: children.collect(),
            keep_removed: self.keep_priorities,
        }));
        let node = Node::Cluster(Arc::new(ClusterPlan {
            name: Arc::clone(name).into(),
            eds_service_name: eds_service_name(leaf),
            drops: endpoints.map_or_else(|| Arc::from([]), |endpoints| drops(endpoints)),
            max_concurrent_requests: leaf.max_concurrent_requests,
            load,
            outlier_detection: leaf.outlier_detection.as_deref().map(outlier_detection),
            note: note(state).map(Into::into),
            draining: priorities.iter().flat_map(|p| draining(p)).collect(),
            override_host: override_host(leaf),
            child,
        }));
        (node, names)
    }

    /// One priority: by locality first, or all endpoints alike.
    fn spread(&self, localities: &[model::EdsLocality], policy: &LbPolicy) -> Node {
        let (LbPolicy::WrrLocality(chosen) | LbPolicy::Endpoints(chosen)) = policy;
        let chosen = match self.choice.policy(chosen) {
            Ok(chosen) => chosen,
            Err(why) => return Node::Failing(why.into()),
        };
        let weighing = self.weighing.under(&chosen);
        let leaf = |endpoints: Vec<Endpoint>| {
            Node::Leaf(Leaf {
                policy: chosen.clone(),
                endpoints: endpoints.into(),
            })
        };
        match policy {
            LbPolicy::WrrLocality(_) => {
                let localities = localities.iter().map(|locality| Locality {
                    id: locality.id.clone(),
                    weight: locality.weight,
                    child: leaf(weighing.inside(locality)),
                });
                Node::Localities(localities.collect())
            }
            LbPolicy::Endpoints(_) => leaf(weighing.everywhere(localities)),
        }
    }
}

fn eds_service_name(leaf: &cluster::LeafCluster) -> Option<Arc<str>> {
    match &leaf.source {
        EndpointSource::Dns(_) => None,
        EndpointSource::Eds { service_name } => service_name.as_deref().map(Into::into),
    }
}

/// The settings of outlier detection, in the balancer's form.
fn outlier_detection(settings: &cluster::OutlierDetection) -> Arc<OutlierDetection> {
    Arc::new(OutlierDetection {
        interval: settings.interval,
        base_ejection_time: settings.base_ejection_time,
        max_ejection_time: settings.max_ejection_time,
        max_ejection_percent: settings.max_ejection_percent,
        success_rate: settings.success_rate.map(|rule| SuccessRateEjection {
            stdev_factor: rule.stdev_factor,
            enforcement_percentage: rule.enforcement_percentage,
            minimum_hosts: rule.minimum_hosts,
            request_volume: rule.request_volume,
        }),
        failure_percentage: settings
            .failure_percentage
            .map(|rule| FailurePercentageEjection {
                threshold: rule.threshold,
                enforcement_percentage: rule.enforcement_percentage,
                minimum_hosts: rule.minimum_hosts,
                request_volume: rule.request_volume,
            }),
    })
}

/// The settings by which sessions stick to the endpoints of a cluster (gRFC A55, A75).
fn override_host(leaf: &cluster::LeafCluster) -> OverrideHost {
    let health = leaf.session_health.iter().copied();
    OverrideHost {
        health: health.map(endpoints::health).collect(),
        idle_timeout: leaf.session_idle_timeout,
    }
}

fn drops(endpoints: &model::Endpoints) -> Arc<[DropCategory]> {
    let drops = endpoints.drops.iter();
    drops
        .map(|drop| DropCategory {
            name: drop.category.as_str().into(),
            per_million: drop.per_million,
        })
        .collect()
}

/// The text for the errors of calls: the notes of the cluster, or the fact that no endpoint can get calls.
fn note(state: &ClusterState) -> Option<String> {
    joined(&state.notes).or_else(|| {
        let endpoints = state.endpoints()?;
        let localities = || endpoints.priorities.iter().flatten();
        if localities().any(|locality| locality.endpoints.iter().any(takes_calls)) {
            return None;
        }
        let name = &endpoints.name;
        Some(match localities().next() {
            None => format!("endpoints {name}: no localities"),
            Some(_) => format!("endpoints {name}: no healthy endpoint in any locality"),
        })
    })
}

#[cfg(test)]
mod tests;
