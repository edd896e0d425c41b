//! Responses that are not gRPC: from a proxy that has no backend, or from a server of something else.
//!
//! Tonic would read an error page as messages, and report an unknown compression. So the channel looks at the head of
//! each response first.

use std::net::SocketAddr;

use crowfly_client::code_of_http;
use http::{HeaderMap, Response, StatusCode, header};
use tonic::Status;

/// The status of a call whose response is not gRPC; `None` if it is.
///
/// The function is for responses whose head has no `grpc-status`, because that counts more than the HTTP status.
pub(crate) fn status_of<B>(response: &Response<B>, address: SocketAddr) -> Option<Status> {
    let http = response.status();
    let text = match other_type(response.headers()) {
        _ if http != StatusCode::OK => format!("HTTP status {http} and no gRPC status"),
        Some(other) => format!("content-type {other:?}, which is not gRPC"),
        None => return None,
    };
    Some(Status::new(
        code_of_http(http),
        format!("{address} answered with {text}"),
    ))
}

/// The content type of a response that does not say it is gRPC.
fn other_type(headers: &HeaderMap) -> Option<&str> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let is_grpc = content_type.starts_with("application/grpc");
    (!is_grpc).then_some(content_type)
}
