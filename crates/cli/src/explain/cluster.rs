//! Reports on a cluster and everything below it, read from the view.
//!
//! The view has the parts even while the configuration is incomplete, so the report shows them all.

use std::collections::HashSet;

use crowfly_model::grpc::{
    self,
    cluster::{
        Aggregate, Children, ClusterKind, EndpointPolicy, EndpointSource, LbPolicy, LeafCluster,
    },
    endpoints::{self, Health},
};
use crowfly_xds::{MAX_DEPTH, View};

use super::{
    ClusterReport, DropReport, EndpointReport, LoadReportsReport, LocalityReport, OutlierReport,
    Place, PriorityReport, ResourceReport, SecurityReport, look,
};

/// The report on the cluster `name` and everything below it, as far as the view has it.
pub(super) fn tree(view: &View, name: &str) -> ClusterReport {
    let mut walk = Walk {
        view,
        seen: HashSet::new(),
    };
    walk.visit(name, 0)
}

/// Visits clusters as resolution does (gRFC A37): depth first, and each cluster counts where it is
/// first seen.
struct Walk<'a> {
    view: &'a View,
    seen: HashSet<String>,
}

impl Walk<'_> {
    fn visit(&mut self, name: &str, depth: usize) -> ClusterReport {
        if depth >= MAX_DEPTH {
            let resource = ResourceReport::new(name, "NOT_REQUESTED");
            return ClusterReport::at(Place::TooDeep, resource);
        }
        let (resource, cluster) = look::resource::<grpc::Cluster>(self.view, name);
        if !self.seen.insert(name.to_owned()) {
            return ClusterReport::at(Place::Repeated, resource);
        }
        let shown = ClusterReport::at(Place::Here, resource);
        match cluster.as_deref() {
            None => shown,
            Some(cluster) => match &cluster.kind {
                ClusterKind::Aggregate(aggregate) => self.descend(shown, aggregate, depth),
                ClusterKind::Leaf(leaf) => self.show_leaf(shown, cluster, leaf),
            },
        }
    }

    fn descend(
        &mut self,
        mut shown: ClusterReport,
        aggregate: &Aggregate,
        depth: usize,
    ) -> ClusterReport {
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

    fn show_leaf(
        &self,
        mut shown: ClusterReport,
        cluster: &grpc::Cluster,
        leaf: &LeafCluster,
    ) -> ClusterReport {
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
        shown.security = leaf.security.as_deref().map(SecurityReport::from);
        let outliers = leaf.outlier_detection.as_deref();
        shown.outlier_detection = outliers.map(OutlierReport::from);
        shown.session_idle_seconds = Some(leaf.session_idle_timeout.as_secs_f64());
        let load = leaf.load_reporting.as_deref();
        shown.load_reports = load.map(LoadReportsReport::from);
        shown.source = Some(source);
        if let Some(endpoints) = endpoints {
            let priorities = endpoints.priorities.iter();
            shown.priorities = priorities
                .map(|one| PriorityReport::from(one.as_slice()))
                .collect();
            shown.drops = endpoints.drops.iter().map(DropReport::from).collect();
        }
        shown
    }
}

impl ClusterReport {
    /// A report on a cluster of which only the resource is known.
    fn at(place: Place, resource: ResourceReport) -> Self {
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
            security: None,
            outlier_detection: None,
            session_idle_seconds: None,
            load_reports: None,
        }
    }
}

impl From<&[endpoints::EdsLocality]> for PriorityReport {
    fn from(localities: &[endpoints::EdsLocality]) -> Self {
        let localities = localities.iter().map(|locality| LocalityReport {
            name: locality.id.to_string(),
            weight: locality.weight.get(),
            endpoints: locality
                .endpoints
                .iter()
                .map(EndpointReport::from)
                .collect(),
        });
        Self {
            localities: localities.collect(),
        }
    }
}

impl From<&endpoints::EdsEndpoint> for EndpointReport {
    fn from(endpoint: &endpoints::EdsEndpoint) -> Self {
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

impl From<&endpoints::DropOverload> for DropReport {
    fn from(drop: &endpoints::DropOverload) -> Self {
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
