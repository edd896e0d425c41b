//! Outlier detection (gRFC A50, A75, A91) over real sockets.
//!
//! An ejection must show in the calls, in the tree and in the metrics, so the tests read all three.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crowfly::Channel;
use crowfly::metrics::OpenTelemetry;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{ClusterBuilder, Resources, cluster, endpoints};
use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, OutlierDetection, circuit_breakers::Thresholds,
};
use envoy_types::pb::google::protobuf::{self, UInt32Value};

use crate::backend::Backend;
use crate::exporter::Exported;
use crate::support::{call, channel, pass, payments};

/// The key for calls that failed, in the place of the name of the backend that answered.
const FAILED: &str = "failed";

/// S11-01: the bad endpoint is ejected by its failures. It returns after the base time, and the next time
/// after twice as long. The tree of the channel says why.
#[tokio::test]
async fn a_bad_endpoint_is_ejected_and_returns_later_each_time() {
    let (a, b, c) = tokio::join!(Flaky::start("a"), Flaky::start("b"), Flaky::start("c"));
    let backends = [&a.backend, &b.backend, &c.backend];
    let server = ResourceServer::start(&ejecting(payments(&backends), |_| {}));
    let channel = channel(&server);
    gets_calls(&channel, &["a", "b", "c"]).await;

    a.fail(true);
    round(&channel).await;
    pass(INTERVAL).await;
    gets_calls(&channel, &["b", "c"]).await;
    let tree = channel.tree().await;
    let why = "TRANSIENT_FAILURE (ejected for 25s by outlier detection: ";
    assert!(tree.contains(why), "{tree}");
    assert!(tree.contains(" calls failed, over 1%, 2"), "{tree}");
    assert!(tree.contains("s left)"), "{tree}");

    a.fail(false);
    pass(2 * INTERVAL).await;
    looked(&channel).await;
    assert!(!round(&channel).await.contains_key("a"));
    pass(INTERVAL).await;
    gets_calls(&channel, &["a", "b", "c"]).await;

    a.fail(true);
    round(&channel).await;
    pass(INTERVAL).await;
    gets_calls(&channel, &["b", "c"]).await;
    a.fail(false);
    pass(4 * INTERVAL).await;
    looked(&channel).await;
    assert!(!round(&channel).await.contains_key("a"));
    pass(2 * INTERVAL).await;
    gets_calls(&channel, &["a", "b", "c"]).await;
    // It kept its connection all the time.
    assert_eq!(a.backend.connections(), 1);
}

/// S11-02: success rate ejects the endpoint that is far below the mean; none if too few endpoints had
/// enough calls.
#[tokio::test]
async fn success_rate_ejects_by_the_deviation() {
    let names = ["a", "b", "c", "d", "e"];
    for (minimum, is_ejected) in [(5, true), (6, false)] {
        let mut backends = Vec::new();
        for name in names {
            backends.push(Flaky::start(name).await);
        }
        let listed: Vec<_> = backends.iter().map(|flaky| &flaky.backend).collect();
        let by_success_rate = |settings: &mut OutlierDetection| {
            settings.enforcing_failure_percentage = number(0);
            settings.enforcing_success_rate = number(100);
            settings.success_rate_minimum_hosts = number(minimum);
            settings.success_rate_request_volume = number(2);
        };
        let resources = ejecting(payments(&listed), by_success_rate);
        let server = ResourceServer::start(&resources);
        let channel = channel(&server);
        gets_calls(&channel, &names).await;
        backends[4].fail(true);
        round(&channel).await;
        pass(INTERVAL).await;
        if is_ejected {
            gets_calls(&channel, &names[..4]).await;
        } else {
            looked(&channel).await;
            assert!(round(&channel).await.contains_key(FAILED));
        }
    }
}

/// S11-03: no more endpoints are ejected than the limit allows. gRFC A91: the metrics count both the ejected
/// and those that the limit spared.
#[tokio::test]
async fn the_number_of_ejected_endpoints_has_a_limit() {
    let (a, b, c, d) = tokio::join!(
        Flaky::start("a"),
        Flaky::start("b"),
        Flaky::start("c"),
        Flaky::start("d")
    );
    let backends = [&a.backend, &b.backend, &c.backend, &d.backend];
    let limited = |settings: &mut OutlierDetection| settings.max_ejection_percent = number(50);
    let server = ResourceServer::start(&ejecting(payments(&backends), limited));
    let exported = Exported::new();
    let metrics = OpenTelemetry::new(&exported.meter()).with_backend_service();
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .opentelemetry(&Arc::new(metrics))
        .build()
        .unwrap();
    gets_calls(&channel, &["a", "b", "c", "d"]).await;
    for flaky in [&a, &b, &c] {
        flaky.fail(true);
    }
    round(&channel).await;
    pass(INTERVAL).await;
    looked(&channel).await;
    let after = round(&channel).await;
    assert_eq!((after["d"], after[FAILED]), (10, 10), "{after:?}");

    let all = exported.series();
    let outliers = |what: &str| {
        let name = format!("grpc.lb.outlier_detection.{what}");
        all.iter().find(|series| series.name == name).unwrap()
    };
    for (what, count) in [("ejections_enforced", 2.0), ("ejections_unenforced", 1.0)] {
        let series = outliers(what);
        assert_eq!(series.sum, count, "{what}");
        let label = |name: &str| series.labels[name].as_str();
        assert_eq!(label("grpc.target"), "xds:///payments");
        assert_eq!(label("grpc.lb.backend_service"), "payments-cluster");
        let method = label("grpc.lb.outlier_detection.detection_method");
        assert_eq!(method, "failure_percentage");
    }
    let spared = &outliers("ejections_unenforced").labels;
    let reason = &spared["grpc.lb.outlier_detection.unenforced_reason"];
    assert_eq!(reason, "max_ejection_overflow");
}

/// S11-04: an update without outlier detection lets all endpoints return at once.
#[tokio::test]
async fn without_outlier_detection_all_endpoints_return() {
    let (a, b) = tokio::join!(Flaky::start("a"), Flaky::start("b"));
    let plain = payments(&[&a.backend, &b.backend]);
    let server = ResourceServer::start(&ejecting(plain.clone(), |_| {}));
    let channel = channel(&server);
    gets_calls(&channel, &["a", "b"]).await;
    a.fail(true);
    round(&channel).await;
    pass(INTERVAL).await;
    gets_calls(&channel, &["b"]).await;
    a.fail(false);
    server.set(&plain);
    gets_calls(&channel, &["a", "b"]).await;
}

/// S11-05, gRFC A75: an ejected endpoint stays ejected when it moves to another priority. While all
/// endpoints of a priority are ejected, calls go to the next one.
#[tokio::test]
async fn an_ejection_outlasts_a_change_of_priorities() {
    let (a, b, c) = tokio::join!(Flaky::start("a"), Flaky::start("b"), Flaky::start("c"));
    let at = |first: &[&Flaky], second: &[&Flaky]| {
        let addresses =
            |list: &[&Flaky]| list.iter().map(|f| f.backend.address).collect::<Vec<_>>();
        let mut list = endpoints("payments-eds");
        if !first.is_empty() {
            list = list.locality("eu/a", 1, addresses(first)).priority(1);
        }
        let list = list.locality("eu/b", 1, addresses(second));
        ejecting(payments(&[]).with(list), |_| {})
    };
    let server = ResourceServer::start(&at(&[&a], &[&b]));
    let channel = channel(&server);
    gets_calls(&channel, &["a"]).await;
    a.fail(true);
    round(&channel).await;
    pass(INTERVAL).await;
    gets_calls(&channel, &["b"]).await;

    a.fail(false);
    server.set(&at(&[&b], &[&a, &c]));
    gets_calls(&channel, &["b"]).await;
    server.set(&at(&[], &[&a, &b, &c]));
    gets_calls(&channel, &["b", "c"]).await;
    pass(3 * INTERVAL).await;
    gets_calls(&channel, &["a", "b", "c"]).await;
}

/// S11-06: an enforcement of 0 ejects nothing. A new interval counts from the last look, and if it is over
/// by then, the look comes at once.
#[tokio::test]
async fn an_enforcement_of_zero_ejects_nothing_and_a_new_interval_keeps_the_phase() {
    let (a, b) = tokio::join!(Flaky::start("a"), Flaky::start("b"));
    let plain = payments(&[&a.backend, &b.backend]);
    let off = ejecting(plain.clone(), |settings| {
        settings.enforcing_failure_percentage = number(0);
    });
    let server = ResourceServer::start(&off);
    let channel = channel(&server);
    gets_calls(&channel, &["a", "b"]).await;
    a.fail(true);
    round(&channel).await;
    pass(2 * INTERVAL).await;
    looked(&channel).await;
    assert!(round(&channel).await.contains_key(FAILED));

    // The limit of open calls shows which update is in force.
    let every = async |seconds: u32| {
        let edit = |settings: &mut OutlierDetection| {
            settings.interval = Some(protobuf::Duration {
                seconds: seconds.into(),
                nanos: 0,
            });
        };
        let limit = 5_000 + seconds;
        let limited = watched(edit).edit(|cluster| cluster.circuit_breakers = at_most(limit));
        server.set(&plain.clone().with(limited));
        shows(&channel, &format!("limit {limit}")).await;
    };
    every(1_000).await;
    round(&channel).await;
    pass(INTERVAL).await;
    every(20).await;
    looked(&channel).await;
    assert!(round(&channel).await.contains_key(FAILED));
    // It would have been over 5 s ago.
    every(5).await;
    gets_calls(&channel, &["b"]).await;
}

/// The time between two looks for outliers.
const INTERVAL: Duration = Duration::from_secs(10);

/// A backend that fails its calls while it is told to.
struct Flaky {
    backend: Backend,
    fails: Arc<AtomicBool>,
}

impl Flaky {
    async fn start(name: &str) -> Self {
        let fails = Arc::new(AtomicBool::new(false));
        let script = Arc::clone(&fails);
        let unavailable = move |_| script.load(Ordering::SeqCst).then_some(14);
        let backend = Backend::scripted(name, unavailable).await;
        Self { backend, fails }
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }
}

/// The resources with outlier detection: endpoints that fail more than 1% of at least two calls are ejected for
/// 25 s.
fn ejecting(resources: Resources, edit: impl FnOnce(&mut OutlierDetection)) -> Resources {
    resources.with(watched(edit))
}

/// The cluster of the service, with outlier detection.
fn watched(edit: impl FnOnce(&mut OutlierDetection)) -> ClusterBuilder {
    let mut settings = OutlierDetection {
        interval: Some(protobuf::Duration {
            seconds: 10,
            nanos: 0,
        }),
        base_ejection_time: Some(protobuf::Duration {
            seconds: 25,
            nanos: 0,
        }),
        max_ejection_percent: number(100),
        enforcing_success_rate: number(0),
        enforcing_failure_percentage: number(100),
        failure_percentage_threshold: number(1),
        failure_percentage_minimum_hosts: number(1),
        failure_percentage_request_volume: number(2),
        ..OutlierDetection::default()
    };
    edit(&mut settings);
    let ejecting = cluster("payments-cluster").eds("payments-eds");
    ejecting.edit(|cluster| cluster.outlier_detection = Some(settings))
}

/// A limit of open calls.
fn at_most(calls: u32) -> Option<CircuitBreakers> {
    Some(CircuitBreakers {
        thresholds: vec![Thresholds {
            max_requests: number(calls),
            ..Thresholds::default()
        }],
        ..CircuitBreakers::default()
    })
}

fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

/// Makes 20 calls, and counts them by backend or as failed.
async fn round(channel: &Channel) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..20 {
        let name = call(channel).await.unwrap_or_else(|_| FAILED.to_owned());
        *answers.entry(name).or_default() += 1;
    }
    answers
}

/// Calls until these backends, and no others, get calls, and none fails.
async fn gets_calls(channel: &Channel, names: &[&str]) {
    let mut last = BTreeMap::new();
    let looking = async {
        while !last.keys().eq(names) {
            last = round(channel).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), looking).await;
    assert!(found.is_ok(), "expected {names:?}, got {last:?}");
}

/// Waits until the tree of the channel has this text.
async fn shows(channel: &Channel, text: &str) {
    let shown = async {
        while !channel.tree().await.contains(text) {
            tokio::task::yield_now().await;
        }
    };
    let shown = tokio::time::timeout(Duration::from_secs(60), shown).await;
    shown.unwrap_or_else(|_| panic!("the tree never had {text:?}"));
}

/// Waits until the channel has looked for outliers, if it is time. Its task answers the second question after
/// it has done all that was due at the first.
async fn looked(channel: &Channel) {
    for _ in 0..2 {
        channel.tree().await;
    }
}
