//! The text of an explanation: a tree from the listener to the endpoints, and the verdict in the
//! last line.

use std::fmt::{self, Display, Formatter};

use super::{
    ClusterReport, Destination, EndpointReport, Explanation, Place, PriorityReport, ResourceReport,
    RouteReport, Verdict, tree::Node,
};
use crate::output::printable;

/// The mark of a line that keeps the call from going on.
const BROKEN: &str = "✗";
/// The mark of a line with a problem that calls survive.
const NOTED: &str = "!";
/// The mark of a line that waits for an answer.
const WAITING: &str = "…";
/// All calls, as a number of a million.
const EVERY_CALL: u32 = 1_000_000;

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            target,
            authority,
            node,
            ..
        } = self;
        let title = format!("{target} (authority {authority}, node {node})");
        writeln!(f, "{}", printable(&title))?;
        if let Some(path) = &self.path {
            writeln!(f, "call: {}", printable(path))?;
        }
        for header in &self.headers {
            let line = format!("header: {}={}", header.name, header.value);
            writeln!(f, "{}", printable(&line))?;
        }
        writeln!(f, "\n{}", self.tree().draw())?;
        self.write_verdict(f)
    }
}

impl Explanation {
    fn write_verdict(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(stop) = &self.stop else {
            for (i, cluster) in self.clusters.iter().enumerate() {
                let separator = if i > 0 { "\n" } else { "" };
                let line = format!("ok: {}", cluster.summary());
                write!(f, "{separator}{}", printable(&line))?;
            }
            return Ok(());
        };
        let line = format!("{BROKEN} stops at {}: {}", stop.at, stop.why);
        f.write_str(&printable(&line))?;
        match &stop.next {
            Some(next) => write!(f, "\n  next: {}", printable(next)),
            None => Ok(()),
        }
    }

    fn tree(&self) -> Node {
        let mut listener = self.listener.node("listener", "", BROKEN);
        let Some(config) = &self.route_configuration else {
            if self.listener.error.is_none() {
                self.mark(&mut listener, &format!("listener {}", self.listener.name));
            }
            return listener;
        };
        let inline = if config.state == "INLINE" {
            " in the listener"
        } else {
            ""
        };
        let mut routes = config.node("route configuration", inline, BROKEN);
        if let Some(host) = &self.virtual_host {
            let domains = host.domains.join(", ");
            let mut node = Node::new(format!("virtual host {} (domains {domains})", host.name));
            note_all(&mut node, &host.unsupported);
            self.mark(&mut node, &format!("virtual host {}", host.name));
            self.push_routes(&mut node);
            routes.push(node);
        } else if config.error.is_none() {
            self.mark(&mut routes, &format!("route configuration {}", config.name));
        }
        listener.push(routes);
        listener
    }

    /// Adds the reason to the node, if the call ends there.
    fn mark(&self, node: &mut Node, at: &str) {
        if let Some(stop) = self.stop.as_ref().filter(|stop| stop.at == at) {
            node.remark(format!("{BROKEN} {}", stop.why));
        }
    }

    fn push_routes(&self, host: &mut Node) {
        let mut clusters: Vec<&Destination> = self.clusters.iter().collect();
        for route in &self.routes {
            let mut node = Node::new(route.line());
            if let Some(note) = &route.note {
                node.remark(format!("{NOTED} {note}"));
            }
            note_all(&mut node, &route.unsupported);
            self.mark(&mut node, &format!("routes[{}]", route.index));
            let is_open = matches!(route.verdict, None | Some(Verdict::Matches));
            if is_open && let Some(retry) = &route.retry {
                node.remark(format!("retries: {retry}"));
            }
            let of_route =
                |one: &&Destination| Some(&one.cluster.resource.name) == route.cluster.as_ref();
            if is_open && let Some(i) = clusters.iter().position(of_route) {
                node.push(clusters.remove(i).node());
            }
            host.push(node);
        }
    }
}

impl RouteReport {
    fn line(&self) -> String {
        let mut line = format!("routes[{}]", self.index);
        if let Some(name) = &self.name {
            line = format!("{line} ({name})");
        }
        if let Some(matcher) = &self.matcher {
            let cluster = self.cluster.as_ref();
            let leads =
                cluster.map_or_else(|| "no cluster".to_owned(), |name| format!("cluster {name}"));
            line = format!("{line} {matcher} -> {leads}");
        }
        let verdict = match self.verdict {
            None => return line,
            Some(Verdict::LeftOut) => "left out",
            Some(Verdict::Matches) => "matches",
            Some(Verdict::NotReached) => "not reached",
            Some(Verdict::PassedOver) => "passed over",
        };
        match &self.why {
            Some(why) => format!("{line}: {verdict}, {why}"),
            None => format!("{line}: {verdict}"),
        }
    }
}

impl Destination {
    fn node(&self) -> Node {
        let mark = if self.uses.is_some() { NOTED } else { BROKEN };
        let mut node = self.cluster.node(mark);
        if let Some(stop) = &self.stop
            && stop.at == format!("cluster {}", self.cluster.resource.name)
            && self.cluster.resource.error.is_none()
            && !self.cluster.drops_every_call()
        {
            node.remark(format!("{BROKEN} {}", stop.why));
        }
        node
    }

    /// One sentence on the endpoints that get the calls.
    fn summary(&self) -> String {
        let name = &self.cluster.resource.name;
        let Some(uses) = &self.uses else {
            return format!("cluster {name}");
        };
        let leaf = match &uses.cluster {
            leaf if leaf == name => String::new(),
            leaf => format!(" cluster {leaf},"),
        };
        let plural = if uses.endpoints == 1 { "" } else { "s" };
        let dropped = match uses.dropped_per_million {
            0 => String::new(),
            count => format!(", after {} are dropped", percent(count)),
        };
        format!(
            "calls to cluster {name} go to{leaf} priority {}: {} endpoint{plural}{dropped}",
            uses.priority, uses.endpoints
        )
    }
}

impl ClusterReport {
    fn node(&self, mark: &str) -> Node {
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
    fn drops_every_call(&self) -> bool {
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

impl ResourceReport {
    fn node(&self, noun: &str, suffix: &str, mark: &str) -> Node {
        let Self { name, version, .. } = self;
        let version = match version {
            Some(version) => format!(" (version {version})"),
            None => String::new(),
        };
        let name = if name.is_empty() {
            "without a name"
        } else {
            name
        };
        let mut node = Node::new(format!("{noun} {name}{version}{suffix}"));
        let refused = match &self.refused_version {
            Some(version) => format!("version {version}: "),
            None => String::new(),
        };
        if let Some(error) = &self.error {
            node.remark(format!("{mark} {refused}{error}"));
        } else if self.state == "REQUESTED" {
            node.remark(format!("{WAITING} no answer yet"));
        }
        if let Some(note) = &self.note {
            node.remark(format!("{NOTED} {refused}{note}"));
        }
        note_all(&mut node, &self.unsupported);
        node
    }
}

fn note_all(node: &mut Node, notes: &[String]) {
    for note in notes {
        node.remark(format!("{NOTED} {note}"));
    }
}

fn percent(per_million: u32) -> String {
    format!("{} %", f64::from(per_million) / 10_000.0)
}
