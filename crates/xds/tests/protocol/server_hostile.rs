//! Clients that mean harm: what a stream holds for them has a bound.

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Endpoints;
use crowfly_testkit::builders::{Resources, endpoints};
use crowfly_xds::{DeltaSubscription, Snapshot, Subscription};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::rpc::Status;

const CHANGES: usize = 10_000;
/// The most that a stream may hold while names of a megabyte come and go: a few of them, in the
/// request, the subscription and the response.
const BOUND: u64 = 16 << 20;

fn served() -> Arc<Snapshot> {
    Resources::new().with(endpoints("a")).snapshot()
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

/// The same for delta, by a client that never answers.
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

/// A stream that has all of ten thousand resources holds nothing of its own for them.
#[test]
fn wildcard_in_delta_holds_no_state_for_what_it_was_sent() {
    let mut builder = Snapshot::builder();
    for index in 0..CHANGES {
        let name = format!("service-{index}");
        builder.set(name.as_str(), endpoints(&name).any());
    }
    let snapshot = Arc::new(builder.build());
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
