//! The metrics that backends send with the end of a call (ORCA, A51), as load reports propagate
//! them (A64, A85). Only metrics that the cluster asks for are added up, and names only up to a
//! limit, because backends choose the names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crowfly_names::{MAX_METRIC_NAMES, MetricSum, MetricTotals};

/// The prefix of named metrics in load reports (A85).
const PREFIX: &str = "named_metrics.";

/// The metrics of backends that a cluster propagates into its load reports (A85). The default is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetricFilter {
    /// Propagates `cpu_utilization`.
    pub cpu_utilization: bool,
    /// Propagates `mem_utilization`.
    pub mem_utilization: bool,
    /// Propagates `application_utilization`.
    pub application_utilization: bool,
    /// Propagates entries of `named_metrics`.
    pub named: NamedMetrics,
}

/// The entries of `named_metrics` that a cluster propagates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NamedMetrics {
    /// None of them.
    #[default]
    None,
    /// All of them. Reports have the prefix `named_metrics.` before their names.
    All,
    /// All of them, under the names that the backend gives them, as before A85 (A64).
    AllUnprefixed,
    /// The ones with these names. Reports have the prefix `named_metrics.` before them.
    Only(BTreeSet<String>),
}

impl MetricFilter {
    /// Returns whether nothing is propagated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn takes(&self, name: &str) -> bool {
        match &self.named {
            NamedMetrics::None => false,
            NamedMetrics::All | NamedMetrics::AllUnprefixed => true,
            NamedMetrics::Only(names) => names.contains(name),
        }
    }

    fn reported_name(&self, name: String) -> String {
        match self.named {
            NamedMetrics::AllUnprefixed => name,
            NamedMetrics::All | NamedMetrics::None | NamedMetrics::Only(_) => {
                format!("{PREFIX}{name}")
            }
        }
    }
}

/// The metrics that a backend sent with the end of one call.
#[derive(Clone, Copy, Debug)]
pub struct BackendMetrics<'a> {
    /// The share of the backend's processors that is in use.
    pub cpu_utilization: f64,
    /// The share of the backend's memory that is in use.
    pub mem_utilization: f64,
    /// The load of the backend as its program measures it.
    pub application_utilization: f64,
    /// Metrics of the program's own.
    pub named: &'a HashMap<String, f64>,
}

/// The sums under the names of the backend.
#[derive(Debug, Default)]
pub(super) struct MetricSums {
    cpu_utilization: MetricSum,
    mem_utilization: MetricSum,
    application_utilization: MetricSum,
    named: BTreeMap<String, MetricSum>,
    left_out: u64,
}

impl MetricSums {
    /// Adds the metrics of one call. Values are not looked at (A64).
    pub(super) fn record(&mut self, filter: &MetricFilter, reported: &BackendMetrics<'_>) {
        if filter.cpu_utilization {
            self.cpu_utilization.record(reported.cpu_utilization);
        }
        if filter.mem_utilization {
            self.mem_utilization.record(reported.mem_utilization);
        }
        if filter.application_utilization {
            self.application_utilization
                .record(reported.application_utilization);
        }
        for (name, value) in reported.named.iter().filter(|(name, _)| filter.takes(name)) {
            if let Some(sum) = self.named.get_mut(name) {
                sum.record(*value);
            } else if self.named.len() < MAX_METRIC_NAMES {
                let (calls, total) = (1, *value);
                self.named.insert(name.clone(), MetricSum { calls, total });
            } else {
                self.left_out += 1;
            }
        }
    }

    pub(super) fn into_totals(self, filter: &MetricFilter) -> MetricTotals {
        let named = self.named.into_iter();
        MetricTotals {
            cpu_utilization: self.cpu_utilization,
            mem_utilization: self.mem_utilization,
            application_utilization: self.application_utilization,
            named: named
                .map(|(name, sum)| (filter.reported_name(name), sum))
                .collect(),
            left_out: self.left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(filter: &MetricFilter, reports: &[&[(&str, f64)]]) -> MetricTotals {
        let mut sums = MetricSums::default();
        for report in reports {
            let named = report
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value));
            let reported = BackendMetrics {
                cpu_utilization: 0.5,
                mem_utilization: 0.25,
                application_utilization: 2.0,
                named: &named.collect(),
            };
            sums.record(filter, &reported);
        }
        sums.into_totals(filter)
    }

    const REPORTS: [&[(&str, f64)]; 3] = [
        &[("key1", 1.0), ("key2", 2.0)],
        &[("key2", 3.0), ("key3", 4.0)],
        &[],
    ];

    fn named(totals: &MetricTotals) -> Vec<(&str, u64, f64)> {
        let named = totals.named.iter();
        named
            .map(|(name, sum)| (name.as_str(), sum.calls, sum.total))
            .collect()
    }

    /// gRFC A64: values and calls are added up per name; gRFC A85: names have a prefix.
    #[test]
    fn named_metrics_are_added_up_by_name() {
        let all = MetricFilter {
            named: NamedMetrics::All,
            ..MetricFilter::default()
        };
        let sums = totals(&all, &REPORTS);
        let expected = [
            ("named_metrics.key1", 1, 1.0),
            ("named_metrics.key2", 2, 5.0),
            ("named_metrics.key3", 1, 4.0),
        ];
        assert_eq!(named(&sums), expected);
        assert_eq!(sums.cpu_utilization, MetricSum::default());

        let unprefixed = MetricFilter {
            named: NamedMetrics::AllUnprefixed,
            ..MetricFilter::default()
        };
        let expected = [("key1", 1, 1.0), ("key2", 2, 5.0), ("key3", 1, 4.0)];
        assert_eq!(named(&totals(&unprefixed, &REPORTS)), expected);
    }

    /// gRFC A85: only the fields and keys that the cluster names are propagated.
    #[test]
    fn only_the_named_fields_are_propagated() {
        let some = MetricFilter {
            cpu_utilization: true,
            application_utilization: true,
            named: NamedMetrics::Only(BTreeSet::from(["key2".to_owned()])),
            ..MetricFilter::default()
        };
        let sums = totals(&some, &REPORTS);
        let (calls, total) = (3, 1.5);
        assert_eq!(sums.cpu_utilization, MetricSum { calls, total });
        assert_eq!(sums.mem_utilization, MetricSum::default());
        assert_eq!(sums.application_utilization.total, 6.0);
        assert_eq!(named(&sums), [("named_metrics.key2", 2, 5.0)]);
    }

    #[test]
    fn a_backend_cannot_fill_the_memory_with_names() {
        let all = MetricFilter {
            named: NamedMetrics::All,
            ..MetricFilter::default()
        };
        let mut sums = MetricSums::default();
        for n in 0..3 * MAX_METRIC_NAMES {
            let reported = BackendMetrics {
                cpu_utilization: 0.0,
                mem_utilization: 0.0,
                application_utilization: 0.0,
                named: &HashMap::from([(format!("name{n}"), 1.0)]),
            };
            sums.record(&all, &reported);
        }
        let totals = sums.into_totals(&all);
        assert_eq!(totals.named.len(), MAX_METRIC_NAMES);
        assert_eq!(totals.left_out, 2 * MAX_METRIC_NAMES as u64);
    }
}
