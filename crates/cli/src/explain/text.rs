//! The text of an explanation: a tree from the listener to the endpoints. The verdict is in the
//! last line, because a terminal shows that one.

mod cluster;
mod route;

use std::fmt::{self, Display, Formatter};

use super::{Destination, Explanation, ResourceReport, StopPart, tree::Node};
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
                self.mark(&mut listener, &StopPart::Listener);
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
            self.mark(&mut node, &StopPart::VirtualHost);
            self.push_routes(&mut node);
            routes.push(node);
        } else if config.error.is_none() {
            self.mark(&mut routes, &StopPart::RouteConfiguration);
        }
        listener.push(routes);
        listener
    }

    /// Adds the reason to the node, if the call ends there.
    fn mark(&self, node: &mut Node, part: &StopPart) {
        if let Some(stop) = self.stop.as_ref().filter(|stop| stop.part == *part) {
            node.remark(format!("{BROKEN} {}", stop.why));
        }
    }

    fn push_routes(&self, host: &mut Node) {
        let mut clusters: Vec<&Destination> = self.clusters.iter().collect();
        for route in &self.routes {
            let mut node = route.node();
            let index = route.index;
            self.mark(&mut node, &StopPart::Route { index });
            let splits = route.clusters.iter().filter(|_| route.is_open());
            for split in splits {
                let of_split = |one: &&Destination| one.cluster.resource.name == split.cluster;
                if let Some(i) = clusters.iter().position(of_split) {
                    node.push(clusters.remove(i).node());
                }
            }
            host.push(node);
        }
    }
}

impl Destination {
    fn node(&self) -> Node {
        let mark = if self.uses.is_some() { NOTED } else { BROKEN };
        let mut node = self.cluster.node(mark);
        let own = StopPart::Cluster {
            name: self.cluster.resource.name.clone(),
        };
        if let Some(stop) = &self.stop
            && stop.part == own
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
