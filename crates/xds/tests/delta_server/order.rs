//! Tests of the order in which a client hears of resources. A route to a cluster that has not come
//! yet would fail calls.

use crowfly_testkit::builders::{Resources, cluster, endpoints};

use crate::support::{CDS, EDS, LDS, RDS, Stream, clusters, request, said, service};

/// P-29: xDS protocol: Eventual consistency considerations. Whatever the order of the requests.
#[test]
fn clusters_come_before_endpoints_before_listeners_before_routes() {
    let mut stream = Stream::new(service("a").snapshot());
    for type_url in [RDS, LDS, EDS, CDS] {
        stream.send(request(type_url, &["*"], &[]));
    }
    let order: Vec<_> = stream.responses().into_iter().map(|r| r.type_url).collect();
    assert_eq!(order, [CDS, EDS, LDS, RDS]);
}

/// P-29: xDS protocol: Eventual consistency considerations. Make before break: what is stale is
/// removed once nothing points to it any more, a cluster before its endpoints.
#[test]
fn clusters_and_endpoints_are_removed_last() {
    let mut stream = Stream::new(service("old").snapshot());
    for type_url in [RDS, LDS, EDS, CDS] {
        stream.subscribe(type_url, &["*"]);
    }
    let expected = [
        said(CDS, &["new"], &[]),
        said(EDS, &["new"], &[]),
        said(LDS, &["new"], &["old"]),
        said(RDS, &["new"], &["old"]),
        said(CDS, &[], &["old"]),
        said(EDS, &[], &["old"]),
    ];
    assert_eq!(stream.set(service("new").snapshot()), expected);
}

/// xDS protocol: Eventual consistency considerations. What comes back before its removal was sent
/// was never away.
#[test]
fn a_removal_that_has_not_been_sent_is_taken_back() {
    let mut stream = Stream::new(service("a").snapshot());
    for type_url in [LDS, CDS] {
        stream.subscribe(type_url, &["*"]);
    }
    stream.handle_snapshot(Resources::new().snapshot());
    let response = stream.next().unwrap();
    assert_eq!(
        (&*response.type_url, response.removed_resources.len()),
        (LDS, 1)
    );
    let back = stream.set(service("a").snapshot());
    let removed = back.iter().flat_map(|said| &said.removed);
    assert_eq!(removed.count(), 0, "{back:?}");
    let removed_now = stream.set(Resources::new().snapshot());
    assert_eq!(
        removed_now,
        [said(LDS, &[], &["a"]), said(CDS, &[], &["a"])]
    );
}

/// P-30: xDS protocol: Resource warming. Envoy waits for the endpoints of a changed cluster
/// although it has them, and asks for nothing.
#[test]
fn the_endpoints_of_a_changed_cluster_are_sent_again() {
    let mut stream = Stream::new(clusters(&[("a", 1), ("b", 1)]).snapshot());
    stream.subscribe(CDS, &["*"]);
    stream.subscribe(EDS, &["a-eds", "b-eds"]);
    let changed = clusters(&[("a", 2), ("b", 1)]).snapshot();
    let expected = [said(CDS, &["a"], &[]), said(EDS, &["a-eds"], &[])];
    assert_eq!(stream.set(changed), expected);
}

/// P-30: xDS protocol: Resource warming. Of two clusters with the same endpoints the second warms
/// as well, and its endpoints are subscribed to already.
#[test]
fn the_endpoints_of_a_new_cluster_are_sent_again_if_another_has_them_too() {
    let one = Resources::new()
        .with(cluster("a").eds("shared"))
        .with(endpoints("shared").locality("r", 1, ["10.0.0.1:1"]));
    let mut stream = Stream::new(one.snapshot());
    stream.subscribe(CDS, &["*"]);
    stream.subscribe(EDS, &["shared"]);
    let two = one.with(cluster("b").eds("shared")).snapshot();
    let expected = [said(CDS, &["b"], &[]), said(EDS, &["shared"], &[])];
    assert_eq!(stream.set(two), expected);
}

/// P-30: xDS protocol: Resource warming. Where there are no endpoints, to hear that again ends
/// Envoy's wait as well.
#[test]
fn the_missing_endpoints_of_a_changed_cluster_are_reported_again() {
    let with = |number: u32| {
        let changed = cluster("a").edit(|proto| proto.alt_stat_name = number.to_string());
        Resources::new().with(changed).snapshot()
    };
    let mut stream = Stream::new(with(1));
    stream.subscribe(CDS, &["*"]);
    assert_eq!(stream.subscribe(EDS, &["a"]), [said(EDS, &[], &["a"])]);
    let expected = [said(CDS, &["a"], &[]), said(EDS, &[], &["a"])];
    assert_eq!(stream.set(with(2)), expected);
}
