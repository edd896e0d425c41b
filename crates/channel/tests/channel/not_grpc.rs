//! Backends that answer with something else than gRPC, such as the error page of a proxy.
//!
//! gRPC maps such an answer to a status, so that callers need not know HTTP.

use crowfly_testkit::ResourceServer;
use http::Response;
use tonic::{Code, Status};

use crate::backend::Backend;
use crate::support::{call, channel, payments};

/// An error page, as proxies send it.
const PAGE: &str = "<html><body>no backend</body></html>";

/// Calls, and has the call answered with this.
async fn answered_with(response: Response<&'static str>) -> Status {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { call(&channel).await });
    a.next_call().await.answer_with(&response);
    let status = caller.await.unwrap().unwrap_err();
    assert!(
        status.message().contains(&a.address.to_string()),
        "{status}"
    );
    status
}

/// gRPC's `http-grpc-status-mapping.md`: an HTTP status without a gRPC status stands for one.
#[tokio::test]
async fn an_http_status_stands_for_a_grpc_status() {
    for (http, expected) in [
        (400, Code::Internal),
        (401, Code::Unauthenticated),
        (403, Code::PermissionDenied),
        (404, Code::Unimplemented),
        (429, Code::Unavailable),
        (500, Code::Unknown),
        (502, Code::Unavailable),
        (503, Code::Unavailable),
        (504, Code::Unavailable),
    ] {
        let response = Response::builder().status(http);
        let response = response.header("content-type", "text/html").body(PAGE);
        let status = answered_with(response.unwrap()).await;
        assert_eq!(status.code(), expected, "{http}: {status}");
        let said = format!("HTTP status {http}");
        assert!(status.message().contains(&said), "{status}");
    }
}

/// A page is not read as messages, with any HTTP status.
#[tokio::test]
async fn a_page_is_no_message() {
    let response = Response::builder().header("content-type", "text/html");
    let status = answered_with(response.body(PAGE).unwrap()).await;
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().contains("text/html"), "{status}");
}

/// A gRPC status counts more than the HTTP status of the response.
#[tokio::test]
async fn a_grpc_status_counts_more_than_an_http_status() {
    let mut a = Backend::holding("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let channel = channel(&server);
    let caller = tokio::spawn(async move { call(&channel).await });
    let response = Response::builder()
        .status(503)
        .header("content-type", "application/grpc")
        .header("grpc-status", "7")
        .header("grpc-message", "not yours")
        .body("");
    a.next_call().await.answer_with(&response.unwrap());
    let status = caller.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(status.message(), "not yours");
}
