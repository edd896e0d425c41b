//! Tests of the load reports that clusters ask for: the server, and the metrics of backends (gRFC
//! A27, A85).

use std::{collections::BTreeSet, sync::Arc};

use crowfly_model::{
    Features, ResourceType, Unsupported,
    bootstrap::Bootstrap,
    grpc::{
        Cluster,
        cluster::{ClusterKind, LoadReporting, MetricPropagation, NamedMetricPropagation},
    },
};
use envoy_types::pb::envoy::config::cluster::v3 as pb;
use prost::Message;

use crate::messages::{cluster, self_source};

/// gRFC A27: reports go to the server that the cluster came from; a cluster without `lrs_server` has none.
#[test]
fn reports_go_to_the_server_of_the_cluster() {
    assert_eq!(reporting(&cluster(), &Features::ALL), None);

    let proto = reported(&[]);
    let nowhere = reporting(&proto, &Features::ALL).unwrap();
    assert_eq!(nowhere.server, None);
    assert_eq!(nowhere.metrics, MetricPropagation::default());
    let bootstrap = Bootstrap::builder("127.0.0.1:81").unwrap().build();
    let server = &bootstrap.servers[0];
    let there = reporting(&proto, &Features::ALL.for_server(server)).unwrap();
    assert_eq!(there.server, Some(Arc::new(server.clone())));
}

/// gRFC A85: the metrics that a cluster names, one by one or all at once.
#[test]
fn metrics_that_are_propagated() {
    let metrics = |names| reporting(&reported(names), &Features::ALL).unwrap().metrics;
    let none = MetricPropagation::default;

    let cpu = metrics(&["cpu_utilization"]);
    assert_eq!(
        cpu,
        MetricPropagation {
            cpu_utilization: true,
            ..none()
        }
    );
    let rest = metrics(&["mem_utilization", "application_utilization"]);
    assert!(rest.mem_utilization && rest.application_utilization && !rest.cpu_utilization);
    let some = metrics(&["named_metrics.a", "named_metrics.b.c", "named_metrics.a"]);
    let names = BTreeSet::from(["a".to_owned(), "b.c".to_owned()]);
    assert_eq!(some.named_metrics, NamedMetricPropagation::Only(names));
    let all = metrics(&["named_metrics.a", "named_metrics.*"]);
    assert_eq!(all.named_metrics, NamedMetricPropagation::All);
}

/// gRFC A85: a name that is not known is ignored; the cluster says so.
#[test]
fn unknown_metrics_are_ignored_and_said() {
    let proto = reported(&["cpu_utilization", "rps_fractional", "named_metrics"]);
    let parsed = parse(&proto, &Features::ALL);
    let said: Vec<String> = parsed
        .unsupported
        .iter()
        .map(Unsupported::to_string)
        .collect();
    let expected = ["rps_fractional", "named_metrics"].map(|name| {
        let index = if name == "named_metrics" { 2 } else { 1 };
        format!(
            "lrs_report_endpoint_metrics[{index}]: not supported: {name} is not in load reports (gRFC A85)"
        )
    });
    assert_eq!(said, expected);

    let mut unreported = proto;
    unreported.lrs_server = None;
    let parsed = parse(&unreported, &Features::ALL);
    assert_eq!(
        parsed.unsupported[0].to_string(),
        "lrs_report_endpoint_metrics: no effect without lrs_server"
    );
}

/// gRFC A64: with the variable of A85 off, all named metrics are propagated under their own names. A list of metrics
/// has no effect then, and the cluster says so.
#[test]
fn without_a85_all_named_metrics_are_propagated() {
    let features = Features {
        orca_lrs_propagation: false,
        ..Features::ALL
    };
    let listed = reported(&["cpu_utilization"]);
    let metrics = reporting(&listed, &features).unwrap().metrics;
    assert_eq!(metrics.named_metrics, NamedMetricPropagation::AllUnprefixed);
    assert!(!metrics.cpu_utilization);

    let [said] = &parse(&listed, &features).unsupported[..] else {
        panic!("the list has no effect");
    };
    let said = said.to_string();
    assert!(said.starts_with("lrs_report_endpoint_metrics: no effect while GRPC_EXPERIMENTAL_"));
    assert_eq!(parse(&reported(&[]), &features).unsupported.len(), 0);
}

fn reported(metrics: &[&str]) -> pb::Cluster {
    let mut proto = cluster();
    proto.lrs_server = Some(self_source());
    proto.lrs_report_endpoint_metrics = metrics.iter().map(ToString::to_string).collect();
    proto
}

fn parse(proto: &pb::Cluster, features: &Features) -> Cluster {
    Cluster::parse(&proto.encode_to_vec(), features)
        .value
        .unwrap()
}

fn reporting(proto: &pb::Cluster, features: &Features) -> Option<LoadReporting> {
    match parse(proto, features).kind {
        ClusterKind::Leaf(leaf) => leaf.load_reporting.map(|reporting| *reporting),
        ClusterKind::Aggregate(_) => None,
    }
}
