//! The rules of the protocol for servers, over real streams: one test each, of those that no other test shows.
//!
//! The same rules are tested without I/O in `crates/xds`. These tests show that nothing between the server half and the
//! wire breaks them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod delta;
mod sotw;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use crowfly_control::ControlPlane;
use crowfly_xds::{Snapshot, SnapshotResource};
use envoy_types::pb::google::protobuf::Any;
use support::any_port;

/// A type of which there is nothing, and which comes after all others. A wildcard for it is answered, so the server
/// has said by then all that it had to say about other types.
const FENCE: &str = "type.googleapis.com/test.Fence";

/// Resources by type and name. Each changes with its number.
fn serving(resources: &[(&str, &str, u32)]) -> Snapshot {
    let mut builder = Snapshot::builder();
    for (type_url, name, number) in resources {
        let mut value = Vec::new();
        prost::encoding::string::encode(1, &(*name).to_owned(), &mut value);
        // Clients pass over a field that they do not know.
        prost::encoding::uint32::encode(500, number, &mut value);
        let type_url = (*type_url).to_owned();
        builder.set(*name, Any { type_url, value });
    }
    builder.build()
}

/// One resource that lives for a second if it is not renewed.
fn mortal(type_url: &str, name: &str) -> Snapshot {
    let any = Any {
        type_url: type_url.to_owned(),
        value: Vec::new(),
    };
    let mut builder = Snapshot::builder();
    let resource = SnapshotResource::new(any, false).with_ttl(Duration::from_secs(1));
    builder.put(name, Arc::new(resource));
    builder.build()
}

async fn plane(resources: &[(&str, &str, u32)]) -> ControlPlane {
    let plane = ControlPlane::with_snapshot(serving(resources), any_port(), None);
    plane.await.unwrap()
}
