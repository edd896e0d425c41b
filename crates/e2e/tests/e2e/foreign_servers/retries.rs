//! Retry policies (gRFC A6, A44), with gRPC C-core as the server that fails by script.
//!
//! C-core must send its failures so that a client may retry, and must read the attempts as the
//! channel sends them.

use std::time::Duration;

use bytes::Bytes;
use crowfly::Channel;
use crowfly_e2e::echo::EchoClient;
use crowfly_e2e::echo_server::EchoServer;
use crowfly_e2e::peers;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, routes};
use envoy_types::pb::envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff};
use envoy_types::pb::google::protobuf::{self, UInt32Value};
use tokio::task::block_in_place;
use tonic::{Code, Response, Status};

const ATTEMPTS: u32 = 3;

/// S5-07: a client stream of three messages is answered by the third attempt, and fails if that fails. A server can
/// forbid a retry, or ask for it earlier than the backoff of the policy.
#[tokio::test(flavor = "multi_thread")]
async fn c_core_sees_attempts_and_pushes_back() {
    let Some(python) = peers::python() else {
        return;
    };
    let server = EchoServer::c_core(python, "a", &[]);
    let (_control, client) = client_of(&server, Duration::from_millis(1));
    let response = flaky(&client, "2").await.unwrap();
    let previous = response.metadata().get("grpc-previous-rpc-attempts");
    assert_eq!(previous.unwrap(), "2");
    assert_eq!(response.into_inner(), "2,two,three");
    saw(&server, "2", &[None, Some("1"), Some("2")]);

    let status = flaky(&client, "3").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let note = "flaky (after 3 attempts; the retry policy allows 3)";
    assert_eq!(status.message(), note);
    saw(&server, "3", &[None, Some("1"), Some("2")]);

    let status = flaky(&client, "1 -1").await.unwrap_err();
    let note = "flaky (after 1 attempt; the server asked for no retry)";
    assert_eq!(status.message(), note);
    saw(&server, "1 -1", &[None]);

    let (_control, slow) = client_of(&server, Duration::from_secs(3600));
    flaky(&slow, "2 3").await.unwrap();
    saw(&server, "2 3", &[None, Some("1"), Some("2")]);
}

/// Checks the attempts that came, each with all requests.
fn saw(server: &EchoServer, script: &str, previous: &[Option<&str>]) {
    for previous in previous {
        let (told, requests) = block_in_place(|| server.wait_for_attempt());
        assert_eq!(told.as_deref(), *previous);
        assert_eq!(requests, format!("{script},two,three"));
    }
}

/// Makes a call with three messages, of which the first tells the server when to fail.
async fn flaky(
    client: &EchoClient<Channel>,
    script: &'static str,
) -> Result<Response<Bytes>, Status> {
    let messages = [script, "two", "three"].map(Bytes::from);
    let messages = tokio_stream::iter(messages);
    client.client_streaming("Flaky", messages).await
}

/// A client of a server, with a retry policy.
fn client_of(server: &EchoServer, interval: Duration) -> (ResourceServer, EchoClient<Channel>) {
    let interval = Some(protobuf::Duration {
        seconds: interval.as_secs().try_into().unwrap(),
        nanos: interval.subsec_nanos().try_into().unwrap(),
    });
    let policy = RetryPolicy {
        retry_on: "unavailable".to_owned(),
        num_retries: Some(UInt32Value {
            value: ATTEMPTS - 1,
        }),
        retry_back_off: Some(RetryBackOff {
            base_interval: interval,
            max_interval: interval,
        }),
        ..RetryPolicy::default()
    };
    let routes = routes("echo-routes").host("*").route("/", "echo-cluster");
    let routes = routes.edit(|config| config.virtual_hosts[0].retry_policy = Some(policy));
    let resources = Resources::service("echo", [server.address]).with(routes);
    let control = ResourceServer::start(&resources);
    let builder = Channel::builder("xds:///echo").bootstrap(control.bootstrap());
    let client = EchoClient::new(builder.build().unwrap());
    (control, client)
}
