//! Tests of a client's answers by delta: nonces, ACKs and NACKs. Any number of responses may be on
//! their way, so a nonce pairs an answer with its response.

use crowfly_xds::RequestOutcome;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::support::{CDS, EDS, Stream, ack, clusters, eds, nack, request, said};

fn accepted(version: &str) -> RequestOutcome {
    RequestOutcome::Ack {
        type_url: EDS.to_owned(),
        version: version.to_owned(),
    }
}

fn stale() -> RequestOutcome {
    RequestOutcome::Stale {
        type_url: EDS.to_owned(),
    }
}

fn subscribed() -> RequestOutcome {
    RequestOutcome::Subscribed {
        type_url: EDS.to_owned(),
    }
}

/// P-01, P-04: xDS protocol: Incremental xDS. The nonce pairs an answer with a response, and any
/// number of them may be on their way.
#[test]
fn each_response_is_accepted_or_refused_by_its_own_nonce() {
    let mut stream = Stream::new(eds(&[("a", 1)]));
    assert_eq!(stream.send(request(EDS, &["a"], &[])), subscribed());
    let first = stream.next().unwrap();
    stream.handle_snapshot(eds(&[("a", 2)]));
    let second = stream.next().unwrap();
    assert_ne!(first.nonce, second.nonce);

    let refused = RequestOutcome::Nack {
        type_url: EDS.to_owned(),
        version: first.system_version_info.clone(),
        message: "no".to_owned(),
    };
    assert_eq!(stream.send(nack(&first, "no")), refused);
    let outcome = stream.send(ack(&second));
    assert_eq!(outcome, accepted(&second.system_version_info));
    assert_eq!(stream.send(ack(&second)), stale(), "answered before");
}

/// P-03: xDS protocol: Incremental xDS. A nonce must not be used to reject a request.
#[test]
fn a_stale_nonce_still_changes_the_names() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.send(request(EDS, &["a"], &[]));
    stream.next().unwrap();
    for (nonce, subscribe, unsubscribe) in [("17", "b", "a"), ("17", "a", "b")] {
        let outcome = stream.send(DeltaDiscoveryRequest {
            response_nonce: nonce.to_owned(),
            ..request(EDS, &[subscribe], &[unsubscribe])
        });
        assert_eq!(outcome, stale());
        let response = stream.next().unwrap();
        assert_eq!(response.resources[0].name, subscribe);
    }
    let changed = eds(&[("a", 2), ("b", 2)]);
    assert_eq!(stream.set(changed), [said(EDS, &["a"], &[])]);
}

/// P-06: xDS protocol: NACK. An answer may change the names as well.
#[test]
fn names_in_an_answer_count() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.send(request(EDS, &["a"], &[]));
    let response = stream.next().unwrap();
    let outcome = stream.send(DeltaDiscoveryRequest {
        resource_names_subscribe: vec!["b".to_owned()],
        ..nack(&response, "no")
    });
    assert!(
        matches!(outcome, RequestOutcome::Nack { .. }),
        "{outcome:?}"
    );
    assert_eq!(stream.next().unwrap().resources[0].name, "b");
}

/// P-05: xDS protocol: When to send an update. A client that refuses a version is not sent it for
/// ever.
#[test]
fn what_was_refused_is_not_sent_again_until_it_changes() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.send(request(EDS, &["a", "b"], &[]));
    let response = stream.next().unwrap();
    stream.send(nack(&response, "a: no"));
    assert_eq!(stream.responses(), []);
    let b_changed = eds(&[("a", 1), ("b", 2)]);
    assert_eq!(stream.set(b_changed), [said(EDS, &["b"], &[])]);
    let a_changed = eds(&[("a", 2), ("b", 2)]);
    assert_eq!(stream.set(a_changed), [said(EDS, &["a"], &[])]);
}

/// P-07: xDS protocol: When to send an update.
#[test]
fn an_answer_is_not_answered() {
    let mut stream = Stream::new(clusters(&[("a", 1)]).snapshot());
    stream.send(request(CDS, &[], &[]));
    stream.send(request(EDS, &["a-eds", "none"], &[]));
    for response in stream.responses() {
        stream.send(ack(&response));
        assert_eq!(stream.responses(), []);
    }
}

/// P-08: xDS protocol: Basic Protocol Overview. Only the first request is sure to carry the node.
#[test]
fn the_first_request_introduces_the_client() {
    let mut stream = Stream::new(eds(&[]));
    assert_eq!(stream.node_id(), None);
    let node = Node {
        id: "me".to_owned(),
        ..Node::default()
    };
    stream.send(DeltaDiscoveryRequest {
        node: Some(node),
        ..request(EDS, &["a"], &[])
    });
    stream.send(request(CDS, &["a"], &[]));
    assert_eq!(stream.node_id().as_deref(), Some("me"));
}

/// A client that never answers does not fill our memory with what it owes.
#[test]
fn answers_are_not_waited_for_without_end() {
    let mut stream = Stream::new(eds(&[("a", 1)]));
    let mut ask = || {
        stream.send(request(EDS, &["a"], &[]));
        stream.next().unwrap()
    };
    let first = ask();
    let newest = (0..1_000).map(|_| ask()).last().unwrap();
    assert_eq!(stream.send(ack(&first)), stale());
    let outcome = stream.send(ack(&newest));
    assert_eq!(outcome, accepted(&newest.system_version_info));
}
