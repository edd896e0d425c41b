//! Load reports (LRS, gRFC A27) over real sockets.
//!
//! A test plays the server by hand, so that it sees each report and decides when the server
//! answers.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crowfly::Channel;
use crowfly_testkit::builders::{ClusterBuilder, Resources, cluster, endpoints, routes};
use crowfly_testkit::{LoadSums, LrsStream, NODE_ID, ResourceServer};
use envoy_types::pb::envoy::config::endpoint::v3::UpstreamLocalityStats;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use crate::backend::Backend;
use crate::limits::limited;
use crate::support::{AllHostsAt, PATH, call, call_within, channel, pass, payments, send, start};

const INTERVAL: Duration = Duration::from_secs(10);
const CLUSTER: &str = "payments-cluster";
const ZONE: &str = "region/zone/";

/// The cluster of `payments`, with load reports.
fn reporting() -> ClusterBuilder {
    cluster(CLUSTER).eds("payments-eds").load_reports([])
}

/// The service `payments` with load reports.
fn reported(backends: &[&Backend]) -> Resources {
    payments(backends).with(reporting())
}

/// Lets time pass and adds reports up, until `done` is true of the sums.
async fn reports_until(
    stream: &mut LrsStream,
    sums: &mut LoadSums,
    done: impl Fn(&LoadSums) -> bool,
) {
    let started = std::time::Instant::now();
    while !done(sums) {
        assert!(started.elapsed() < Duration::from_secs(30), "{sums:?}");
        pass(INTERVAL / 2).await;
        while let Ok(report) = timeout(Duration::from_millis(50), stream.next()).await {
            sums.add(&report.expect("the client keeps the stream"));
        }
    }
}

/// The sums once this locality of the cluster has this row.
async fn row(stream: &mut LrsStream, sums: &mut LoadSums, place: &str, expected: [u64; 4]) {
    reports_until(stream, sums, |sums| sums.row(CLUSTER, place) == expected).await;
}

/// S13-01: the node and the feature come first, and no report before the server has answered; then one in every
/// interval.
#[tokio::test]
async fn the_server_decides_when_load_is_reported() {
    let a = Backend::start("a").await;
    let (server, mut lrs) = ResourceServer::start_with_lrs(&reported(&[&a]));
    let channel = channel(&server);
    call(&channel).await.unwrap();
    let mut stream = lrs.accept().await;
    let first = stream.report().await;
    let node = first.node.unwrap();
    assert_eq!(node.id, NODE_ID);
    let feature = "envoy.lrs.supports_send_all_clusters";
    assert!(node.client_features.iter().any(|it| it == feature));
    assert_eq!(first.cluster_stats, []);

    pass(10 * INTERVAL).await;
    let early = timeout(Duration::from_millis(300), stream.next()).await;
    assert!(early.is_err(), "{early:?}");
    stream.ask(INTERVAL, None);
    let mut sums = LoadSums::default();
    row(&mut stream, &mut sums, ZONE, [1, 1, 0, 0]).await;
    call(&channel).await.unwrap();
    row(&mut stream, &mut sums, ZONE, [2, 2, 0, 0]).await;
}

/// S13-02, S13-05: each locality has what was sent to it, with its outcome. An open call is in progress, and is
/// not issued again.
#[tokio::test]
async fn reports_have_the_calls_of_each_locality() {
    let failing = Backend::scripted("a", |_| Some(13)).await;
    let mut holding = Backend::holding("b").await;
    let at = |zone: &str, backend: &Backend| {
        let zone = endpoints("payments-eds").locality(zone, 1, [backend.address]);
        payments(&[]).with(reporting()).with(zone)
    };
    let (server, mut lrs) = ResourceServer::start_with_lrs(&at("eu/a/1", &failing));
    let channel = channel(&server);
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    for _ in 0..3 {
        call(&channel).await.unwrap_err();
    }
    let mut sums = LoadSums::default();
    row(&mut stream, &mut sums, "eu/a/1", [3, 0, 3, 0]).await;

    server.set(&at("eu/b", &holding));
    // Calls go to the old place until the new endpoint is connected.
    let (open, held) = loop {
        let mut open = start(&channel);
        tokio::select! {
            outcome = &mut open => outcome.unwrap().map(drop).unwrap_err(),
            held = holding.next_call() => break (open, held),
        };
    };
    let late = call_within(&channel, Duration::from_millis(50)).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    row(&mut stream, &mut sums, "eu/b/", [2, 0, 1, 1]).await;
    pass(3 * INTERVAL).await;
    held.answer();
    open.await.unwrap().unwrap();
    row(&mut stream, &mut sums, "eu/b/", [2, 1, 1, 0]).await;
    let [issued, succeeded, errors, in_progress] = sums.row(CLUSTER, "eu/a/1");
    assert_eq!((succeeded, in_progress), (0, 0));
    assert_eq!(issued, errors);
}

/// S13-03: only the clusters that the server lists are reported, and its next list counts at once. A cluster that is
/// listed later has none of the calls before.
#[tokio::test]
async fn the_server_decides_which_clusters_are_reported() {
    let a = Backend::start("a").await;
    let (server, mut lrs) = ResourceServer::start_with_lrs(&reported(&[&a]));
    let channel = channel(&server);
    let mut stream = lrs.accept().await;
    stream.report().await;
    stream.ask(INTERVAL, Some(&["another"]));
    for _ in 0..100 {
        call(&channel).await.unwrap();
    }
    let mut sums = LoadSums::default();
    reports_until(&mut stream, &mut sums, |sums| sums.reports >= 1).await;
    assert!(sums.localities.is_empty(), "{sums:?}");
    stream.ask(INTERVAL, Some(&["another", CLUSTER]));
    // The response is there once a report lists the cluster.
    let listed = |sums: &LoadSums| !sums.localities.is_empty();
    let made = Cell::new(0);
    let calls = async {
        loop {
            made.set(made.get() + 1);
            call(&channel).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = calls => {}
        () = reports_until(&mut stream, &mut sums, listed) => {}
    }
    let [issued, ..] = sums.row(CLUSTER, ZONE);
    assert!(issued <= made.get(), "{issued} of {}", made.get());
}

/// S13-04, S9-01: drops by category, and those by the limit in the total alone.
#[tokio::test]
async fn reports_have_drops() {
    let mut holding = Backend::holding("a").await;
    let name = "reported-and-limited";
    let resources = payments(&[&holding])
        .with(routes("payments-routes").host("*").route("/", name))
        .with(limited(name, 1).load_reports([]));
    let (server, mut lrs) = ResourceServer::start_with_lrs(&resources);
    let channel = channel(&server);
    let open = start(&channel);
    let held = holding.next_call().await;
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    for _ in 0..3 {
        let over = call(&channel).await.unwrap_err();
        assert_eq!(over.code(), Code::Unavailable);
    }
    let mut sums = LoadSums::default();
    let dropped = |sums: &LoadSums, category: &str| {
        let key = (name.to_owned(), category.to_owned());
        sums.drops.get(&key).copied().unwrap_or_default()
    };
    reports_until(&mut stream, &mut sums, |sums| dropped(sums, "") == 3).await;
    assert_eq!(sums.row(name, ZONE), [1, 0, 0, 1]);
    held.answer();
    open.await.unwrap().unwrap();

    let dropping = endpoints("payments-eds")
        .locality("region/zone", 1, [holding.address])
        .drop("all", 1_000_000);
    server.set(&resources.with(dropping));
    let mut by_category = 0;
    while by_category < 5 {
        let status = call_within(&channel, Duration::from_millis(50)).await;
        let status = status.unwrap_err();
        by_category += u64::from(status.message().contains("category all"));
    }
    reports_until(&mut stream, &mut sums, |sums| dropped(sums, "all") == 5).await;
    assert_eq!(dropped(&sums, ""), 3);
}

/// S13-06: the stream is opened again after it broke, and the counts go on where they were.
#[tokio::test]
async fn a_broken_stream_is_followed_by_another() {
    let a = Backend::start("a").await;
    let (mut server, mut lrs) = ResourceServer::start_with_lrs(&reported(&[&a]));
    let channel = channel(&server);
    let mut sums = LoadSums::default();
    for round in 0..3 {
        let mut stream = lrs.accept_and_ask(INTERVAL).await;
        call(&channel).await.unwrap();
        row(
            &mut stream,
            &mut sums,
            ZONE,
            [2 * round + 1, 2 * round + 1, 0, 0],
        )
        .await;
        call(&channel).await.unwrap();
        match round {
            0 => stream.fail(Status::unavailable("restart")),
            1 => drop(stream),
            _ => {
                server.stop().await;
                server.restart();
            }
        }
        pass(Duration::from_secs(2)).await;
    }
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    row(&mut stream, &mut sums, ZONE, [6, 6, 0, 0]).await;
    let [status] = &crowfly::load_reports()
        .into_iter()
        .filter(|status| *status.server == *server.address().to_string())
        .collect::<Vec<_>>()[..]
    else {
        panic!("one client of this server");
    };
    assert_eq!(status.totals.calls, 6);
    assert!(status.totals.streams >= 4, "{status:?}");
    assert!(status.totals.reports >= 4, "{status:?}");
}

/// S9-08: other changes of a configuration leave the stream as it is. Without `lrs_server` the last
/// report is sent and the stream ends; with it again there is a new one.
#[tokio::test]
async fn the_stream_lasts_as_long_as_a_cluster_wants_it() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let (server, mut lrs) = ResourceServer::start_with_lrs(&reported(&[&a]));
    let channel = channel(&server);
    call(&channel).await.unwrap();
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    let mut sums = LoadSums::default();
    row(&mut stream, &mut sums, ZONE, [1, 1, 0, 0]).await;

    server.set(&reported(&[&b]));
    while call(&channel).await.unwrap() != "b" {}
    let calls = sums.row(CLUSTER, ZONE)[0];
    reports_until(&mut stream, &mut sums, |sums| {
        sums.row(CLUSTER, ZONE)[0] > calls
    })
    .await;
    assert!(lrs.is_quiet(), "one stream");

    server.set(&payments(&[&b]));
    // The end of the stream comes with the rest of the counts, and without another interval.
    while let Some(report) = timeout(Duration::from_secs(20), stream.next())
        .await
        .unwrap()
    {
        sums.add(&report);
    }
    drop(stream);
    let connections = b.connections();
    call(&channel).await.unwrap();
    assert!(lrs.is_quiet());
    server.set(&reported(&[&b]));
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    call(&channel).await.unwrap();
    let mut again = LoadSums::default();
    reports_until(&mut stream, &mut again, |sums| {
        sums.row(CLUSTER, ZONE)[0] > 0
    })
    .await;
    assert_eq!(
        b.connections(),
        connections,
        "load reports need no new connection"
    );
}

/// S13-08: the last counts of a channel that is dropped are reported at once, those of its open calls when they
/// end. Channels of one target share a stream.
#[tokio::test]
async fn the_last_report_comes_when_the_last_channel_is_gone() {
    let (a, mut b) = (Backend::start("a").await, Backend::holding("b").await);
    let (server, mut lrs) = ResourceServer::start_with_lrs(&reported(&[&a]));
    let bootstrap = server.bootstrap();
    let channel = || {
        let builder = Channel::builder("xds:///payments").bootstrap(bootstrap.clone());
        builder.build().unwrap()
    };
    let (one, other) = (channel(), channel());
    call(&one).await.unwrap();
    call(&other).await.unwrap();
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    let mut sums = LoadSums::default();
    row(&mut stream, &mut sums, ZONE, [2, 2, 0, 0]).await;
    call(&one).await.unwrap();
    drop(one);
    row(&mut stream, &mut sums, ZONE, [3, 3, 0, 0]).await;

    server.set(&reported(&[&b]));
    let (open, held) = loop {
        let mut open = start(&other);
        tokio::select! {
            outcome = &mut open => drop(outcome.unwrap().unwrap()),
            held = b.next_call() => break (open, held),
        }
    };
    drop(other);
    let in_progress = |sums: &LoadSums| sums.row(CLUSTER, ZONE)[3] == 1;
    reports_until(&mut stream, &mut sums, in_progress).await;
    held.answer();
    open.await.unwrap().unwrap();
    while let Some(report) = timeout(Duration::from_secs(20), stream.next())
        .await
        .unwrap()
    {
        sums.add(&report);
    }
    let [issued, succeeded, errors, in_progress] = sums.row(CLUSTER, ZONE);
    assert_eq!((issued, errors, in_progress), (succeeded, 0, 0));
    assert!(lrs.is_quiet());
}

/// S9-07: a cluster by DNS reports its load with the empty locality.
#[tokio::test]
async fn a_cluster_by_dns_reports_the_empty_locality() {
    let a = Backend::start("a").await;
    let by_dns = cluster(CLUSTER)
        .logical_dns("backend.test", a.address.port())
        .load_reports([]);
    let (server, mut lrs) = ResourceServer::start_with_lrs(&payments(&[]).with(by_dns));
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .dns_resolver(Arc::new(AllHostsAt(vec![a.address.ip()])))
        .build()
        .unwrap();
    call(&channel).await.unwrap();
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    let mut sums = LoadSums::default();
    row(&mut stream, &mut sums, "//", [1, 1, 0, 0]).await;
}

/// S6-09, gRFC A75: under an aggregate each leaf reports for itself, and the aggregate's own wish has no effect.
#[tokio::test]
async fn each_leaf_of_an_aggregate_reports_for_itself() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let leaf = |name: &str| cluster(name).eds(&format!("{name}-eds"));
    let resources = payments(&[])
        .with(
            cluster(CLUSTER)
                .aggregate(["first", "second"])
                .load_reports([]),
        )
        .with(leaf("first"))
        .with(leaf("second").load_reports([]))
        .with(endpoints("first-eds").locality("eu/a", 1, [a.address]))
        .with(endpoints("second-eds").locality("eu/b", 1, [b.address]));
    let (server, mut lrs) = ResourceServer::start_with_lrs(&resources);
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");
    a.kill().await;
    while call(&channel).await.is_ok_and(|name| name == "a") {}
    while call(&channel).await.is_err() {}
    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    let mut sums = LoadSums::default();
    reports_until(&mut stream, &mut sums, |sums| {
        sums.row("second", "eu/b/")[1] > 0
    })
    .await;
    let clusters: Vec<_> = sums.localities.keys().collect();
    assert_eq!(clusters, [&("second".to_owned(), "eu/b/".to_owned())]);
}

/// gRFC A51, A64, A85: the metrics that backends send with a call are added up, if the cluster names them.
#[tokio::test]
async fn metrics_of_backends_are_propagated() {
    // cpu_utilization: 0.5, rps_fractional: 1, named_metrics { q: 2 }
    const ORCA: &str = "CQAAAAAAAOA/MQAAAAAAAPA/QgwKAXERAAAAAAAAAEA=";
    let mut backend = Backend::holding("a").await;
    let metrics = ["cpu_utilization", "named_metrics.q", "named_metrics.other"];
    let reporting = cluster(CLUSTER).eds("payments-eds").load_reports(metrics);
    let resources = payments(&[&backend]).with(reporting);
    let (server, mut lrs) = ResourceServer::start_with_lrs(&resources);
    let channel = channel(&server);
    let open = start(&channel);
    let mut held = backend.next_call().await;
    let mut body = held.begin();
    body.send_data(crate::backend::framed(b"\n\x01a"), false)
        .unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    trailers.insert("endpoint-load-metrics-bin", ORCA.parse().unwrap());
    body.send_trailers(trailers).unwrap();
    open.await.unwrap().unwrap();
    // Trailers-Only, and one without metrics.
    let open = start(&channel);
    let fields = [("endpoint-load-metrics-bin", ORCA)];
    backend.next_call().await.end_in_head_with(13, &fields);
    open.await.unwrap().unwrap_err();
    let open = start(&channel);
    backend.next_call().await.answer();
    open.await.unwrap().unwrap();

    let mut stream = lrs.accept_and_ask(INTERVAL).await;
    let stats = loop {
        pass(INTERVAL).await;
        let report = timeout(Duration::from_millis(500), stream.next()).await;
        let Ok(Some(mut report)) = report else {
            continue;
        };
        let mut localities = report.cluster_stats.remove(0).upstream_locality_stats;
        let stats: UpstreamLocalityStats = localities.remove(0);
        if stats.total_issued_requests == 3 {
            break stats;
        }
    };
    assert_eq!(
        (stats.total_successful_requests, stats.total_error_requests),
        (2, 1)
    );
    let cpu = stats.cpu_utilization.unwrap();
    assert_eq!(cpu.num_requests_finished_with_metric, 2);
    assert_eq!(cpu.total_metric_value, 1.0);
    assert_eq!(stats.mem_utilization, None);
    let [named] = &stats.load_metric_stats[..] else {
        panic!("one named metric: {stats:?}");
    };
    assert_eq!(named.metric_name, "named_metrics.q");
    assert_eq!(named.num_requests_finished_with_metric, 2);
    assert_eq!(named.total_metric_value, 4.0);
}

/// gRFC A27: a server without LRS is no reason for calls to fail, and is asked again ever more rarely.
#[tokio::test]
async fn a_server_without_lrs_costs_nothing_but_reports() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&reported(&[&a]));
    let channel = channel(&server);
    for _ in 0..10 {
        send(&channel, PATH, Request::new("hello".to_owned()))
            .await
            .unwrap();
    }
    let reason = reason_to_wait(&server).await;
    assert!(reason.contains("Unimplemented"), "{reason}");
}

/// gRFC A27: a server that refuses reports gets no stream per report, and the client says why.
#[tokio::test]
async fn a_server_that_refuses_reports_is_not_hammered() {
    let a = Backend::start("a").await;
    let (server, mut lrs) = ResourceServer::start_with_lrs(&reported(&[&a]));
    let channel = channel(&server);
    for round in 1..=3 {
        let mut stream = lrs.accept_and_ask(INTERVAL).await;
        call(&channel).await.unwrap();
        let mut sums = LoadSums::default();
        row(&mut stream, &mut sums, ZONE, [1, 1, 0, 0]).await;
        stream.fail(Status::invalid_argument(format!("odd metric {round}")));
        let reason = reason_to_wait(&server).await;
        let expected = format!("InvalidArgument: odd metric {round}");
        assert!(reason.contains(&expected), "{reason}");
        assert!(lrs.is_quiet());
        pass(Duration::from_secs(4)).await;
    }
}

/// Waits until the client waits before it opens the next stream to this server, and returns its reason.
async fn reason_to_wait(server: &ResourceServer) -> String {
    let address = server.address().to_string();
    let waiting = async {
        loop {
            let statuses = crowfly::load_reports();
            let mine = statuses.iter().find(|status| *status.server == *address);
            if let Some(status) = mine
                && let crowfly::LoadReportState::Waiting(reason) = &status.state
            {
                return reason.to_string();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), waiting).await.unwrap()
}
