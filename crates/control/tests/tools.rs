//! The services for tools on the port of ADS, health, reflection and CSDS: their limits, and their end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use crowfly_control::{ControlPlane, Limits, Ports};
use envoy_types::pb::envoy::service::status::v3::ClientStatusRequest;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use support::{any_port, channel, metric, service, snapshot, soon, until};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

async fn plane(limits: Limits) -> ControlPlane {
    let ports = Ports::new(any_port()).admin(any_port()).limits(limits);
    ControlPlane::with_ports(snapshot(&service("a", 1)), ports)
        .await
        .unwrap()
}

/// A stream of reflection.
struct Reflection {
    questions: mpsc::Sender<ServerReflectionRequest>,
    answers: Streaming<ServerReflectionResponse>,
}

impl Reflection {
    async fn open(channel: Channel) -> Result<Self, Status> {
        let mut client = ServerReflectionClient::new(channel);
        let (questions, receiver) = mpsc::channel(1);
        let answers = client.server_reflection_info(ReceiverStream::new(receiver));
        Ok(Self {
            questions,
            answers: soon(answers).await?.into_inner(),
        })
    }

    async fn ask(&self, question: ServerReflectionRequest) -> bool {
        self.questions.send(question).await.is_ok()
    }

    /// The status with which the stream ends, after any number of answers.
    async fn end(mut self) -> Status {
        soon(async move {
            loop {
                match self.answers.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it ended without a reason"),
                    Err(status) => return status,
                }
            }
        })
        .await
    }
}

/// Asks for the list of services. The answer repeats the host.
fn question(host_bytes: usize) -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: "x".repeat(host_bytes),
        message_request: Some(MessageRequest::ListServices(String::new())),
    }
}

async fn limited(plane: &ControlPlane, limit: &str) -> f64 {
    let name = format!("crowfly_control_limited_total{{limit=\"{limit}\",node=\"\"}}");
    metric(plane.admin_addr().unwrap(), &name).await
}

/// L-08: questions to reflection are short, because their answers repeat them. Clients that send long ones and do not
/// read make us hold nothing. The client itself is on the same thread, and counts.
#[test]
fn long_questions_are_not_held() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let held = allocation_counter::measure(|| {
        runtime.block_on(async {
            let plane = plane(Limits::default()).await;
            let endpoint = format!("http://{}", plane.listen_addr());
            let endpoint = Endpoint::try_from(endpoint).unwrap();
            let endpoint = endpoint.initial_stream_window_size(1 << 10);
            let channel = endpoint.connect().await.unwrap();
            let mut unread = Vec::new();
            for _ in 0..20 {
                let reflection = Reflection::open(channel.clone()).await.unwrap();
                assert!(reflection.ask(question((4 << 20) - 100)).await);
                // The question has left, or the stream is over.
                reflection.ask(question(0)).await;
                unread.push(reflection);
            }
            let refused = async || limited(&plane, "request_bytes").await >= 20.0;
            until(refused).await;
            let status = unread.pop().unwrap().end().await;
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            let told = "limit request_bytes: expected at most 4096 bytes in a request, got ";
            assert!(status.message().starts_with(told), "{status}");
        });
    });
    assert!(held.bytes_max < 60 << 20, "{held:?}");
}

/// L-04: a name of a service without end is refused, with the name of the limit.
#[tokio::test]
async fn a_long_name_is_not_looked_up() {
    let plane = plane(Limits::default()).await;
    let mut health = HealthClient::new(channel(plane.listen_addr()).await);
    let request = HealthCheckRequest {
        service: "x".repeat(4 << 10),
    };
    let status = soon(health.check(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(
        status.message().starts_with("limit request_bytes: "),
        "{status}"
    );
}

/// L-05: questions without end are answered more slowly, and the stream goes on.
#[tokio::test]
async fn endless_questions_are_slowed() {
    let limits = Limits {
        requests_per_second: 1,
        ..Limits::default()
    };
    let plane = plane(limits).await;
    let channel = channel(plane.listen_addr()).await;
    let Reflection {
        questions,
        mut answers,
    } = Reflection::open(channel).await.unwrap();
    let asking = tokio::spawn(async move { while questions.send(question(0)).await.is_ok() {} });
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = answers.message().await {} });
    until(async || limited(&plane, "requests_per_second").await > 0.0).await;
    assert!(
        !asking.is_finished() && !reading.is_finished(),
        "it is slowed, not ended"
    );
    asking.abort();
    reading.abort();
}

/// L-06: streams of health and reflection count among all streams, and are free again when they end.
#[tokio::test]
async fn streams_of_tools_are_limited() {
    let limits = Limits {
        streams: 4,
        ..Limits::default()
    };
    let plane = plane(limits).await;
    let channel = channel(plane.listen_addr()).await;
    let mut health = HealthClient::new(channel.clone());
    let watched = health.watch(HealthCheckRequest::default());
    let _watched = soon(watched).await.unwrap();
    let reflection = Reflection::open(channel.clone()).await.unwrap();
    let told = "limit streams: there are 2 streams of this address";
    let refused = Reflection::open(channel.clone()).await.err().unwrap();
    assert_eq!(refused.message(), told);
    let refused = soon(health.check(HealthCheckRequest::default())).await;
    assert_eq!(refused.unwrap_err().message(), told);
    drop(reflection);
    until(async || Reflection::open(channel.clone()).await.is_ok()).await;
}

/// L-12: shutdown ends the streams of all services, with the reason. Those who watch the health of the server are told
/// that it does not serve any more.
#[tokio::test]
async fn shutdown_ends_the_streams_of_tools() {
    let plane = plane(Limits::default()).await;
    let channel = channel(plane.listen_addr()).await;
    let mut health = HealthClient::new(channel.clone());
    let watched = soon(health.watch(HealthCheckRequest::default())).await;
    let mut watched = watched.unwrap().into_inner();
    let first = soon(watched.message()).await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);

    let mut reflection = Reflection::open(channel.clone()).await.unwrap();
    assert!(reflection.ask(question(0)).await);
    soon(reflection.answers.message()).await.unwrap().unwrap();

    let mut csds = ClientStatusDiscoveryServiceClient::new(channel);
    let (requests, receiver) = mpsc::channel(1);
    requests.send(ClientStatusRequest::default()).await.unwrap();
    let answers = soon(csds.stream_client_status(ReceiverStream::new(receiver))).await;
    let mut answers = answers.unwrap().into_inner();
    soon(answers.message()).await.unwrap().unwrap();

    let of_health = async {
        let told = soon(watched.message()).await.unwrap().unwrap();
        assert_eq!(told.status(), ServingStatus::NotServing);
        soon(watched.message()).await.unwrap_err()
    };
    let of_csds = async { soon(answers.message()).await.unwrap_err() };
    let (of_health, of_csds, of_reflection, ()) =
        tokio::join!(of_health, of_csds, reflection.end(), soon(plane.shutdown()));
    for status in [of_health, of_csds, of_reflection] {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert_eq!(status.message(), "the control plane is shutting down");
    }
}
