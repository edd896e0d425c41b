//! The tree below a cluster.

use std::collections::HashSet;

use crowfly_model::grpc::{
    self,
    cluster::{Aggregate, Children, ClusterKind, EndpointPolicy, EndpointSource, LbPolicy, Leaf},
    endpoints::{self, Health},
};
use crowfly_xds::{MAX_DEPTH, View};

use super::{Cluster, Drop, Endpoint, Locality, Place, Priority, Resource, look};

/// The cluster named `name` and all below it, as far as the view knows them.
pub(super) fn tree(view: &View, name: &str) -> Cluster {
    let mut walk = Walk {
        view,
        seen: HashSet::new(),
    };
    walk.visit(name, 0)
}

/// The same walk that resolution takes (gRFC A37): depth first, each cluster where it is first
/// seen.
struct Walk<'a> {
    view: &'a View,
    seen: HashSet<String>,
}

impl Walk<'_> {
    fn visit(&mut self, name: &str, depth: usize) -> Cluster {
        if depth >= MAX_DEPTH {
            let resource = Resource::new(name, "NOT_REQUESTED");
            return Cluster::at(Place::TooDeep, resource);
        }
        let (resource, cluster) = look::resource::<grpc::Cluster>(self.view, name);
        if !self.seen.insert(name.to_owned()) {
            return Cluster::at(Place::Repeated, resource);
        }
        let shown = Cluster::at(Place::Here, resource);
        match cluster.as_deref() {
            None => shown,
            Some(cluster) => match &cluster.kind {
                ClusterKind::Aggregate(aggregate) => self.descend(shown, aggregate, depth),
                ClusterKind::Leaf(leaf) => self.show_leaf(shown, cluster, leaf),
            },
        }
    }

    fn descend(&mut self, mut shown: Cluster, aggregate: &Aggregate, depth: usize) -> Cluster {
        shown.kind = Some("aggregate");
        let list = match &aggregate.children {
            Children::Inline(list) => Some(list.clone()),
            Children::Resource(name) => {
                let (resource, list) = look::resource::<grpc::ClusterConfig>(self.view, name);
                shown.list = Some(resource);
                list
            }
        };
        if let Some(list) = list {
            let names = list.clusters.iter();
            shown.children = names.map(|name| self.visit(name, depth + 1)).collect();
        }
        shown
    }

    fn show_leaf(&self, mut shown: Cluster, cluster: &grpc::Cluster, leaf: &Leaf) -> Cluster {
        let (source, endpoints) = match &leaf.source {
            EndpointSource::Dns(name) => {
                shown.kind = Some("logical_dns");
                look::dns(self.view, name)
            }
            EndpointSource::Eds { service_name } => {
                shown.kind = Some("eds");
                let name = service_name.as_deref().unwrap_or(&cluster.name);
                look::resource::<grpc::Endpoints>(self.view, name)
            }
        };
        shown.lb_policy = policies(&leaf.lb_policy);
        shown.is_custom = is_custom(&leaf.lb_policy);
        shown.max_concurrent_requests = Some(leaf.max_concurrent_requests);
        shown.source = Some(source);
        if let Some(endpoints) = endpoints {
            let priorities = endpoints.priorities.iter();
            shown.priorities = priorities
                .map(|one| Priority::from(one.as_slice()))
                .collect();
            shown.drops = endpoints.drops.iter().map(Drop::from).collect();
        }
        shown
    }
}

impl Cluster {
    /// One that nothing is known of but the resource.
    fn at(place: Place, resource: Resource) -> Self {
        Self {
            resource,
            kind: None,
            place,
            lb_policy: Vec::new(),
            is_custom: false,
            list: None,
            children: Vec::new(),
            source: None,
            priorities: Vec::new(),
            drops: Vec::new(),
            max_concurrent_requests: None,
        }
    }
}

impl From<&[endpoints::Locality]> for Priority {
    fn from(localities: &[endpoints::Locality]) -> Self {
        let localities = localities.iter().map(|locality| Locality {
            name: locality.id.to_string(),
            weight: locality.weight.get(),
            endpoints: locality.endpoints.iter().map(Endpoint::from).collect(),
        });
        Self {
            localities: localities.collect(),
        }
    }
}

impl From<&endpoints::Endpoint> for Endpoint {
    fn from(endpoint: &endpoints::Endpoint) -> Self {
        Self {
            addresses: endpoint.addresses.iter().map(ToString::to_string).collect(),
            weight: endpoint.weight.get(),
            health: match endpoint.health {
                Health::Unknown => "unknown",
                Health::Healthy => "healthy",
                Health::Draining => "draining",
            },
        }
    }
}

impl From<&endpoints::DropCategory> for Drop {
    fn from(drop: &endpoints::DropCategory) -> Self {
        Self {
            category: drop.category.clone(),
            per_million: drop.per_million,
        }
    }
}

fn policies(policy: &LbPolicy) -> Vec<String> {
    let name = |policy: &EndpointPolicy| match policy {
        EndpointPolicy::Custom(policy) => policy.name.clone(),
        EndpointPolicy::LeastRequest { .. } => "least_request".to_owned(),
        EndpointPolicy::PickFirst { .. } => "pick_first".to_owned(),
        EndpointPolicy::RingHash(_) => "ring_hash".to_owned(),
        EndpointPolicy::RoundRobin => "round_robin".to_owned(),
    };
    match policy {
        LbPolicy::Endpoints(policy) => vec![name(policy)],
        LbPolicy::WrrLocality(policy) => vec!["wrr_locality".to_owned(), name(policy)],
    }
}

fn is_custom(policy: &LbPolicy) -> bool {
    let (LbPolicy::Endpoints(policy) | LbPolicy::WrrLocality(policy)) = policy;
    matches!(policy, EndpointPolicy::Custom(_))
}
