//! Calls that never left this process. Only the side that writes can know them.
//!
//! The tests here do not run over the `h2` crate, which cannot tell; `over_h2.rs` lists them by name.

use crowfly::transport::SendErrorKind;

use crate::support::{RawServer, connect, listen, unary};

/// A call is not written to a socket that the server has closed, even before the runtime notices.
/// Otherwise the client could not tell whether the server acted on the call.
#[tokio::test]
async fn a_call_that_begins_after_the_server_has_closed_is_never_sent() {
    let (listener, address) = listen().await;
    let accept = async {
        let mut server = RawServer::accept(&listener).await;
        server.write(RawServer::SETTINGS).await;
        server
    };
    let (connection, mut server) = tokio::join!(connect(address), accept);
    // The client's SETTINGS, and its acknowledgement: nothing is left unread, so that closing sends
    // no reset.
    server.read_until(4).await;
    server.read_until(4).await;
    drop(server);
    let error = connection.sender().send(unary("late")).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::NeverSent, "{error}");
}
