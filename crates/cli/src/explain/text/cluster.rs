//! The text of a cluster: its settings, its endpoints, and the clusters below it. A mark stands at
//! each cause that keeps calls from its endpoints.

use super::{EVERY_CALL, NOTED, percent};
use crate::explain::{
    ClusterReport, EndpointReport, Place, PriorityReport, ResourceReport, tree::Node,
};

/// The time for which sessions keep idle connections by default, in seconds (gRFC A75).
const AN_HOUR: f64 = 3600.0;

impl ClusterReport {
    pub(super) fn node(&self, mark: &str) -> Node {
        match self.place {
            Place::Here => {}
            Place::Repeated => {
                let name = &self.resource.name;
                return Node::new(format!("cluster {name}: counts where it is above"));
            }
            Place::TooDeep => {
                let mut node = Node::new(format!("cluster {}", self.resource.name));
                node.remark(format!("{mark} too deep: aggregates end here"));
                return node;
            }
        }
        let mut node = self.resource.node("cluster", &self.kind_text(), mark);
        if let Some(custom) = self.lb_policy.last().filter(|_| self.is_custom) {
            node.remark(format!(
                "{NOTED} {custom} is for programs that have such a policy: to others, the next one \
                 in the list counts"
            ));
        }
        if self.max_concurrent_requests == Some(0) {
            node.remark(format!("{mark} no call may be open: every call is dropped"));
        }
        for line in self.settings() {
            node.remark(line);
        }
        match &self.list {
            Some(list) => {
                let mut list = list.node("cluster list", "", mark);
                self.push_children(&mut list, mark);
                node.push(list);
            }
            None => self.push_children(&mut node, mark),
        }
        if let Some(source) = &self.source {
            node.push(self.source_node(source, mark));
        }
        node
    }

    fn kind_text(&self) -> String {
        let kind = match self.kind {
            None => return String::new(),
            Some("eds") => "EDS",
            Some("logical_dns") => "logical DNS",
            Some(other) => other,
        };
        let policies = match self.lb_policy.as_slice() {
            [] => String::new(),
            policies => format!(", {}", policies.join("/")),
        };
        let limit = match self.max_concurrent_requests {
            Some(limit) => format!(", limit {limit}"),
            None => String::new(),
        };
        format!(": {kind}{policies}{limit}")
    }

    /// The lines of the settings that the cluster has, apart from those in its first line.
    fn settings(&self) -> impl Iterator<Item = String> {
        let idle = self
            .session_idle_seconds
            .filter(|seconds| *seconds != AN_HOUR);
        let lines = [
            self.security.as_ref().map(ToString::to_string),
            self.outlier_detection.as_ref().map(ToString::to_string),
            idle.map(|seconds| format!("sessions keep idle connections for {seconds} s")),
            self.load_reports.as_ref().map(ToString::to_string),
        ];
        lines.into_iter().flatten()
    }

    fn push_children(&self, node: &mut Node, mark: &str) {
        for child in &self.children {
            node.push(child.node(mark));
        }
    }

    fn source_node(&self, source: &ResourceReport, mark: &str) -> Node {
        if self.kind == Some("logical_dns") {
            let mut node = source.node("DNS name", "", mark);
            let endpoints = self.endpoints();
            for address in endpoints.flat_map(|endpoint| &endpoint.addresses) {
                node.push(Node::new(address));
            }
            return node;
        }
        let mut node = source.node("endpoints", "", mark);
        if source.state != "REQUESTED" && source.error.is_none() && !self.has_usable() {
            node.remark(format!("{mark} none that may get calls"));
        }
        for drop in &self.drops {
            let mark = match drop.per_million {
                EVERY_CALL.. => mark,
                _ => NOTED,
            };
            node.remark(format!(
                "{mark} {} of calls are to be dropped ({})",
                percent(drop.per_million),
                drop.category
            ));
        }
        for (i, priority) in self.priorities.iter().enumerate() {
            node.push(priority.node(i));
        }
        node
    }

    fn endpoints(&self) -> impl Iterator<Item = &EndpointReport> {
        let localities = self.priorities.iter().flat_map(|one| &one.localities);
        localities.flat_map(|locality| &locality.endpoints)
    }

    /// True if the cluster's own lines already say that it drops every call.
    pub(super) fn drops_every_call(&self) -> bool {
        let mut drops = self.drops.iter();
        self.max_concurrent_requests == Some(0) || drops.any(|one| one.per_million >= EVERY_CALL)
    }

    fn has_usable(&self) -> bool {
        self.endpoints()
            .any(|endpoint| endpoint.health != "draining")
    }
}

impl PriorityReport {
    fn node(&self, number: usize) -> Node {
        let mut node = Node::new(format!("priority {number}"));
        for locality in &self.localities {
            let mut place = Node::new(format!(
                "locality {}, weight {}",
                locality.name, locality.weight
            ));
            for endpoint in &locality.endpoints {
                place.push(Node::new(endpoint.line()));
            }
            if locality.endpoints.is_empty() {
                place.remark("no endpoints that are not called unhealthy");
            }
            node.push(place);
        }
        node
    }
}

impl EndpointReport {
    fn line(&self) -> String {
        format!(
            "{}, weight {}, health {}",
            self.addresses.join(" or "),
            self.weight,
            self.health
        )
    }
}
