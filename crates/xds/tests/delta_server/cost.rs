//! Tests of the cost of a change: a stream must not look at the resources that did not change,
//! because there may be ten thousand.

use std::sync::Arc;

use crowfly_testkit::builders::{endpoint, endpoints};
use crowfly_xds::Snapshot;
use prost::Message;

use crate::support::{EDS, Stream, request, said};

const RESOURCES: usize = 10_000;

fn big_snapshot() -> Snapshot {
    let mut builder = Snapshot::builder();
    for i in 0..RESOURCES {
        let name = format!("service-{i}");
        let addresses = (0..10).map(|port| format!("10.0.0.1:{}", port + 1));
        let of = endpoints(&name).locality("r", 1, addresses.map(|a| endpoint(&a)));
        builder.set(name, of.any());
    }
    builder.build()
}

fn with_one_changed(snapshot: &Snapshot) -> Arc<Snapshot> {
    let mut builder = snapshot.to_builder();
    let changed = endpoints("service-77").locality("r", 1, ["10.0.0.2:1"]);
    builder.set("service-77", changed.any());
    Arc::new(builder.build())
}

/// A stream allocates in proportion to the change, and not to the resources that it has.
#[test]
fn one_change_among_ten_thousand_costs_each_client_one_resource() {
    let before = Arc::new(big_snapshot());
    let [mut first, mut second] = [(); 2].map(|()| Stream::new(Arc::clone(&before)));
    first.subscribe(EDS, &["*"]);
    second.subscribe(EDS, &["*"]);

    let after = with_one_changed(&before);
    let expected = [said(EDS, &["service-77"], &[])];
    assert_eq!(first.set(Arc::clone(&after)), expected);
    let allocated = allocation_counter::measure(|| {
        second.handle_snapshot(Arc::clone(&after));
        let response = second.next().unwrap();
        assert_eq!(response.resources.len(), 1);
        assert_eq!(second.responses(), []);
    });
    assert!(allocated.bytes_total < 4_096, "{allocated:?}");
}

/// A type of which nothing changed is not looked at.
#[test]
fn a_snapshot_that_changes_nothing_costs_nothing() {
    let before = big_snapshot();
    let again = Arc::new(before.to_builder().build());
    let mut stream = Stream::new(Arc::new(before));
    stream.subscribe(EDS, &["*"]);
    let allocated = allocation_counter::measure(|| {
        stream.handle_snapshot(Arc::clone(&again));
        assert_eq!(stream.responses(), []);
    });
    assert!(allocated.bytes_total < 256, "{allocated:?}");
}

/// P-33: gRPC clients refuse messages over 4 MiB unless told otherwise; the incremental protocol
/// lets a server divide what it has to say as it likes.
#[test]
fn a_large_answer_comes_in_parts() {
    let snapshot = Arc::new(big_snapshot());
    let mut stream = Stream::new(Arc::clone(&snapshot));
    stream.send(request(EDS, &["*"], &[]));
    let responses = stream.responses();
    assert!(responses.len() > 1, "{} responses", responses.len());
    let sizes = responses.iter().map(Message::encoded_len);
    assert!(
        sizes.clone().all(|size| size < 2 << 20),
        "{:?}",
        sizes.max()
    );
    let mut names: Vec<_> = responses
        .iter()
        .flat_map(|response| &response.resources)
        .map(|resource| resource.name.as_str())
        .collect();
    names.sort_unstable();
    let expected = snapshot.of(EDS).unwrap().resources().keys();
    assert!(names.into_iter().eq(expected.map(AsRef::as_ref)));
}
