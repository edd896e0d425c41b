//! Ends of calls and connections that the server decides, and the errors of the callers.
//!
//! The error tells whether the server may have acted on the call, because only other calls can be
//! repeated (gRFC A6).

use crowfly::transport::Reason;
use crowfly::transport::{Closing, ConnectionLost, GoAway, SendErrorKind};
use h2::server;
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tonic::{Code, Status};

use crate::support::{
    Call, RawServer, channel_body, collect, connect, data, echo, listen, pair, request, run, serve,
    unary,
};

/// GOAWAY with an open stream: no new call, and the open one finishes.
#[tokio::test]
async fn goaway_stops_new_calls_while_an_open_one_finishes() {
    let (mut connection, mut server) = pair(&server::Builder::new()).await;
    let (go_away, told) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (request, respond) = server.accept().await.unwrap().unwrap();
        tokio::spawn(echo(Call { request, respond }));
        tokio::select! {
            _ = told => server.graceful_shutdown(),
            _ = server.accept() => panic!("only one call is made"),
        }
        run(server, echo).await;
    });

    let (input, body) = channel_body();
    let open = connection.sender().send(request(body)).await.unwrap();
    go_away.send(()).unwrap();
    let graceful = GoAway {
        last_stream_id: (1 << 31) - 1,
        error_code: 0,
        debug_text: "".into(),
    };
    assert_eq!(
        connection.closing().await,
        Closing::Draining(Some(graceful))
    );

    let error = connection
        .sender()
        .send(unary("too late"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::NeverSent);
    let status = error.to_status();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("the server is going away"),
        "{status}"
    );
    assert!(
        status
            .message()
            .contains(&connection.sender().address().to_string()),
        "{status}"
    );

    input.send(data("still here")).unwrap();
    drop(input);
    assert_eq!(collect(open).await.to_bytes(), "still here");
    assert!(matches!(connection.closing().await, Closing::Closed(_)));
}

#[tokio::test]
async fn goaway_fails_calls_that_wait_for_a_stream_as_never_sent() {
    let (mut connection, mut server) = pair(server::Builder::new().max_concurrent_streams(1)).await;
    let (go_away, told) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (request, respond) = server.accept().await.unwrap().unwrap();
        tokio::spawn(echo(Call { request, respond }));
        tokio::select! {
            _ = told => server.graceful_shutdown(),
            _ = server.accept() => panic!("only one call is made"),
        }
        run(server, echo).await;
    });
    let (_input, body) = channel_body();
    let sender = connection.sender().clone();
    let _open = sender.send(request(body)).await.unwrap();
    let waiting = sender.send(unary("waiting"));
    let go_away = async {
        assert_eq!(sender.waiting(), 1);
        go_away.send(()).unwrap();
        connection.closing().await
    };
    let (outcome, closing) = tokio::join!(biased; waiting, go_away);
    assert_eq!(outcome.unwrap_err().kind(), SendErrorKind::NeverSent);
    assert!(matches!(closing, Closing::Draining(_)));
}

#[tokio::test]
async fn a_refused_stream_is_known_not_to_have_been_processed() {
    let connection = serve(reset_with(Reason::REFUSED_STREAM)).await;
    let error = connection.sender().send(unary("hello")).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Refused);
    assert_eq!(error.to_status().code(), Code::Unavailable);
    assert!(ConnectionLost::find(&error.to_status()).is_none());
}

/// The server promises not to act on streams above GOAWAY's last stream id.
#[tokio::test]
async fn a_stream_above_goaways_last_stream_id_is_refused() {
    let (listener, address) = listen().await;
    let server = async {
        let mut server = RawServer::accept(&listener).await;
        server.write(RawServer::SETTINGS).await;
        server.read_until(RawServer::HEADERS).await;
        server
            .write(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .await;
        server
    };
    let client = async {
        let mut connection = connect(address).await;
        let error = connection.sender().send(unary("hello")).await.unwrap_err();
        (error, connection.closing().await)
    };
    let ((error, closing), _server) = tokio::join!(client, server);
    assert_eq!(error.kind(), SendErrorKind::Refused);
    let goaway = GoAway {
        last_stream_id: 0,
        error_code: 0,
        debug_text: "".into(),
    };
    assert!(
        matches!(&closing, Closing::Draining(Some(seen)) if *seen == goaway)
            || matches!(closing, Closing::Closed(_))
    );
}

/// RFC 9113, section 6.8: every error that a GOAWAY causes has its debug text. They are those of
/// calls that were refused, lost or too late, and that of the connection.
#[tokio::test]
async fn the_debug_text_of_goaway_is_in_every_error_that_it_causes() {
    for (last_stream_id, kind) in [(0, SendErrorKind::Refused), (1, SendErrorKind::Lost)] {
        let (listener, address) = listen().await;
        let server = async {
            let mut server = RawServer::accept(&listener).await;
            server.write(RawServer::SETTINGS).await;
            server.read_until(RawServer::HEADERS).await;
            let payload = [&[0, 0, 0, last_stream_id, 0, 0, 0, 2], &b"out of pages"[..]].concat();
            let head = [0, 0, 20, 7, 0, 0, 0, 0, 0];
            server.write(&[&head, &payload[..]].concat()).await;
        };
        let client = async {
            let mut connection = connect(address).await;
            let error = connection.sender().send(unary("hello")).await.unwrap_err();
            let late = connection.sender().send(unary("late")).await.unwrap_err();
            (error, late, connection.closing().await)
        };
        let ((error, late, closing), ()) = tokio::join!(client, server);
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(late.kind(), SendErrorKind::NeverSent, "{late}");
        let said = "the server is going away (INTERNAL_ERROR: \"out of pages\")";
        for text in [error.to_string(), late.to_string(), closing.to_string()] {
            assert!(text.contains(said), "{text}");
        }
    }
}

/// RFC 9113, section 8.1: a server that has answered may stop the rest of the request with
/// RST_STREAM NO_ERROR. The client must not throw the answer away.
#[tokio::test]
async fn a_complete_response_survives_a_reset_without_error() {
    let headers = b"\0\0\x10\x01\x05\0\0\0\x01\x88\0\x0bgrpc-status\x017";
    assert_eq!(answer_and_reset(headers).await.unwrap(), "7");
}

/// Cut short, a response must not look complete: gRPC maps NO_ERROR to INTERNAL.
#[tokio::test]
async fn an_incomplete_response_fails_with_a_reset_without_error() {
    let headers = b"\0\0\x01\x01\x04\0\0\0\x01\x88";
    assert_eq!(
        answer_and_reset(headers).await.unwrap_err().code(),
        Code::Internal
    );
}

/// Sends these response HEADERS and RST_STREAM NO_ERROR at once, while the request goes on.
async fn answer_and_reset(headers: &[u8]) -> Result<String, Status> {
    let (listener, address) = listen().await;
    let server = async {
        let mut server = RawServer::accept(&listener).await;
        server.write(RawServer::SETTINGS).await;
        server.read_until(RawServer::HEADERS).await;
        let reset = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\0";
        server.write(&[headers, reset].concat()).await;
        server
    };
    let client = async {
        let connection = connect(address).await;
        let (_input, body) = channel_body();
        let response = connection.sender().send(request(body)).await;
        let (head, body) = response.unwrap().into_parts();
        body.collect().await?;
        Ok(head.headers["grpc-status"].to_str().unwrap().to_owned())
    };
    tokio::join!(client, server).0
}

#[tokio::test]
async fn a_reset_by_the_server_keeps_its_code() {
    let connection = serve(reset_with(Reason::ENHANCE_YOUR_CALM)).await;
    let error = connection.sender().send(unary("hello")).await.unwrap_err();
    assert_eq!(
        error.kind(),
        SendErrorKind::Stream(Reason::ENHANCE_YOUR_CALM)
    );
    assert_eq!(error.to_status().code(), Code::ResourceExhausted);
    assert!(connection.sender().is_open());
}

/// A connection that dies loses its calls, which a load generator counts as lost in flight.
#[tokio::test]
async fn a_connection_that_dies_loses_the_calls_on_it() {
    let (mut connection, mut server) = pair(&server::Builder::new()).await;
    let die = async {
        let _call = server.accept().await.unwrap().unwrap();
        drop(server);
    };
    let (outcome, ()) = tokio::join!(connection.sender().send(unary("hello")), die);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Lost);
    let status = error.to_status();
    assert_eq!(status.code(), Code::Unavailable);
    let lost = ConnectionLost::find(&status).unwrap();
    assert_eq!(lost.address(), connection.sender().address());

    assert!(matches!(connection.closing().await, Closing::Closed(_)));
    let next = connection.sender().send(unary("next")).await.unwrap_err();
    assert_eq!(next.kind(), SendErrorKind::NeverSent);
    assert!(ConnectionLost::find(&next.to_status()).is_none());
}

#[tokio::test]
async fn a_connection_that_dies_during_a_response_loses_the_call() {
    let (connection, mut server) = pair(&server::Builder::new()).await;
    let (die, told) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (request, respond) = server.accept().await.unwrap().unwrap();
        let mut call = Call { request, respond };
        let _half = call.start_response();
        tokio::select! {
            _ = told => {}
            _ = server.accept() => panic!("only one call is made"),
        }
        drop(server);
    });
    let response = connection.sender().send(unary("hello")).await.unwrap();
    die.send(()).unwrap();
    let status = response.into_body().collect().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(ConnectionLost::find(&status).is_some(), "{status:?}");
}

/// A released connection takes no new stream and lets open ones finish.
#[tokio::test]
async fn dropping_every_handle_closes_the_connection_after_its_last_call() {
    let (connection, server) = pair(&server::Builder::new()).await;
    let serving = tokio::spawn(run(server, echo));
    let (input, body) = channel_body();
    let response = connection.sender().send(request(body)).await.unwrap();
    drop(connection);
    input.send(data("last words")).unwrap();
    drop(input);
    assert_eq!(collect(response).await.to_bytes(), "last words");
    serving.await.unwrap();
}

fn reset_with(reason: Reason) -> impl Fn(Call) -> std::future::Ready<()> {
    move |mut call| {
        call.respond.send_reset(u32::from(reason).into());
        std::future::ready(())
    }
}
