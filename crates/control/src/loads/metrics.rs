//! The loads for Prometheus. The families are made anew for each scrape, from the rows.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::view::{LoadRow, Loads};

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
pub(crate) fn register(loads: &Loads, registry: &mut Registry) {
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
        families.add(row);
    }
    families.register(registry);
}

impl Families {
    fn add(&self, row: &LoadRow) {
        let Some(backend_locality) = &row.backend_locality else {
            self.add_drops(row);
            return;
        };
        let labels = RowLabels {
            service: row.service.clone(),
            cluster: row.cluster.clone(),
            client_locality: row.client_locality.clone(),
            backend_locality: backend_locality.clone(),
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
            family.get_or_create(&labels).set(value);
        }
        for (metric, sum) in &row.metrics {
            let labels = MetricLabels {
                service: labels.service.clone(),
                cluster: labels.cluster.clone(),
                client_locality: labels.client_locality.clone(),
                backend_locality: labels.backend_locality.clone(),
                metric: metric.clone(),
            };
            self.metric_calls.get_or_create(&labels).inc_by(sum.calls);
            self.metric_total.get_or_create(&labels).inc_by(sum.total);
        }
    }

    /// Adds the drops of a cluster. Those without a category have an empty one, so that the sum over
    /// all categories is the total.
    fn add_drops(&self, row: &LoadRow) {
        let named: u64 = row.dropped_by_category.values().sum();
        let rest = (String::new(), row.dropped.saturating_sub(named));
        let named = row.dropped_by_category.iter();
        let named = named.map(|(category, dropped)| (category.clone(), *dropped));
        for (category, dropped) in named.chain([rest]) {
            let labels = DropLabels {
                service: row.service.clone(),
                cluster: row.cluster.clone(),
                client_locality: row.client_locality.clone(),
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
