//! The metrics of gRFC A78 as OpenTelemetry instruments.
//!
//! OpenTelemetry is behind a feature, because programs that report metrics in another way should
//! not link it.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Meter};

use super::{MetricsRecorder, ResourceLabels, ServerLabels};

/// Reports to OpenTelemetry, under the names and labels of gRFC A78.
///
/// One recorder serves any number of clients, because the label `grpc.target` distinguishes them.
///
/// ```no_run
/// # fn example(provider: &dyn opentelemetry::metrics::MeterProvider) {
/// # use std::sync::Arc;
/// # use crowfly_client::metrics::{OpenTelemetry, MetricsRecorder};
/// let recorder: Arc<dyn MetricsRecorder> = Arc::new(OpenTelemetry::new(&provider.meter("crowfly")));
/// // Channel::builder("xds:///payments").recorder(recorder)
/// # }
/// ```
#[derive(Debug)]
pub struct OpenTelemetry {
    connected: Gauge<u64>,
    server_failure: Counter<u64>,
    updates_valid: Counter<u64>,
    updates_invalid: Counter<u64>,
    resources: Gauge<u64>,
    load_reports: Counter<u64>,
    load_reports_in_doubt: Counter<u64>,
    load_calls_in_doubt: Counter<u64>,
}

impl OpenTelemetry {
    /// Makes the instruments.
    pub fn new(meter: &Meter) -> Self {
        Self {
            connected: meter
                .u64_gauge("grpc.xds_client.connected")
                .with_description("Whether the client has a working ADS stream to the server")
                .with_unit("{bool}")
                .build(),
            server_failure: meter
                .u64_counter("grpc.xds_client.server_failure")
                .with_description("How often a working server has failed")
                .with_unit("{failure}")
                .build(),
            updates_valid: meter
                .u64_counter("grpc.xds_client.resource_updates_valid")
                .with_description("Valid resources received, changed or not")
                .with_unit("{resource}")
                .build(),
            updates_invalid: meter
                .u64_counter("grpc.xds_client.resource_updates_invalid")
                .with_description("Invalid resources received")
                .with_unit("{resource}")
                .build(),
            resources: meter
                .u64_gauge("grpc.xds_client.resources")
                .with_description("Resources, by state")
                .with_unit("{resource}")
                .build(),
            load_reports: meter
                .u64_counter("crowfly.xds_client.load_reports")
                .with_description("Load reports that a connection has taken")
                .with_unit("{report}")
                .build(),
            load_reports_in_doubt: meter
                .u64_counter("crowfly.xds_client.load_reports_in_doubt")
                .with_description("Load reports that may be lost, because their stream broke")
                .with_unit("{report}")
                .build(),
            load_calls_in_doubt: meter
                .u64_counter("crowfly.xds_client.load_calls_in_doubt")
                .with_description("Attempts in load reports that may be lost")
                .with_unit("{attempt}")
                .build(),
        }
    }
}

impl MetricsRecorder for OpenTelemetry {
    fn connected(&self, labels: ServerLabels<'_>, connected: bool) {
        self.connected.record(connected.into(), &of_server(labels));
    }

    fn server_failure(&self, labels: ServerLabels<'_>) {
        self.server_failure.add(1, &of_server(labels));
    }

    fn updates(&self, labels: ServerLabels<'_>, resource_type: &str, valid: u64, invalid: u64) {
        let [target, server] = of_server(labels);
        let attributes = [target, server, resource_type_label(resource_type)];
        self.updates_valid.add(valid, &attributes);
        self.updates_invalid.add(invalid, &attributes);
    }

    fn load_reports(&self, labels: ServerLabels<'_>, reports: u64) {
        self.load_reports.add(reports, &of_server(labels));
    }

    fn load_reports_in_doubt(&self, labels: ServerLabels<'_>, reports: u64, calls: u64) {
        let attributes = of_server(labels);
        self.load_reports_in_doubt.add(reports, &attributes);
        self.load_calls_in_doubt.add(calls, &attributes);
    }

    fn resources(&self, labels: ResourceLabels<'_>, count: u64) {
        let attributes = [
            KeyValue::new("grpc.target", labels.target.to_owned()),
            KeyValue::new("grpc.xds.authority", labels.authority.to_owned()),
            KeyValue::new("grpc.xds.cache_state", labels.cache_state),
            resource_type_label(labels.resource_type),
        ];
        self.resources.record(count, &attributes);
    }
}

fn of_server(labels: ServerLabels<'_>) -> [KeyValue; 2] {
    [
        KeyValue::new("grpc.target", labels.target.to_owned()),
        KeyValue::new("grpc.xds.server", labels.server.to_owned()),
    ]
}

fn resource_type_label(resource_type: &str) -> KeyValue {
    KeyValue::new("grpc.xds.resource_type", resource_type.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
    use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
    use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};

    use super::*;

    /// Every instrument has the name, the unit, the labels and the value of gRFC A78, or of our own.
    #[test]
    fn instruments_are_those_of_a78() {
        let exporter = Exporter::default();
        let provider = SdkMeterProvider::builder()
            .with_reader(PeriodicReader::builder(exporter.clone()).build())
            .build();
        let recorder = OpenTelemetry::new(&provider.meter("test"));
        let server = ServerLabels {
            target: "xds:///svc",
            server: "control:1",
        };
        recorder.connected(server, true);
        recorder.connected(server, false);
        recorder.server_failure(server);
        recorder.updates(server, "T", 3, 1);
        recorder.updates(server, "T", 2, 0);
        let labels = ResourceLabels {
            target: "xds:///svc",
            authority: "#old",
            cache_state: "acked",
            resource_type: "T",
        };
        recorder.resources(labels, 4);
        recorder.load_reports(server, 3);
        recorder.load_reports_in_doubt(server, 1, 20);
        provider.force_flush().unwrap();

        let of_server = "grpc.target=xds:///svc grpc.xds.server=control:1";
        let of_update = "grpc.target=xds:///svc grpc.xds.resource_type=T \
                         grpc.xds.server=control:1";
        let of_resource = "grpc.target=xds:///svc grpc.xds.authority=#old \
                           grpc.xds.cache_state=acked grpc.xds.resource_type=T";
        let expected = [
            (
                "crowfly.xds_client.load_calls_in_doubt {attempt}",
                of_server,
                20,
            ),
            ("crowfly.xds_client.load_reports {report}", of_server, 3),
            (
                "crowfly.xds_client.load_reports_in_doubt {report}",
                of_server,
                1,
            ),
            ("grpc.xds_client.connected {bool}", of_server, 0),
            (
                "grpc.xds_client.resource_updates_invalid {resource}",
                of_update,
                1,
            ),
            (
                "grpc.xds_client.resource_updates_valid {resource}",
                of_update,
                5,
            ),
            ("grpc.xds_client.resources {resource}", of_resource, 4),
            ("grpc.xds_client.server_failure {failure}", of_server, 1),
        ];
        let expected =
            expected.map(|(name, labels, value)| (name.to_owned(), (labels.to_owned(), value)));
        assert_eq!(*exporter.points.lock().unwrap(), expected.into());
    }

    /// Keeps, by name and unit, the labels and the value of the only point.
    #[derive(Clone, Default)]
    struct Exporter {
        points: Arc<Mutex<BTreeMap<String, (String, u64)>>>,
    }

    impl PushMetricExporter for Exporter {
        async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
            for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
                let name = format!("{} {}", metric.name(), metric.unit());
                let points = points(metric.data());
                assert_eq!(points.len(), 1, "{name}: {points:?}");
                let named = points.into_iter().map(|point| (name.clone(), point));
                self.points.lock().unwrap().extend(named);
            }
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

    fn points(data: &AggregatedMetrics) -> Vec<(String, u64)> {
        match data {
            AggregatedMetrics::U64(MetricData::Gauge(gauge)) => gauge
                .data_points()
                .map(|point| (text(point.attributes()), point.value()))
                .collect(),
            AggregatedMetrics::U64(MetricData::Sum(sum)) => sum
                .data_points()
                .map(|point| (text(point.attributes()), point.value()))
                .collect(),
            other => panic!("unexpected: {other:?}"),
        }
    }

    fn text<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
        let pair = |pair: &KeyValue| format!("{}={}", pair.key, pair.value);
        let mut pairs: Vec<String> = attributes.map(pair).collect();
        pairs.sort();
        pairs.join(" ")
    }
}
