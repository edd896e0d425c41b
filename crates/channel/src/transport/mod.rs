//! One HTTP/2 connection to one address: the bottom layer of the channel.
//!
//! A balancer needs three facts about its connections, and `crowfly-http2` reports all of them:
//! - The server's SETTINGS have arrived. Only then is a connection READY.
//! - GOAWAY has arrived. From then on no call may pick the connection.
//! - A failed call never left this process. Only such a call may be repeated without limit (gRFC A6).
//!
//! A call opens its stream from the caller's own task. A unary call is one HEADERS and one DATA frame in one
//! write, and no task is spawned for it.
//!
//! # The parts
//!
//! | module | what it holds |
//! |---|---|
//! | `dial` | sockets: by TCP, or by a connector of the program's own |
//! | `connection` | connecting: TCP, TLS, SETTINGS, under one timeout; the end of a connection |
//! | `connection_state` | the state of a connection that calls need: its stream limit, and why it ended |
//! | `sender` | opening a stream, and waiting for one when the server limits them |
//! | `pump` | the request body's way into the stream |
//! | `body` | the response body, and the guard that the upper layer ties to it |
//! | `error` | failures, sorted by the retry that gRFC A6 allows |
//! | `replay` | a request body that can be sent again until its call is committed |
//! | `http2` | the interface to HTTP/2: the only file that names an implementation |
//! | `keepalive` | sending PINGs to a silent server |
//! | `tls`, `profile` | TLS, and the settings of a connection |

mod body;
mod connection;
mod connection_state;
mod dial;
mod error;
#[cfg(feature = "h2-backend")]
mod h2_backend;
mod http2;
mod keepalive;
mod profile;
mod pump;
mod replay;
mod sender;
mod tls;

pub(crate) use body::grpc_status;
pub use body::{Guard, ResponseBody};
pub use connection::{Closing, Connection};
pub use dial::{Connector, Stream};
pub use error::{ConnectError, ConnectPhase, ConnectionLost, SendError, SendErrorKind};
pub(crate) use http2::AuthorityField;
pub use http2::{Backend, GoAway, Reason};
pub use keepalive::Keepalive;
pub use profile::{Profile, Windows};
pub use replay::{AttemptBody, DEFAULT_REPLAY_LIMIT, ReplayBody};
pub(crate) use sender::RequestHead;
pub use sender::Sender;
pub use tls::BackendTls;
pub(crate) use tls::TlsClient;

pub use crowfly_tls::TlsError;
