//! The snapshots that clients are served: one for each view, in the form of each kind of client.
//!
//! A snapshot exists only while a client uses it. It is worked out once for all of its clients, from the one before
//! and the changes, and shares what stays with the base.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;

use crate::agents::AgentView;
use crate::client_kind::Form;
use crate::envoy::EnvoyView;
use crate::inline::InlineView;
use crate::views::{NodeMatch, OverlaidView, ServedView};

/// The names and conditions of all views, in order. The first that matches a client is its view.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rules(Vec<(Arc<str>, NodeMatch)>);

impl Rules {
    pub(crate) fn of(views: &[ServedView]) -> Self {
        let rules = views.iter();
        Self(
            rules
                .map(|view| (Arc::clone(&view.name), view.matches.clone()))
                .collect(),
        )
    }

    /// The snapshot for a client.
    pub(crate) fn key_for(&self, node: Option<&Node>) -> FormKey {
        let matching = |node: &Node| {
            let mut rules = self.0.iter();
            let found = rules.find(|(_, matches)| matches.matches(node));
            found.map(|(name, _)| Arc::clone(name))
        };
        FormKey {
            view: node.and_then(matching),
            form: Form::of(node),
        }
    }
}

/// The key of a snapshot: a view, and a form. The base has no name, and comes before all views.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FormKey {
    pub(crate) view: Option<Arc<str>>,
    pub(crate) form: Form,
}

impl FormKey {
    fn of_base(&self) -> Self {
        Self {
            view: None,
            form: self.form,
        }
    }
}

/// A sign that a snapshot is in use. It is not made again while a clone of it exists.
pub(crate) type InUse = Arc<()>;

/// All snapshots that are in use.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    base: Arc<Snapshot>,
    served: Arc<[ServedView]>,
    /// The views that are in use, before they take a form.
    views: BTreeMap<Arc<str>, OverlaidView>,
    made: BTreeMap<FormKey, Made>,
}

/// A snapshot in its form.
#[derive(Debug)]
struct Made {
    follower: Follower,
    snapshot: Arc<Snapshot>,
    in_use: InUse,
}

impl Forms {
    /// Updates all snapshots to the next base and the next views. Those that nobody uses are dropped.
    pub(crate) fn follow(&mut self, base: &Arc<Snapshot>, served: &Arc<[ServedView]>) {
        self.base = Arc::clone(base);
        self.served = Arc::clone(served);
        self.drop_unused();
        for (name, view) in &mut self.views {
            if let Some(served) = served.iter().find(|served| served.name == *name) {
                view.follow(base, &served.overlay);
            }
        }
        let keys: Vec<FormKey> = self.made.keys().cloned().collect();
        for key in keys {
            let source = self.source(&key);
            let twin = self.twin(&key);
            if let Some(made) = self.made.get_mut(&key) {
                made.snapshot = made.follower.follow(&source, &twin);
            }
        }
    }

    /// The views that are served now.
    pub(crate) fn served(&self) -> Arc<[ServedView]> {
        Arc::clone(&self.served)
    }

    /// The snapshots that exist now.
    pub(crate) fn all(&self) -> BTreeMap<FormKey, Arc<Snapshot>> {
        let made = self.made.iter();
        made.map(|(key, made)| (key.clone(), Arc::clone(&made.snapshot)))
            .collect()
    }

    /// A snapshot, which is made if nobody uses it yet.
    pub(crate) fn of(&mut self, key: &FormKey) -> (Arc<Snapshot>, InUse) {
        if !self.made.contains_key(key) {
            self.make(key);
        }
        match self.made.get(key) {
            Some(made) => (Arc::clone(&made.snapshot), Arc::clone(&made.in_use)),
            None => (Arc::clone(&self.base), InUse::default()),
        }
    }

    /// The snapshot of a view as it is, without a form; `None` if there is no such view.
    pub(crate) fn of_view(&self, name: &str) -> Option<Arc<Snapshot>> {
        let served = self.served.iter().find(|served| &*served.name == name)?;
        let view = match self.views.get(name) {
            Some(view) => Arc::clone(view.snapshot()),
            None => Arc::clone(OverlaidView::new(&self.base, &served.overlay).snapshot()),
        };
        Some(view)
    }

    /// Makes a snapshot. That of a view is made from the base in the same form, so that it shares what is alike.
    fn make(&mut self, key: &FormKey) {
        let follower = match &key.view {
            None => Follower::new(key.form),
            Some(name) => {
                self.of(&key.of_base());
                self.make_view(name);
                let base = self.made.get(&key.of_base());
                base.map_or_else(|| Follower::new(key.form), |base| base.follower.clone())
            }
        };
        let mut made = Made {
            follower,
            snapshot: Arc::default(),
            in_use: InUse::default(),
        };
        made.snapshot = made.follower.follow(&self.source(key), &self.twin(key));
        self.made.insert(key.clone(), made);
    }

    fn make_view(&mut self, name: &Arc<str>) {
        let served = self.served.iter().find(|served| served.name == *name);
        if let (Some(served), false) = (served, self.views.contains_key(name)) {
            let view = OverlaidView::new(&self.base, &served.overlay);
            self.views.insert(Arc::clone(name), view);
        }
    }

    /// The snapshot that takes the form of `key`.
    fn source(&self, key: &FormKey) -> Arc<Snapshot> {
        let view = key.view.as_ref().and_then(|name| self.views.get(name));
        Arc::clone(view.map_or(&self.base, OverlaidView::snapshot))
    }

    /// The base in the form of `key`, whose resources a view shares. The base itself has none.
    fn twin(&self, key: &FormKey) -> Arc<Snapshot> {
        let base = key
            .view
            .as_ref()
            .and_then(|_| self.made.get(&key.of_base()));
        base.map(|base| Arc::clone(&base.snapshot))
            .unwrap_or_default()
    }

    /// Drops the snapshots that nobody uses. The base is kept in the forms of the views that are used.
    fn drop_unused(&mut self) {
        let served = Arc::clone(&self.served);
        let exists = |name: &Arc<str>| served.iter().any(|served| served.name == *name);
        self.made.retain(|key, made| {
            let is_used = Arc::strong_count(&made.in_use) > 1;
            key.view.as_ref().is_none_or(|name| exists(name) && is_used)
        });
        let of_views: Vec<FormKey> = self.made.keys().cloned().collect();
        let needs = |key: &FormKey| {
            let mut views = of_views.iter();
            views.any(|other| other.view.is_some() && other.form == key.form)
        };
        self.made.retain(|key, made| {
            key.view.is_some() || Arc::strong_count(&made.in_use) > 1 || needs(key)
        });
        let used: Vec<&FormKey> = self.made.keys().collect();
        let is_used = |name: &Arc<str>| used.iter().any(|key| key.view.as_ref() == Some(name));
        self.views.retain(|name, _| is_used(name));
    }
}

/// A view of a snapshot for one kind of client.
#[derive(Clone, Debug)]
enum Follower {
    AsIs,
    Agent(Box<AgentView>),
    Envoy(Box<EnvoyView>),
    Inline(Box<InlineView>),
}

impl Follower {
    fn new(form: Form) -> Self {
        match form {
            Form::AsIs => Self::AsIs,
            Form::Agent => Self::Agent(Box::default()),
            Form::Envoy => Self::Envoy(Box::default()),
            Form::Inline => Self::Inline(Box::default()),
        }
    }

    /// Updates the view to the next snapshot, and returns it. Resources that are equal to those of `twin` are shared
    /// with it.
    fn follow(&mut self, snapshot: &Arc<Snapshot>, twin: &Snapshot) -> Arc<Snapshot> {
        match self {
            Self::AsIs => Arc::clone(snapshot),
            Self::Agent(view) => view.follow(snapshot),
            Self::Envoy(view) => view.follow(snapshot, twin),
            Self::Inline(view) => view.follow(snapshot),
        }
    }
}

#[cfg(test)]
mod tests;
