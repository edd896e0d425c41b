//! The metrics that a backend sends with the end of a call (ORCA, gRFC A51).
//!
//! Metrics are parsed only for a cluster that propagates some of them into its load reports (gRFC A85).

use std::collections::HashMap;

use crowfly_lb::BackendMetrics;
use http::HeaderMap;
use prost::Message as _;
use tonic::metadata::MetadataMap;

/// The metadata with the report of one call.
const METADATA: &str = "endpoint-load-metrics-bin";

/// `xds.data.orca.v3.OrcaLoadReport`, with the fields that load reports can have. The message is written by hand,
/// because four fields are not worth generated code.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OrcaLoadReport {
    #[prost(double, tag = "1")]
    cpu_utilization: f64,
    #[prost(double, tag = "2")]
    mem_utilization: f64,
    #[prost(map = "string, double", tag = "8")]
    named_metrics: HashMap<String, f64>,
    #[prost(double, tag = "9")]
    application_utilization: f64,
}

impl OrcaLoadReport {
    /// The report in the trailers of a response. A report that cannot be read counts as none, as in gRPC C-core.
    pub(super) fn find(trailers: &HeaderMap) -> Option<Self> {
        let value = trailers.get(METADATA)?;
        let mut alone = HeaderMap::with_capacity(1);
        alone.insert(METADATA, value.clone());
        let metadata = MetadataMap::from_headers(alone);
        let bytes = metadata.get_bin(METADATA)?.to_bytes().ok()?;
        Self::decode(bytes).ok()
    }

    pub(super) fn metrics(&self) -> BackendMetrics<'_> {
        BackendMetrics {
            cpu_utilization: self.cpu_utilization,
            mem_utilization: self.mem_utilization,
            application_utilization: self.application_utilization,
            named: &self.named_metrics,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]

    use http::HeaderValue;

    use super::*;

    /// gRFC A51: the report is binary metadata, with or without padding. Bytes made by protoc from
    /// `cpu_utilization: 0.5 named_metrics { key: "q" value: 2 } rps_fractional: 1`.
    #[test]
    fn a_report_is_read_from_binary_metadata() {
        for text in [
            "CQAAAAAAAOA/MQAAAAAAAPA/QgwKAXERAAAAAAAAAEA=",
            "CQAAAAAAAOA/MQAAAAAAAPA/QgwKAXERAAAAAAAAAEA",
        ] {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            assert_eq!(OrcaLoadReport::find(&trailers), None);
            trailers.insert(METADATA, HeaderValue::from_static(text));
            let report = OrcaLoadReport::find(&trailers).unwrap();
            let metrics = report.metrics();
            assert_eq!(
                (metrics.cpu_utilization, metrics.mem_utilization),
                (0.5, 0.0)
            );
            assert_eq!(metrics.named["q"], 2.0);
        }
        for bad in ["!", "////"] {
            let mut trailers = HeaderMap::new();
            trailers.insert(METADATA, HeaderValue::from_static(bad));
            assert_eq!(OrcaLoadReport::find(&trailers), None, "{bad}");
        }
    }
}
