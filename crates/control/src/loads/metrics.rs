//! The loads for Prometheus. The families are made anew for each scrape, from the rows.
//!
//! Every name in a row is a text of a client. So clusters that are not served share one label, and of all
//! other names so many have a label of their own.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::view::{LoadRow, Loads};
use crate::limits::{LabelNames, OTHERS};

/// The most localities of clients, and of backends, that have a label of their own.
const MAX_LOCALITIES: usize = 500;

/// The most categories of drops, and metrics of backends, that have a label of their own.
const MAX_NAMES: usize = 100;

/// The names that have labels of their own.
#[derive(Debug)]
pub(crate) struct LoadLabels {
    client_localities: LabelNames,
    backend_localities: LabelNames,
    categories: LabelNames,
    metrics: LabelNames,
}

impl Default for LoadLabels {
    fn default() -> Self {
        Self {
            client_localities: LabelNames::new(MAX_LOCALITIES),
            backend_localities: LabelNames::new(MAX_LOCALITIES),
            categories: LabelNames::new(MAX_NAMES),
            metrics: LabelNames::new(MAX_NAMES),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RowLabels {
    service: String,
    cluster: String,
    client_locality: String,
    backend_locality: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DropLabels {
    service: String,
    cluster: String,
    client_locality: String,
    category: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MetricLabels {
    service: String,
    cluster: String,
    client_locality: String,
    backend_locality: String,
    metric: String,
}

type FloatCounter = Counter<f64, AtomicU64>;
type UnsignedGauge = Gauge<u64, AtomicU64>;

impl RowLabels {
    /// The labels of all clusters that are not served.
    fn of_others() -> Self {
        Self {
            service: OTHERS.to_owned(),
            cluster: OTHERS.to_owned(),
            client_locality: String::new(),
            backend_locality: String::new(),
        }
    }
}

impl DropLabels {
    /// The labels of all clusters that are not served.
    fn of_others() -> Self {
        Self {
            service: OTHERS.to_owned(),
            cluster: OTHERS.to_owned(),
            client_locality: String::new(),
            category: String::new(),
        }
    }
}

/// The families of all rows.
#[derive(Default)]
struct Families {
    issued: Family<RowLabels, Counter>,
    succeeded: Family<RowLabels, Counter>,
    errors: Family<RowLabels, Counter>,
    in_progress: Family<RowLabels, UnsignedGauge>,
    opened: Family<RowLabels, Counter>,
    failed: Family<RowLabels, Counter>,
    active: Family<RowLabels, UnsignedGauge>,
    dropped: Family<DropLabels, Counter>,
    metric_calls: Family<MetricLabels, Counter>,
    metric_total: Family<MetricLabels, FloatCounter>,
}

/// Registers all loads.
pub(crate) fn register(loads: &Loads, labels: &LoadLabels, registry: &mut Registry) {
    let streams = UnsignedGauge::default();
    streams.set(loads.reporters.len() as u64);
    registry.register("load_streams", "Open LRS streams", streams);
    let help = "Load reports that were taken";
    registry.register("load_reports", help, counter(loads.reports));
    let help = "Load reports that were refused, because they broke a limit";
    registry.register("load_reports_refused", help, counter(loads.refused_reports));
    let help = "Figures of load reports that were not kept, because there were too many rows";
    registry.register("load_rows_refused", help, counter(loads.refused_rows));
    let help = "Metrics of load reports that were left out, because they were beyond a limit";
    registry.register("load_metrics_refused", help, counter(loads.refused_metrics));
    let rows = UnsignedGauge::default();
    rows.set(loads.rows.len() as u64);
    registry.register("load_rows", "Rows of loads that are kept", rows);

    let families = Families::default();
    for row in &loads.rows {
        families.add(row, labels);
    }
    families.register(registry);
}

impl Families {
    fn add(&self, row: &LoadRow, names: &LoadLabels) {
        let Some(backend_locality) = &row.backend_locality else {
            self.add_drops(row, names);
            return;
        };
        let labels = if row.is_served {
            RowLabels {
                service: row.service.clone(),
                cluster: row.cluster.clone(),
                client_locality: names.client_localities.label_of(&row.client_locality),
                backend_locality: names.backend_localities.label_of(backend_locality),
            }
        } else {
            RowLabels::of_others()
        };
        for (family, value) in [
            (&self.issued, row.issued),
            (&self.succeeded, row.succeeded),
            (&self.errors, row.errors),
            (&self.opened, row.connections.opened),
            (&self.failed, row.connections.failed),
        ] {
            family.get_or_create(&labels).inc_by(value);
        }
        for (family, value) in [
            (&self.in_progress, row.in_progress),
            (&self.active, row.connections.active),
        ] {
            family.get_or_create(&labels).inc_by(value);
        }
        // The sum over clusters of which nothing is known would say nothing.
        if !row.is_served {
            return;
        }
        for (metric, sum) in &row.metrics {
            let labels = MetricLabels {
                service: labels.service.clone(),
                cluster: labels.cluster.clone(),
                client_locality: labels.client_locality.clone(),
                backend_locality: labels.backend_locality.clone(),
                metric: names.metrics.label_of(metric),
            };
            self.metric_calls.get_or_create(&labels).inc_by(sum.calls);
            self.metric_total.get_or_create(&labels).inc_by(sum.total);
        }
    }

    /// Adds the drops of a cluster. Those without a category have an empty one, so that the sum over
    /// all categories is the total.
    fn add_drops(&self, row: &LoadRow, names: &LoadLabels) {
        if !row.is_served {
            let others = self.dropped.get_or_create(&DropLabels::of_others());
            others.inc_by(row.dropped);
            return;
        }
        let client_locality = names.client_localities.label_of(&row.client_locality);
        let named: u64 = row.dropped_by_category.values().sum();
        let rest = (String::new(), row.dropped.saturating_sub(named));
        let named = row.dropped_by_category.iter();
        let named =
            named.map(|(category, dropped)| (names.categories.label_of(category), *dropped));
        for (category, dropped) in named.chain([rest]) {
            let labels = DropLabels {
                service: row.service.clone(),
                cluster: row.cluster.clone(),
                client_locality: client_locality.clone(),
                category,
            };
            self.dropped.get_or_create(&labels).inc_by(dropped);
        }
    }

    fn register(self, registry: &mut Registry) {
        let help = "Calls that clients started";
        registry.register("load_issued", help, self.issued);
        let help = "Calls that ended well";
        registry.register("load_succeeded", help, self.succeeded);
        registry.register("load_errors", "Calls that failed", self.errors);
        let help = "Calls that are open, by the last reports";
        registry.register("load_in_progress", help, self.in_progress);
        let help = "Calls that clients dropped, by category; empty for a limit on open calls";
        registry.register("load_dropped", help, self.dropped);
        let help = "Connections that clients opened";
        registry.register("load_connections_opened", help, self.opened);
        let help = "Connections that clients could not open";
        registry.register("load_connections_failed", help, self.failed);
        let help = "Connections that are open, by the last reports";
        registry.register("load_connections_active", help, self.active);
        let help = "Calls that ended with a value of a backend metric";
        registry.register("load_metric_calls", help, self.metric_calls);
        let help = "Sum of the values of a backend metric";
        registry.register("load_metric_sum", help, self.metric_total);
    }
}

fn counter(value: u64) -> Counter {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    counter
}
