//! The text of a tree: the only place that turns its fields into words.
//!
//! A program prints its own trees here, and `crowfly inspect --tree` prints those of other
//! processes here, so both look alike.

use std::fmt::{self, Display, Formatter};

use super::{Tree, TreeKind, TreeRole};
use crate::plan::OverrideHost;

impl Display for Tree {
    /// Writes one line for each node, such as `us/a weight 70 READY`, below its parent.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_line(f)?;
        self.write_children(f, "")
    }
}

impl Tree {
    fn write_children(&self, f: &mut Formatter<'_>, indent: &str) -> fmt::Result {
        for (index, child) in self.children.iter().enumerate() {
            let is_last = index + 1 == self.children.len();
            let (branch, below) = if is_last {
                ("└ ", "  ")
            } else {
                ("├ ", "│ ")
            };
            write!(f, "{indent}{branch}")?;
            child.write_line(f)?;
            child.write_children(f, &format!("{indent}{below}"))?;
        }
        Ok(())
    }

    fn write_line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_identity(f)?;
        if let Some(state) = self.state {
            write!(f, " {state}")?;
        }
        self.write_counters(f)?;
        self.write_remarks(f)?;
        f.write_str("\n")
    }

    /// Writes the kind and the name, and the settings that come from the plan:
    /// `cluster_impl payments limit 1024, drops throttle 10%`.
    fn write_identity(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.kind {
            TreeKind::Cluster => write!(f, "cluster {name}"),
            TreeKind::ClusterImpl => self.write_cluster_impl(f),
            TreeKind::Endpoint => f.write_str(&self.addresses.join(",")),
            TreeKind::Failing => f.write_str("failing"),
            TreeKind::Localities => f.write_str("localities"),
            TreeKind::OverrideHost => self.write_override_host(f),
            TreeKind::Locality => match self.weight {
                Some(weight) => write!(f, "{name} weight {weight}"),
                None => f.write_str(name),
            },
            TreeKind::Priority => f.write_str("priority"),
            TreeKind::LeafPolicy | TreeKind::PriorityChild | TreeKind::Unknown => f.write_str(name),
        }
    }

    fn write_cluster_impl(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "cluster_impl {}", self.name)?;
        if let Some(limit) = self.limit {
            write!(f, " limit {limit}")?;
        }
        for (index, drop) in self.drops.iter().enumerate() {
            let separator = if index == 0 { ", drops " } else { " + " };
            let percent = f64::from(drop.per_million) / 10_000.0;
            write!(f, "{separator}{} {percent}%", drop.name)?;
        }
        if let Some(security) = &self.security {
            write!(f, ", tls: {security}")?;
        }
        Ok(())
    }

    /// Writes `override_host UNKNOWN+HEALTHY, idle timeout 3600s`.
    fn write_override_host(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("override_host")?;
        match self.override_host {
            None => Ok(()),
            Some(OverrideHost {
                health,
                idle_timeout,
            }) => write!(f, " {health}, idle timeout {idle_timeout:?}"),
        }
    }

    /// Writes the counters of open calls that are not zero. The number of picks is left out, because
    /// it grows for ever and would make two prints of a quiet tree differ.
    fn write_counters(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (count, what) in [(self.in_flight, "in flight"), (self.waiting, "waiting")] {
            if let Some(count) = count.filter(|count| *count > 0) {
                write!(f, "{separator} {count} {what}")?;
                separator = ",";
            }
        }
        Ok(())
    }

    /// Writes the role, the expired timer, the note and the rest of an ejection in one pair of brackets.
    fn write_remarks(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let too_long = self.failover_timer_expired.then_some("took too long");
        let left = self.ejection.as_ref().and_then(|ejection| ejection.left);
        let left = left.map(|left| format!("{:.1}s left", left.as_secs_f64()));
        let note = self.note.as_deref();
        let remarks = [self.role_text(), too_long, note, left.as_deref()];
        let mut before = " (";
        for remark in remarks.into_iter().flatten() {
            write!(f, "{before}{remark}")?;
            before = ", ";
        }
        match before {
            ", " => f.write_str(")"),
            _ => Ok(()),
        }
    }

    fn role_text(&self) -> Option<&'static str> {
        Some(match (self.role?, self.kind) {
            (TreeRole::InUse, _) => "in use",
            (TreeRole::Draining, _) => "draining, kept for its sessions",
            (TreeRole::Kept, TreeKind::Endpoint) => "kept for its sessions",
            (TreeRole::Kept, TreeKind::Locality) => "removed, kept in case it returns",
            (TreeRole::Kept, _) => "kept in case it is needed",
            (TreeRole::Leaving, _) => "leaving",
            (TreeRole::NotNeeded, _) => "not needed yet",
            (TreeRole::Pending, TreeKind::Endpoint) => "pending",
            (TreeRole::Pending, _) => "takes over when it is READY",
        })
    }
}
