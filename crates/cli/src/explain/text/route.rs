//! The text of a route: its condition, its clusters, its decision about the call, and its settings.
//!
//! Settings are shown only for routes that the call may take, because the others have no effect on
//! it.

use std::fmt::Write;

use crowfly_model::grpc::route::StatusCodes;

use super::{NOTED, note_all, percent};
use crate::explain::{HashPolicyReport, RouteReport, SplitReport, Verdict, tree::Node};

impl RouteReport {
    /// The lines of the route, without its clusters.
    pub(super) fn node(&self) -> Node {
        let mut node = Node::new(self.line());
        if let Some(note) = &self.note {
            node.remark(format!("{NOTED} {note}"));
        }
        note_all(&mut node, &self.unsupported);
        if self.is_open() {
            for line in self.settings().into_iter().chain(self.filters()) {
                node.remark(line);
            }
        }
        node
    }

    fn line(&self) -> String {
        let mut line = format!("routes[{}]", self.index);
        // Writing to a string cannot fail.
        if let Some(name) = &self.name {
            let _ = write!(line, " ({name})");
        }
        if let Some(matcher) = &self.matcher {
            let _ = write!(line, " {matcher}");
            for header in &self.headers {
                let _ = write!(line, ", header {} {}", header.name, header.expected);
            }
            if let Some(share) = self.share_per_million {
                let _ = write!(line, ", {} of them", percent(share));
            }
            let _ = write!(line, " -> {}", leads(&self.clusters));
        }
        let verdict = match self.verdict {
            None => return line,
            Some(Verdict::ByChance) => "by chance",
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

    /// The settings of the route for the calls that take it.
    fn settings(&self) -> Vec<String> {
        let mut settings = Vec::new();
        if let Some(timeout) = &self.timeout {
            let (seconds, set_by) = (timeout.seconds, timeout.set_by);
            settings.push(format!("timeout {seconds} s, set by the {set_by}"));
        }
        if let Some(retry) = &self.retry {
            let codes: StatusCodes = retry.retry_on.iter().copied().collect();
            settings.push(format!(
                "retries: up to {} attempts, on {codes}; {} s to {} s apart",
                retry.max_attempts, retry.base_interval_seconds, retry.max_interval_seconds
            ));
        }
        let hash = |policy: &HashPolicyReport| {
            let source = match &policy.header {
                Some(name) => format!("header {name}"),
                None => "a number of the channel".to_owned(),
            };
            let end = if policy.terminal { " (terminal)" } else { "" };
            format!("{source}{end}")
        };
        let hashes: Vec<String> = self.hash_policies.iter().map(hash).collect();
        if !hashes.is_empty() {
            settings.push(format!("hash of {}", hashes.join(", then ")));
        }
        if self.auto_host_rewrite {
            let text = "authority: the host name of the endpoint, if it has one";
            settings.push(text.to_owned());
        }
        settings
    }
}

impl RouteReport {
    /// A line for each filter. A filter that all clusters of the route have alike is shown once.
    fn filters(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let [first, others @ ..] = &*self.clusters else {
            return lines;
        };
        let are_alike = others.iter().all(|other| other.filters == first.filters);
        let told = if are_alike {
            &self.clusters[..1]
        } else {
            &self.clusters[..]
        };
        for cluster in told {
            let of = match are_alike {
                true => String::new(),
                false => format!(" of calls to {}", cluster.cluster),
            };
            for filter in &cluster.filters {
                let (name, config, set_by) = (&filter.name, &filter.config, &filter.set_by);
                lines.push(format!("filter {name}{of}: {config}, set by the {set_by}"));
                if let Some(place) = &filter.ignored_override {
                    lines.push(format!(
                        "{NOTED} the override of filter {name} in the {place} is for another kind of filter"
                    ));
                }
            }
        }
        lines
    }
}

fn leads(clusters: &[SplitReport]) -> String {
    match clusters {
        [] => "no cluster".to_owned(),
        [only] => format!("cluster {}", only.cluster),
        several => {
            let share = |one: &SplitReport| format!("{} {}", one.cluster, percent(one.per_million));
            let shares: Vec<String> = several.iter().map(share).collect();
            format!("clusters {}", shares.join(", "))
        }
    }
}
