//! The backend over real sockets, in process and as a process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::time::Duration;

use common::{channel, client, spawn_backend};
use crowfly_cli::{
    backend::{BackendOptions, BackendServer},
    testing::{
        EchoStatus, Empty, ResponseParameters, SimpleRequest, StreamingOutputCallRequest,
        StreamingOutputCallResponse,
    },
};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

fn wanted(sizes: &[i32]) -> StreamingOutputCallRequest {
    let parameters = |&size| ResponseParameters {
        size,
        interval_us: 0,
        compressed: None,
    };
    StreamingOutputCallRequest {
        response_parameters: sizes.iter().map(parameters).collect(),
        ..StreamingOutputCallRequest::default()
    }
}

fn size(response: &StreamingOutputCallResponse) -> usize {
    response.payload.as_ref().unwrap().body.len()
}

#[tokio::test]
async fn unary_call_answers_with_the_name_and_the_size_asked_for() {
    let backend = BackendServer::start(BackendOptions::new("b1"))
        .await
        .unwrap();
    let mut client = client(backend.addr()).await;
    let request = SimpleRequest {
        response_size: 314,
        ..SimpleRequest::default()
    };
    let response = client.unary_call(request).await.unwrap();
    assert_eq!(response.metadata().get("hostname").unwrap(), "b1");
    let response = response.into_inner();
    assert_eq!(response.hostname, "b1");
    assert_eq!(response.payload.unwrap().body.len(), 314);
    client.empty_call(Empty {}).await.unwrap();
}

#[tokio::test]
async fn unary_call_answers_with_the_status_asked_for() {
    let backend = BackendServer::start(BackendOptions::new("b1"))
        .await
        .unwrap();
    let status = EchoStatus {
        code: 5,
        message: "not here".to_owned(),
    };
    let request = SimpleRequest {
        response_status: Some(status),
        ..SimpleRequest::default()
    };
    let status = client(backend.addr())
        .await
        .unary_call(request)
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "not here")
    );
}

#[tokio::test]
async fn streaming_output_call_answers_each_parameter_then_the_status() {
    let backend = BackendServer::start(BackendOptions::new("b1"))
        .await
        .unwrap();
    let mut request = wanted(&[1, 0, 70_000]);
    request.response_status = Some(EchoStatus {
        code: 10,
        message: "enough".to_owned(),
    });
    let mut client = client(backend.addr()).await;
    let mut responses = client
        .streaming_output_call(request)
        .await
        .unwrap()
        .into_inner();
    for expected in [1, 0, 70_000] {
        assert_eq!(size(&responses.message().await.unwrap().unwrap()), expected);
    }
    let status = responses.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "enough"));
}

#[tokio::test]
async fn full_duplex_call_answers_each_request_as_it_comes() {
    let backend = BackendServer::start(BackendOptions::new("b1"))
        .await
        .unwrap();
    let (requests, outbound) = mpsc::channel(1);
    let mut client = client(backend.addr()).await;
    let call = client
        .full_duplex_call(ReceiverStream::new(outbound))
        .await
        .unwrap();
    let mut responses = call.into_inner();
    for sizes in [&[1, 2][..], &[3]] {
        requests.send(wanted(sizes)).await.unwrap();
        for &expected in sizes {
            let response = responses.message().await.unwrap().unwrap();
            assert_eq!(size(&response), usize::try_from(expected).unwrap());
        }
    }
    drop(requests);
    assert!(responses.message().await.unwrap().is_none());
}

#[tokio::test]
async fn delay_and_fail_rate_are_obeyed() {
    let options = BackendOptions {
        delay: Duration::from_millis(30),
        fail_rate: 0.5,
        ..BackendOptions::new("b1")
    };
    let backend = BackendServer::start(options).await.unwrap();
    let mut client = client(backend.addr()).await;
    let start = std::time::Instant::now();
    client.empty_call(Empty {}).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30));
    let status = client.empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "b1: failed on purpose (--fail-rate)");
}

/// The open call outlives the order to end; new connections are refused; the process exits with 0.
#[tokio::test]
async fn sigterm_drains_open_streams_and_health_says_so() {
    let (mut child, addr) = spawn_backend("b1", &[]).await;
    let channel = channel(addr).await;
    let check = HealthCheckRequest {
        service: "grpc.testing.TestService".to_owned(),
    };
    let mut health = HealthClient::new(channel.clone());
    let mut health = health.watch(check).await.unwrap().into_inner();
    let first = health.next().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);

    let (requests, outbound) = mpsc::channel(1);
    let mut client = client(addr).await;
    let call = client
        .full_duplex_call(ReceiverStream::new(outbound))
        .await
        .unwrap();
    let mut responses = call.into_inner();
    requests.send(wanted(&[1])).await.unwrap();
    assert_eq!(size(&responses.message().await.unwrap().unwrap()), 1);

    child.terminate().unwrap();
    let second = health.next().await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    drop((health, channel));

    // Waiting for the end must not hasten it.
    let exit = tokio::spawn(async move { child.wait().await.unwrap() });
    requests.send(wanted(&[2])).await.unwrap();
    assert_eq!(size(&responses.message().await.unwrap().unwrap()), 2);
    drop(requests);
    assert!(responses.message().await.unwrap().is_none());
    assert!(exit.await.unwrap().success());
}

/// A health watch never ends by itself, and a backend must.
#[tokio::test]
async fn calls_that_never_end_do_not_hold_a_backend_beyond_its_drain_timeout() {
    let (mut child, addr) = spawn_backend("b1", &["--drain-timeout", "50ms"]).await;
    let mut health = HealthClient::new(channel(addr).await);
    let mut health = health
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    health.next().await.unwrap().unwrap();
    child.terminate().unwrap();
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_child_ends_when_its_parent_lets_go_of_it() {
    let mut process = tokio::process::Command::new(common::BINARY)
        .args(["backend", "--exit-with-parent"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(process.stdin.take());
    assert!(process.wait().await.unwrap().success());
}

/// The requests that grpcurl and similar tools send.
#[tokio::test]
async fn reflection_lists_the_services() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };

    let backend = BackendServer::start(BackendOptions::new("b1"))
        .await
        .unwrap();
    let mut client = ServerReflectionClient::new(channel(backend.addr()).await);
    let ask = |question| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    };
    let symbol = "grpc.testing.SimpleRequest".to_owned();
    let questions = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(symbol)),
    ];
    let answers = client.server_reflection_info(tokio_stream::iter(questions));
    let mut answers = answers.await.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = first else {
        panic!("{first:?}");
    };
    let names: Vec<_> = list.service.iter().map(|service| &service.name).collect();
    for expected in ["grpc.testing.TestService", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|name| *name == expected), "{names:?}");
    }
    let second = answers.message().await.unwrap().unwrap().message_response;
    assert!(
        matches!(second, Some(MessageResponse::FileDescriptorResponse(_))),
        "{second:?}"
    );
}
