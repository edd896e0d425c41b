//! Tests of the store of loads, with simulated time: examples are here, limits and a comparison with a naive store are
//! below.

mod limits;
mod naive;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::Locality;
use envoy_types::pb::envoy::config::endpoint::v3::cluster_stats::DroppedRequests;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UnnamedEndpointLoadMetricStats, UpstreamLocalityStats,
};
use envoy_types::pb::google::protobuf;

use super::*;

const INTERVAL: Duration = Duration::from_secs(10);

/// Books with a clock of their own.
struct Rig {
    store: LoadStore,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let now = Instant::now();
        let store = LoadStore::new(now, |total| total / 2);
        Self { store, now }
    }

    fn open(&mut self, locality: &str) -> ReporterId {
        self.open_at(None, locality)
    }

    fn open_at(&mut self, peer: Option<SocketAddr>, locality: &str) -> ReporterId {
        let reporter = Reporter {
            peer,
            locality: locality.to_owned(),
            ..Reporter::default()
        };
        self.store.open(reporter, self.now)
    }

    fn report(&mut self, id: ReporterId, clusters: Vec<ClusterStats>) {
        let report = Report::parse(clusters).unwrap();
        let is_served = |cluster: &str| cluster.starts_with("served");
        self.store.report(id, report, INTERVAL, self.now, is_served);
    }

    fn view(&self) -> Loads {
        let owner_of = |cluster: &str| Owner {
            service: format!("of {cluster}"),
            is_served: cluster.starts_with("served"),
        };
        self.store.view(INTERVAL, self.now, owner_of)
    }

    /// The only row.
    fn row(&self) -> LoadRow {
        let [row] = self.view().rows.try_into().unwrap();
        row
    }
}

/// A cluster with localities, whose counts cover ten seconds.
fn cluster(name: &str, localities: Vec<UpstreamLocalityStats>) -> ClusterStats {
    ClusterStats {
        cluster_name: name.to_owned(),
        upstream_locality_stats: localities,
        load_report_interval: Some(protobuf::Duration {
            seconds: 10,
            nanos: 0,
        }),
        ..ClusterStats::default()
    }
}

fn locality(zone: &str, [issued, succeeded, errors, open]: [u64; 4]) -> UpstreamLocalityStats {
    UpstreamLocalityStats {
        locality: Some(Locality {
            region: "eu".to_owned(),
            zone: zone.to_owned(),
            sub_zone: String::new(),
        }),
        total_issued_requests: issued,
        total_successful_requests: succeeded,
        total_error_requests: errors,
        total_requests_in_progress: open,
        ..UpstreamLocalityStats::default()
    }
}

/// The counts of a row, as in [`locality`].
fn counts(row: &LoadRow) -> [u64; 4] {
    [row.issued, row.succeeded, row.errors, row.in_progress]
}

/// S13-02: counts are added up over reports and reporters, and calls in progress are the sum of the
/// newest reports.
#[test]
fn counts_add_up_and_gauges_are_the_newest() {
    let mut rig = Rig::new();
    let (one, two) = (rig.open("eu/a"), rig.open("eu/a"));
    rig.report(
        one,
        vec![cluster("shop", vec![locality("b", [5, 2, 1, 2])])],
    );
    rig.report(
        two,
        vec![cluster("shop", vec![locality("b", [7, 3, 0, 4])])],
    );
    assert_eq!(counts(&rig.row()), [12, 5, 1, 6]);
    rig.report(
        one,
        vec![cluster("shop", vec![locality("b", [0, 1, 1, 0])])],
    );
    let row = rig.row();
    assert_eq!(counts(&row), [12, 6, 2, 4]);
    assert_eq!(row.service, "of shop");
    assert_eq!(row.client_locality, "eu/a");
    assert_eq!(row.backend_locality.as_deref(), Some("eu/b"));
}

/// S13-05: a locality that the newest report leaves out has no call in progress. Envoys leave out
/// localities in which nothing happens.
#[test]
fn a_locality_that_is_left_out_is_idle() {
    let mut rig = Rig::new();
    let id = rig.open("");
    rig.report(id, vec![cluster("shop", vec![locality("b", [1, 0, 0, 1])])]);
    assert_eq!(counts(&rig.row()), [1, 0, 0, 1]);
    rig.report(id, vec![cluster("shop", vec![])]);
    assert_eq!(counts(&rig.row()), [1, 0, 0, 0]);
    assert_eq!(rig.row().calls_per_second, 0.0);
}

/// A client that goes away takes its calls in progress and its connections with it. Its counts stay.
#[test]
fn a_client_takes_its_gauges_with_it() {
    let mut rig = Rig::new();
    let (one, two) = (rig.open("eu/a"), rig.open("eu/a"));
    for id in [one, two] {
        let mut stats = locality("b", [3, 1, 0, 2]);
        stats.total_active_connections = 5;
        stats.total_new_connections = 6;
        stats.total_fail_connections = 1;
        rig.report(id, vec![cluster("shop", vec![stats])]);
    }
    let connections = |active| Connections {
        opened: 12,
        failed: 2,
        active,
    };
    assert_eq!(rig.row().connections, connections(10));
    rig.store.close(one);
    assert_eq!(counts(&rig.row()), [6, 2, 0, 2]);
    assert_eq!(rig.row().connections, connections(5));
    rig.store.close(two);
    assert_eq!(counts(&rig.row()), [6, 2, 0, 0]);
    assert!(rig.view().reporters.is_empty());
}

/// A locality may be in a report twice: in two priorities, or under two names of its endpoints.
#[test]
fn a_locality_may_be_in_a_report_twice() {
    let mut rig = Rig::new();
    let id = rig.open("");
    let twice = vec![locality("b", [1, 1, 0, 1]), locality("b", [2, 1, 0, 3])];
    let again = cluster("shop", vec![locality("b", [4, 0, 0, 4])]);
    rig.report(id, vec![cluster("shop", twice), again]);
    assert_eq!(counts(&rig.row()), [7, 2, 0, 8]);
    assert_eq!(rig.row().calls_per_second, 0.7);
}

/// S13-04: drops have a row of their own, with the total and its categories. The total holds those of
/// the categories. One that is less than its parts, as older Envoys sent it, hides none.
#[test]
fn drops_are_counted_by_category_and_in_total() {
    for (total, expected) in [(10, 10), (3, 7)] {
        let mut rig = Rig::new();
        let id = rig.open("eu/a");
        let drop = |category: &str, dropped_count| DroppedRequests {
            category: category.to_owned(),
            dropped_count,
        };
        let stats = ClusterStats {
            total_dropped_requests: total,
            dropped_requests: vec![drop("throttle", 4), drop("lb", 3)],
            ..cluster("shop", vec![])
        };
        rig.report(id, vec![stats]);
        let row = rig.row();
        assert_eq!(row.dropped, expected);
        assert_eq!(row.backend_locality, None);
        let categories = [("lb".to_owned(), 3), ("throttle".to_owned(), 4)];
        assert_eq!(row.dropped_by_category, categories.into());
        assert_eq!(row.drops_per_second, expected as f64 / 10.0);
    }
}

/// A rate is that of the last reports. It ends when a reporter has been silent for three intervals.
#[test]
fn rates_are_those_of_the_last_reports() {
    let mut rig = Rig::new();
    let (one, two) = (rig.open("eu/a"), rig.open("eu/a"));
    rig.report(
        one,
        vec![cluster("shop", vec![locality("b", [100, 90, 10, 0])])],
    );
    let mut stats = cluster("shop", vec![locality("b", [5, 5, 0, 0])]);
    // It does not say for how long it counted: since its stream began.
    stats.load_report_interval = None;
    rig.now += Duration::from_secs(5);
    rig.report(two, vec![stats]);
    let row = rig.row();
    assert_eq!(row.calls_per_second, 11.0);
    assert_eq!(row.errors_per_second, 1.0);
    rig.now += Duration::from_secs(25);
    assert_eq!(rig.row().calls_per_second, 10.0);
    rig.now += Duration::from_millis(1);
    assert_eq!(rig.row().calls_per_second, 0.0);
    assert_eq!(rig.row().issued, 105);
}

/// gRFC A85: utilisation comes in fields of its own (gRPC) or by name (Envoy), and both are one.
#[test]
fn metrics_are_summed_and_have_a_recent_mean() {
    let mut rig = Rig::new();
    let id = rig.open("");
    let mut stats = locality("b", [2, 2, 0, 0]);
    stats.cpu_utilization = Some(UnnamedEndpointLoadMetricStats {
        num_requests_finished_with_metric: 2,
        total_metric_value: 1.5,
    });
    rig.report(id, vec![cluster("shop", vec![stats])]);
    let mut stats = locality("b", [1, 1, 0, 0]);
    stats.load_metric_stats = vec![EndpointLoadMetricStats {
        metric_name: "cpu_utilization".to_owned(),
        num_requests_finished_with_metric: 1,
        total_metric_value: 0.25,
    }];
    rig.report(id, vec![cluster("shop", vec![stats])]);
    let expected = Metric {
        calls: 3,
        total: 1.75,
        recent_mean: Some(0.25),
    };
    assert_eq!(rig.row().metrics["cpu_utilization"], expected);
    rig.report(id, vec![]);
    assert_eq!(rig.row().metrics["cpu_utilization"].recent_mean, None);
}

/// The history has the counts of each ten seconds, for five minutes.
#[test]
fn the_history_is_short() {
    let mut rig = Rig::new();
    let id = rig.open("");
    for issued in 1..=100 {
        rig.report(
            id,
            vec![cluster("shop", vec![locality("b", [issued, 0, 0, 0])])],
        );
        rig.now += Duration::from_secs(5);
    }
    let history = rig.row().history;
    // The moment that has just begun has no report yet.
    assert_eq!(history.len(), 29);
    assert_eq!((history[0].issued, history[28].issued), (87, 199));
    assert_eq!(
        (history[0].seconds_ago, history[28].seconds_ago),
        (290.0, 10.0)
    );
    rig.now += Duration::from_secs(290);
    assert!(rig.row().history.is_empty());
    assert_eq!(rig.row().issued, 5050);
}

/// A row is dropped when nobody has spoken of it for an hour.
#[test]
fn rows_are_forgotten() {
    let mut rig = Rig::new();
    let (one, two) = (rig.open("eu/a"), rig.open("eu/b"));
    rig.report(one, vec![cluster("old", vec![locality("b", [1, 1, 0, 0])])]);
    let open = || vec![cluster("open", vec![locality("b", [1, 0, 0, 1])])];
    rig.report(two, open());
    rig.now += Duration::from_secs(3599);
    rig.report(one, vec![]);
    rig.report(two, open());
    assert_eq!(rig.view().rows.len(), 2);
    rig.now += Duration::from_secs(61);
    rig.report(one, vec![]);
    let rows = rig.view().rows;
    assert_eq!(rows.len(), 1, "a call is still in progress: {rows:?}");
    rig.store.close(two);
    rig.now += Duration::from_secs(3600);
    rig.report(one, vec![]);
    assert!(rig.view().rows.is_empty());
}

/// A stream that is open and silent for an hour counts as gone. Its calls in progress go, and so do
/// its rows.
#[test]
fn a_silent_stream_counts_as_gone() {
    let mut rig = Rig::new();
    let (one, two) = (rig.open("eu/a"), rig.open("eu/b"));
    rig.report(
        two,
        vec![cluster("open", vec![locality("b", [1, 0, 0, 1])])],
    );
    rig.now += Duration::from_secs(3599);
    rig.report(one, vec![]);
    assert_eq!(rig.row().in_progress, 1);
    rig.now += Duration::from_secs(61);
    rig.report(one, vec![]);
    assert!(rig.view().rows.is_empty());
    assert_eq!(rig.view().reporters.len(), 2);
}

/// The rows of a service are together.
#[test]
fn rows_are_ordered_by_service() {
    let mut rig = Rig::new();
    let id = rig.open("eu/a");
    let of = |name: &str| cluster(name, vec![locality("b", [1, 1, 0, 0])]);
    let report = vec![of("a/endpoints"), of("dns:a"), of("b"), of("a")];
    let report = Report::parse(report).unwrap();
    rig.store.report(id, report, INTERVAL, rig.now, |_| true);
    let loads = rig.store.view(INTERVAL, rig.now, |cluster| {
        let own = cluster.strip_suffix("/endpoints");
        Owner {
            service: own.unwrap_or(cluster).to_owned(),
            is_served: true,
        }
    });
    let rows = loads.rows;
    let order: Vec<_> = rows.iter().map(|row| row.cluster.as_str()).collect();
    assert_eq!(order, ["a", "a/endpoints", "b", "dns:a"]);
}
