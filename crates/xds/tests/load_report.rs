//! Tests of load reports (LRS, gRFC A27) with simulated time, because reports come at intervals.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crowfly_names::{ClusterLoad, ConnectionLoad, LocalityId, LocalityLoad, MetricSum};
use crowfly_xds::load_report::{
    LoadInput, LoadOutput, LoadReporter, LoadSource, MIN_INTERVAL, StreamEnd,
};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use proptest::prelude::*;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt;

const INTERVAL: Duration = Duration::from_secs(10);

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

/// S13-06: a broken stream is followed by another, which begins anew. Counts that no connection has taken are in
/// its first report, with the time that they are from; a report that was taken is not repeated.
#[test]
fn a_broken_stream_loses_and_repeats_nothing_between_reports() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.count("a", 5, 2, 1);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 5 2 1 2"]);
    sim.count("a", 1, 1, 0);
    sim.advance(Duration::from_secs(6));
    sim.input(LoadInput::Closed(StreamEnd::told("restart")));
    assert_eq!(sim.opened, 2, "at once, because the server had answered");
    sim.input(LoadInput::Opened);
    assert!(sim.sent.remove(0).node.is_some(), "a fresh first request");
    sim.count("a", 2, 0, 3);
    sim.answer(&all(INTERVAL));
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 3 1 3 1"]);
    assert_eq!(sim.interval_of("a"), Duration::from_secs(16));
    let totals = sim.reporter.totals();
    assert_eq!((totals.reports, totals.calls), (2, 8));
    assert_eq!((totals.reports_in_doubt, totals.calls_in_doubt), (0, 0));
}

/// S13-06: a report that waited for the connection when the stream broke goes into the next one; one that the
/// connection took just before does not, and is counted.
#[test]
fn a_report_is_sent_at_most_once() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.takes_requests = false;
    sim.count("a", 5, 2, 1);
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 5 2 1 2"]);
    sim.count("a", 1, 0, 0);
    sim.advance(5 * INTERVAL);
    assert!(
        sim.sent.is_empty(),
        "no second report while one is under way"
    );
    sim.input(LoadInput::Closed(StreamEnd::told("reset")));
    assert_eq!(sim.reporter.totals().reports_in_doubt, 0);

    sim.takes_requests = true;
    sim.reopen(&all(INTERVAL));
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 6 2 1 3"], "all of it");
    assert_eq!(sim.interval_of("a"), 7 * INTERVAL);

    sim.count("a", 1, 0, 0);
    sim.input(LoadInput::Closed(StreamEnd::told("reset")));
    let totals = sim.reporter.totals();
    assert_eq!((totals.reports_in_doubt, totals.calls_in_doubt), (1, 6));
    sim.reopen(&all(INTERVAL));
    sim.advance(INTERVAL);
    assert_eq!(sim.rows(), ["a: 1 0 0 4"], "not repeated");
}

/// N-71, N-73: a source stores what it has reported before each report goes out, takes that back if no connection
/// takes the report, and holds the report back if it cannot store.
#[test]
fn a_source_knows_the_way_of_each_report() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    let told = |sim: &mut Sim| std::mem::take(&mut sim.source.told);
    sim.count("a", 1, 0, 0);
    sim.takes_requests = false;
    sim.advance(INTERVAL);
    assert_eq!(told(&mut sim), ["sending"]);
    sim.takes_requests = true;
    sim.take_request();
    assert_eq!(told(&mut sim), ["sent"]);
    assert_eq!(sim.rows(), ["a: 1 0 0 1"]);

    sim.count("a", 2, 0, 0);
    sim.takes_requests = false;
    sim.advance(INTERVAL);
    sim.sent.clear();
    sim.input(LoadInput::Closed(StreamEnd::told("reset")));
    assert_eq!(told(&mut sim), ["sending", "unsent"]);

    sim.takes_requests = true;
    sim.reopen(&all(INTERVAL));
    sim.source.cannot_store = true;
    sim.advance(INTERVAL);
    assert_eq!(told(&mut sim), ["sending"]);
    assert!(sim.sent.is_empty(), "it would be repeated after a restart");
    sim.source.cannot_store = false;
    sim.advance(INTERVAL);
    assert_eq!(told(&mut sim), ["sending", "sent"]);
    assert_eq!(sim.rows(), ["a: 2 0 0 3"], "nothing is lost");
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

/// S13-06: all reports of the time in which nothing came from the server may be lost.
#[test]
fn reports_into_a_silent_connection_are_in_doubt() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    for _ in 0..6 {
        sim.count("a", 1, 1, 0);
        sim.advance(INTERVAL);
    }
    let end = StreamEnd {
        reason: "keep-alive timed out".into(),
        silence: Duration::from_secs(35),
        is_refusal: false,
    };
    sim.input(LoadInput::Closed(end));
    let totals = sim.reporter.totals();
    assert_eq!((totals.reports_in_doubt, totals.calls_in_doubt), (4, 4));
}

/// S13-06: a server that does not answer is asked ever more rarely; an answer makes it quick again.
#[test]
fn failed_streams_are_followed_by_a_backoff() {
    let mut sim = Sim::new();
    sim.use_cluster("a");
    let mut waits = Vec::new();
    for _ in 0..12 {
        sim.input(LoadInput::Closed(StreamEnd::told("refused")));
        waits.push(sim.reporter.next_timeout().unwrap() - sim.now);
        assert_eq!(sim.reporter.trouble().map(|why| &**why), Some("refused"));
        sim.advance(*waits.last().unwrap());
    }
    assert_eq!(sim.opened, 13);
    assert!(waits[0] >= Duration::from_millis(800) && waits[0] <= Duration::from_millis(1200));
    assert!(waits[11] > Duration::from_secs(90), "{waits:?}");

    sim.input(LoadInput::Opened);
    sim.answer(&all(INTERVAL));
    sim.input(LoadInput::Closed(StreamEnd::told("restart")));
    assert_eq!(sim.opened, 14, "at once");
    sim.input(LoadInput::Opened);
    sim.answer(&all(INTERVAL));
    sim.input(LoadInput::Closed(StreamEnd::told("restart")));
    let wait = sim.reporter.next_timeout().unwrap() - sim.now;
    assert!(
        wait <= Duration::from_millis(1200),
        "answered, but in a loop: {wait:?}"
    );
}

/// gRFC A27 with a server that refuses every report: an answer alone does not end the backoff, and the log has one
/// WARN with the status, until the reason changes or reports were taken for a while.
#[test]
fn a_server_that_refuses_reports_is_asked_ever_more_rarely() {
    let log = Log::default();
    let _logged = log.listen();
    let mut sim = Sim::open(&all(MIN_INTERVAL), &["a"]);
    let refuse = |sim: &mut Sim, reason: &str| {
        sim.count("a", 1, 1, 0);
        sim.advance(MIN_INTERVAL);
        sim.input(LoadInput::Closed(StreamEnd::refused(reason)));
        assert_eq!(sim.reporter.trouble().map(|why| &**why), Some(reason));
        let wait = sim.reporter.next_timeout().unwrap() - sim.now;
        sim.reopen(&all(MIN_INTERVAL));
        wait
    };
    let waits: Vec<_> = (0..12).map(|_| refuse(&mut sim, "odd metric")).collect();
    assert!(waits[0] <= Duration::from_millis(1200), "{waits:?}");
    assert!(waits[11] > Duration::from_secs(90), "{waits:?}");
    let said = log.lines("refuses load reports");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("WARN") && said[0].contains("odd metric"));

    refuse(&mut sim, "another");
    assert_eq!(log.lines("refuses load reports").len(), 2);
    for _ in 0..700 {
        sim.count("a", 1, 1, 0);
        sim.advance(MIN_INTERVAL);
    }
    let wait = refuse(&mut sim, "another");
    assert!(wait <= Duration::from_millis(1200), "{wait:?}");
    assert_eq!(log.lines("refuses load reports").len(), 3);
    assert_eq!(sim.reporter.totals().reports_in_doubt, 13 + 5);

    // The answer to the last report counts as well.
    sim.count("a", 1, 1, 0);
    sim.stop_using("a");
    assert_eq!(sim.finished, 1);
    sim.input(LoadInput::Closed(StreamEnd::refused("the last one")));
    assert_eq!(log.lines("refuses the last load report").len(), 1);
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

/// S9-08, S13-08: when no cluster wants reports any more, the rest is reported at once and the stream ends.
#[test]
fn the_last_report_comes_at_once_and_the_stream_ends() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.count("a", 3, 2, 1);
    sim.stop_using("a");
    assert_eq!(sim.rows(), ["a: 3 2 1 0"]);
    assert_eq!((sim.finished, sim.closed), (1, 0));
    sim.input(LoadInput::Closed(StreamEnd::told("OK")));
    assert!(sim.reporter.is_idle());
    assert_eq!(sim.reporter.totals().reports_in_doubt, 0);
    assert_eq!(sim.opened, 1);

    sim.use_cluster("a");
    assert_eq!(sim.opened, 2);
    sim.input(LoadInput::Opened);
    sim.answer(&all(INTERVAL));
    sim.stop_using("a");
    assert_eq!(sim.finished, 2, "nothing to report");
    sim.use_cluster("a");
    assert_eq!(sim.opened, 2, "the old stream ends first");
    sim.advance(Duration::from_secs(5));
    assert_eq!(
        sim.closed, 1,
        "a server that does not end it is not waited for"
    );
    assert_eq!(sim.opened, 3);
}

/// S13-08: without a server that takes the rest, the client gives up after a while and says how many calls.
#[test]
fn the_rest_is_given_up_if_no_server_takes_it() {
    let mut sim = Sim::new();
    sim.use_cluster("a");
    sim.count("a", 3, 3, 0);
    sim.input(LoadInput::Closed(StreamEnd::told("refused")));
    sim.stop_using("a");
    sim.advance(Duration::from_secs(9));
    while sim.reporter.trouble().is_none() {
        sim.input(LoadInput::Closed(StreamEnd::told("refused")));
    }
    assert!(!sim.reporter.is_idle());
    sim.advance(Duration::from_secs(1));
    assert!(sim.reporter.is_idle());
    assert_eq!(sim.reporter.totals().calls_given_up, 3);
}

/// S13-08: a report that no connection takes is given up with its stream, so that it cannot arrive after it was counted
/// as never reported.
#[test]
fn a_report_that_is_given_up_does_not_go_out() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.takes_requests = false;
    sim.count("a", 3, 3, 0);
    sim.stop_using("a");
    assert_eq!(sim.rows(), ["a: 3 3 0 0"]);
    sim.advance(Duration::from_secs(10));
    assert_eq!((sim.finished, sim.closed), (0, 1));
    assert!(sim.reporter.is_idle());
    let totals = sim.reporter.totals();
    assert_eq!((totals.calls_given_up, totals.reports), (3, 0));
}

/// S9-08: an event that changes nothing about the clusters in use does not touch the stream.
#[test]
fn other_changes_leave_the_stream_alone() {
    let mut sim = Sim::open(&all(INTERVAL), &["a"]);
    sim.use_cluster("b");
    sim.stop_using("b");
    sim.input(LoadInput::Changed);
    assert_eq!((sim.opened, sim.finished, sim.closed), (1, 0, 0));
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

#[derive(Clone, Debug)]
enum Step {
    Count(u64),
    Advance(u64),
    Break,
    Stall(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..5).prop_map(Step::Count),
        4 => (1u64..15).prop_map(Step::Advance),
        1 => Just(Step::Break),
        1 => any::<bool>().prop_map(Step::Stall),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// S13-06: whenever streams break and connections stall, what connections took adds up to the calls that
    /// were made: each call once.
    #[test]
    fn any_script_reports_each_call_once(steps in steps()) {
        let mut sim = Sim::open(&all(INTERVAL), &["a"]);
        let (mut made, mut taken) = (0, 0);
        for step in steps {
            match step {
                Step::Count(calls) => { made += calls; sim.count("a", calls, calls, 0); }
                Step::Advance(seconds) => sim.advance(Duration::from_secs(seconds)),
                Step::Break => {
                    sim.input(LoadInput::Closed(StreamEnd::told("broken")));
                    sim.reopen(&all(INTERVAL));
                }
                Step::Stall(stalls) => {
                    sim.takes_requests = !stalls;
                    if !stalls { sim.take_request(); }
                }
            }
            taken += sim.taken_calls();
            prop_assert!(taken <= made);
            prop_assert_eq!(taken, sim.reporter.totals().calls);
        }
        sim.takes_requests = true;
        sim.take_request();
        sim.advance(2 * INTERVAL);
        sim.stop_using("a");
        taken += sim.taken_calls();
        prop_assert_eq!(taken, made);
        prop_assert_eq!(sim.reporter.totals().calls_given_up, 0);
    }
}

/// A reporter, a source of counts, and a server that takes what is sent.
struct Sim {
    reporter: LoadReporter,
    source: Fake,
    now: Instant,
    /// True if the connection takes requests at once.
    takes_requests: bool,
    waiting: Option<LoadStatsRequest>,
    sent: Vec<LoadStatsRequest>,
    taken: Vec<LoadStatsRequest>,
    last: Option<LoadStatsRequest>,
    opened: u32,
    closed: u32,
    finished: u32,
}

impl Sim {
    fn new() -> Self {
        let node = Node {
            id: "web-1".to_owned(),
            client_features: vec!["envoy.lb.other".to_owned()],
            ..Node::default()
        };
        Self {
            reporter: LoadReporter::new(node, "127.0.0.1:18000", 7),
            source: Fake::default(),
            now: Instant::now(),
            takes_requests: true,
            waiting: None,
            sent: Vec::new(),
            taken: Vec::new(),
            last: None,
            opened: 0,
            closed: 0,
            finished: 0,
        }
    }

    /// A stream on which the server has answered.
    fn open(response: &LoadStatsResponse, clusters: &[&str]) -> Self {
        let mut sim = Self::new();
        clusters.iter().for_each(|name| sim.use_cluster(name));
        sim.reopen(response);
        sim
    }

    fn reopen(&mut self, response: &LoadStatsResponse) {
        while let Some(at) = self.reporter.next_timeout()
            && self.reporter.trouble().is_some()
        {
            self.advance(at - self.now);
        }
        let stalled = !std::mem::replace(&mut self.takes_requests, true);
        self.input(LoadInput::Opened);
        self.takes_requests = !stalled;
        self.sent.clear();
        self.answer(response);
    }

    fn use_cluster(&mut self, name: &str) {
        let fake = self.source.clusters.entry(name.to_owned());
        fake.or_insert_with(|| FakeCluster::new(name)).is_used = true;
        self.input(LoadInput::Changed);
    }

    fn stop_using(&mut self, name: &str) {
        self.source.clusters.get_mut(name).unwrap().is_used = false;
        self.input(LoadInput::Changed);
    }

    fn count(&mut self, name: &str, issued: u64, succeeded: u64, errors: u64) {
        let cluster = self.source.clusters.get_mut(name).unwrap();
        let locality = &mut cluster.load.localities[0];
        locality.issued += issued;
        locality.succeeded += succeeded;
        locality.errors += errors;
        locality.in_progress = locality.in_progress + issued - succeeded - errors;
    }

    fn answer(&mut self, response: &LoadStatsResponse) {
        self.input(LoadInput::Response(response.clone()));
    }

    fn input(&mut self, input: LoadInput) {
        if let LoadInput::Closed(_) = input {
            self.waiting = None;
        }
        self.reporter.handle(input, &mut self.source, self.now);
        self.act();
    }

    /// Lets time pass, with every timer in it.
    fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.reporter.next_timeout()
            && at <= end
        {
            self.now = at.max(self.now);
            self.reporter.handle_timeout(&mut self.source, self.now);
            self.act();
        }
        self.now = end;
    }

    fn act(&mut self) {
        while let Some(output) = self.reporter.poll_output() {
            match output {
                LoadOutput::Close => self.closed += 1,
                LoadOutput::Finish => self.finished += 1,
                LoadOutput::Open => self.opened += 1,
                LoadOutput::Send(request) => {
                    assert!(self.waiting.is_none(), "one request at a time");
                    self.sent.push((*request).clone());
                    self.waiting = Some(*request);
                    if self.takes_requests {
                        self.take_request();
                    }
                }
            }
        }
    }

    /// The connection takes the request that waits for it.
    fn take_request(&mut self) {
        if let Some(request) = self.waiting.take() {
            self.taken.push(request);
            self.input(LoadInput::Sent);
        }
    }

    /// The calls in the requests that connections have taken since this was last asked.
    fn taken_calls(&mut self) -> u64 {
        let taken = std::mem::take(&mut self.taken).into_iter();
        let stats = taken.flat_map(|request| request.cluster_stats);
        let localities = stats.flat_map(|stats| stats.upstream_locality_stats);
        localities
            .map(|locality| locality.total_issued_requests)
            .sum()
    }

    /// The report that was sent since this was last asked: a row for each cluster with issued, succeeded, errors
    /// and in progress.
    fn rows(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        let [request] = &sent[..] else {
            panic!("expected one report, got {sent:?}");
        };
        self.last = Some(request.clone());
        let row = |stats: &ClusterStats| {
            let at = &stats.upstream_locality_stats[0];
            format!(
                "{}: {} {} {} {}",
                stats.cluster_name,
                at.total_issued_requests,
                at.total_successful_requests,
                at.total_error_requests,
                at.total_requests_in_progress
            )
        };
        request.cluster_stats.iter().map(row).collect()
    }

    fn last_stats(&mut self, cluster: &str) -> ClusterStats {
        if !self.sent.is_empty() {
            self.rows();
        }
        let mut stats = self.last.as_ref().unwrap().cluster_stats.iter();
        let found = stats.find(|stats| stats.cluster_name == cluster);
        found.unwrap().clone()
    }

    fn interval_of(&mut self, cluster: &str) -> Duration {
        let interval = self.last_stats(cluster).load_report_interval.unwrap();
        Duration::new(interval.seconds as u64, interval.nanos as u32)
    }
}

/// The lines that are logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// With one subscriber in the process, `tracing` asks whichever thread comes first whether anybody listens, and
    /// other tests do not. So there are two.
    fn listen(&self) -> (DefaultGuard, Dispatch) {
        let (log, second) = (self.clone(), Dispatch::new(fmt().finish()));
        let subscriber = fmt().with_ansi(false).with_max_level(Level::INFO);
        let subscriber = subscriber.with_writer(move || log.clone());
        (set_default(subscriber.finish()), second)
    }

    fn lines(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let all = String::from_utf8(bytes.clone()).unwrap();
        let lines = all.lines().filter(|line| line.contains(text));
        lines.map(ToOwned::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Fake {
    clusters: BTreeMap<String, FakeCluster>,
    /// The ways of reports, as the source is told them.
    told: Vec<&'static str>,
    cannot_store: bool,
}

struct FakeCluster {
    load: ClusterLoad,
    is_used: bool,
    is_listed_twice: bool,
}

impl FakeCluster {
    fn new(name: &str) -> Self {
        Self {
            load: ClusterLoad {
                cluster: name.into(),
                eds_service_name: None,
                drops: Vec::new(),
                uncategorized_drops: 0,
                localities: vec![LocalityLoad {
                    locality: LocalityId::new("eu", "z", ""),
                    ..LocalityLoad::default()
                }],
                is_sparse: false,
            },
            is_used: true,
            is_listed_twice: false,
        }
    }

    fn take(&mut self) -> ClusterLoad {
        let taken = self.load.clone();
        self.load.drops.clear();
        self.load.uncategorized_drops = 0;
        let locality = &mut self.load.localities[0];
        *locality = LocalityLoad {
            locality: locality.locality.clone(),
            in_progress: locality.in_progress,
            ..LocalityLoad::default()
        };
        taken
    }
}

impl LoadSource for Fake {
    fn is_in_use(&self) -> bool {
        self.clusters.values().any(|cluster| cluster.is_used)
    }

    fn take(&mut self) -> Vec<ClusterLoad> {
        let mut loads = Vec::new();
        self.clusters.retain(|_, cluster| {
            loads.push(cluster.take());
            if cluster.is_listed_twice {
                loads.push(cluster.take());
            }
            cluster.is_used
        });
        loads
    }

    fn sending(&mut self) -> Result<(), Arc<str>> {
        self.told.push("sending");
        match self.cannot_store {
            true => Err("the map is full".into()),
            false => Ok(()),
        }
    }

    fn sent(&mut self) {
        self.told.push("sent");
    }

    fn unsent(&mut self) {
        self.told.push("unsent");
    }
}

fn sum(calls: u64, total: f64) -> MetricSum {
    MetricSum { calls, total }
}

fn all(interval: Duration) -> LoadStatsResponse {
    LoadStatsResponse {
        send_all_clusters: true,
        ..listed(interval, &[])
    }
}

fn listed(interval: Duration, names: &[&str]) -> LoadStatsResponse {
    LoadStatsResponse {
        clusters: names.iter().map(ToString::to_string).collect(),
        load_reporting_interval: Some(protobuf::Duration {
            seconds: interval.as_secs() as i64,
            nanos: interval.subsec_nanos() as i32,
        }),
        ..LoadStatsResponse::default()
    }
}
