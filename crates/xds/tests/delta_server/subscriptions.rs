//! Tests of the names that a client subscribes to and unsubscribes from, and of the resources that
//! it is sent for them.

use crowfly_testkit::builders::{endpoints, listener};

use crate::support::{CDS, EDS, LDS, Stream, ack, clusters, eds, request, said, service};

/// P-22: xDS protocol: Subscribing to Resources. The client may have forgotten what it was sent.
#[test]
fn a_name_that_is_subscribed_to_again_is_sent_again() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    let both = [said(EDS, &["a", "b"], &[])];
    assert_eq!(stream.subscribe(EDS, &["a", "b"]), both);
    assert_eq!(stream.subscribe(EDS, &["a"]), [said(EDS, &["a"], &[])]);
    // One that does not exist is reported again as well.
    assert_eq!(stream.subscribe(EDS, &["c"]), [said(EDS, &[], &["c"])]);
    assert_eq!(stream.subscribe(EDS, &["c"]), [said(EDS, &[], &["c"])]);
}

/// P-22: xDS protocol: Subscribing to Resources. The wildcard is no exception.
#[test]
fn a_wildcard_that_is_subscribed_to_again_is_sent_again() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    for _ in 0..2 {
        let all = [said(EDS, &["a", "b"], &[])];
        assert_eq!(stream.subscribe(EDS, &["*"]), all);
    }
}

/// P-23: xDS protocol: Unsubscribing from Resources. A wildcard may still cover the name, and the
/// client cannot know.
#[test]
fn to_unsubscribe_a_name_under_a_wildcard_is_answered() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.subscribe(EDS, &["*", "a", "none"]);
    assert_eq!(stream.unsubscribe(EDS, &["a"]), [said(EDS, &["a"], &[])]);
    let removed = [said(EDS, &[], &["none"])];
    assert_eq!(stream.unsubscribe(EDS, &["none"]), removed);
    // Both are as if they had never been named.
    let without_a = eds(&[("b", 1), ("none", 1)]);
    let expected = [said(EDS, &["none"], &[]), said(EDS, &[], &["a"])];
    assert_eq!(stream.set(without_a), expected);
}

/// H-13, H-14: Names that are subscribed to one after the other come one by one, and so do their changes.
#[test]
fn each_name_and_each_change_comes_alone() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1), ("c", 1)]));
    for name in ["a", "c", "b"] {
        assert_eq!(stream.subscribe(EDS, &[name]), [said(EDS, &[name], &[])]);
    }
    let b_changed = eds(&[("a", 1), ("b", 2), ("c", 1)]);
    assert_eq!(stream.set(b_changed), [said(EDS, &["b"], &[])]);
    let a_changed = eds(&[("a", 2), ("b", 2), ("c", 1)]);
    assert_eq!(stream.set(a_changed), [said(EDS, &["a"], &[])]);
}

/// H-18: Two types share one stream, and a change of one is sent for that one alone.
#[test]
fn two_types_share_one_stream() {
    let mut stream = Stream::new(service("a").snapshot());
    assert_eq!(stream.subscribe(EDS, &["a"]), [said(EDS, &["a"], &[])]);
    assert_eq!(stream.subscribe(LDS, &["a"]), [said(LDS, &["a"], &[])]);
    let changed = service("a").with(listener("a").rds("other"));
    let answer = stream.set(changed.snapshot());
    assert_eq!(answer, [said(LDS, &["a"], &[])]);
    let both = changed.with(endpoints("a").locality("r", 1, ["10.0.0.1:2"]));
    assert_eq!(stream.set(both.snapshot()), [said(EDS, &["a"], &[])]);
}

/// H-17, P-12: xDS protocol: Unsubscribing from Resources. Without a wildcard there is nothing to say.
#[test]
fn to_unsubscribe_is_not_answered_and_ends_the_updates() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.subscribe(EDS, &["a", "b"]);
    assert_eq!(stream.unsubscribe(EDS, &["a"]), []);
    let changed = eds(&[("a", 2), ("b", 2)]);
    assert_eq!(stream.set(changed), [said(EDS, &["b"], &[])]);
    assert_eq!(stream.subscribe(EDS, &["a"]), [said(EDS, &["a"], &[])]);
}

/// P-24: xDS protocol: Unsubscribing from Resources. Phantom unsubscriptions are ignored, with a
/// wildcard and without.
#[test]
fn superfluous_unsubscribes_are_ignored() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.subscribe(EDS, &["a"]);
    assert_eq!(stream.unsubscribe(EDS, &["b", "*", "never"]), []);
    assert_eq!(stream.set(eds(&[("a", 2)])), [said(EDS, &["a"], &[])]);

    stream.subscribe(CDS, &["*"]);
    assert_eq!(stream.unsubscribe(CDS, &["a", "never"]), []);
    let all = [said(CDS, &["c"], &[])];
    assert_eq!(stream.set(clusters(&[("c", 1)]).snapshot())[..1], all);
}

/// xDS protocol: How the client specifies what resources to return. A request that only
/// unsubscribes is not the legacy form of a wildcard, even if it is the first (Incremental xDS).
#[test]
fn a_first_request_that_only_unsubscribes_asks_for_nothing() {
    let mut stream = Stream::new(eds(&[("a", 1)]));
    assert_eq!(stream.unsubscribe(EDS, &["a"]), []);
    assert_eq!(stream.set(eds(&[("a", 2)])), []);
}

/// xDS protocol: Subscribing to Resources. Of a name in both lists the client is better sent too
/// much than too little.
#[test]
fn a_name_in_both_lists_is_subscribed_to() {
    let mut stream = Stream::new(eds(&[("a", 1)]));
    stream.send(request(EDS, &["a"], &["a"]));
    assert_eq!(stream.responses().len(), 1);
    assert_eq!(stream.set(eds(&[("a", 2)])), [said(EDS, &["a"], &[])]);
}

/// H-15, H-16, P-19, P-20: xDS protocol: Knowing When a Requested Resource Does Not Exist.
#[test]
fn a_name_that_does_not_exist_is_reported_once_and_sent_whenever_it_appears() {
    let mut stream = Stream::new(eds(&[("a", 1)]));
    let answer = [said(EDS, &["a"], &[]), said(EDS, &[], &["b"])];
    assert_eq!(stream.subscribe(EDS, &["a", "b"]), answer);
    assert_eq!(stream.set(eds(&[("a", 2)])), [said(EDS, &["a"], &[])]);
    for _ in 0..2 {
        let appeared = eds(&[("a", 2), ("b", 1)]);
        assert_eq!(stream.set(appeared), [said(EDS, &["b"], &[])]);
        assert_eq!(stream.set(eds(&[("a", 2)])), [said(EDS, &[], &["b"])]);
    }
    assert_eq!(stream.set(eds(&[("a", 3)])), [said(EDS, &["a"], &[])]);
}

/// xDS protocol: Deleting Resources. What vanishes under a wildcard is removed, and what appears is
/// sent; the last one is no exception.
#[test]
fn a_wildcard_follows_what_appears_and_vanishes() {
    let mut stream = Stream::new(eds(&[("a", 1)]));
    stream.subscribe(EDS, &["*"]);
    let other = eds(&[("b", 1)]);
    let answer = [said(EDS, &["b"], &[]), said(EDS, &[], &["a"])];
    assert_eq!(stream.set(other), answer);
    assert_eq!(stream.set(eds(&[])), [said(EDS, &[], &["b"])]);
    assert_eq!(stream.set(eds(&[("a", 1)])), [said(EDS, &["a"], &[])]);
}

/// P-28: Envoy's start waits for the first answer to a wildcard, even if there is nothing.
#[test]
fn the_first_wildcard_is_answered_even_with_nothing() {
    let nothing = [said(LDS, &[], &[])];
    let mut stream = Stream::new(eds(&[]));
    assert_eq!(stream.subscribe(LDS, &[]), nothing);
    assert_eq!(stream.set(eds(&[("a", 1)])), []);

    let mut stream = Stream::new(eds(&[]));
    assert_eq!(stream.subscribe(LDS, &["*"]), nothing);
    // Where there is an answer anyway, it is the only one.
    let mut stream = Stream::new(eds(&[]));
    let answer = stream.subscribe(LDS, &["*", "x"]);
    assert_eq!(answer, [said(LDS, &[], &["x"])]);
    let mut stream = Stream::new(eds(&[]));
    let answer = stream.subscribe(CDS, &["*", "x"]);
    assert_eq!(answer, [said(CDS, &[], &["x"])]);
}

/// P-16: xDS protocol: How the client specifies what resources to return, its incremental example
/// step by step.
#[test]
fn a_legacy_wildcard_stays_beside_names_until_the_star_is_unsubscribed() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    let all = [said(EDS, &["a", "b"], &[])];
    assert_eq!(stream.subscribe(EDS, &[]), all);
    assert_eq!(stream.subscribe(EDS, &["a"]), [said(EDS, &["a"], &[])]);
    let changed = eds(&[("a", 1), ("b", 2)]);
    assert_eq!(stream.set(changed), [said(EDS, &["b"], &[])]);

    assert_eq!(stream.unsubscribe(EDS, &["*"]), []);
    let changed = eds(&[("a", 2), ("b", 3)]);
    assert_eq!(stream.set(changed), [said(EDS, &["a"], &[])]);

    assert_eq!(stream.unsubscribe(EDS, &["a"]), []);
    assert_eq!(stream.subscribe(EDS, &[]), [], "no wildcard any more");
    assert_eq!(stream.set(eds(&[("a", 3), ("b", 4)])), []);
}

/// P-15: xDS protocol: How the client specifies what resources to return. Where names came first,
/// an empty list is no wildcard.
#[test]
fn after_names_an_empty_list_is_no_wildcard() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.subscribe(EDS, &["a"]);
    assert_eq!(stream.subscribe(EDS, &[]), []);
    let changed = eds(&[("a", 1), ("b", 2)]);
    assert_eq!(stream.set(changed), []);
}

/// P-17: Where the old form of the wildcard is switched off, an empty first request asks for
/// nothing.
#[test]
fn an_empty_request_asks_for_nothing_where_the_legacy_wildcard_is_off() {
    let mut stream = Stream::named_only(EDS, eds(&[("a", 1)]));
    assert_eq!(stream.subscribe(EDS, &[]), []);
    assert_eq!(stream.set(eds(&[("a", 2)])), []);
    assert_eq!(stream.subscribe(EDS, &["*"]), [said(EDS, &["a"], &[])]);
}

/// xRFC TP1: A client finds a new-style name in any spelling, and leaves it in any.
#[test]
fn new_style_names_are_found_and_left_in_any_spelling() {
    let [one, other] = ["xdstp://a/t/x?b=1&c=2", "xdstp://a/t/x?c=2&b=1"];
    let mut stream = Stream::new(eds(&[(other, 1)]));
    assert_eq!(stream.subscribe(EDS, &[other]), [said(EDS, &[one], &[])]);
    assert_eq!(stream.set(eds(&[])), [said(EDS, &[], &[one])]);
    assert_eq!(stream.unsubscribe(EDS, &[other]), []);
    assert_eq!(stream.set(eds(&[(one, 2)])), []);
}

/// P-18: xDS protocol: Duplicate Resource Names.
#[test]
fn a_name_under_a_wildcard_is_not_sent_twice() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    let answer = stream.subscribe(EDS, &["*", "a", "a", "b"]);
    assert_eq!(answer, [said(EDS, &["a", "b"], &[])]);
}

/// xDS protocol: Incremental xDS. Every resource says its name and version, whatever its type.
#[test]
fn every_resource_travels_under_its_name_and_version() {
    let snapshot = service("a").snapshot();
    let mut stream = Stream::new(snapshot.clone());
    for (type_url, of) in snapshot.types() {
        stream.send(request(type_url, &["a"], &[]));
        let response = stream.next().unwrap();
        let [sent] = &response.resources[..] else {
            panic!("one resource, got {response:?}");
        };
        assert_eq!(sent.name, "a");
        assert_eq!(*sent.version, *of.resources().get("a").unwrap().version);
        assert_eq!(sent.resource.as_ref().unwrap().type_url, type_url);
        assert_eq!(response.system_version_info, of.version());
    }
}

/// A response is made when it is sent, so a client too slow for every snapshot gets the newest.
#[test]
fn a_slow_client_is_sent_the_newest_only() {
    let mut stream = Stream::new(eds(&[("a", 1)]));
    stream.subscribe(EDS, &["a"]);
    stream.handle_snapshot(eds(&[("a", 2)]));
    stream.handle_snapshot(eds(&[]));
    stream.handle_snapshot(eds(&[("a", 1)]));
    assert_eq!(stream.responses(), [], "nothing has changed");
    stream.handle_snapshot(eds(&[("a", 2)]));
    assert_eq!(stream.set(eds(&[("a", 3)])), [said(EDS, &["a"], &[])]);
}

/// xDS protocol: Deleting Resources. A client that leaves and comes back takes what is still on its
/// way to it for the answer: of what has vanished in between it must hear.
#[test]
fn what_vanished_between_two_wildcards_is_removed() {
    let mut stream = Stream::new(eds(&[("a", 1), ("b", 1)]));
    stream.send(request(EDS, &["*"], &[]));
    let on_its_way = stream.next().unwrap();
    assert_eq!(stream.unsubscribe(EDS, &["*"]), []);
    stream.handle_snapshot(eds(&[("a", 1)]));
    let expected = [said(EDS, &["a"], &[]), said(EDS, &[], &["b"])];
    assert_eq!(stream.subscribe(EDS, &["*"]), expected);

    // Once it has answered, it has nothing of what it no longer wants.
    for nonce in 1..=3 {
        let mut answer = ack(&on_its_way);
        answer.response_nonce = nonce.to_string();
        stream.send(answer);
    }
    assert_eq!(stream.unsubscribe(EDS, &["*"]), []);
    stream.handle_snapshot(eds(&[]));
    assert_eq!(stream.subscribe(EDS, &["*"]), [said(EDS, &[], &[])]);
}
