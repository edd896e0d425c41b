//! Limits of servers: the number of streams, and the rate of PINGs.
//!
//! A client that exceeds them is refused or sent away, so the channel must obey both.

use std::time::Duration;

use crowfly_e2e::echo::EchoClient;
use crowfly_e2e::echo_server::EchoServer;
use crowfly_e2e::peers;
use tokio::task::JoinSet;
use tokio::time;
use tonic::Code;

use super::calls::PingPong;
use super::wire::{Pings, Wire};
use super::{Kind, Server, against_each_server, client, client_of};

against_each_server!(
    "current_thread":
    calls_above_the_servers_limit_take_turns,
    pings_are_answered_while_a_call_is_open,
);

/// RFC 9113, 5.1.2: calls above the server's limit of streams wait. None is refused or fails.
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

/// The least there is between PINGs (gRFC A8).
const INTERVAL: Duration = Duration::from_secs(10);
/// Longer than the time that passes in a test.
const LONG: Duration = Duration::from_secs(3600);

/// Lets the time pass after which a silent server is sent a PING, if it has answered the last one.
async fn pass_interval() {
    time::pause();
    time::advance(INTERVAL + Duration::from_millis(1)).await;
    time::resume();
}

/// Lets intervals pass until a PING is sent and answered. Returns their number, which is greater if
/// other bytes of the server came in between, because those are a sign of life too.
async fn intervals_until_answered(pings: &mut Pings) -> usize {
    for intervals in 1..=50 {
        pass_interval().await;
        if pings.answered().await {
            return intervals;
        }
    }
    panic!("no PING was sent");
}

/// gRFC A8. A PING goes out only when the one before it was answered.
async fn pings_are_answered_while_a_call_is_open(kind: Kind) {
    let Some(server) = Server::start(kind, "a") else {
        return;
    };
    let wire = Wire::start(server.address).await;
    let (_control, channel) =
        client_of([wire.address], |builder| builder.keepalive(INTERVAL, LONG));
    let client = EchoClient::new(channel);
    let mut stream = PingPong::open_for(LONG, &client).await;
    stream.play("one".to_owned()).await.unwrap();
    let mut pings = wire.pings();
    for _ in 0..2 {
        intervals_until_answered(&mut pings).await;
    }
    stream.play("two".to_owned()).await.unwrap();
    stream.end().await;
}

/// gRFC A8: a server that is asked too often says so and closes. The next connection asks half as
/// often.
#[tokio::test]
async fn c_core_complains_of_pings_and_gets_fewer() {
    let Some(python) = peers::python() else {
        return;
    };
    // The PINGs come too soon by the server's clock, and it takes only one such PING.
    let options = [
        ("grpc.http2.min_ping_interval_without_data_ms", 3_600_000),
        ("grpc.http2.max_ping_strikes", 1),
    ];
    let server = EchoServer::c_core(python, "a", &options);
    let wire = Wire::start(server.address).await;
    let (_control, channel) =
        client_of([wire.address], |builder| builder.keepalive(INTERVAL, LONG));
    let client = EchoClient::new(channel);
    let open = || {
        let client = client.clone();
        tokio::spawn(async move { client.unary_within(LONG, "Sleep", "60000").await })
    };
    let mut pings = wire.pings();
    let mut broken = open();
    let ended = loop {
        pass_interval().await;
        tokio::select! {
            _ = pings.answered() => {}
            ended = &mut broken => break ended,
        }
    };
    let status = ended.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(status.message(), "Too many pings");

    // Two may be. Each of them takes twice the time.
    client.unary("Unary", "again").await.unwrap();
    let mut pings = wire.pings();
    let call = open();
    for _ in 0..2 {
        let intervals = intervals_until_answered(&mut pings).await;
        assert!(intervals >= 2, "a PING after {intervals} interval");
    }
    assert!(!call.is_finished());
    call.abort();
}
