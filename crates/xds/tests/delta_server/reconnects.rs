//! Tests of clients that come back with the versions of their resources, so that the server sends
//! only the differences.

use crowfly_testkit::builders::listener;

use crate::support::{CDS, EDS, LDS, Stream, clusters, eds, said, service, version};

/// P-25: xDS protocol: Incremental xDS. Only the differences are sent, and what has vanished is
/// removed.
#[test]
fn a_reconnect_by_name_brings_only_the_differences() {
    let snapshot = eds(&[("same", 1), ("changed", 2), ("new", 1)]);
    let same = version(&snapshot, EDS, "same").to_owned();
    let mut stream = Stream::new(snapshot);
    let names = ["same", "changed", "new", "vanished"];
    let has = [("same", &*same), ("changed", "old"), ("vanished", "old")];
    let answer = stream.resume(EDS, &names, &has);
    let expected = [
        said(EDS, &["changed", "new"], &[]),
        said(EDS, &[], &["vanished"]),
    ];
    assert_eq!(answer, expected);
    // All of them are subscribed to as before.
    let next = eds(&[("same", 2), ("changed", 2), ("new", 1), ("vanished", 1)]);
    assert_eq!(stream.set(next), [said(EDS, &["same", "vanished"], &[])]);
}

/// P-25: xDS protocol: Incremental xDS. The same for a wildcard, in both of its forms.
#[test]
fn a_reconnect_by_wildcard_brings_only_the_differences() {
    for wildcard in [&[][..], &["*"]] {
        let snapshot = service("same").with(listener("new"));
        let snapshot = snapshot.snapshot();
        let same = version(&snapshot, LDS, "same").to_owned();
        let mut stream = Stream::new(snapshot);
        let has = [("same", &*same), ("vanished", "old")];
        let answer = stream.resume(LDS, wildcard, &has);
        assert_eq!(answer, [said(LDS, &["new"], &["vanished"])]);
    }
}

/// A wildcard is answered on every stream; that costs a few bytes.
#[test]
fn a_reconnect_without_differences_brings_no_resources() {
    let snapshot = service("a").snapshot();
    let mut stream = Stream::new(snapshot.clone());
    let has = |type_url| [("a", version(&snapshot, type_url, "a"))];
    let answer = stream.resume(LDS, &["*"], &has(LDS));
    assert_eq!(answer, [said(LDS, &[], &[])]);
    assert_eq!(stream.resume(EDS, &["a"], &has(EDS)), []);
}

/// xDS protocol: Incremental xDS. Versions of what the client no longer asks for are of no
/// interest, and neither are those in any request but the first.
#[test]
fn versions_count_in_the_first_request_and_for_names_that_are_asked_for() {
    let snapshot = eds(&[("a", 1), ("b", 1)]);
    let has = [
        ("a", version(&snapshot, EDS, "a")),
        ("b", version(&snapshot, EDS, "b")),
        ("other", "old"),
    ];
    let mut stream = Stream::new(snapshot.clone());
    assert_eq!(stream.resume(EDS, &["a"], &has), []);
    let again = stream.resume(EDS, &["a", "b"], &has);
    assert_eq!(again, [said(EDS, &["a", "b"], &[])]);
}

/// P-26: xDS protocol: ACK/NACK and resource type instance version. A version belongs to the
/// resource, so a client that goes to another replica is sent nothing it has.
#[test]
fn another_replica_calls_the_same_resource_by_the_same_version() {
    // The same resource, but not the same company.
    let [here, there] = [eds(&[("a", 1)]), eds(&[("a", 1), ("b", 1)])];
    assert_eq!(version(&here, EDS, "a"), version(&there, EDS, "a"));
    assert_ne!(
        here.of(EDS).unwrap().version(),
        there.of(EDS).unwrap().version()
    );
    // These are of another process.
    let [a, b] = ["a", "b"].map(|name| version(&there, EDS, name));
    assert_eq!([a, b], ["65db1eaf9fc501da", "de5b600ba8f957bb"]);
    assert_eq!(there.version_of(EDS), "0aec4abb2c622bcd");
    let has = [("a", version(&here, EDS, "a"))];
    assert_eq!(Stream::new(there).resume(EDS, &["a"], &has), []);
}

/// P-27: The version of the whole type is for people. It changes with the other resources, and a
/// client that names it as the version of a resource is sent the resource.
#[test]
fn the_system_version_is_for_people_alone() {
    let snapshot = eds(&[("a", 1), ("b", 1)]);
    let system = snapshot.of(EDS).unwrap().version();
    let mut stream = Stream::new(snapshot.clone());
    let answer = stream.resume(EDS, &["a"], &[("a", system)]);
    assert_eq!(answer, [said(EDS, &["a"], &[])]);

    let b_changed = eds(&[("a", 1), ("b", 2)]);
    assert_ne!(b_changed.of(EDS).unwrap().version(), system);
    assert_eq!(stream.set(b_changed), []);
}

/// P-30: xDS protocol: Resource warming. A cluster that changed while the client was away warms
/// until its endpoints come, which the client says it has. The two requests come in either order.
#[test]
fn endpoints_follow_a_cluster_that_changed_while_the_client_was_away() {
    let before = clusters(&[("a", 1), ("b", 1)]).snapshot();
    let after = clusters(&[("a", 2), ("b", 1)]).snapshot();
    let cds = ["a", "b"].map(|name| (name, version(&before, CDS, name)));
    let eds = ["a-eds", "b-eds"].map(|name| (name, version(&before, EDS, name)));
    let names = ["a-eds", "b-eds"];
    let [cluster, endpoints] = [said(CDS, &["a"], &[]), said(EDS, &["a-eds"], &[])];

    let mut stream = Stream::new(after.clone());
    let answers = [
        stream.resume(CDS, &[], &cds),
        stream.resume(EDS, &names, &eds),
    ];
    assert_eq!(answers.concat(), [cluster.clone(), endpoints.clone()]);

    let mut stream = Stream::new(after);
    let answers = [
        stream.resume(EDS, &names, &eds),
        stream.resume(CDS, &[], &cds),
    ];
    assert_eq!(answers.concat(), [cluster, endpoints]);
}

/// P-30: Endpoints follow their changed clusters also if there are more clusters than a stream
/// remembers, by name and by wildcard.
#[test]
fn endpoints_follow_many_clusters_that_changed_while_the_client_was_away() {
    let names: Vec<_> = (100..300).map(|index| format!("c{index}")).collect();
    let of_clusters: Vec<_> = names.iter().map(|name| (&**name, 1)).collect();
    let snapshot = clusters(&of_clusters).snapshot();
    let eds: Vec<_> = names.iter().map(|name| format!("{name}-eds")).collect();
    let eds: Vec<_> = eds.iter().map(|name| &**name).collect();
    let has: Vec<_> = eds
        .iter()
        .map(|name| (*name, version(&snapshot, EDS, name)))
        .collect();
    for wanted in [&eds[..], &["*"]] {
        let mut stream = Stream::new(snapshot.clone());
        stream.subscribe(CDS, &["*"]);
        assert_eq!(stream.resume(EDS, wanted, &has), [said(EDS, &eds, &[])]);
    }
}
