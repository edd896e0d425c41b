//! Counts the load of leaf clusters, for reports to the control plane (A27, A42).
//!
//! A [`LoadStore`] holds the counts that one server is to be told. The tree finds a cluster's books there
//! by name, so all trees that lead to a cluster count together. Calls write atomics that only grow; the
//! reader remembers how far it has read. So a count is taken exactly once, whatever calls do meanwhile, and
//! the calls in progress are always the difference of those that began and those that ended.
//!
//! Each connection has a [`Tally`] of its own, because calls of one locality on many threads would otherwise
//! write to one cache line. The store holds the tallies as well, so nothing is handed over when a connection
//! goes.

mod metrics;
mod tally;
mod usage;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{Ordering::Acquire, fence},
    },
};

pub use self::metrics::{BackendMetrics, MetricFilter, MetricSum, MetricTotals, NamedMetrics};
pub(crate) use self::usage::{DropCounters, Load, LoadUse, Tallied};
use self::{tally::Taken, usage::Books};
use crate::{ClusterName, LocalityId};

/// The clusters whose load one server wants to know. Share one between the balancers of a channel.
///
/// ```
/// use crowfly_lb::LoadStore;
///
/// let store = LoadStore::new(|| println!("a cluster is reported from now on, or no longer"));
/// assert!(!store.is_wanted());
/// assert!(store.take().is_empty());
/// ```
pub struct LoadStore {
    clusters: Mutex<BTreeMap<ClusterKey, Known>>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// A cluster and the name of its endpoints, as the cluster gives it.
type ClusterKey = (ClusterName, Option<Arc<str>>);

struct Known {
    books: Arc<Books>,
    /// Alive while a tree, a picker or a call counts in the books.
    usage: Weak<LoadUse>,
}

impl LoadStore {
    /// A store without clusters. `changed` is called when the first user of a cluster comes, and when the last
    /// one goes. It must not block, because trees and calls call it.
    pub fn new(changed: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            clusters: Mutex::default(),
            changed: Box::new(changed),
        }
    }

    /// Returns whether there is something to report now or later: a cluster that is in use, or one with
    /// counts that were not taken since.
    pub fn is_wanted(&self) -> bool {
        !self.clusters().is_empty()
    }

    /// Takes the load of every cluster since the last time. A cluster that is not used any more is in the
    /// result once more, and then forgotten.
    pub fn take(&self) -> Vec<ClusterLoad> {
        let mut loads = Vec::new();
        self.clusters()
            .retain(|(cluster, eds_service_name), known| {
                // Looked up before the counts are taken: once unused, the books do not change any more. The
                // fence makes the last counts visible, which were written before the last user went.
                let is_used = known.usage.strong_count() > 0;
                fence(Acquire);
                loads.push(known.books.take(cluster, eds_service_name.as_ref()));
                is_used
            });
        loads
    }

    /// The books of a cluster. Only the tree asks for them, because this takes a lock and a call must not.
    pub(crate) fn open(
        self: &Arc<Self>,
        cluster: &ClusterName,
        eds_service_name: Option<&Arc<str>>,
    ) -> Arc<LoadUse> {
        let key = (cluster.clone(), eds_service_name.cloned());
        let usage = {
            let mut clusters = self.clusters();
            let known = clusters.entry(key).or_insert_with(|| Known {
                books: Arc::default(),
                usage: Weak::new(),
            });
            if let Some(usage) = known.usage.upgrade() {
                return usage;
            }
            let usage = Arc::new(LoadUse::new(&known.books, self));
            known.usage = Arc::downgrade(&usage);
            usage
        };
        self.tell_changed();
        usage
    }

    fn tell_changed(&self) {
        (self.changed)();
    }

    fn clusters(&self) -> MutexGuard<'_, BTreeMap<ClusterKey, Known>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LoadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clusters = self.clusters();
        f.debug_struct("LoadStore")
            .field("clusters", &clusters.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The load of one cluster since the last time it was taken.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterLoad {
    /// The cluster.
    pub cluster: ClusterName,
    /// The name of its EDS resource, as the cluster gives it.
    pub eds_service_name: Option<Arc<str>>,
    /// The calls that were dropped by category. Categories without drops are left out.
    pub drops: Vec<(Arc<str>, u64)>,
    /// The calls that were dropped by the limit of open calls.
    pub uncategorized_drops: u64,
    /// The calls by locality, ordered by locality.
    pub localities: Vec<LocalityLoad>,
}

/// The calls to the endpoints of one locality.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LocalityLoad {
    /// The locality. It is empty for a cluster by DNS.
    pub locality: LocalityId,
    /// The attempts that began since the last time.
    pub issued: u64,
    /// The attempts that ended with OK since the last time.
    pub succeeded: u64,
    /// The attempts that ended in any other way since the last time.
    pub errors: u64,
    /// The attempts that are open now.
    pub in_progress: u64,
    /// The metrics of backends that came with attempts since the last time.
    pub metrics: MetricTotals,
}

impl LocalityLoad {
    fn add(&mut self, taken: Taken) {
        self.issued += taken.issued;
        self.succeeded += taken.succeeded;
        self.errors += taken.errors;
        self.in_progress += taken.in_progress;
        self.metrics.add(taken.metrics);
    }
}
