//! Everything that a client can send has a limit, and what is beyond it is refused aloud.

use super::super::limits::Limits;
use super::super::report::{
    ClusterReport, Counts, Gauges, LocalityReport, MAX_CATEGORIES, MAX_CLUSTERS, MAX_COUNT,
    MAX_LOCALITIES, MAX_METRICS, MAX_NAME,
};
use super::super::row::MAX_NAMES;
use super::*;
use crate::metrics::Metrics;

fn refused(stats: ClusterStats) -> String {
    let parsed = Report::parse(vec![stats]);
    parsed.unwrap_err().to_string()
}

fn metric(name: &str, value: f64) -> EndpointLoadMetricStats {
    EndpointLoadMetricStats {
        metric_name: name.to_owned(),
        num_requests_finished_with_metric: 1,
        total_metric_value: value,
    }
}

fn drops(category: &str, dropped_count: u64) -> DroppedRequests {
    DroppedRequests {
        category: category.to_owned(),
        dropped_count,
    }
}

#[test]
fn a_cluster_must_have_a_name() {
    let told = refused(cluster("", vec![]));
    assert_eq!(told, "cluster_stats[0].cluster_name: must be set");
}

/// A negative number that is sent as an unsigned one is larger than the limit.
#[test]
fn absurd_counts_are_refused() {
    let minus_one = u64::MAX;
    let told = refused(cluster("a", vec![locality("b", [0, 0, minus_one, 0])]));
    assert_eq!(
        told,
        "cluster_stats[0].upstream_locality_stats[0].total_error_requests: \
         expected at most 1099511627776, got 18446744073709551615"
    );
    let mut stats = cluster("a", vec![]);
    stats.dropped_requests = vec![drops("x", MAX_COUNT), drops("y", MAX_COUNT + 1)];
    let told = refused(stats);
    assert!(
        told.starts_with("cluster_stats[0].dropped_requests[1].dropped_count: "),
        "{told}"
    );
}

/// Every problem of a report is found.
#[test]
fn all_problems_are_told() {
    let mut stats = cluster("", vec![locality("b", [MAX_COUNT + 1, 0, 0, 0])]);
    stats.load_report_interval = Some(protobuf::Duration {
        seconds: -1,
        nanos: 0,
    });
    let told = refused(stats);
    assert_eq!(told.split("; ").count(), 3, "{told}");
    assert!(
        told.contains("load_report_interval: expected a duration, got -1 s and 0 ns"),
        "{told}"
    );
}

/// gRFC A64: clients do not look at the values of metrics. A bad one is left out, and counted. All
/// other figures of the report are kept.
#[test]
fn a_bad_metric_is_left_out() {
    let mut rig = Rig::new();
    let id = rig.open("");
    let mut stats = locality("b", [7, 4, 1, 2]);
    stats.cpu_utilization = Some(UnnamedEndpointLoadMetricStats {
        num_requests_finished_with_metric: 1,
        total_metric_value: f64::NAN,
    });
    stats.load_metric_stats = vec![
        metric("good", 0.5),
        metric("infinite", f64::INFINITY),
        metric("below", f64::NEG_INFINITY),
        metric("large", 1e300),
        metric(&"x".repeat(MAX_NAME + 1), 1.0),
    ];
    rig.report(id, vec![cluster("a", vec![stats])]);
    let row = rig.row();
    assert_eq!(counts(&row), [7, 4, 1, 2]);
    let kept: Vec<_> = row.metrics.keys().map(String::as_str).collect();
    assert_eq!(kept, ["good"]);
    let loads = rig.view();
    assert_eq!((loads.refused_metrics, loads.refused_rows), (5, 0));
}

/// A client adds up as many metrics as backends send. Those beyond the limit are left out.
#[test]
fn metrics_beyond_the_limit_are_left_out() {
    let mut rig = Rig::new();
    let id = rig.open("");
    let mut stats = locality("b", [1, 1, 0, 0]);
    let names = 0..MAX_METRICS + 7;
    stats.load_metric_stats = names.map(|of| metric(&of.to_string(), 1.0)).collect();
    rig.report(id, vec![cluster("a", vec![stats])]);
    assert_eq!(rig.row().metrics.len(), MAX_METRICS);
    assert_eq!(rig.row().issued, 1);
    assert_eq!(rig.view().refused_metrics, 7);
}

/// The number of calls with a metric is the client's own count, so a bad one is refused.
#[test]
fn absurd_counts_of_metrics_are_refused() {
    let mut stats = locality("b", [0; 4]);
    stats.load_metric_stats = vec![EndpointLoadMetricStats {
        num_requests_finished_with_metric: MAX_COUNT + 1,
        ..metric("cpu", 1.0)
    }];
    let told = refused(cluster("a", vec![stats]));
    let field = "load_metric_stats[0].num_requests_finished_with_metric: ";
    assert!(told.contains(field), "{told}");
}

#[test]
fn lists_have_limits() {
    let told = refused(cluster(
        "a",
        vec![locality("b", [0; 4]); MAX_LOCALITIES + 1],
    ));
    let list = "cluster_stats[0].upstream_locality_stats";
    assert_eq!(told, format!("{list}: expected at most 1000, got 1001"));

    let mut stats = cluster("a", vec![]);
    stats.dropped_requests = vec![drops("x", 1); MAX_CATEGORIES + 1];
    let told = refused(stats);
    assert_eq!(
        told,
        "cluster_stats[0].dropped_requests: expected at most 100, got 101"
    );

    let clusters = vec![cluster("a", vec![]); MAX_CLUSTERS + 1];
    let told = Report::parse(clusters).unwrap_err();
    assert_eq!(
        told.to_string(),
        "cluster_stats: expected at most 20000, got 20001"
    );
}

#[test]
fn names_have_limits() {
    let long = "x".repeat(MAX_NAME + 1);
    let told = refused(cluster(&long, vec![]));
    assert_eq!(
        told,
        "cluster_stats[0].cluster_name: expected at most 512 bytes, got 513"
    );
    let told = refused(cluster("a", vec![locality(&long, [0; 4])]));
    assert!(
        told.contains("[0].locality.zone: expected at most 512"),
        "{told}"
    );
    let mut stats = cluster("a", vec![]);
    stats.dropped_requests = vec![drops(&long, 1)];
    assert!(refused(stats).contains("dropped_requests[0].category: "));
}

impl Rig {
    fn with_rows(rows: usize, rows_of_address: usize) -> Self {
        let limits = Limits {
            rows,
            rows_of_address,
            ..Limits::default()
        };
        Self::with_limits(limits)
    }

    fn with_limits(limits: Limits) -> Self {
        let mut rig = Self::new();
        rig.store = LoadStore::with_limits(limits, rig.now);
        rig
    }

    fn clusters(&self) -> Vec<String> {
        let rows = self.view().rows.into_iter();
        rows.map(|row| row.cluster).collect()
    }
}

/// A cluster with a call.
fn of(name: &str) -> ClusterStats {
    cluster(name, vec![locality("b", [1, 1, 0, 0])])
}

/// L-11: clients of one address that name ever more clusters have a share of the rows, however many their streams are.
/// The rest is for others. They get their share back when its rows are forgotten.
#[test]
fn an_address_has_a_share_of_the_rows() {
    let mut rig = Rig::with_rows(4, 3);
    let at = |host| Some(SocketAddr::from(([10, 0, 0, host], 7)));
    for name in ["a", "b", "c", "d", "e"] {
        // Each on a stream of its own, of which some have ended.
        let greedy = rig.open_at(at(1), "");
        rig.report(greedy, vec![of(name)]);
        if name < "c" {
            rig.store.close(greedy);
        }
    }
    assert_eq!(rig.view().refused_rows, 2);
    let (greedy, other) = (rig.open_at(at(1), ""), rig.open_at(at(2), ""));
    rig.report(other, vec![of("z")]);
    // A row that another address brought costs nothing.
    rig.report(greedy, vec![of("z")]);
    assert_eq!(rig.clusters(), ["a", "b", "c", "z"]);
    assert_eq!(rig.view().refused_rows, 2);
    rig.now += Duration::from_secs(3600);
    rig.report(greedy, vec![of("f"), of("g"), of("h"), of("i")]);
    assert_eq!(rig.clusters(), ["f", "g", "h"]);
}

/// F-07, L-11: names of clients make no labels without end. Clusters that are not served share one.
#[test]
fn invented_names_of_loads_share_labels() {
    let mut rig = Rig::new();
    let metrics = Metrics::default();
    let lines = |rig: &Rig| {
        let text = metrics.encode(&rig.view()).unwrap();
        let loads = text.lines().filter(|line| line.contains("cluster="));
        loads.map(str::to_owned).collect::<Vec<_>>()
    };
    let honest = rig.open("eu/a");
    let mut stats = locality("b", [5, 2, 1, 2]);
    stats.load_metric_stats = vec![metric("cpu", 1.0)];
    rig.report(honest, vec![cluster("served", vec![stats])]);
    let before = lines(&rig);
    assert!(
        before
            .iter()
            .all(|line| line.contains("cluster=\"served\"")),
        "{before:?}"
    );

    for index in 0..1_000 {
        let invented = format!("x-{index}");
        let mut stats = locality(&invented, [7, 3, 0, 1]);
        stats.load_metric_stats = vec![metric(&invented, 1.0)];
        let mut drop = cluster("served", vec![stats.clone()]);
        drop.total_dropped_requests = 1;
        drop.dropped_requests = vec![drops(&invented, 1)];
        let id = rig.open(&invented);
        let mut other = drop.clone();
        other.cluster_name = invented;
        rig.report(id, vec![drop, other]);
        if index % 100 == 0 {
            lines(&rig);
        }
    }
    let after = lines(&rig);
    // Seven families of rows, two of metrics, and one of drops, with a category and without.
    let most = (7 + 2 + 2) * 502 + 8 + before.len();
    assert!(after.len() <= most, "{} lines", after.len());
    let others = r#"service="(others)",cluster="(others)",client_locality="""#;
    for line in [
        format!(r#"crowfly_control_load_issued_total{{{others},backend_locality=""}} 7000"#),
        format!(r#"crowfly_control_load_in_progress{{{others},backend_locality=""}} 1000"#),
        format!(r#"crowfly_control_load_dropped_total{{{others},category=""}} 1000"#),
    ] {
        assert!(after.contains(&line), "{line}");
    }
    let of_others = after.iter().filter(|line| line.contains(others));
    assert_eq!(of_others.count(), 8, "they have no metrics");
    assert!(
        before.iter().all(|line| after.contains(line)),
        "the honest client keeps its labels"
    );
}

/// Clusters that we do not serve make room, once nobody speaks of them any more.
#[test]
fn clusters_that_are_not_served_make_room() {
    let mut rig = Rig::with_rows(3, 3);
    let id = rig.open("");
    rig.report(id, vec![of("served a"), of("b"), of("c")]);
    rig.now += Duration::from_secs(59);
    rig.report(id, vec![of("c")]);
    rig.report(id, vec![of("served d")]);
    assert_eq!(rig.clusters(), ["b", "c", "served a"]);
    assert_eq!(rig.view().refused_rows, 1);
    rig.now += Duration::from_secs(10);
    rig.report(id, vec![of("served d")]);
    assert_eq!(rig.clusters(), ["c", "served a", "served d"]);
    assert_eq!(rig.view().refused_rows, 1);
}

/// When there are too many rows, those that exist go on, and what is refused is counted.
#[test]
fn there_are_not_more_rows_than_the_limit() {
    let mut rig = Rig::with_rows(2, 2);
    let id = rig.open("");
    rig.report(id, vec![of("a"), of("b"), of("c"), of("d")]);
    rig.report(id, vec![of("c"), of("b")]);
    let loads = rig.view();
    let rows: Vec<_> = loads
        .rows
        .iter()
        .map(|row| (row.cluster.as_str(), row.issued))
        .collect();
    assert_eq!(rows, [("a", 1), ("b", 2)]);
    assert_eq!(loads.refused_rows, 3);
    // Once rows are forgotten, there is room.
    rig.report(id, vec![]);
    rig.now += Duration::from_secs(3600);
    rig.report(id, vec![of("c")]);
    assert_eq!(rig.row().cluster, "c");
}

/// Streams that speak of one row take room, and so do metrics. When there is none, totals go on and
/// the last word of a stream is not kept, which is counted. A stream that ends leaves its room.
#[test]
fn the_sum_of_entries_over_rows_and_streams_has_a_limit() {
    let mut rig = Rig::with_limits(Limits {
        entries: 5,
        entries_of_stream: 4,
        ..Limits::default()
    });
    let ids: Vec<_> = (0..6).map(|_| rig.open("")).collect();
    let report = || vec![cluster("a", vec![locality("b", [1, 0, 0, 1])])];
    for id in &ids {
        rig.report(*id, report());
    }
    assert_eq!(counts(&rig.row()), [6, 0, 0, 5]);
    assert_eq!(rig.view().refused_rows, 1);
    for id in &ids[..5] {
        rig.store.close(*id);
    }
    assert_eq!(rig.store.entries(), (0, 0));

    // Each metric takes two entries: one for its total, and one in the last word of the stream.
    let mut stats = locality("b", [1, 0, 0, 1]);
    stats.load_metric_stats = ["x", "y", "z"].map(|name| metric(name, 1.0)).into();
    rig.report(ids[5], vec![cluster("a", vec![stats])]);
    assert_eq!(counts(&rig.row()), [7, 0, 0, 1]);
    assert_eq!(rig.store.entries(), (4, 4));
    assert_eq!(rig.view().refused_metrics, 2);
    assert_eq!(rig.row().metrics["x"].recent_mean, Some(1.0));
}

/// A locality that is in a report a thousand times, with the same metrics, takes no more room.
#[test]
fn repetitions_in_a_report_take_no_room() {
    let mut rig = Rig::new();
    let id = rig.open("");
    let mut stats = locality("b", [1, 0, 0, 0]);
    stats.load_metric_stats = vec![metric("x", 1.0); 10];
    rig.report(id, vec![cluster("a", vec![stats; MAX_LOCALITIES])]);
    assert_eq!(rig.row().metrics["x"].calls, 10_000);
    assert_eq!(rig.store.entries(), (3, 3));
}

/// A row keeps so many categories and metrics. The total counts the others as well.
#[test]
fn a_row_keeps_so_many_names() {
    let mut rig = Rig::new();
    let id = rig.open("");
    for number in 0..MAX_NAMES + 5 {
        let mut stats = cluster("a", vec![]);
        stats.total_dropped_requests = 1;
        stats.dropped_requests = vec![drops(&number.to_string(), 1)];
        rig.report(id, vec![stats]);
    }
    let row = rig.row();
    assert_eq!(row.dropped_by_category.len(), MAX_NAMES);
    assert_eq!(row.dropped, MAX_NAMES as u64 + 5);
    assert_eq!(rig.view().refused_rows, 5);
}

/// Totals do not wrap around.
#[test]
fn totals_end_at_the_largest_number() {
    let mut rig = Rig::new();
    let id = rig.open("");
    let most = Report {
        refused_metrics: 0,
        clusters: vec![ClusterReport {
            cluster: "a".to_owned(),
            localities: vec![LocalityReport {
                counts: Counts {
                    issued: u64::MAX,
                    ..Counts::default()
                },
                gauges: Gauges {
                    in_progress: u64::MAX,
                    ..Gauges::default()
                },
                ..LocalityReport::default()
            }],
            ..ClusterReport::default()
        }],
    };
    let twice = Report {
        refused_metrics: 0,
        clusters: [most.clusters.clone(), most.clusters].concat(),
    };
    rig.store.report(id, twice, INTERVAL, rig.now, |_| true);
    let row = rig.row();
    assert_eq!(counts(&row), [u64::MAX, 0, 0, u64::MAX]);
    assert_eq!(row.history[0].issued, u64::MAX);
}
