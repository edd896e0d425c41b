//! An exporter for OpenTelemetry that keeps the series that it is given, so that tests can read
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};

/// One time series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) unit: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The number of values of a histogram; 1 for others.
    pub(crate) count: u64,
    pub(crate) sum: f64,
    /// The bucket boundaries of a histogram.
    pub(crate) bounds: Vec<f64>,
}

/// A meter, and the series that its instruments made.
pub(crate) struct Exported {
    provider: SdkMeterProvider,
    exporter: Exporter,
}

impl Exported {
    pub(crate) fn new() -> Self {
        let exporter = Exporter::default();
        let reader = PeriodicReader::builder(exporter.clone()).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        Self { provider, exporter }
    }

    pub(crate) fn meter(&self) -> Meter {
        self.provider.meter("test")
    }

    /// All series up to now, by name.
    pub(crate) fn series(&self) -> Vec<Series> {
        self.provider.force_flush().unwrap();
        let mut series = self.exporter.0.lock().unwrap().clone();
        series.sort_by(|a, b| (&a.name, &a.labels).cmp(&(&b.name, &b.labels)));
        series
    }
}

#[derive(Clone, Default)]
struct Exporter(Arc<Mutex<Vec<Series>>>);

impl PushMetricExporter for Exporter {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let metrics = metrics.scope_metrics().flat_map(|scope| scope.metrics());
        *self.0.lock().unwrap() = metrics.flat_map(series_of).collect();
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

fn series_of(metric: &Metric) -> Vec<Series> {
    let one = |kind, labels, count, sum, bounds| Series {
        name: metric.name().to_owned(),
        kind,
        unit: metric.unit().to_owned(),
        labels,
        count,
        sum,
        bounds,
    };
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Gauge(gauge)) => gauge
            .data_points()
            .map(|p| one("gauge", labels(p.attributes()), 1, p.value() as f64, vec![]))
            .collect(),
        AggregatedMetrics::U64(MetricData::Sum(sum)) => sum
            .data_points()
            .map(|p| {
                let value = p.value() as f64;
                one("counter", labels(p.attributes()), 1, value, vec![])
            })
            .collect(),
        AggregatedMetrics::U64(MetricData::Histogram(histogram)) => histogram
            .data_points()
            .map(|p| {
                let (labels, bounds) = (labels(p.attributes()), p.bounds().collect());
                one("histogram", labels, p.count(), p.sum() as f64, bounds)
            })
            .collect(),
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => histogram
            .data_points()
            .map(|p| {
                let (labels, bounds) = (labels(p.attributes()), p.bounds().collect());
                one("histogram", labels, p.count(), p.sum(), bounds)
            })
            .collect(),
        other => panic!("unexpected: {other:?}"),
    }
}

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> BTreeMap<String, String> {
    let pair = |pair: &KeyValue| (pair.key.to_string(), pair.value.to_string());
    attributes.map(pair).collect()
}
