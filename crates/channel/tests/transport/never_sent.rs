//! Which calls never left this process: what only the side that writes can know.
//!
//! The tests here do not run over the `h2` crate, which cannot tell; `over_h2.rs` lists them by name.

use crowfly::transport::SendErrorKind;

use crate::support::{RawServer, connect, listen, unary};

/// The runtime has not noticed yet that the server has closed the connection: here, it had no chance
/// to. The call is not written to a dead socket, where nobody could tell whether it was acted on.
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
