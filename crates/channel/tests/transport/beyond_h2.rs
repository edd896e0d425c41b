//! Headers over the limit, which our HTTP/2 treats better than `h2`: a status is kept when its
//! trailers are too large.
//!
//! The tests here do not run over the `h2` crate; `over_h2.rs` lists them by name.

use http_body_util::BodyExt;
use tonic::{Code, Status};

use crate::headers::{limited, not_found};
use crate::support::{Call, unary};

/// A status is kept when its trailers are over the limit. The limit is ours, and the result of the
/// call is the server's.
#[tokio::test]
async fn a_status_is_kept_when_its_trailers_are_over_the_limit() {
    let connection = limited(2_000, |call| not_found(call, 3_000)).await;
    let response = connection.sender().send(unary("hello")).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    let status = Status::from_header_map(body.trailers().unwrap()).unwrap();
    assert_eq!(status.code(), Code::NotFound);
    assert!(
        status.message().contains("over the limit of 2000 bytes"),
        "{status}"
    );
}

/// A head over the limit is RESOURCE_EXHAUSTED, as in gRPC C-core, and the limit is named.
#[tokio::test]
async fn a_head_over_the_limit_is_resource_exhausted() {
    let connection = limited(1_000, |mut call: Call| async move {
        let large = "x".repeat(2_000);
        let response = http::Response::builder().header("large", large);
        let _ = call
            .respond
            .send_response(response.body(()).unwrap(), false);
    })
    .await;
    let error = connection.sender().send(unary("hello")).await.unwrap_err();
    let status = error.to_status();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("1000 bytes"), "{status}");
}
