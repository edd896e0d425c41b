//! Tests of hostile clients: the memory that a stream holds for one has a bound.

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{Resources, cluster, endpoints};
use crowfly_xds::{DeltaSubscription, Held, ServerHalf, Snapshot, Subscription};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::rpc::Status;

const CHANGES: usize = 10_000;
/// The most that a stream may hold while names of a megabyte come and go: a few of them, in the
/// request, the subscription and the response.
const BOUND: u64 = 16 << 20;

fn served() -> Arc<Snapshot> {
    Resources::new().with(endpoints("a")).snapshot()
}

fn many_served() -> Arc<Snapshot> {
    let mut builder = Snapshot::builder();
    for index in 0..CHANGES {
        let name = format!("service-{index}");
        builder.set(name.as_str(), endpoints(&name).any());
    }
    Arc::new(builder.build())
}

fn long_name(index: usize) -> String {
    format!("{index:08}-{}", "x".repeat(1 << 20))
}

/// A thousand changes of names of a megabyte, all refused, each other one with a stale nonce: the
/// stream holds the newest names alone.
#[test]
fn changes_of_long_names_leave_nothing_behind_in_state_of_the_world() {
    let held = allocation_counter::measure(|| {
        let mut server = Subscription::new(served());
        for index in 0..CHANGES / 10 {
            server.handle_request(DiscoveryRequest {
                type_url: Endpoints::TYPE_URL.to_owned(),
                resource_names: vec![long_name(index), "a".to_owned()],
                response_nonce: if index % 2 == 0 {
                    String::new()
                } else {
                    "7".to_owned()
                },
                error_detail: (index % 3 == 0).then(Status::default),
                ..DiscoveryRequest::default()
            });
            while server.poll_response().is_some() {}
        }
    });
    assert!(held.bytes_max < BOUND, "{held:?}");
}

/// In delta, a client that never answers changes names of a megabyte: the stream holds the newest
/// names alone.
#[test]
fn changes_of_long_names_leave_nothing_behind_in_delta() {
    let held = allocation_counter::measure(|| {
        let mut server = DeltaSubscription::new(served());
        for index in 0..CHANGES / 10 {
            server.handle_request(DeltaDiscoveryRequest {
                type_url: Endpoints::TYPE_URL.to_owned(),
                resource_names_subscribe: vec![long_name(index + 1), "a".to_owned()],
                resource_names_unsubscribe: vec![long_name(index), "a".to_owned()],
                response_nonce: "stale".to_owned(),
                ..DeltaDiscoveryRequest::default()
            });
            while server.poll_response().is_some() {}
        }
    });
    assert!(held.bytes_max < BOUND, "{held:?}");
}

/// Ten thousand changes of short names, all refused: each is answered once, and memory stays.
#[test]
fn client_that_refuses_everything_is_answered_once_for_each_change() {
    let mut responses = 0;
    let held = allocation_counter::measure(|| {
        let mut server = DeltaSubscription::new(served());
        for index in 0..CHANGES {
            let name = if index % 2 == 0 { "a" } else { "missing" };
            let mut request = DeltaDiscoveryRequest {
                type_url: Endpoints::TYPE_URL.to_owned(),
                resource_names_subscribe: vec![name.to_owned()],
                ..DeltaDiscoveryRequest::default()
            };
            server.handle_request(request.clone());
            while let Some(response) = server.poll_response() {
                responses += 1;
                request.resource_names_subscribe.clear();
                response.nonce().clone_into(&mut request.response_nonce);
                request.error_detail = Some(Status::default());
                server.handle_request(request.clone());
            }
        }
    });
    assert_eq!(responses, CHANGES);
    assert!(held.bytes_max < 1 << 20, "{held:?}");
}

/// F-05: a delta stream that has all of ten thousand resources holds nothing of its own for them.
#[test]
fn wildcard_in_delta_holds_no_state_for_what_it_was_sent() {
    let snapshot = many_served();
    let mut stream = None;
    let held = allocation_counter::measure(|| {
        let mut server = DeltaSubscription::new(snapshot);
        server.handle_request(DeltaDiscoveryRequest {
            type_url: Endpoints::TYPE_URL.to_owned(),
            ..DeltaDiscoveryRequest::default()
        });
        while let Some(response) = server.poll_response() {
            server.handle_request(DeltaDiscoveryRequest {
                type_url: Endpoints::TYPE_URL.to_owned(),
                response_nonce: response.nonce().to_owned(),
                ..DeltaDiscoveryRequest::default()
            });
        }
        stream = Some(server);
    });
    assert!(held.bytes_current < 2_048, "{held:?}");
    drop(stream);
}

/// F-05: by state of the world, a stream holds a name and a version of each resource, both shared with the snapshot.
#[test]
fn wildcard_by_state_of_the_world_holds_two_references_to_each_resource() {
    let snapshot = many_served();
    let mut stream = None;
    let held = allocation_counter::measure(|| {
        let mut server = Subscription::new(snapshot);
        let request = DiscoveryRequest {
            type_url: Endpoints::TYPE_URL.to_owned(),
            ..DiscoveryRequest::default()
        };
        server.handle_request(request.clone());
        let response = server.poll_response().unwrap();
        server.handle_request(DiscoveryRequest {
            response_nonce: response.nonce().to_owned(),
            version_info: response.version().to_owned(),
            ..request
        });
        drop(response);
        stream = Some(server);
    });
    // 32 bytes for each of ten thousand.
    assert!(held.bytes_current < 330_000, "{held:?}");
    drop(stream);
}

/// A stream whose client never asks for endpoints holds nothing for the clusters that came and went.
#[test]
fn clusters_without_endpoints_leave_nothing_behind_in_delta() {
    let request = |nonce: &str| DeltaDiscoveryRequest {
        type_url: Cluster::TYPE_URL.to_owned(),
        response_nonce: nonce.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    let mut snapshot = Arc::new(Snapshot::default());
    let mut server = DeltaSubscription::new(Arc::clone(&snapshot));
    let held = allocation_counter::measure(|| {
        server.handle_request(request(""));
        for index in 0..CHANGES / 10 {
            let name = format!("cluster-{index}");
            snapshot = Resources::new().with(cluster(&name)).snapshot();
            server.handle_snapshot(Arc::clone(&snapshot));
            while let Some(response) = server.poll_response() {
                server.handle_request(request(response.nonce()));
            }
        }
    });
    assert!(held.bytes_current < 4_096, "{held:?}");
}

/// The account of a delta stream follows its names: those that are subscribed to, and those that the
/// client says it has until it was told what became of them.
#[test]
fn what_a_delta_stream_holds_is_counted() {
    let mut server = DeltaSubscription::new(served());
    let request = |subscribe: &[&str], unsubscribe: &[&str]| DeltaDiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names_subscribe: subscribe.iter().map(ToString::to_string).collect(),
        resource_names_unsubscribe: unsubscribe.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryRequest::default()
    };
    let held = |types, names, bytes| Held {
        types,
        names,
        all_names: names,
        bytes,
    };
    let mut first = request(&["*", "abc", "abc", "de"], &["no"]);
    first.initial_resource_versions = [("invented".to_owned(), "12".to_owned())].into();
    server.handle_request(first);
    assert_eq!(server.held(), held(1, 2, 5 + 10));
    while server.poll_response().is_some() {}
    assert_eq!(server.held(), held(1, 2, 5));
    server.handle_request(request(&[], &["abc", "abc"]));
    assert_eq!(
        server.held(),
        held(1, 2, 5),
        "it is told that there is none"
    );
    while server.poll_response().is_some() {}
    assert_eq!(server.held(), held(1, 1, 2));
    server.handle_request(DeltaDiscoveryRequest {
        type_url: "type.googleapis.com/x.Y".to_owned(),
        ..DeltaDiscoveryRequest::default()
    });
    assert_eq!(server.held(), held(2, 1, 2));
}

/// The order of names means nothing, so an answer that has them in another order is an answer alone.
#[test]
fn names_in_another_order_are_the_same_names() {
    let mut server = Subscription::new(served());
    let mut names: Vec<_> = (0..1_000).map(|index| index.to_string()).collect();
    let ask = |names: &[String], nonce: &str| DiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names: [&["a".to_owned()], names].concat(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    };
    server.handle_request(ask(&names, ""));
    let response = server.poll_response().unwrap();
    names.reverse();
    server.handle_request(ask(&names, response.nonce()));
    assert!(server.was_answer_alone());
    assert!(!server.is_waiting(Endpoints::TYPE_URL));
}

/// A request that does nothing but answer a response is known, once for each response. All others
/// are the client's own doing.
#[test]
fn answers_are_told_from_requests_of_the_clients_own() {
    let mut sotw = Subscription::new(served());
    let ask = |names: &[&str], nonce: &str| DiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    };
    sotw.handle_request(ask(&["a"], ""));
    assert!(!sotw.was_answer_alone());
    let nonce = sotw.poll_response().unwrap().nonce().to_owned();
    for (names, nonce, expected) in [
        (&["a"][..], "stale", false),
        (&["a"][..], &*nonce, true),
        (&["a"][..], &*nonce, false),
        (&["a", "b"][..], &*nonce, false),
    ] {
        sotw.handle_request(ask(names, nonce));
        assert_eq!(sotw.was_answer_alone(), expected, "{names:?} {nonce}");
    }

    let mut delta = DeltaSubscription::new(served());
    let ask = |subscribe: &[&str], nonce: &str| DeltaDiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names_subscribe: subscribe.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    delta.handle_request(ask(&["a"], ""));
    assert!(!delta.was_answer_alone());
    let first = delta.poll_response().unwrap().nonce().to_owned();
    delta.handle_request(ask(&[], "stale"));
    assert!(!delta.was_answer_alone());
    delta.handle_request(ask(&[], &first));
    assert!(delta.was_answer_alone());
    delta.handle_request(ask(&[], &first));
    assert!(!delta.was_answer_alone());
    delta.handle_request(ask(&["a"], ""));
    let second = delta.poll_response().unwrap().nonce().to_owned();
    delta.handle_request(ask(&["b"], &second));
    assert!(!delta.was_answer_alone());
}

/// L-05: a request that repeats a wildcard lists the resources once, because 64 KiB have room for twenty thousand.
#[test]
fn repeated_wildcard_lists_everything_once() {
    let stars = vec!["*".to_owned(); 100];
    let request = |subscribe: &[String], unsubscribe: &[String]| DeltaDiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names_subscribe: subscribe.to_vec(),
        resource_names_unsubscribe: unsubscribe.to_vec(),
        ..DeltaDiscoveryRequest::default()
    };
    let mut delta = DeltaSubscription::new(many_served());
    delta.handle_request(request(&stars, &stars));
    assert_eq!(delta.listed(), CHANGES);
    delta.handle_request(request(&stars, &stars));
    assert_eq!(delta.listed(), 2 * CHANGES, "it is left and listed again");
    delta.handle_request(request(&[], &stars));
    assert_eq!(delta.listed(), CHANGES);
    for names in [["a".to_owned()], ["*".to_owned()]] {
        delta.handle_request(request(&[], &names));
        assert_eq!(delta.listed(), 0, "{names:?}");
    }
}

/// L-05: a few bytes beside a wildcard make the server compare all resources, and the server half says so.
#[test]
fn changes_beside_a_wildcard_are_told_to_list_everything() {
    let ask = |names: &[&str], nonce: &str| DiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    };
    let mut sotw = Subscription::new(many_served());
    sotw.handle_request(ask(&["*"], ""));
    assert_eq!(sotw.listed(), CHANGES);
    let nonce = sotw.poll_response().unwrap().nonce().to_owned();
    for (names, nonce, listed) in [
        (&["*"][..], "stale", 0),
        (&["*"], &nonce, 0),
        (&["*", "x"], &nonce, CHANGES),
    ] {
        sotw.handle_request(ask(names, nonce));
        assert_eq!(sotw.listed(), listed, "{names:?} {nonce}");
        assert_eq!(sotw.poll_response(), None);
    }
}

/// L-08: names that a client invents and leaves beside a wildcard count until it was told that they do not exist.
#[test]
fn names_that_were_left_beside_a_wildcard_count_until_they_are_told() {
    let request = |subscribe: String, unsubscribe: String| DeltaDiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names_subscribe: vec![subscribe],
        resource_names_unsubscribe: vec![unsubscribe],
        ..DeltaDiscoveryRequest::default()
    };
    let name = |index: usize| format!("{index:08}-{}", "x".repeat(1_015));
    let mut server = DeltaSubscription::new(served());
    let held = |server: &DeltaSubscription| (server.held().names, server.held().bytes);
    let is_counted = |rounds| {
        let mut server = DeltaSubscription::new(served());
        server.handle_request(request("*".to_owned(), String::new()));
        let taken = allocation_counter::measure(|| {
            for index in 0..rounds {
                server.handle_request(request(name(index + 1), name(index)));
            }
        });
        let counted = i64::try_from(server.held().bytes).unwrap();
        (counted * 2 > taken.bytes_current)
            .then_some(())
            .ok_or(taken)
    };
    assert!(is_counted(1_000).is_ok(), "{:?}", is_counted(1_000));

    server.handle_request(request("*".to_owned(), String::new()));
    while server.poll_response().is_some() {}
    for index in 0..1_000 {
        server.handle_request(request(name(index + 1), name(index)));
    }
    assert_eq!(held(&server), (1_000, 1_000 << 10));
    // Names that are taken up again are counted once, and those of resources are not.
    for index in 1..500 {
        server.handle_request(request(name(index), String::new()));
    }
    server.handle_request(request("a".to_owned(), String::new()));
    server.handle_request(request(name(1), "a".to_owned()));
    assert_eq!(held(&server), (1_000, 1_000 << 10));
    while server.poll_response().is_some() {}
    assert_eq!(held(&server), (500, 500 << 10));
}

/// L-08: a client that goes from a wildcard to invented names and back again leaves none of them behind.
#[test]
fn names_that_never_were_resources_do_not_linger() {
    let mut server = DeltaSubscription::new(served());
    let mut ask = |subscribe: &[&str], unsubscribe: &[&str]| {
        server.handle_request(DeltaDiscoveryRequest {
            type_url: Endpoints::TYPE_URL.to_owned(),
            resource_names_subscribe: subscribe.iter().map(ToString::to_string).collect(),
            resource_names_unsubscribe: unsubscribe.iter().map(ToString::to_string).collect(),
            ..DeltaDiscoveryRequest::default()
        });
        // It never answers, and reads one response.
        if subscribe == ["a"] {
            server.poll_response().unwrap();
        }
    };
    ask(&["a"], &[]);
    let held = allocation_counter::measure(|| {
        for index in 0..1_000 {
            let name = format!("{index:08}-{}", "x".repeat(1_015));
            ask(&[&name], &[]);
            ask(&["*"], &[]);
            ask(&[], &[&name]);
            ask(&[], &["*"]);
        }
    });
    assert!(held.bytes_current < 128 << 10, "{held:?}");
}
