//! Counts the load of leaf clusters, for reports to the control plane (A27, A42).
//!
//! A [`LoadStore`] holds the counts that one server is to be told. The tree finds the counters of a
//! cluster there by name, so all trees that lead to a cluster count together. Calls write atomics
//! that only grow; the reader remembers how far it has read. So a count is taken exactly once,
//! whatever calls do meanwhile. The calls in progress are always the difference of those that began
//! and those that ended.
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

pub use crowfly_names::{ClusterLoad, LocalityLoad, MetricSum, MetricTotals};

pub use self::metrics::{BackendMetrics, MetricFilter, NamedMetrics};
pub(crate) use self::usage::{DropCounters, Load, LoadUse, Tallied};
use self::{tally::Taken, usage::ClusterCounters};
use crate::ClusterName;

/// The clusters whose load one server wants to know. Share one between the balancers of a channel.
///
/// ```
/// use crowfly_lb::LoadStore;
///
/// let store = LoadStore::new(|| println!("a cluster is reported from now on, or no longer"));
/// assert!(!store.is_in_use());
/// assert!(store.take().is_empty());
/// ```
pub struct LoadStore {
    clusters: Mutex<BTreeMap<ClusterKey, Known>>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// A cluster and the name of its endpoints, as the cluster gives it.
type ClusterKey = (ClusterName, Option<Arc<str>>);

struct Known {
    counters: Arc<ClusterCounters>,
    /// Alive while a tree, a picker or a call counts in the cluster's counters.
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

    /// Returns whether the load of a cluster is counted now. If not, there may still be counts to take.
    pub fn is_in_use(&self) -> bool {
        let clusters = self.clusters();
        let mut usages = clusters.values().map(|known| &known.usage);
        usages.any(|usage| usage.strong_count() > 0)
    }

    /// Takes the load of every cluster since the last time. A cluster that is not used any more is in the
    /// result once more, and then forgotten.
    pub fn take(&self) -> Vec<ClusterLoad> {
        let mut loads = Vec::new();
        self.clusters()
            .retain(|(cluster, eds_service_name), known| {
                // Looked up before the counts are taken: the counters of an unused cluster do not
                // change any more. The fence makes the last counts visible, which were written
                // before the last user went.
                let is_used = known.usage.strong_count() > 0;
                fence(Acquire);
                loads.push(known.counters.take(cluster, eds_service_name.as_ref()));
                is_used
            });
        loads
    }

    /// The load counters of a cluster. Only the tree asks for them, because this takes a lock and a
    /// call must not.
    pub(crate) fn open(
        self: &Arc<Self>,
        cluster: &ClusterName,
        eds_service_name: Option<&Arc<str>>,
    ) -> Arc<LoadUse> {
        let key = (cluster.clone(), eds_service_name.cloned());
        let usage = {
            let mut clusters = self.clusters();
            let known = clusters.entry(key).or_insert_with(|| Known {
                counters: Arc::default(),
                usage: Weak::new(),
            });
            if let Some(usage) = known.usage.upgrade() {
                return usage;
            }
            let usage = Arc::new(LoadUse::new(&known.counters, self));
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

fn add(load: &mut LocalityLoad, taken: Taken) {
    load.issued += taken.issued;
    load.succeeded += taken.succeeded;
    load.errors += taken.errors;
    load.in_progress += taken.in_progress;
    load.metrics.add(taken.metrics);
}
