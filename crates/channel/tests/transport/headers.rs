//! Heads and trailers of any size.
//!
//! Servers put error details into trailers, so a limit must not hide the status.

use crowfly::transport::{Connection, SendErrorKind};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt;
use tonic::{Code, Status};

use crate::support::{Call, TIMEOUT, listen, plaintext, run, serve, unary};

/// gRPC servers put error details into trailers. 17 kB of details do not hide their status.
#[tokio::test]
async fn seventeen_kilobytes_of_details_come_with_their_status() {
    let connection = serve(|call| not_found(call, 17_000)).await;
    let status = failure(&connection).await;
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "no such item");
    assert_eq!(status.details().len(), 12_750);
}

/// RFC 9113, section 6.5.2: the limit is told to the server, which may heed it.
#[tokio::test]
async fn headers_up_to_a_limit_of_the_programs_own_are_taken() {
    let connection = limited(300_000, |call| not_found(call, 200_000)).await;
    assert_eq!(failure(&connection).await.details().len(), 150_000);
}

async fn failure(connection: &Connection) -> Status {
    let response = connection.sender().send(unary("hello")).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    Status::from_header_map(body.trailers().unwrap()).unwrap()
}

/// A connection with this limit on headers to a server that runs `handler` on every call.
pub(crate) async fn limited<F, R>(limit: u32, handler: F) -> Connection
where
    F: Fn(Call) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        run(h2::server::handshake(tcp).await.unwrap(), handler).await;
    });
    let profile = plaintext().with_max_header_list_size(limit);
    let connected = Connection::connect(address, &profile, TIMEOUT).await;
    connected.unwrap()
}

/// NOT_FOUND in trailers, with so much in details.
pub(crate) async fn not_found(mut call: Call, details: usize) {
    let response = Response::builder().header("content-type", "application/grpc");
    let response = response.body(()).unwrap();
    let mut out = call.respond.send_response(response, false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "5".parse().unwrap());
    trailers.insert("grpc-message", "no such item".parse().unwrap());
    let details = HeaderValue::from_bytes(&vec![b'A'; details]).unwrap();
    trailers.insert("grpc-status-details-bin", details);
    out.send_trailers(trailers).unwrap();
}

/// A head that is too large fails a response that goes on with RESOURCE_EXHAUSTED, as in C-core.
#[tokio::test]
async fn a_head_over_the_limit_fails_the_call_and_leaves_the_connection_open() {
    let connection = limited(1_000, |mut call: Call| async move {
        let value = HeaderValue::from_bytes(&[b'x'; 2_000]).unwrap();
        let response = Response::builder().header("large", value).body(()).unwrap();
        let _ = call.respond.send_response(response, false);
    })
    .await;
    let error = connection.sender().send(unary("hello")).await.unwrap_err();
    assert!(matches!(error.kind(), SendErrorKind::Stream(_)), "{error}");
    assert!(connection.sender().is_open());
}
