//! What servers allow: so many streams, so many PINGs.

use std::time::Duration;

use crowfly_e2e::echo::EchoClient;
use crowfly_e2e::echo_server::EchoServer;
use crowfly_e2e::peers;
use tokio::task::JoinSet;
use tonic::Code;

use super::calls::PingPong;
use super::wire::Wire;
use super::{Kind, Server, against_each_server, client, client_of};

against_each_server!(
    calls_above_the_servers_limit_take_turns,
    pings_are_answered_while_a_call_is_open,
);

/// RFC 9113, 5.1.2: of more calls than the server takes streams, the others wait. None is refused or
/// fails.
async fn calls_above_the_servers_limit_take_turns(kind: Kind) {
    let Some(server) = Server::start_limited(kind, "a", 2) else {
        return;
    };
    let (_control, client) = client(&server);
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let client = client.clone();
        callers.spawn(async move {
            for _ in 0..5 {
                client.unary("Sleep", "5").await.unwrap();
            }
        });
    }
    callers.join_all().await;
    let peak = client.unary("Peak", "").await.unwrap();
    assert_eq!(peak.get_ref(), "2");
}

/// gRFC A8. A PING goes out only when the one before it was answered.
async fn pings_are_answered_while_a_call_is_open(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let wire = Wire::start(server.address).await;
    let (_control, channel) = client_of([wire.address], |builder| {
        builder.keepalive(Duration::from_millis(20), Duration::from_secs(600))
    });
    let client = EchoClient::new(channel);
    let mut stream = PingPong::open(&client).await;
    stream.play("one".to_owned()).await.unwrap();
    wire.until_sent(10).await;
    stream.play("two".to_owned()).await.unwrap();
    stream.end().await;
}

/// gRFC A8: a server that is asked too often says so and closes. The next connection asks half as
/// often.
#[tokio::test(flavor = "multi_thread")]
async fn c_core_complains_of_pings_and_gets_fewer() {
    let Some(python) = peers::python() else {
        return;
    };
    // Of PINGs that come too soon, the second is one too many.
    let options = [
        ("grpc.http2.min_ping_interval_without_data_ms", 600),
        ("grpc.http2.max_ping_strikes", 1),
    ];
    let server = EchoServer::c_core(python, "a", &options);
    // The connection lasts for three of them: long enough not to be waited for.
    let interval = Duration::from_millis(400);
    let (_control, channel) = client_of([server.address], |builder| {
        builder.keepalive(interval, Duration::from_secs(600))
    });
    let client = EchoClient::new(channel);
    let status = client.unary("Sleep", "60000").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(status.message(), "Too many pings");
    // Time for three, if they come half as often.
    client.unary("Sleep", "2800").await.unwrap();
}
