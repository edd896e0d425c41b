//! The difference between two snapshots, for the log.
//!
//! Clients lose the resources that are removed, and all endpoints of a service that has none left.
//! An operator must be told of both, even if the file asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_xds::{Snapshot, SnapshotResource};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use prost::Message;

use crate::views::ServedView;

/// The largest number of names that a log line lists.
const SHOWN: usize = 10;

/// The resources that a reload added, changed and removed.
///
/// ```
/// use crowfly_control::{Catalog, Changes, ConfigFile, translate};
///
/// let snapshot = |text: &str| {
///     let file = ConfigFile { path: "mesh.yaml".into(), text: text.into() };
///     translate(&Catalog::read(&[file])?)
/// };
/// let before = snapshot("services: [{ name: a, endpoints: [{ address: \"10.0.0.1:80\" }] }]")?;
/// let after = snapshot("services: [{ name: a, endpoints: [] }]")?;
/// let changes = Changes::between(&before, &after);
/// assert!(changes.take_away());
/// assert_eq!(
///     changes.to_string(),
///     "added 0, changed 1: a (endpoints), removed 0, without endpoints 1: a (had 1)"
/// );
/// # Ok::<(), crowfly_control::ConfigErrors>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    added: Resources,
    changed: Resources,
    removed: Resources,
    /// Services that lost all endpoints, as a whole or in a locality; with the number of endpoints
    /// lost.
    emptied: BTreeMap<String, usize>,
    /// The names of the views that are new, gone or different.
    views: Vec<String>,
}

impl Changes {
    /// The changes that lead from `before` to `after`.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let mut changes = Self::default();
        for (type_url, names) in after.changes_since(before) {
            for name in &*names {
                match [before, after].map(|of| of.resource(type_url, name)) {
                    [_, None] => changes.removed.insert(type_url, name),
                    [None, Some(_)] => changes.added.insert(type_url, name),
                    [Some(old), Some(new)] => {
                        changes.changed.insert(type_url, name);
                        changes.look_for_endpoints(type_url, name, old, new);
                    }
                }
            }
        }
        changes
    }

    /// The changes, with those from the views `before` to the views `after`.
    pub(crate) fn with_views(mut self, before: &[ServedView], after: &[ServedView]) -> Self {
        let of =
            |views: &[ServedView], name: &str| views.iter().position(|view| &*view.name == name);
        let names: BTreeSet<&Arc<str>> = [before, after]
            .into_iter()
            .flatten()
            .map(|view| &view.name)
            .collect();
        let differs = |name: &&Arc<str>| {
            let [old, new] =
                [before, after].map(|views| of(views, name).map(|at| (at, &views[at])));
            old != new
        };
        let changed = names.into_iter().filter(differs);
        self.views = changed.map(ToString::to_string).collect();
        self
    }

    /// True if the two snapshots are equal.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if clients lose something: a resource, or all endpoints of a service or a locality.
    pub fn take_away(&self) -> bool {
        !self.removed.is_empty() || !self.emptied.is_empty()
    }

    fn look_for_endpoints(
        &mut self,
        type_url: &str,
        name: &str,
        old: &SnapshotResource,
        new: &SnapshotResource,
    ) {
        if type_url != Endpoints::TYPE_URL {
            return;
        }
        let (old, new) = (endpoints_of(old), endpoints_of(new));
        let has_none = new.values().all(|count| *count == 0);
        let is_empty = |locality| has_none || new.get(locality) == Some(&0);
        let gone = old.iter().filter(|(locality, _)| is_empty(*locality));
        let gone: usize = gone.map(|(_, count)| count).sum();
        if gone > 0 {
            self.emptied.insert(name.to_owned(), gone);
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "added {}, ", self.added)?;
        write!(f, "changed {}, ", self.changed)?;
        write!(f, "removed {}", self.removed)?;
        if !self.emptied.is_empty() {
            let had = |(name, count): (&String, &usize)| format!("{name} (had {count})");
            let names = some(self.emptied.iter().map(had), self.emptied.len());
            write!(f, ", without endpoints {}: {names}", self.emptied.len())?;
        }
        if !self.views.is_empty() {
            let names = some(self.views.iter().cloned(), self.views.len());
            write!(f, ", views changed {}: {names}", self.views.len())?;
        }
        Ok(())
    }
}

/// The kinds of resources of each name: a service has four of its own name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resources(BTreeMap<String, Vec<String>>);

impl Resources {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn insert(&mut self, type_url: &str, name: &str) {
        let kinds = self.0.entry(name.to_owned()).or_default();
        kinds.push(noun_of(type_url).to_owned());
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.len())?;
        if self.is_empty() {
            return Ok(());
        }
        let shown = self.0.iter();
        let shown = shown.map(|(name, kinds)| format!("{name} ({})", kinds.join(", ")));
        write!(f, ": {}", some(shown, self.0.len()))
    }
}

/// The first few of `all`.
fn some(all: impl Iterator<Item = String>, count: usize) -> String {
    let mut shown = all.take(SHOWN).collect::<Vec<_>>().join("; ");
    if count > SHOWN {
        shown.push_str(&format!("; and {} more", count - SHOWN));
    }
    shown
}

fn noun_of(type_url: &str) -> &str {
    match type_url {
        url if url == Cluster::TYPE_URL => Cluster::NOUN,
        url if url == ClusterConfig::TYPE_URL => ClusterConfig::NOUN,
        url if url == Endpoints::TYPE_URL => Endpoints::NOUN,
        url if url == Listener::TYPE_URL => Listener::NOUN,
        url if url == RouteConfig::TYPE_URL => RouteConfig::NOUN,
        other => other.rsplit('/').next().unwrap_or(other),
    }
}

/// The number of endpoints of each locality.
fn endpoints_of(resource: &SnapshotResource) -> BTreeMap<[String; 3], usize> {
    let mut counts = BTreeMap::new();
    // A message that cannot be decoded has no endpoints.
    let message = ClusterLoadAssignment::decode(resource.any.value.as_slice()).unwrap_or_default();
    for group in message.endpoints {
        let at = group.locality.unwrap_or_default();
        *counts.entry([at.region, at.zone, at.sub_zone]).or_default() += group.lb_endpoints.len();
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, ConfigFile};
    use crate::translate::translate;

    fn changes(before: &str, after: &str) -> Changes {
        let snapshot = |text: &str| {
            let path = "mesh.yaml".into();
            let text = text.to_owned();
            translate(&Catalog::read(&[ConfigFile { path, text }]).unwrap()).unwrap()
        };
        Changes::between(&snapshot(before), &snapshot(after))
    }

    fn zones(zones: &[(&str, usize)]) -> String {
        let endpoints = |zone: &str, count: usize| {
            let address = |i| format!("{{ address: \"10.0.{}.{i}:80\" }}", zone.as_bytes()[0]);
            (0..count).map(address).collect::<Vec<_>>().join(", ")
        };
        let zone = |(zone, count): &(&str, usize)| {
            format!(
                "{{ zone: {zone}, endpoints: [{}] }}",
                endpoints(zone, *count)
            )
        };
        let zones: Vec<_> = zones.iter().map(zone).collect();
        format!(
            "services: [{{ name: t, localities: [{}] }}]",
            zones.join(", ")
        )
    }

    #[test]
    fn a_reload_tells_what_it_added_changed_and_removed() {
        let before = "services: [{ name: a }, { name: b }]";
        let after =
            "services: [{ name: b, endpoints: [{ address: \"10.0.0.1:80\" }] }, { name: c }]";
        let changes = changes(before, after);
        assert!(changes.take_away());
        insta::assert_snapshot!(changes, @"added 1: c (cluster, endpoints, listener, route configuration), changed 1: b (endpoints), removed 1: a (cluster, endpoints, listener, route configuration)");
    }

    #[test]
    fn the_same_again_is_no_change() {
        assert!(changes("services: [{ name: a }]", "services:\n- name: a\n").is_empty());
    }

    #[test]
    fn names_beyond_the_tenth_are_counted() {
        let all: Vec<_> = (10..30).map(|i| format!("{{ name: s{i} }}")).collect();
        let all = format!("services: [{}]", all.join(", "));
        let told = changes(&all, "services: []").to_string();
        assert!(
            told.starts_with("added 0, changed 0, removed 20: s10 ("),
            "{told}"
        );
        assert!(told.ends_with("; and 10 more"), "{told}");
    }

    /// A fleet that shrinks, or moves from one zone to another, is none that was lost.
    #[test]
    fn endpoints_are_counted_where_none_is_left() {
        for (before, after, gone) in [
            (
                &[("a", 2), ("b", 1)][..],
                &[("a", 0), ("b", 1)][..],
                Some(2),
            ),
            (&[("a", 2), ("b", 1)], &[], Some(3)),
            (&[("a", 2), ("b", 1)], &[("a", 1), ("b", 1)], None),
            (&[("a", 2), ("b", 1)], &[("b", 1)], None),
        ] {
            let changes = changes(&zones(before), &zones(after));
            assert_eq!(
                changes.emptied.get("t").copied(),
                gone,
                "{before:?} {after:?}"
            );
            assert_eq!(changes.take_away(), gone.is_some());
        }
    }
}
