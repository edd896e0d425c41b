//! The snapshot that is served now; streams wait here for the next one.
//!
//! Each view and each kind of client has a snapshot of its own ([`crate::forms`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use crowfly_source::yaml::ConfigErrors;
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::changes::Changes;
use crate::forms::{FormKey, Forms, Rules};
use crate::metrics::{Metrics, Trigger};
use crate::seat::Place;
use crate::translate::ResourceKey;
use crate::views::ServedView;

/// The outcome of reading the configuration.
#[derive(Clone, Debug)]
pub struct Reload {
    /// The time at which the configuration was read.
    pub at: SystemTime,
    /// The changes, if the new snapshot is served. On an error, the snapshot before it still is.
    pub result: Result<Changes, ConfigErrors>,
}

/// A snapshot, and the views of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    pub(crate) snapshot: Snapshot,
    pub(crate) views: Arc<[ServedView]>,
}

impl From<Snapshot> for Desired {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            views: Arc::default(),
        }
    }
}

/// Holds the current snapshot and notifies streams of changes.
#[derive(Debug)]
pub(crate) struct Store {
    published: watch::Sender<Published>,
    /// The snapshots in use. The lock is held while one is set or made, so that they are made in order.
    forms: Mutex<Forms>,
    reload: watch::Sender<Reload>,
    metrics: Metrics,
}

impl Store {
    pub(crate) fn new(desired: Desired, metrics: Metrics) -> Self {
        metrics.reload(true);
        let store = Self {
            published: watch::Sender::new(Published::default()),
            forms: Mutex::default(),
            reload: watch::Sender::new(Reload {
                at: SystemTime::now(),
                result: Ok(Changes::default()),
            }),
            metrics,
        };
        store.set(desired);
        store
    }

    /// Serves this from now on. The work is in proportion to the change, if the snapshot was built from the one
    /// that is served.
    pub(crate) fn set(&self, desired: Desired) {
        let mut forms = self.lock();
        self.metrics.snapshot(&desired.snapshot);
        let base = Arc::new(desired.snapshot);
        forms.follow(&base, &desired.views);
        let rules = Rules::of(&desired.views);
        self.published.send_modify(|published| {
            published.base = base;
            published.at = Some(Instant::now());
            published.forms = forms.all();
            if *published.rules != rules {
                published.rules = Arc::new(rules);
            }
        });
    }

    /// Serves the node of this id a snapshot of its own from now on.
    pub(crate) fn set_node(&self, id: &str, snapshot: Snapshot) {
        self.published.send_modify(|published| {
            published.nodes.insert(id.to_owned(), Arc::new(snapshot));
            published.at = Some(Instant::now());
        });
    }

    /// Notes why the configuration is read again.
    pub(crate) fn triggered(&self, trigger: Trigger) {
        self.metrics.triggered(trigger);
    }

    /// Takes the outcome of a reload; a failed one changes nothing for the clients.
    pub(crate) fn reloaded(&self, result: Result<Desired, ConfigErrors>) {
        self.metrics.reload(result.is_ok());
        let result = result.map(|desired| {
            let before = self.lock().served();
            let changes = Changes::between(&self.snapshot(), &desired.snapshot)
                .with_views(&before, &desired.views);
            self.set(desired);
            changes
        });
        log(&result);
        let at = SystemTime::now();
        self.reload.send_replace(Reload { at, result });
    }

    /// Chooses the snapshot for a client, and makes it if nobody uses it yet. Nobody is notified, because nothing
    /// changes for the others.
    pub(crate) fn place(&self, node: Option<&Node>) -> (Place, Arc<Snapshot>) {
        let mut forms = self.lock();
        let rules = Arc::clone(&self.published.borrow().rules);
        let key = rules.key_for(node);
        let (snapshot, in_use) = forms.of(&key);
        self.published.send_if_modified(|published| {
            if !published.forms.contains_key(&key) {
                published.forms = forms.all();
            }
            false
        });
        let place = Place {
            rules,
            key,
            _in_use: in_use,
        };
        (place, snapshot)
    }

    pub(crate) fn published(&self) -> watch::Receiver<Published> {
        self.published.subscribe()
    }

    /// The snapshot of the base.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.published.borrow().base.clone()
    }

    /// The snapshot of a view; `None` if there is no such view.
    pub(crate) fn snapshot_of_view(&self, name: &str) -> Option<Arc<Snapshot>> {
        self.lock().of_view(name)
    }

    /// The resources that any client is served.
    pub(crate) fn served(&self) -> Served {
        let views = self.lock().served();
        let published = self.published.borrow();
        Served {
            base: Arc::clone(&published.base),
            views,
            nodes: published.nodes.values().cloned().collect(),
        }
    }

    pub(crate) fn reloads(&self) -> watch::Receiver<Reload> {
        self.reload.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Forms> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The resources that any client is served: those of the base, of views, and of single nodes.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    base: Arc<Snapshot>,
    views: Arc<[ServedView]>,
    nodes: Vec<Arc<Snapshot>>,
}

impl Served {
    pub(crate) fn has(&self, type_url: &str, name: &str) -> bool {
        let is_in = |of: &Arc<Snapshot>| of.resource(type_url, name).is_some();
        is_in(&self.base) || self.nodes.iter().any(is_in) || {
            let key = ResourceKey::new(type_url, name.into());
            let mut views = self.views.iter();
            views.any(|view| matches!(view.overlay.get(&key), Some(Some(_))))
        }
    }
}

/// The snapshots of one instant, for all clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    base: Arc<Snapshot>,
    /// The time at which they were published.
    pub(crate) at: Option<Instant>,
    rules: Arc<Rules>,
    forms: BTreeMap<FormKey, Arc<Snapshot>>,
    /// Snapshots of single nodes, which take the place of all others.
    nodes: BTreeMap<String, Arc<Snapshot>>,
}

impl Published {
    /// True if some nodes have snapshots for themselves.
    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The snapshot that the node of this id has for itself.
    pub(crate) fn of_node(&self, id: &str) -> Option<Arc<Snapshot>> {
        self.nodes.get(id).cloned()
    }

    /// The snapshot that was chosen for a client, unless it must be chosen again.
    pub(crate) fn of(&self, place: &Place) -> Option<Arc<Snapshot>> {
        let snapshot = self.forms.get(&place.key)?;
        Arc::ptr_eq(&place.rules, &self.rules).then(|| Arc::clone(snapshot))
    }
}

fn log(result: &Result<Changes, ConfigErrors>) {
    match result {
        Ok(changes) if changes.take_away() => warn!("configuration reloaded: {changes}"),
        Ok(changes) => info!("configuration reloaded: {changes}"),
        Err(errors) => {
            for error in errors.iter() {
                error!("{error}");
            }
            error!("reload failed; the last good snapshot is served");
        }
    }
}
