//! The metrics of a channel as OpenTelemetry instruments.
//!
//! OpenTelemetry is behind a feature, because programs that measure in another way should not link it. Names, units and
//! bucket boundaries are those of the gRFCs, so that dashboards for gRPC of other languages fit.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crowfly_client::metrics as xds;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use opentelemetry::{KeyValue, StringValue};

use super::{
    AttemptEnd, BalancingRecorder, CallEnd, CallLabels, CallRecorder, MetricsRecorder,
    OutlierLabels, ResourceLabels, ServerLabels, SpareReason,
};
use crate::{LocalityId, code_name};

/// The bucket boundaries of gRFC A66 for times, in seconds.
const LATENCY: [f64; 41] = [
    0.0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005,
    0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16,
    0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];

/// The bucket boundaries of gRFC A66 for sizes, in bytes.
const SIZE: [f64; 14] = [
    0.0,
    1024.0,
    2048.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
];

/// The bucket boundaries of gRFC A96.
const RETRIES: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];
const TRANSPARENT_RETRIES: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

/// Reports to OpenTelemetry, under the names and labels of gRFC A66, A78, A89, A91 and A96.
///
/// One of them serves any number of channels, because the label `grpc.target` distinguishes them. Methods
/// that generated code did not name are reported as `other`, unless
/// [`with_generic_methods`](Self::with_generic_methods) says otherwise.
///
/// ```no_run
/// # fn example(provider: &dyn opentelemetry::metrics::MeterProvider) {
/// use std::sync::Arc;
/// use crowfly::metrics::OpenTelemetry;
///
/// let metrics = OpenTelemetry::new(&provider.meter("crowfly"))
///     .with_locality()
///     .with_backend_service();
/// let builder = crowfly::Channel::builder("xds:///payments").opentelemetry(&Arc::new(metrics));
/// # }
/// ```
pub struct OpenTelemetry {
    xds: xds::OpenTelemetry,
    attempts_started: Counter<u64>,
    attempt_duration: Histogram<f64>,
    attempt_sent: Histogram<u64>,
    attempt_received: Histogram<u64>,
    call_duration: Histogram<f64>,
    call_retries: Histogram<u64>,
    call_transparent_retries: Histogram<u64>,
    call_retry_delay: Histogram<f64>,
    ejections_enforced: Counter<u64>,
    ejections_unenforced: Counter<u64>,
    has_locality: bool,
    has_backend_service: bool,
    is_recorded: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

impl OpenTelemetry {
    /// Makes the instruments, without optional labels.
    pub fn new(meter: &Meter) -> Self {
        let seconds = |name, description| seconds(meter, name, description);
        let histogram = |name, description, unit, boundaries| {
            histogram(meter, name, description, (unit, boundaries))
        };
        let counter = |name, description, unit| counter(meter, name, description, unit);
        Self {
            xds: xds::OpenTelemetry::new(meter),
            attempts_started: counter(
                "grpc.client.attempt.started",
                "Attempts started, ended or not",
                "{attempt}",
            ),
            attempt_duration: seconds(
                "grpc.client.attempt.duration",
                "Time of an attempt, with the pick of its endpoint",
            ),
            attempt_sent: histogram(
                "grpc.client.attempt.sent_total_compressed_message_size",
                "Size of the messages that an attempt sent",
                "By",
                &SIZE,
            ),
            attempt_received: histogram(
                "grpc.client.attempt.rcvd_total_compressed_message_size",
                "Size of the messages that an attempt received",
                "By",
                &SIZE,
            ),
            call_duration: seconds(
                "grpc.client.call.duration",
                "Time of a call, with all of its attempts",
            ),
            call_retries: histogram(
                "grpc.client.call.retries",
                "Retries of a call that had any",
                "{retry}",
                &RETRIES,
            ),
            call_transparent_retries: histogram(
                "grpc.client.call.transparent_retries",
                "Transparent retries of a call that had any",
                "{transparent_retry}",
                &TRANSPARENT_RETRIES,
            ),
            call_retry_delay: seconds(
                "grpc.client.call.retry_delay",
                "Time without an attempt of a call that had retries",
            ),
            ejections_enforced: counter(
                "grpc.lb.outlier_detection.ejections_enforced",
                "Outliers that were ejected",
                "{ejection}",
            ),
            ejections_unenforced: counter(
                "grpc.lb.outlier_detection.ejections_unenforced",
                "Outliers that were not ejected",
                "{ejection}",
            ),
            has_locality: false,
            has_backend_service: false,
            is_recorded: Box::new(|_| false),
        }
    }

    /// Adds the label `grpc.lb.locality` to the metrics of attempts (gRFC A78).
    pub fn with_locality(mut self) -> Self {
        self.has_locality = true;
        self
    }

    /// Adds the label `grpc.lb.backend_service` to the metrics of attempts (gRFC A89) and of outlier detection
    /// (gRFC A91).
    pub fn with_backend_service(mut self) -> Self {
        self.has_backend_service = true;
        self
    }

    /// Reports a method that generated code did not name by its own name if `is_recorded` returns true for
    /// it. Each name is a time series of its own, so `is_recorded` must bound their number.
    ///
    /// ```no_run
    /// # fn example(meter: &opentelemetry::metrics::Meter) {
    /// use crowfly::metrics::OpenTelemetry;
    ///
    /// let metrics = OpenTelemetry::new(meter)
    ///     .with_generic_methods(|method| method.starts_with("shop.Payments/"));
    /// # }
    /// ```
    pub fn with_generic_methods(
        mut self,
        is_recorded: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_recorded = Box::new(is_recorded);
        self
    }

    /// The labels that every metric of a call has.
    fn of_call(&self, labels: &CallLabels) -> [KeyValue; 2] {
        let method = match labels.is_generated || (self.is_recorded)(&labels.method) {
            true => StringValue::from(Arc::clone(&labels.method)),
            false => "other".into(),
        };
        [
            KeyValue::new("grpc.method", method),
            KeyValue::new("grpc.target", Arc::clone(&labels.target)),
        ]
    }
}

impl CallRecorder for OpenTelemetry {
    fn attempt_started(&self, labels: &CallLabels) {
        self.attempts_started.add(1, &self.of_call(labels));
    }

    fn attempt_ended(&self, labels: &CallLabels, attempt: &AttemptEnd<'_>) {
        let mut attributes = Vec::with_capacity(5);
        attributes.extend(self.of_call(labels));
        attributes.push(KeyValue::new("grpc.status", code_name(attempt.status)));
        if self.has_locality {
            let locality = attempt.locality.map(text_of).unwrap_or_default();
            attributes.push(KeyValue::new("grpc.lb.locality", locality));
        }
        if self.has_backend_service {
            let cluster = attempt.backend_service.to_owned();
            attributes.push(KeyValue::new("grpc.lb.backend_service", cluster));
        }
        let seconds = attempt.duration.as_secs_f64();
        self.attempt_duration.record(seconds, &attributes);
        self.attempt_sent.record(attempt.sent, &attributes);
        self.attempt_received.record(attempt.received, &attributes);
    }

    fn call_ended(&self, labels: &CallLabels, call: &CallEnd) {
        let [method, target] = self.of_call(labels);
        let attributes = [
            method,
            target,
            KeyValue::new("grpc.status", code_name(call.status)),
        ];
        let seconds = call.duration.as_secs_f64();
        self.call_duration.record(seconds, &attributes);
        // gRFC A96: calls without retries are not reported.
        if call.retries > 0 {
            self.call_retries.record(call.retries, &attributes[..2]);
        }
        if call.transparent_retries > 0 {
            self.call_transparent_retries
                .record(call.transparent_retries, &attributes[..2]);
        }
        if call.retries + call.transparent_retries > 0 {
            let seconds = call.retry_delay.as_secs_f64();
            self.call_retry_delay.record(seconds, &attributes[..2]);
        }
    }
}

impl BalancingRecorder for OpenTelemetry {
    fn outlier_detected(&self, labels: &OutlierLabels<'_>, spared: Option<SpareReason>) {
        let label = |name: &'static str, value: &'static str| {
            KeyValue::new(format!("grpc.lb.outlier_detection.{name}"), value)
        };
        let mut attributes = vec![
            KeyValue::new("grpc.target", Arc::clone(labels.target)),
            label("detection_method", labels.rule.name()),
        ];
        if self.has_backend_service {
            let cluster = labels.backend_service.to_owned();
            attributes.push(KeyValue::new("grpc.lb.backend_service", cluster));
        }
        match spared {
            None => self.ejections_enforced.add(1, &attributes),
            Some(reason) => {
                attributes.push(label("unenforced_reason", reason.name()));
                self.ejections_unenforced.add(1, &attributes);
            }
        }
    }
}

impl MetricsRecorder for OpenTelemetry {
    fn connected(&self, labels: ServerLabels<'_>, connected: bool) {
        self.xds.connected(labels, connected);
    }

    fn server_failure(&self, labels: ServerLabels<'_>) {
        self.xds.server_failure(labels);
    }

    fn updates(&self, labels: ServerLabels<'_>, resource_type: &str, valid: u64, invalid: u64) {
        self.xds.updates(labels, resource_type, valid, invalid);
    }

    fn resources(&self, labels: ResourceLabels<'_>, count: u64) {
        self.xds.resources(labels, count);
    }
}

impl fmt::Debug for OpenTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTelemetry").finish_non_exhaustive()
    }
}

/// A histogram of times.
fn seconds(meter: &Meter, name: &'static str, description: &'static str) -> Histogram<f64> {
    let histogram = meter.f64_histogram(name).with_description(description);
    let histogram = histogram.with_unit("s").with_boundaries(LATENCY.to_vec());
    histogram.build()
}

/// A histogram of numbers, with their unit and the boundaries of its buckets.
fn histogram(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
    (unit, boundaries): (&'static str, &[f64]),
) -> Histogram<u64> {
    let histogram = meter.u64_histogram(name).with_description(description);
    let histogram = histogram.with_unit(unit);
    histogram.with_boundaries(boundaries.to_vec()).build()
}

fn counter(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
    unit: &'static str,
) -> Counter<u64> {
    let counter = meter.u64_counter(name).with_description(description);
    counter.with_unit(unit).build()
}

/// The label `grpc.lb.locality`, in the form that gRFC A78 gives it. The label is empty if the locality is not known.
fn text_of(locality: &LocalityId) -> String {
    if *locality == LocalityId::default() {
        return String::new();
    }
    let (region, zone, sub_zone) = (locality.region(), locality.zone(), locality.sub_zone());
    format!("{{region=\"{region}\", zone=\"{zone}\", sub_zone=\"{sub_zone}\"}}")
}
