//! Resolves a channel again after each change, with work in proportion to the change.
//!
//! `resolve()` works everything out from scratch, which is simple but slow; this gives the same
//! answers.

use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_model::grpc::cluster::DnsName;

use super::graph::Graph;
use super::look::Need;
use super::view::View;
use super::{ResolveRoots, Resolved, Watches};
use crate::cache::CacheEntry;
use crate::kind::Key;
use crate::sorted::Sorted;

/// Resolves the roots of one channel, again after each change.
///
/// Report what happened ([`update`](Self::update), [`answer`](Self::answer), [`hold`](Self::hold),
/// [`release`](Self::release)), then take one [`step`](Self::step). The step equals what
/// [`resolve`](super::resolve()) gives from scratch at that moment. A cluster that did not change
/// is the same `Arc` as before. The configuration in use is the last one given, until there is an
/// error.
#[derive(Debug)]
pub struct Resolver {
    view: View,
    roots: ResolveRoots,
    holds: Sorted<Arc<str>, usize>,
    graph: Graph,
    last: Option<Resolved>,
}

/// The actions that follow from a change: the watches to start and stop, and the new answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Resources to watch from now on.
    pub watch: Vec<Key>,
    /// Resources to watch no longer.
    pub unwatch: Vec<Key>,
    /// DNS names to look up.
    pub watch_names: Vec<DnsName>,
    /// DNS names to forget.
    pub unwatch_names: Vec<DnsName>,
    /// The answer, if it differs from the one before.
    pub resolved: Option<Resolved>,
}

impl Resolver {
    /// A resolver without any data; its first step says what to watch. `node` is named in errors.
    /// Each cluster that the roots hold counts as held once.
    pub fn new(roots: ResolveRoots, node: impl Into<Arc<str>>) -> Self {
        let mut holds = Sorted::default();
        for name in &roots.held {
            holds.insert(Arc::clone(name), 1);
        }
        Self {
            view: View::new(node),
            holds,
            roots,
            graph: Graph::default(),
            last: None,
        }
    }

    /// The state of the resources and DNS names that are watched.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The roots, with the clusters that are held now.
    pub fn roots(&self) -> &ResolveRoots {
        &self.roots
    }

    /// The resources and DNS names that are watched since the last step.
    pub fn watches(&self) -> Watches {
        self.graph.watches()
    }

    /// The number of times that a cluster was worked out. Tests and benchmarks measure the work by it.
    #[doc(hidden)]
    pub fn clusters_built(&self) -> usize {
        self.graph.built()
    }

    /// Takes the new state of a resource. An update of a resource that is no longer watched is
    /// dropped.
    pub fn update(&mut self, key: Key, entry: CacheEntry) {
        if self.graph.touch(&Need::Resource(key.clone())) {
            self.view.put(key, entry);
        }
    }

    /// Takes the outcome of a DNS lookup. A name that is no longer watched is ignored.
    pub fn answer(&mut self, name: &DnsName, outcome: Result<Vec<SocketAddr>, Arc<str>>) {
        if self.graph.touch(&Need::Name(name.clone())) {
            self.view.answer(name, outcome);
        }
    }

    /// Keeps a cluster watched even if no route leads to it, until it is [released](Self::release)
    /// as often as it was held (gRFC A74's dynamic subscription).
    pub fn hold(&mut self, cluster: &Arc<str>) {
        *self.holds.get_or_insert_with(Arc::clone(cluster), || 0) += 1;
        if self.roots.held.insert(Arc::clone(cluster)) {
            self.graph.reshape();
        }
    }

    /// Ends one [`hold`](Self::hold) of a cluster.
    pub fn release(&mut self, cluster: &str) {
        let Some(holds) = self.holds.get_mut(cluster) else {
            return;
        };
        *holds -= 1;
        if *holds == 0 {
            self.holds.remove(cluster);
            self.roots.held.remove(cluster);
            self.graph.reshape();
        }
    }

    /// Works out the answer after everything that was reported since the last step.
    pub fn step(&mut self) -> Step {
        let resolved = self.graph.resolve(&self.view, &self.roots);
        let mut step = Step::default();
        for (need, is_needed) in self.graph.take_moved() {
            match need {
                Need::Name(name) if is_needed => step.watch_names.push(name),
                Need::Name(name) => {
                    self.view.remove_name(&name);
                    step.unwatch_names.push(name);
                }
                Need::Resource(key) if is_needed => step.watch.push(key),
                Need::Resource(key) => {
                    self.view.remove(&key);
                    step.unwatch.push(key);
                }
            }
        }
        if self.last.as_ref().is_none_or(|last| !last.is(&resolved)) {
            self.last = Some(resolved.clone());
            step.resolved = Some(resolved);
        }
        step
    }
}

impl Resolved {
    /// True if both answers of one resolver are the same. Configurations are compared by address,
    /// because a resolver gives an unchanged configuration as the same `Arc`.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(a), Self::Ready(b)) => Arc::ptr_eq(a, b),
            (
                Self::Waiting {
                    missing: a,
                    in_use: Some(in_use),
                },
                Self::Waiting {
                    missing: b,
                    in_use: Some(then),
                },
            ) => a == b && Arc::ptr_eq(in_use, then),
            (a, b) => a == b,
        }
    }
}
