//! The end of connections against h2's server: GOAWAY by the server, and the end of the client.

use bytes::Bytes;
use crowfly_http2::{ConnectionEvent, OpenError, StreamError};
use h2::server::Builder;

use super::{Command, Peer, answer, echo};
use crate::raw::post;

/// Calls that are open go on to their end; then the connection ends by itself.
#[tokio::test]
async fn a_graceful_shutdown_breaks_no_call() {
    let peer = Peer::new(&Builder::new(), echo);
    let mut calls: Vec<_> = (0..10).map(|_| peer.open()).collect();
    for (_, request) in &mut calls {
        request.send_data(Bytes::from("first "), false).unwrap();
    }
    peer.command(Command::Graceful);
    while !has_gone_away(&peer) {
        tokio::task::yield_now().await;
    }
    let opened = peer.client.open(&post(), true);
    assert!(matches!(opened, Err(OpenError::Closed)));
    for (response, mut request) in calls {
        request.send_data(Bytes::from("last"), true).unwrap();
        assert_eq!(answer(response).await.unwrap().0, b"first last");
    }
    peer.connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_abrupt_shutdown_tells_why() {
    let peer = Peer::new(&Builder::new(), echo);
    let (response, mut request) = peer.open();
    request.flush();
    let body = response.await.unwrap().into_body();
    peer.command(Command::Abrupt(h2::Reason::INTERNAL_ERROR));
    let mut body = body;
    let error = super::read(&mut body).await.unwrap_err();
    assert!(
        matches!(error, StreamError::Lost(_) | StreamError::Reset(_)),
        "{error:?}"
    );
    drop((body, request));
    let _ = peer.connection.await.unwrap();
    let events = peer.events.lock().unwrap();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, ConnectionEvent::GoAway(end) if end.error_code == 2))
    );
}

/// The connection ends with the last of its clients, after the last of its calls.
#[tokio::test]
async fn the_connection_ends_with_its_client() {
    let peer = Peer::new(&Builder::new(), echo);
    let (response, mut request) = peer.open();
    drop(peer.client);
    request.send_data(Bytes::from("still"), true).unwrap();
    drop(request);
    assert_eq!(answer(response).await.unwrap().0, b"still");
    peer.connection.await.unwrap().unwrap();
}

fn has_gone_away(peer: &Peer) -> bool {
    let events = peer.events.lock().unwrap();
    events
        .iter()
        .any(|event| matches!(event, ConnectionEvent::GoAway(_)))
}
