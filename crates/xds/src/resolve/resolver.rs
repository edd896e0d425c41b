//! The resolver that keeps up with changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_model::grpc::cluster::DnsName;

use super::graph::Graph;
use super::look::Need;
use super::view::View;
use super::{Resolved, Roots, Watches};
use crate::cache::Entry;
use crate::kind::{Key, Kind};

/// Resolves one channel's roots, again and again, as what is known changes.
///
/// Tell it what happened ([`update`](Self::update), [`answer`](Self::answer), [`hold`](Self::hold),
/// [`release`](Self::release)), then take one [`step`](Self::step). What it gives equals what
/// [`resolve`](super::resolve()) gives from scratch at that moment; a cluster that did not change is
/// the same `Arc` as before.
#[derive(Debug)]
pub struct Resolver {
    view: View,
    roots: Roots,
    holds: BTreeMap<Arc<str>, usize>,
    graph: Graph,
    watches: Watches,
    last: Option<Resolved>,
}

/// What to do after a change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Resources to watch from now on.
    pub watch: Vec<(Key, Kind)>,
    /// Resources to watch no longer.
    pub unwatch: Vec<Key>,
    /// DNS names to look up.
    pub watch_names: Vec<DnsName>,
    /// DNS names to forget.
    pub unwatch_names: Vec<DnsName>,
    /// The answer, if it is another than before.
    pub resolved: Option<Resolved>,
}

impl Resolver {
    /// A resolver that knows nothing yet; its first step says what to watch. `node` is named in
    /// errors. What the roots hold is held once.
    pub fn new(roots: Roots, node: impl Into<Arc<str>>) -> Self {
        let held = roots.held.iter();
        Self {
            view: View::new(node),
            holds: held.map(|name| (Arc::clone(name), 1)).collect(),
            roots,
            graph: Graph::default(),
            watches: Watches::default(),
            last: None,
        }
    }

    /// What is known, of what is watched.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Where resolution begins, as of now.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// What is watched.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// How many times a cluster was worked out: what the work is measured by.
    pub fn clusters_built(&self) -> usize {
        self.graph.built()
    }

    /// A resource is not what it was. News of one that is not watched came too late, and is dropped.
    pub fn update(&mut self, key: Key, entry: Entry) {
        if let Some(kind) = self.watches.resources.get(&key) {
            self.graph.touch(&Need::Resource(key.clone(), *kind));
            self.view.put(key, entry);
        }
    }

    /// A lookup has ended.
    pub fn answer(&mut self, name: &DnsName, outcome: Result<Vec<SocketAddr>, Arc<str>>) {
        if self.watches.names.contains(name) {
            self.graph.touch(&Need::Name(name.clone()));
            self.view.answer(name, outcome);
        }
    }

    /// Somebody wants this cluster, whether or not a route leads to it, until it is
    /// [released](Self::release) as often as it was held (gRFC A74's dynamic subscription).
    pub fn hold(&mut self, cluster: &Arc<str>) {
        *self.holds.entry(Arc::clone(cluster)).or_default() += 1;
        if self.roots.held.insert(Arc::clone(cluster)) {
            self.graph.reshape();
        }
    }

    /// The opposite of [`hold`](Self::hold).
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

    /// Draws the conclusions from all that happened since the last step.
    pub fn step(&mut self) -> Step {
        let resolved = self.graph.resolve(&self.view, &self.roots);
        let mut step = Step::default();
        for (need, is_needed) in self.graph.take_moved() {
            match need {
                Need::Name(name) => self.watch_name(name, is_needed, &mut step),
                Need::Resource(key, kind) if is_needed => self.watch(key, kind, &mut step),
                Need::Resource(key, _) => self.unwatch(key, &mut step),
            }
        }
        if self.last.as_ref().is_none_or(|last| !last.is(&resolved)) {
            self.last = Some(resolved.clone());
            step.resolved = Some(resolved);
        }
        step
    }

    fn watch(&mut self, key: Key, kind: Kind, step: &mut Step) {
        if self.watches.resources.insert(key.clone(), kind).is_none() {
            step.watch.push((key, kind));
        }
    }

    fn unwatch(&mut self, key: Key, step: &mut Step) {
        if self.watches.resources.remove(&key).is_some() {
            self.view.remove(&key);
            step.unwatch.push(key);
        }
    }

    fn watch_name(&mut self, name: DnsName, is_needed: bool, step: &mut Step) {
        if is_needed {
            if self.watches.names.insert(name.clone()) {
                step.watch_names.push(name);
            }
        } else if self.watches.names.remove(&name) {
            self.view.remove_name(&name);
            step.unwatch_names.push(name);
        }
    }
}

impl Resolved {
    /// Whether two answers of one resolver are the same one.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(a), Self::Ready(b)) => Arc::ptr_eq(a, b),
            (a, b) => a == b,
        }
    }
}
