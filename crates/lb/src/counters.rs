//! Counts the open calls of each cluster, in the whole process (A32, A37).
//!
//! All channels and aggregates that lead to a cluster share one limit. So a counter is found by the
//! name of the cluster, and lives for as long as a tree or an endpoint uses it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use self::by_lane::CountByLane;
use crate::ClusterName;

mod by_lane;
mod lane;

/// The call counters of all clusters. Share one between balancers to share their limits.
#[derive(Debug, Default)]
pub struct CallCounters {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_key: HashMap<Key, Weak<CallCounter>>,
    /// The number of counters at which unused ones are removed. It is twice the number that the
    /// last removal left. A removal with each new counter would cost the square of their number.
    most: usize,
}

/// A cluster and the name of its endpoints, as the cluster gives it.
type Key = (ClusterName, Option<Arc<str>>);

/// The open calls of one cluster.
#[derive(Debug)]
pub(crate) struct CallCounter {
    open: CountByLane,
    pub(crate) cluster: ClusterName,
}

impl CallCounters {
    /// Counters without any calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of calls that a cluster has open.
    pub fn open(&self, cluster: &ClusterName, eds_service_name: Option<&Arc<str>>) -> u64 {
        let key = (cluster.clone(), eds_service_name.cloned());
        let counter = self.known().by_key.get(&key).and_then(Weak::upgrade);
        counter.map_or(0, |counter| counter.open())
    }

    /// The number of clusters whose calls are counted.
    pub fn len(&self) -> usize {
        let known = self.known();
        let live = known.by_key.values().filter(|c| c.strong_count() > 0);
        live.count()
    }

    /// Returns whether no cluster's calls are counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counter of a cluster. Only the tree asks for it, because this takes a lock and a call
    /// must not.
    pub(crate) fn counter(
        &self,
        cluster: &ClusterName,
        eds_service_name: Option<&Arc<str>>,
    ) -> Arc<CallCounter> {
        let key = (cluster.clone(), eds_service_name.cloned());
        let mut known = self.known();
        if let Some(counter) = known.by_key.get(&key).and_then(Weak::upgrade) {
            return counter;
        }
        if known.by_key.len() >= known.most {
            known.by_key.retain(|_, counter| counter.strong_count() > 0);
            known.most = 2 * known.by_key.len().max(1);
        }
        let counter = Arc::new(CallCounter::new(cluster));
        known.by_key.insert(key, Arc::downgrade(&counter));
        counter
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallCounter {
    fn new(cluster: &ClusterName) -> Self {
        Self {
            open: CountByLane::new(),
            cluster: cluster.clone(),
        }
    }

    pub(crate) fn open(&self) -> u64 {
        self.open.sum()
    }

    /// Prepares for picks that compare the open calls with this limit.
    pub(crate) fn expect_limit(&self, limit: u32) {
        self.open.expect_limit(limit);
    }

    /// Returns the number of open calls if it is this limit or more.
    #[inline] // Every pick calls it, and `Picker` is compiled in the crate of its user.
    pub(crate) fn open_at(&self, limit: u32) -> Option<u64> {
        self.open.at_least(limit)
    }

    #[inline]
    pub(crate) fn start(&self) {
        self.open.begin();
    }

    #[inline]
    pub(crate) fn finish(&self) {
        self.open.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unused counters are removed in time, and counters in use never.
    #[test]
    fn no_more_than_twice_those_in_use_are_known() {
        let counters = CallCounters::new();
        let kept: Vec<_> = (0..10)
            .map(|n| counters.counter(&name("kept", n), None))
            .collect();
        for n in 0..1000 {
            drop(counters.counter(&name("gone", n), None));
            assert!(counters.known().by_key.len() <= 2 * kept.len() + 2);
        }
        assert_eq!(counters.len(), kept.len());
        assert!(Arc::ptr_eq(
            &counters.counter(&name("kept", 3), None),
            &kept[3]
        ));
    }

    fn name(kind: &str, n: usize) -> ClusterName {
        format!("{kind}{n}").as_str().into()
    }
}
