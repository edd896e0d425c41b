//! Compares the instruments with the gRFCs and with `docs/metrics.md`, because dashboards depend on the names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tonic::Code;

use self::exporter::{Exported, Series};
use super::*;
use crate::metrics::OutlierRule;

#[path = "../../../tests/channel/exporter.rs"]
mod exporter;

const PAGE: &str = include_str!("../../../../../docs/metrics.md");

/// The page must list every instrument, and no other.
#[test]
fn the_page_lists_the_instruments_that_are() {
    let all = recorded(|otel| otel.with_locality().with_backend_service());
    let few = recorded(|otel| otel);
    let row = |series: &Series| {
        let required = few.iter().find(|few| few.name == series.name).unwrap();
        let labels = series.labels.keys().map(|label| {
            let is_required = required.labels.contains_key(label);
            if is_required {
                format!("`{label}`")
            } else {
                format!("(`{label}`)")
            }
        });
        let labels: BTreeSet<String> = labels.collect();
        let details = (series.kind.to_owned(), format!("`{}`", series.unit), labels);
        (format!("`{}`", series.name), details)
    };
    let instruments: BTreeMap<_, _> = all.iter().map(row).collect();

    let rows = PAGE.lines().filter(|line| line.starts_with("| `grpc."));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim));
    let rows = cells.map(Iterator::collect::<Vec<_>>);
    let listed: BTreeMap<_, _> = rows
        .filter(|row| row.len() == 6)
        .map(|row| {
            let labels = row[3].split(' ').map(str::to_owned).collect();
            let details = (row[1].to_owned(), row[2].to_owned(), labels);
            (row[0].to_owned(), details)
        })
        .collect();
    assert_eq!(listed, instruments);

    let labels: BTreeSet<&String> = all.iter().flat_map(|series| series.labels.keys()).collect();
    let of_calls = labels.iter().filter(|label| !label.starts_with("grpc.xds"));
    for label in of_calls {
        assert!(PAGE.contains(&format!("\n| `{label}` | ")), "{label}");
    }
}

/// gRFC A66 and A96: boundaries and values.
#[test]
fn values_and_boundaries_are_those_of_the_grfcs() {
    let all = recorded(|otel| otel.with_locality().with_backend_service());
    let find = |name: &str| {
        let name = format!("grpc.client.{name}");
        all.iter().find(|series| series.name == name).unwrap()
    };
    let started = find("attempt.started");
    assert_eq!(started.sum, 1.0);
    for (name, sum, bounds) in [
        ("attempt.duration", 0.25, &LATENCY[..]),
        ("attempt.sent_total_compressed_message_size", 10.0, &SIZE),
        ("attempt.rcvd_total_compressed_message_size", 2000.0, &SIZE),
        ("call.duration", 1.5, &LATENCY),
        ("call.retries", 2.0, &RETRIES),
        ("call.transparent_retries", 1.0, &TRANSPARENT_RETRIES),
        ("call.retry_delay", 0.5, &LATENCY),
    ] {
        let series = find(name);
        assert_eq!((series.count, series.sum), (1, sum), "{name}");
        assert_eq!(series.bounds, bounds, "{name}");
    }
    let labels = &find("attempt.duration").labels;
    let label = |name: &str| labels[name].as_str();
    assert_eq!(label("grpc.method"), "shop.Payments/Pay");
    assert_eq!(label("grpc.target"), "xds:///payments");
    assert_eq!(label("grpc.status"), "UNAVAILABLE");
    assert_eq!(
        label("grpc.lb.locality"),
        "{region=\"eu\", zone=\"a\", sub_zone=\"\"}"
    );
    assert_eq!(label("grpc.lb.backend_service"), "payments-leaf");
}

/// gRFC A96: a call without retries is not reported as one with zero.
#[test]
fn calls_without_retries_are_not_counted_as_retried() {
    let exported = Exported::new();
    let otel = OpenTelemetry::new(&exported.meter());
    let call = CallEnd {
        retries: 0,
        transparent_retries: 0,
        ..call_end()
    };
    otel.call_ended(&labels(true), &call);
    let names: Vec<String> = exported.series().into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["grpc.client.call.duration"]);
}

/// gRFC A66: a method name that generated code did not define is reported as `other`, unless the program allows it.
#[test]
fn methods_of_no_generated_code_are_other() {
    let method = |is_generated, otel: fn(OpenTelemetry) -> OpenTelemetry| {
        let exported = Exported::new();
        let otel = otel(OpenTelemetry::new(&exported.meter()));
        otel.attempt_started(&labels(is_generated));
        exported.series()[0].labels["grpc.method"].clone()
    };
    assert_eq!(method(true, |otel| otel), "shop.Payments/Pay");
    assert_eq!(method(false, |otel| otel), "other");
    let filtered = method(false, |otel| {
        otel.with_generic_methods(|method| method == "shop.Payments/Pay")
    });
    assert_eq!(filtered, "shop.Payments/Pay");
}

/// The series of a recorder that was told everything once.
fn recorded(with: impl Fn(OpenTelemetry) -> OpenTelemetry) -> Vec<Series> {
    let exported = Exported::new();
    let otel = with(OpenTelemetry::new(&exported.meter()));
    let labels = labels(true);
    otel.attempt_started(&labels);
    otel.attempt_ended(
        &labels,
        &AttemptEnd {
            status: Code::Unavailable,
            duration: Duration::from_millis(250),
            sent: 10,
            received: 2000,
            backend_service: "payments-leaf",
            locality: Some(&LocalityId::new("eu", "a", "")),
        },
    );
    otel.call_ended(&labels, &call_end());
    let outlier = OutlierLabels {
        target: &labels.target,
        backend_service: "payments-leaf",
        rule: OutlierRule::SuccessRate,
    };
    otel.outlier_detected(&outlier, None);
    otel.outlier_detected(&outlier, Some(SpareReason::MaxEjectionOverflow));
    let server = ServerLabels {
        target: "xds:///payments",
        server: "control:1",
    };
    otel.connected(server, true);
    otel.server_failure(server);
    otel.updates(server, "T", 3, 1);
    let resources = ResourceLabels {
        target: "xds:///payments",
        authority: "#old",
        cache_state: "acked",
        resource_type: "T",
    };
    otel.resources(resources, 4);
    exported.series()
}

fn call_end() -> CallEnd {
    CallEnd {
        status: Code::Ok,
        duration: Duration::from_millis(1500),
        retries: 2,
        transparent_retries: 1,
        retry_delay: Duration::from_millis(500),
    }
}

fn labels(is_generated: bool) -> CallLabels {
    CallLabels {
        target: "xds:///payments".into(),
        method: "shop.Payments/Pay".into(),
        is_generated,
    }
}
