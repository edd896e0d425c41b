//! The load of clusters, as it is counted and as it is reported.
//!
//! The balancer counts calls, and the xDS client reports them; neither crate knows the other. So the counts that pass
//! between them are in this module.

use std::{collections::BTreeMap, sync::Arc};

use crate::{ClusterName, LocalityId};

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
    /// True if the source leaves the cluster out while it has no load. When such a cluster comes back, its counts may
    /// be as old as the last time.
    pub is_sparse: bool,
}

/// The calls to the endpoints of one locality.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LocalityLoad {
    /// The locality. The locality is empty for a cluster whose endpoints come from DNS.
    pub locality: LocalityId,
    /// The attempts that began since the last time.
    pub issued: u64,
    /// The attempts that ended with OK since the last time.
    pub succeeded: u64,
    /// The attempts that ended in any other way since the last time.
    pub errors: u64,
    /// The attempts that are open now.
    pub in_progress: u64,
    /// The connections, for a source that counts them.
    pub connections: ConnectionLoad,
    /// The metrics of backends that came with attempts since the last time.
    pub metrics: MetricTotals,
}

/// The connections to the endpoints of one locality.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionLoad {
    /// The connections that began since the last time.
    pub opened: u64,
    /// The connections that could not be established since the last time.
    pub failed: u64,
    /// The connections that are open now.
    pub active: u64,
}

/// The values of one metric in a number of calls.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MetricSum {
    /// The number of calls that came with the metric.
    pub calls: u64,
    /// The sum of its values.
    pub total: f64,
}

impl MetricSum {
    /// Adds another sum of the same metric.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.total += other.total;
    }

    /// Adds the value of one more call.
    pub fn record(&mut self, value: f64) {
        self.calls += 1;
        self.total += value;
    }
}

/// The metrics of all calls since the last report, under the names of the report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MetricTotals {
    /// The sum of `cpu_utilization`.
    pub cpu_utilization: MetricSum,
    /// The sum of `mem_utilization`.
    pub mem_utilization: MetricSum,
    /// The sum of `application_utilization`.
    pub application_utilization: MetricSum,
    /// The sums of named metrics, [`MAX_METRIC_NAMES`] at most.
    pub named: BTreeMap<String, MetricSum>,
    /// The values of named metrics that are in no sum, because there were too many names.
    pub left_out: u64,
}

/// The most names of metrics that are summed up in one place. Backends choose the names, and must not be able to
/// fill the memory of a client.
pub const MAX_METRIC_NAMES: usize = 1024;

impl MetricTotals {
    /// Adds the totals of other calls. Sums of names over the limit are counted as left out.
    pub fn add(&mut self, other: Self) {
        self.cpu_utilization.add(other.cpu_utilization);
        self.mem_utilization.add(other.mem_utilization);
        self.application_utilization
            .add(other.application_utilization);
        self.left_out += other.left_out;
        for (name, sum) in other.named {
            if let Some(known) = self.named.get_mut(&name) {
                known.add(sum);
            } else if self.named.len() < MAX_METRIC_NAMES {
                self.named.insert(name, sum);
            } else {
                self.left_out += sum.calls;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that report many metric names do not fill the memory. The values that are left out are counted.
    #[test]
    fn names_over_the_limit_are_left_out_and_counted() {
        let of_connection = |n: usize| {
            let names = (0..MAX_METRIC_NAMES).map(|name| format!("{n}-{name}"));
            let (calls, total) = (2, 1.0);
            MetricTotals {
                named: names
                    .map(|name| (name, MetricSum { calls, total }))
                    .collect(),
                left_out: 1,
                ..MetricTotals::default()
            }
        };
        let mut totals = MetricTotals::default();
        for n in [0, 0, 1, 2] {
            totals.add(of_connection(n));
        }
        assert_eq!(totals.named.len(), MAX_METRIC_NAMES);
        assert_eq!(totals.named["0-7"].calls, 4);
        assert_eq!(totals.left_out, 4 + 2 * 2 * MAX_METRIC_NAMES as u64);
    }
}
