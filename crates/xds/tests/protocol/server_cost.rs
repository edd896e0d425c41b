//! Tests of the cost of a change: the server must not look at the resources that did not change,
//! because there may be ten thousand.

use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::Endpoints;
use crowfly_testkit::builders::endpoints;
use crowfly_xds::{Response, Snapshot, Subscription};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;

const RESOURCES: usize = 10_000;

fn name(index: usize) -> String {
    format!("service-{index}")
}

fn first_request() -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names: (0..RESOURCES).map(name).collect(),
        ..DiscoveryRequest::default()
    }
}

fn ack(response: &Response) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: response.version().to_owned(),
        response_nonce: response.nonce().to_owned(),
        ..first_request()
    }
}

/// The work of a snapshot, and of a stream that has ten thousand names, is in proportion to what
/// changed: neither copies, hashes or compares the rest.
#[test]
fn one_change_among_ten_thousand_names_costs_one_resource() {
    let mut builder = Snapshot::builder();
    for index in 0..RESOURCES {
        let of = endpoints(&name(index)).locality("r", 1, ["10.0.0.1:1"]);
        builder.set(name(index), of.any());
    }
    let before = Arc::new(builder.build());
    let mut stream = Subscription::new(Arc::clone(&before));
    stream.handle_request(first_request());
    let response = stream.poll_response().unwrap();
    assert_eq!(response.names().count(), RESOURCES);
    stream.handle_request(ack(&response));
    assert_eq!(stream.poll_response(), None);

    let changed = endpoints("service-77").locality("r", 1, ["10.0.0.2:1"]);
    let allocated = allocation_counter::measure(|| {
        let mut builder = before.to_builder();
        builder.set("service-77", changed.any());
        let after = Arc::new(builder.build());
        stream.handle_snapshot(Arc::clone(&after));
        let response = stream.poll_response().unwrap();
        assert_eq!(response.names().count(), 1);
        assert_eq!(stream.poll_response(), None);
    });
    // A list of 80 runs and one run of 128 entries are copied; ten thousand entries are 320 kB.
    assert!(allocated.bytes_total < 16_384, "{allocated:?}");
}
