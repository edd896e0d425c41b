//! The load counters of one cluster. They are in use while a tree, picker or call holds them,
//! because the end of the last holder makes the last report due.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    ClusterLoad, LoadStore, LocalityLoad, add,
    metrics::{BackendMetrics, MetricFilter},
    tally::{Entry, Tally},
};
use crate::{
    ClusterName, Counted, DropCategory, LocalityId,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The counts of one cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterCounters {
    inner: Mutex<Inner>,
    uncategorized: Arc<DropCounter>,
}

#[derive(Debug, Default)]
struct Inner {
    localities: BTreeMap<LocalityId, Tallies>,
    /// The counters of drop categories, and how much of them was taken.
    drops: BTreeMap<Arc<str>, (Arc<DropCounter>, u64)>,
    uncategorized_taken: u64,
}

/// The counts of one locality.
#[derive(Debug, Default)]
struct Tallies {
    /// One per connection. Those of connections that are gone stay until they are taken or folded.
    entries: Vec<Entry>,
    /// The counts of connections that are gone, if they were folded before a report took them.
    folded: LocalityLoad,
    /// The number of entries at which the next look for connections that are gone is worth its cost.
    fold_at: usize,
}

/// The least number of entries that are looked through for connections that are gone.
const MIN_FOLD: usize = 16;

impl Tallies {
    /// Takes what is new, and forgets the connections that are gone.
    fn take(&mut self) -> LocalityLoad {
        let mut load = std::mem::take(&mut self.folded);
        self.entries.retain_mut(|entry| {
            let (taken, is_over) = entry.take();
            add(&mut load, taken);
            !is_over
        });
        load
    }

    /// Adds a connection. Nobody may take reports for a long time, while connections come and go. So it folds
    /// those that are gone into one whenever the entries have doubled, which is a constant cost per connection.
    fn push(&mut self, entry: Entry) {
        if self.entries.len() >= self.fold_at.max(MIN_FOLD) {
            self.entries.retain_mut(|entry| {
                let is_over = entry.is_over();
                if is_over {
                    add(&mut self.folded, entry.take().0);
                }
                !is_over
            });
            self.fold_at = 2 * self.entries.len();
        }
        self.entries.push(entry);
    }
}

/// Counts the calls that were dropped for one reason.
#[derive(Debug, Default)]
struct DropCounter(AtomicU64);

impl ClusterCounters {
    /// Takes what is new, and forgets the localities and categories that nobody counts in any more.
    pub(super) fn take(
        &self,
        cluster: &ClusterName,
        eds_service_name: Option<&Arc<str>>,
    ) -> ClusterLoad {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut localities = Vec::with_capacity(inner.localities.len());
        inner.localities.retain(|locality, tallies| {
            localities.push(LocalityLoad {
                locality: locality.clone(),
                ..tallies.take()
            });
            !tallies.entries.is_empty()
        });
        let mut drops = Vec::new();
        inner.drops.retain(|category, (counter, taken)| {
            let is_over = Arc::get_mut(counter).is_some();
            let new = counter.take(taken);
            if new > 0 {
                drops.push((category.clone(), new));
            }
            !is_over
        });
        ClusterLoad {
            cluster: cluster.clone(),
            eds_service_name: eds_service_name.cloned(),
            drops,
            uncategorized_drops: self.uncategorized.take(&mut inner.uncategorized_taken),
            localities,
            is_sparse: false,
        }
    }

    fn tally(&self, locality: &LocalityId, filter: &Arc<MetricFilter>) -> Arc<Tally> {
        let tally = Arc::new(Tally::new(filter));
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let tallies = inner.localities.entry(locality.clone()).or_default();
        tallies.push(Entry::new(tally.clone()));
        tally
    }

    fn category(&self, name: &Arc<str>) -> Arc<DropCounter> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (counter, _) = inner.drops.entry(name.clone()).or_default();
        counter.clone()
    }
}

impl DropCounter {
    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn take(&self, taken: &mut u64) -> u64 {
        let now = self.0.load(Relaxed);
        now - std::mem::replace(taken, now)
    }
}

/// A share in the load counters of a cluster. The last share that is dropped tells the store.
#[derive(Debug)]
pub(crate) struct LoadUse {
    counters: Arc<ClusterCounters>,
    store: Arc<LoadStore>,
}

impl LoadUse {
    pub(super) fn new(counters: &Arc<ClusterCounters>, store: &Arc<LoadStore>) -> Self {
        Self {
            counters: counters.clone(),
            store: store.clone(),
        }
    }
}

impl Drop for LoadUse {
    fn drop(&mut self) {
        self.store.tell_changed();
    }
}

/// The load counting of one cluster, as its plan asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    usage: Arc<LoadUse>,
    metrics: Arc<MetricFilter>,
}

impl Load {
    pub(crate) fn new(usage: Arc<LoadUse>, metrics: &Arc<MetricFilter>) -> Self {
        Self {
            usage,
            metrics: metrics.clone(),
        }
    }

    /// The counters of one more connection.
    pub(crate) fn tally(&self, locality: &LocalityId) -> Tallied {
        Tallied {
            tally: self.usage.counters.tally(locality, &self.metrics),
            _usage: self.usage.clone(),
        }
    }

    /// The counters of the cluster's drops.
    pub(crate) fn drops(&self, categories: &[DropCategory]) -> Arc<DropCounters> {
        let counter = |category: &DropCategory| self.usage.counters.category(&category.name);
        Arc::new(DropCounters {
            categories: categories.iter().map(counter).collect(),
            uncategorized: self.usage.counters.uncategorized.clone(),
            _usage: self.usage.clone(),
        })
    }
}

/// The counters of one connection, which keep the load counters of its cluster in use.
#[derive(Debug)]
pub(crate) struct Tallied {
    // Dropped first, because no holder may have a counter once the load counters are not in use.
    tally: Arc<Tally>,
    _usage: Arc<LoadUse>,
}

impl Tallied {
    pub(crate) fn start(&self) {
        self.tally.start();
    }

    pub(crate) fn finish(&self, counted: Counted) {
        self.tally.finish(counted);
    }

    pub(crate) fn wants_metrics(&self) -> bool {
        self.tally.wants_metrics()
    }

    pub(crate) fn record(&self, reported: &BackendMetrics<'_>) {
        self.tally.record(reported);
    }
}

/// The counters of a cluster's drops, in the order of its categories.
#[derive(Debug)]
pub(crate) struct DropCounters {
    // Dropped first, because no holder may have a counter once the load counters are not in use.
    categories: Box<[Arc<DropCounter>]>,
    uncategorized: Arc<DropCounter>,
    _usage: Arc<LoadUse>,
}

impl DropCounters {
    /// Counts a call that a category dropped, by its place in the plan.
    pub(crate) fn count_category(&self, index: usize) {
        if let Some(counter) = self.categories.get(index) {
            counter.add();
        }
    }

    /// Counts a call that the limit of open calls dropped.
    pub(crate) fn count_uncategorized(&self) {
        self.uncategorized.add();
    }
}

#[cfg(all(test, not(crowfly_loom)))]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::load::{MetricSum, NamedMetrics};

    /// gRFC A27: connections that come and go while no server takes reports cost no memory. All of
    /// their counts are in the next report.
    #[test]
    fn connections_that_are_gone_are_folded_while_nobody_takes_reports() {
        const RECONNECTS: u64 = 10_000;
        let counters = ClusterCounters::default();
        let here = LocalityId::new("eu", "a", "");
        let filter = Arc::new(MetricFilter {
            named: NamedMetrics::All,
            ..MetricFilter::default()
        });
        let lasting: Vec<_> = (0..40).map(|_| counters.tally(&here, &filter)).collect();
        lasting.iter().for_each(|tally| tally.start());
        let named = HashMap::from([("queue".to_owned(), 1.0)]);
        for _ in 0..RECONNECTS {
            let tally = counters.tally(&here, &filter);
            tally.start();
            tally.record(&BackendMetrics {
                cpu_utilization: 0.0,
                mem_utilization: 0.0,
                application_utilization: 0.0,
                named: &named,
            });
            tally.finish(Counted::Success);
            let held = counters.inner.lock().unwrap().localities[&here]
                .entries
                .len();
            assert!(held <= 2 * lasting.len() + 2, "{held}");
        }
        let load = counters.take(&"payments".into(), None);
        let [here] = &load.localities[..] else {
            panic!("one locality: {load:?}");
        };
        let expected = (RECONNECTS + 40, RECONNECTS, 0, 40);
        let counts = (here.issued, here.succeeded, here.errors, here.in_progress);
        assert_eq!(counts, expected);
        let (calls, total) = (RECONNECTS, 10_000.0);
        let queue = here.metrics.named["named_metrics.queue"];
        assert_eq!(queue, MetricSum { calls, total });

        let again = counters.take(&"payments".into(), None);
        assert_eq!(again.localities[0].issued, 0, "taken once");
    }
}
