//! How many calls each cluster has open, in the whole process (A32, A37).
//!
//! The limit of a cluster is one limit, however many channels and aggregates lead to it; so the
//! counter is found by name, and lives for as long as somebody counts with it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::ClusterName;

/// The call counters of all clusters. Share one between balancers to share their limits.
#[derive(Debug, Default)]
pub struct CallCounters {
    by_key: Mutex<HashMap<Key, Weak<CallCounter>>>,
}

/// A cluster and the name of its endpoints, as the cluster gives it.
type Key = (ClusterName, Option<Arc<str>>);

/// The open calls of one cluster.
#[derive(Debug, Default)]
#[repr(align(128))] // On a cache line of its own: every call writes it.
pub(crate) struct CallCounter {
    open: AtomicU64,
}

impl CallCounters {
    /// No calls yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many calls a cluster has open.
    pub fn open(&self, cluster: &ClusterName, eds_service_name: Option<&Arc<str>>) -> u64 {
        let key = (cluster.clone(), eds_service_name.cloned());
        let counters = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.get(&key).and_then(Weak::upgrade);
        counter.map_or(0, |counter| counter.open())
    }

    /// How many clusters are counted.
    pub fn len(&self) -> usize {
        let counters = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let live = counters.values().filter(|c| c.strong_count() > 0);
        live.count()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counter of a cluster. Only the tree asks, never a call.
    pub(crate) fn counter(
        &self,
        cluster: &ClusterName,
        eds_service_name: Option<&Arc<str>>,
    ) -> Arc<CallCounter> {
        let key = (cluster.clone(), eds_service_name.cloned());
        let mut counters = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counters.get(&key).and_then(Weak::upgrade) {
            return counter;
        }
        counters.retain(|_, counter| counter.strong_count() > 0);
        let counter = Arc::default();
        counters.insert(key, Arc::downgrade(&counter));
        counter
    }
}

impl CallCounter {
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    pub(crate) fn start(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    pub(crate) fn finish(&self) {
        self.open.fetch_sub(1, Relaxed);
    }
}
