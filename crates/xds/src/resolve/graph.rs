//! The results of the last pass for each cluster, with the inputs of each result. A change of an
//! input then works out only the results that depend on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::base::Base;
use super::cluster::{self, Found};
use super::config::{ClusterResult, Missing, ResolveError, XdsConfig, routed};
use super::look::{Look, Need};
use super::view::View;
use super::{ResolveRoots, Resolved, Watches};
use crate::error::ResourceError;
use crate::sorted::{Sorted, SortedSet};

/// A result that depends on inputs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dependent {
    Base,
    Cluster(Arc<str>),
}

/// The findings of the last pass. A finding that nothing leads to any more is removed.
#[derive(Debug, Default)]
pub(super) struct Graph {
    base: Option<Finding<Result<Option<Base>, ResolveError>>>,
    base_notes: Vec<ResourceError>,
    clusters: Sorted<Arc<str>, Finding<Found>>,
    /// The clusters that a configuration must have: those that routes lead to, and their leaves.
    required: SortedSet<Arc<str>>,
    dependents: Sorted<Need, SortedSet<Dependent>>,
    /// The inputs that were added to `dependents` or removed from it since
    /// [`take_moved`](Self::take_moved).
    moved: BTreeSet<Need>,
    stale: BTreeSet<Dependent>,
    /// True if the set of clusters that are needed may differ from the last pass.
    reshaped: bool,
    /// The last configuration that was given.
    config: Option<Arc<XdsConfig>>,
    /// True if `config` serves calls, because no error came after it.
    serves: bool,
    /// True if [`carry_on`](Self::carry_on) made `config`, which may then hold clusters that are
    /// not in `clusters`.
    carried: bool,
    /// The clusters whose result differs from the one in `config`.
    changed: BTreeSet<Arc<str>>,
    /// True if `config` differs in more than the clusters of `changed`.
    outdated: bool,
    built: usize,
}

#[derive(Debug)]
struct Finding<T> {
    what: T,
    needs: SortedSet<Need>,
    missing: BTreeSet<String>,
}

impl Graph {
    /// A graph without findings, while `config` serves calls.
    pub(super) fn serving(config: Option<Arc<XdsConfig>>) -> Self {
        Self {
            serves: config.is_some(),
            config,
            ..Self::default()
        }
    }

    /// Notes that an input has changed, so that its dependents are worked out again. Returns false
    /// if there are none.
    pub(super) fn touch(&mut self, need: &Need) -> bool {
        let dependents = self.dependents.get(need);
        let touched = dependents.into_iter().flat_map(SortedSet::keys);
        self.stale.extend(touched.cloned());
        dependents.is_some()
    }

    /// Notes that the roots have changed.
    pub(super) fn reshape(&mut self) {
        self.reshaped = true;
    }

    /// Works out the answer. Only stale findings are worked out again.
    pub(super) fn resolve(&mut self, view: &View, roots: &ResolveRoots) -> Resolved {
        for dependent in std::mem::take(&mut self.stale) {
            match dependent {
                Dependent::Base => self.find_base(view, roots),
                Dependent::Cluster(name) => self.find_cluster(&name, view),
            }
        }
        if self.base.is_none() {
            self.find_base(view, roots);
        }
        if std::mem::take(&mut self.reshaped) {
            self.sweep(view, roots);
        }
        self.answer()
    }

    /// All inputs of the findings, which must be watched.
    pub(super) fn watches(&self) -> Watches {
        let mut watches = Watches::default();
        for need in self.dependents.keys() {
            match need {
                Need::Name(name) => {
                    watches.names.insert(name.clone());
                }
                Need::Resource(key) => {
                    watches.resources.insert(key.clone());
                }
            }
        }
        watches
    }

    /// The inputs that are newly needed (`true`) or no longer needed (`false`) since the last call.
    pub(super) fn take_moved(&mut self) -> Vec<(Need, bool)> {
        let moved = std::mem::take(&mut self.moved).into_iter();
        moved
            .map(|need| {
                let is_needed = self.dependents.contains_key(&need);
                (need, is_needed)
            })
            .collect()
    }

    /// The number of times that a cluster was worked out. Tests measure the work by it.
    pub(super) fn built(&self) -> usize {
        self.built
    }

    fn find_base(&mut self, view: &View, roots: &ResolveRoots) {
        let mut look = Look::at(view);
        let what = Base::find(&mut look, roots);
        let old = self.base.take();
        self.depend(
            &Dependent::Base,
            old.as_ref().map(|finding| &finding.needs),
            &look.needs,
        );
        if old.is_none_or(|old| old.what != what) || self.base_notes != look.notes {
            self.reshaped = true;
            self.outdated = true;
        }
        self.base_notes = look.notes;
        self.base = Some(Finding {
            what,
            needs: look.needs,
            missing: look.missing,
        });
    }

    fn find_cluster(&mut self, name: &Arc<str>, view: &View) {
        let mut look = Look::at(view);
        let mut found = cluster::find(&mut look, name);
        self.built += 1;
        let old = self.clusters.remove(name);
        let dependent = Dependent::Cluster(Arc::clone(name));
        self.depend(
            &dependent,
            old.as_ref().map(|finding| &finding.needs),
            &look.needs,
        );
        match old {
            Some(old) => {
                self.reshaped |= old.what.leaves != found.leaves;
                // An aggregate may wait for this cluster.
                self.outdated |= old.what.result.is_none() != found.result.is_none();
                if old.what.result == found.result {
                    // The old object stays, so that callers that compare by address see no change.
                    found.result = old.what.result;
                } else {
                    self.changed.insert(Arc::clone(name));
                }
            }
            None => self.outdated = true,
        }
        let finding = Finding {
            what: found,
            needs: look.needs,
            missing: look.missing,
        };
        self.clusters.insert(Arc::clone(name), finding);
    }

    /// Follows the graph from its roots. Clusters that are new in it are worked out, and clusters
    /// that are no longer in it are dropped.
    fn sweep(&mut self, view: &View, roots: &ResolveRoots) {
        let base = self.base.as_ref().map(|finding| &finding.what);
        let routed: BTreeSet<Arc<str>> = match base {
            Some(Ok(Some(base))) => routed(&base.virtual_host).map(Arc::from).collect(),
            _ => BTreeSet::new(),
        };
        self.required = self.reach(routed, view);
        let reached = self.reach(roots.held.clone(), view);
        let gone = |name: &Arc<str>| {
            let name: &str = name;
            !self.required.contains_key(name) && !reached.contains_key(name)
        };
        let gone: Vec<Arc<str>> = self.clusters.keys().filter(|n| gone(n)).cloned().collect();
        for name in gone {
            if let Some(finding) = self.clusters.remove(&name) {
                let dependent = Dependent::Cluster(name);
                self.depend(&dependent, Some(&finding.needs), &SortedSet::default());
                self.outdated = true;
            }
        }
    }

    /// These clusters and their leaves.
    fn reach(&mut self, roots: BTreeSet<Arc<str>>, view: &View) -> SortedSet<Arc<str>> {
        let mut reached = SortedSet::default();
        let mut next: Vec<Arc<str>> = roots.into_iter().collect();
        while let Some(name) = next.pop() {
            if reached.contains_key(&name) {
                continue;
            }
            if !self.clusters.contains_key(&name) {
                self.find_cluster(&name, view);
            }
            let leaves = self.clusters.get(&name).map(|found| &found.what.leaves);
            next.extend(leaves.into_iter().flatten().cloned());
            reached.add(name);
        }
        reached
    }

    /// Notes that `dependent` needs the inputs of `new`, and no longer the others of `old`. Inputs in both are
    /// not looked up, because most changes of a cluster leave them as they are.
    fn depend(
        &mut self,
        dependent: &Dependent,
        old: Option<&SortedSet<Need>>,
        new: &SortedSet<Need>,
    ) {
        let none = SortedSet::default();
        let old = old.unwrap_or(&none);
        for need in old.without(new) {
            let Some(dependents) = self.dependents.get_mut(need) else {
                continue;
            };
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(need);
                self.move_over(need);
            }
        }
        for need in new.without(old) {
            if !self.dependents.contains_key(need) {
                self.move_over(need);
            }
            let dependents = self
                .dependents
                .get_or_insert_with(need.clone(), Sorted::default);
            dependents.add(dependent.clone());
        }
    }

    /// Notes that an input became needed or unneeded. If both happened since the last `take_moved`,
    /// it is removed from the list, because nothing changed in the end.
    fn move_over(&mut self, need: &Need) {
        if !self.moved.remove(need) {
            self.moved.insert(need.clone());
        }
    }

    fn answer(&mut self) -> Resolved {
        let missing = match self.base.as_ref().map(|base| (&base.what, &base.missing)) {
            Some((Err(error), _)) => {
                self.serves = false;
                return Resolved::Error(error.clone());
            }
            Some((Ok(Some(base)), _)) => {
                let missing = self.missing();
                if missing.is_empty() {
                    let base = base.clone();
                    self.serves = true;
                    return Resolved::Ready(self.assemble(base));
                }
                missing
            }
            Some((Ok(None), missing)) => missing.clone(),
            None => BTreeSet::new(),
        };
        Resolved::Waiting {
            missing: Missing(missing),
            in_use: self.carry_on(),
        }
    }

    /// The missing pieces of the required clusters.
    fn missing(&self) -> BTreeSet<String> {
        let waiting = self.clusters.iter().filter(|(_, f)| !f.missing.is_empty());
        let required = waiting.filter(|(name, _)| self.required.contains_key(*name));
        required.flat_map(|(_, f)| &f.missing).cloned().collect()
    }

    /// The configuration in use, with its clusters kept up to date.
    fn carry_on(&mut self) -> Option<Arc<XdsConfig>> {
        let in_use = self.config.clone().filter(|_| self.serves)?;
        let changed = std::mem::take(&mut self.changed);
        if !std::mem::take(&mut self.outdated) && changed.is_empty() {
            return Some(in_use);
        }
        self.carried = true;
        let config = XdsConfig {
            clusters: self.carried(&in_use),
            listener: Arc::clone(&in_use.listener),
            routes: Arc::clone(&in_use.routes),
            virtual_host: Arc::clone(&in_use.virtual_host),
            notes: in_use.notes.clone(),
        };
        if !is_same(&in_use, &config) {
            self.config = Some(Arc::new(config));
        }
        self.config.clone()
    }

    /// The results of all complete clusters. A cluster that the routes in use lead to and that is
    /// not complete keeps its result of `in_use`.
    fn carried(&self, in_use: &XdsConfig) -> BTreeMap<Arc<str>, ClusterResult> {
        let mut clusters = self.results();
        let mut kept: Vec<&ClusterResult> = Vec::new();
        for name in in_use.routed() {
            if let Some((name, state)) = in_use.clusters.get_key_value(name)
                && !clusters.contains_key(name)
            {
                clusters.insert(Arc::clone(name), state.clone());
                kept.push(state);
            }
        }
        let is_aggregate =
            |state: &ClusterResult| state.as_ref().is_ok_and(|state| !state.leaves().is_empty());
        for leaf in kept.into_iter().flatten().flat_map(|state| state.leaves()) {
            // A list that is kept needs its leaves. So a leaf that has become an aggregate is kept
            // as it was.
            if let Some(state) = in_use.clusters.get(leaf)
                && clusters.get(leaf).is_none_or(is_aggregate)
            {
                clusters.insert(Arc::clone(leaf), state.clone());
            }
        }
        clusters
    }

    /// The results of all complete clusters.
    fn results(&self) -> BTreeMap<Arc<str>, ClusterResult> {
        let names = self.clusters.keys();
        names
            .filter_map(|name| Some((Arc::clone(name), self.result(name)?)))
            .collect()
    }

    /// The complete configuration. If nothing changed, it is the same object as the last one.
    fn assemble(&mut self, base: Base) -> Arc<XdsConfig> {
        let outdated = std::mem::take(&mut self.outdated) | std::mem::take(&mut self.carried);
        let changed = std::mem::take(&mut self.changed);
        let clusters = match &self.config {
            Some(last) if !outdated && changed.is_empty() => return Arc::clone(last),
            Some(last) if !outdated => {
                let mut clusters = last.clusters.clone();
                for name in changed {
                    match self.result(&name) {
                        Some(result) => clusters.insert(name, result),
                        None => clusters.remove(&name),
                    };
                }
                clusters
            }
            _ => self.results(),
        };
        let config = XdsConfig {
            listener: base.listener,
            routes: base.routes,
            virtual_host: base.virtual_host,
            clusters,
            notes: self.base_notes.clone(),
        };
        match &self.config {
            Some(last) if is_same(last, &config) => Arc::clone(last),
            _ => Arc::clone(self.config.insert(Arc::new(config))),
        }
    }

    /// The result of a cluster; `None` if it is not complete. An aggregate is complete once all of
    /// its leaves have a result.
    ///
    /// An equal result of the last configuration is given instead of the new one. So callers that
    /// compare by address see no change, even if the cluster was not needed for a while.
    fn result(&self, name: &str) -> Option<ClusterResult> {
        let found = &self.clusters.get(name)?.what;
        let is_here = |leaf: &Arc<str>| {
            let leaf = self.clusters.get(leaf);
            leaf.is_some_and(|leaf| leaf.what.result.is_some())
        };
        let result = found.result.as_ref()?;
        if !found.leaves.iter().all(is_here) {
            return None;
        }
        let last = self.config.as_ref();
        let last = last.and_then(|last| last.clusters.get(name));
        let equal = last.filter(|last| *last == result);
        Some(equal.unwrap_or(result).clone())
    }
}

/// True if `config` equals `last`. Clusters are compared by address, because `Graph::result` reuses
/// equal ones.
fn is_same(last: &XdsConfig, config: &XdsConfig) -> bool {
    let is_same = |(a, b): (&ClusterResult, &ClusterResult)| match (a, b) {
        (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
        (Err(a), Err(b)) => Arc::ptr_eq(a, b),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    };
    let mut clusters = last.clusters.values().zip(config.clusters.values());
    last.clusters.keys().eq(config.clusters.keys())
        && clusters.all(is_same)
        && last.notes == config.notes
        && last.listener == config.listener
        && last.routes == config.routes
        && last.virtual_host == config.virtual_host
}
