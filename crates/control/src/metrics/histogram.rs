//! A histogram without a lock.
//!
//! The one of `prometheus-client` has a lock, and every answer of every client would take it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The number of parts of a unit in which the sum is counted.
const PARTS: f64 = 1e6;

/// A histogram; clones share their counts.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// The upper bounds of all buckets but the last, which has none.
    bounds: &'static [f64],
    buckets: Vec<AtomicU64>,
    /// The sum of all values, in millionths. An integer can be added to without a loop.
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0));
        Self(Arc::new(Counts {
            bounds,
            buckets: buckets.collect(),
            sum: AtomicU64::new(0),
        }))
    }

    pub(crate) fn observe(&self, value: f64) {
        let counts = &*self.0;
        let bucket = counts.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = counts.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        // The conversion cuts off what does not fit.
        let parts = (value * PARTS) as u64;
        counts.sum.fetch_add(parts, Ordering::Relaxed);
    }

    /// Observes the seconds from `since` to `now`.
    pub(crate) fn observe_time(&self, now: Instant, since: Instant) {
        let time = now.saturating_duration_since(since);
        self.observe(time.as_secs_f64());
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = &*self.0;
        let values = counts.buckets.iter();
        let values: Vec<u64> = values
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        let bounds = counts.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(values.iter().copied()).collect();
        let sum = counts.sum.load(Ordering::Relaxed) as f64 / PARTS;
        encoder.encode_histogram::<NoLabelSet>(sum, values.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    #[test]
    fn values_are_counted_in_their_buckets() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for value in [0.0, 0.1, 0.5, 1.0, 7.5] {
            histogram.observe(value);
        }
        let mut registry = Registry::default();
        registry.register("h", "help", histogram);
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        let expected = "\
# HELP h help.
# TYPE h histogram
h_sum 9.1
h_count 5
h_bucket{le=\"0.1\"} 2
h_bucket{le=\"1.0\"} 4
h_bucket{le=\"+Inf\"} 5
# EOF
";
        assert_eq!(text, expected);
    }
}
