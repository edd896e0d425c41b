//! Tests of single reports: when one is due, and what is in it.
//!
//! The stream stays open in them, because `streams.rs` has the tests of streams that end.

use std::time::Duration;

use crowfly_names::{ConnectionLoad, MetricSum};
use crowfly_xds::load_report::{LoadInput, MIN_INTERVAL, StreamEnd};
use envoy_types::pb::google::protobuf;

use crate::log::Log;
use crate::sim::{INTERVAL, Sim, all, listed};
use crate::source::FakeCluster;

/// S13-01: the first request has the node and the feature, and no load. Nothing follows until the server has
/// answered, and then a report comes with every interval.
#[test]
fn nothing_is_reported_before_the_server_has_answered() {
    let mut sim = Sim::new();
    assert!(sim.opened == 0, "no cluster wants reports");
    sim.use_cluster("a");
    assert_eq!(sim.opened, 1);
    sim.input(LoadInput::Opened);
    let first = sim.sent.remove(0);
    let node = first.node.unwrap();
    assert_eq!(node.id, "web-1");
    let features = ["envoy.lb.other", "envoy.lrs.supports_send_all_clusters"];
    assert_eq!(node.client_features, features);
    assert!(first.cluster_stats.is_empty());

    sim.count("a", 3, 2, 0);
    sim.advance(Duration::from_secs(600));
    assert!(sim.sent.is_empty(), "{:?}", sim.sent);
    sim.answer(&all(INTERVAL));
    sim.advance(INTERVAL - Duration::from_millis(1));
    assert!(sim.sent.is_empty());
    sim.advance(Duration::from_millis(1));
    assert_eq!(sim.rows(), ["a: 3 2 0 1"]);
    for round in 1..4 {
        sim.count("a", round, 0, 0);
        sim.advance(INTERVAL);
        assert_eq!(
            sim.rows(),
            [format!("a: {round} 0 0 {}", 1 + (1..=round).sum::<u64>())]
        );
    }
    assert!(sim.sent.iter().all(|request| request.node.is_none()));
}

/// S13-03: all clusters or those in the list. A cluster that is listed later starts clean.
#[test]
fn only_what_is_asked_for_is_reported() {
    let mut sim = Sim::open(&listed(INTERVAL, &["a"]), &["a", "b"]);
    sim.count("a", 1, 1, 0);
    sim.count("b", 10, 10, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 1 0 0"]);

    sim.answer(&listed(INTERVAL, &["b", "unknown"]));
    sim.count("a", 1, 1, 0);
    sim.count("b", 2, 1, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["b: 2 1 0 1"], "without the ten before");
    assert_eq!(sim.interval_of("b"), INTERVAL);

    sim.answer(&all(INTERVAL));
    sim.count("a", 4, 0, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 4 0 0 4", "b: 0 0 0 1"]);
    assert_eq!(sim.interval_of("a"), INTERVAL);
}

/// S13-04: the total of drops is the categories and the drops without one.
#[test]
fn the_total_of_drops_has_those_without_a_category() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    let cluster = sim.source.clusters.get_mut("a").unwrap();
    cluster.load.drops = vec![("lb".into(), 3), ("throttle".into(), 4)];
    cluster.load.uncategorized_drops = 5;
    sim.advance(INTERVAL);
    let stats = sim.last_stats("a");
    assert_eq!(stats.total_dropped_requests, 12);
    let by_category: Vec<_> = stats
        .dropped_requests
        .iter()
        .map(|drop| (drop.category.as_str(), drop.dropped_count))
        .collect();
    assert_eq!(by_category, [("lb", 3), ("throttle", 4)]);
    sim.advance(INTERVAL);
    assert_eq!(sim.last_stats("a").total_dropped_requests, 0, "a delta");
}

/// S13-05: a call across intervals is in progress in each report, and issued in the first.
#[test]
fn calls_in_progress_are_a_gauge() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.count("a", 1, 0, 0);
    for expected in ["a: 1 0 0 1", "a: 0 0 0 1", "a: 0 0 0 1"] {
        sim.advance(INTERVAL);
        assert_eq!(sim.rows(), [expected]);
    }
    sim.count("a", 0, 0, 1);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 0 0 1 0"]);
}

/// Rule 2.17.5 of the reference: a report is left out only if it and the one before are all zero, so that a
/// final zero is delivered.
#[test]
fn only_the_second_of_two_empty_reports_is_left_out() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.count("a", 1, 1, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 1 0 0"]);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 0 0 0 0"]);
    sim.advance(10 * INTERVAL);
    assert!(sim.sent.is_empty());
    sim.count("a", 1, 0, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 0 0 1"]);
    assert_eq!(
        sim.interval_of("a"),
        INTERVAL,
        "since the last one that was left out"
    );
}

/// S13-07: a later response changes the interval and restarts the timer; less than a second is a second; the
/// same interval again leaves the timer as it is.
#[test]
fn every_response_counts_and_the_interval_has_a_floor() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.advance(Duration::from_secs(9));
    sim.count("a", 1, 1, 0);
    sim.answer(&listed(INTERVAL, &["a"]));
    sim.advance(Duration::from_secs(1));
    assert_eq!(sim.rows(), ["a: 1 1 0 0"], "the timer was not restarted");

    sim.advance(Duration::from_secs(9));
    sim.count("a", 2, 2, 0);
    sim.answer(&all(Duration::from_secs(3)));
    sim.advance(Duration::from_secs(2));
    assert!(sim.sent.is_empty());
    sim.advance(Duration::from_secs(1));
    assert_eq!(sim.rows(), ["a: 2 2 0 0"]);
    assert_eq!(sim.interval_of("a"), Duration::from_secs(12));

    for short in [Duration::ZERO, Duration::from_millis(999)] {
        sim.answer(&all(INTERVAL));
        sim.answer(&all(short));
        sim.count("a", 1, 1, 0);
        sim.advance(MIN_INTERVAL - Duration::from_millis(1));
        assert!(sim.sent.is_empty());
        sim.advance(Duration::from_millis(1));
        assert_eq!(sim.rows(), ["a: 1 1 0 0"]);
    }
    let negative = protobuf::Duration {
        seconds: -5,
        nanos: -1,
    };
    let mut response = all(INTERVAL);
    response.load_reporting_interval = Some(negative);
    sim.answer(&response);
    assert_eq!(sim.reporter.asked().unwrap().interval, MIN_INTERVAL);
    let endless = protobuf::Duration {
        seconds: i64::MAX,
        nanos: 0,
    };
    response.load_reporting_interval = Some(endless);
    sim.answer(&response);
    sim.advance(100 * INTERVAL);
    assert!(sim.sent.is_empty());
}

/// N-70: the connections of a source are in its report; the open ones are a gauge.
#[test]
fn connections_are_reported() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    for (opened, failed, active) in [(5, 2, 3), (1, 0, 4), (0, 0, 1)] {
        let a = sim.source.clusters.get_mut("a").unwrap();
        a.load.localities[0].connections = ConnectionLoad {
            opened,
            failed,
            active,
        };
        sim.advance(INTERVAL);
        let stats = sim.last_stats("a");
        let at = &stats.upstream_locality_stats[0];
        let reported = [
            at.total_new_connections,
            at.total_fail_connections,
            at.total_active_connections,
        ];
        assert_eq!(reported, [opened, failed, active]);
    }
}

/// N-70: a cluster that is listed only while it has load is reported with the time since the last look at it.
#[test]
fn a_cluster_that_was_idle_is_reported_with_its_time() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.count("a", 1, 0, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 0 0 1"]);
    sim.source
        .clusters
        .insert("b".to_owned(), FakeCluster::new("b"));
    sim.source.clusters.get_mut("b").unwrap().load.is_sparse = true;
    sim.count("b", 3, 0, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows()[1], "b: 3 0 0 3");
    assert_eq!(sim.interval_of("b"), INTERVAL);
}

/// S13-08: the last counts of a cluster are in one report; then it is in none.
#[test]
fn a_cluster_that_goes_is_reported_once_more() {
    let mut sim = Sim::open(&all(INTERVAL), &["a", "b"]);
    sim.count("a", 1, 0, 0);
    sim.count("b", 7, 7, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 0 0 1", "b: 7 7 0 0"]);
    sim.count("a", 1, 2, 0);
    sim.source.clusters.get_mut("a").unwrap().is_used = false;
    sim.input(LoadInput::Changed);
    sim.count("b", 1, 1, 0);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 2 0 0", "b: 1 1 0 0"]);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["b: 0 0 0 0"]);
}

/// Rules 2.17.6 and 2.17.8: each cluster has its own interval, and an EDS name only if it sets one. gRFC A42, A64,
/// A85: several sources of one cluster are one entry; metrics are added up.
#[test]
fn a_report_has_the_fields_of_the_cluster() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.advance(Duration::from_secs(4));
    sim.use_cluster("b");
    let b = sim.source.clusters.get_mut("b").unwrap();
    b.load.eds_service_name = Some("b-eds".into());
    b.load.localities[0].metrics.cpu_utilization = sum(2, 1.5);
    let named = &mut b.load.localities[0].metrics.named;
    named.insert("named_metrics.queue".to_owned(), sum(1, 7.0));
    b.is_listed_twice = true;
    sim.input(LoadInput::Changed);
    sim.count("b", 2, 2, 0);
    sim.advance(Duration::from_secs(6));
    assert_eq!(sim.interval_of("a"), INTERVAL);
    assert_eq!(sim.interval_of("b"), Duration::from_secs(6));
    assert_eq!(sim.last_stats("a").cluster_service_name, "");
    let b = sim.last_stats("b");
    assert_eq!(b.cluster_service_name, "b-eds");
    let [locality] = &b.upstream_locality_stats[..] else {
        panic!("one locality: {b:?}");
    };
    assert_eq!(locality.total_issued_requests, 2);
    let place = locality.locality.as_ref().unwrap();
    assert_eq!((place.region.as_str(), place.zone.as_str()), ("eu", "z"));
    let cpu = locality.cpu_utilization.unwrap();
    assert_eq!(
        (
            cpu.num_requests_finished_with_metric,
            cpu.total_metric_value
        ),
        (2, 1.5)
    );
    assert_eq!(locality.mem_utilization, None);
    let queue = &locality.load_metric_stats[0];
    assert_eq!(
        (queue.metric_name.as_str(), queue.total_metric_value),
        ("named_metrics.queue", 7.0)
    );
}

/// gRFC A64: metrics under too many names are left out of the report. The totals count them, also if the report is
/// put back once, and the log says it once.
#[test]
fn metrics_that_are_left_out_are_counted_and_said_once() {
    let log = Log::default();
    let _logged = log.listen();
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    let leave_out = |sim: &mut Sim, left_out| {
        let cluster = sim.source.clusters.get_mut("a").unwrap();
        cluster.load.localities[0].metrics.left_out = left_out;
    };
    leave_out(&mut sim, 3);
    sim.count("a", 1, 1, 0);
    sim.takes_requests = false;
    sim.advance(INTERVAL);
    sim.input(LoadInput::Closed(StreamEnd::told("reset")));
    assert_eq!(sim.reporter.totals().metrics_left_out, 0);
    sim.takes_requests = true;
    sim.reopen(&all(INTERVAL));
    sim.advance(INTERVAL);
    assert_eq!(sim.reporter.totals().metrics_left_out, 3);
    leave_out(&mut sim, 4);
    sim.advance(INTERVAL);
    assert_eq!(sim.reporter.totals().metrics_left_out, 7);
    let said = log.lines("too many names");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("WARN") && said[0].contains("limit=1024"));
}

fn sum(calls: u64, total: f64) -> MetricSum {
    MetricSum { calls, total }
}
