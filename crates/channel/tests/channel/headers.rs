//! The limit of a program on the size of response headers.
//!
//! Error details are in trailers, so a program may need more than the default.

use crowfly::{Channel, ChannelBuilder};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

use crate::backend::Backend;
use crate::support::call;

/// Trailers of 70 kB are above the default limit. A program can set a larger one.
#[tokio::test]
async fn trailers_are_taken_up_to_the_limit_of_the_channel() {
    let status = failure(|builder| builder).await;
    assert_eq!(status.code(), Code::NotFound);
    assert!(
        status.message().contains("over the limit of 65536 bytes"),
        "{status}"
    );
    let status = failure(|builder| builder.max_header_list_size(100_000)).await;
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "no such item");
    assert_eq!(status.details().len(), 52_500);
}

/// The failure of a call with 70,000 bytes of details.
async fn failure(change: impl FnOnce(ChannelBuilder) -> ChannelBuilder) -> Status {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&Resources::service("payments", [a.address]));
    let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
    let channel = change(builder).build().unwrap();
    let caller = tokio::spawn(async move { call(&channel).await });
    let mut held = a.next_call().await;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("5"));
    trailers.insert("grpc-message", HeaderValue::from_static("no such item"));
    let details = HeaderValue::from_bytes(&[b'A'; 70_000]).unwrap();
    trailers.insert("grpc-status-details-bin", details);
    held.begin().send_trailers(trailers).unwrap();
    caller.await.unwrap().unwrap_err()
}
