//! One HTTP/2 connection to one address: the bottom layer of the channel.
//!
//! A balancer needs three facts about its connections: that the server's SETTINGS have arrived (only
//! then is a connection READY), that GOAWAY has arrived (from then on no call may pick it), and
//! whether a failed call ever left this process (only then may it be repeated without limit, gRFC
//! A6). `crowfly-http2` tells all three, behind the seam `http2`. A call opens its stream from the
//! caller's own task, and a unary call is one HEADERS and one DATA frame in one write, with no task
//! spawned.
//!
//! # The parts
//!
//! | module | what it holds |
//! |---|---|
//! | `dial` | sockets: by TCP, or by a connector of the program's own |
//! | `connection` | connecting: TCP, TLS, SETTINGS, under one timeout; the end of a connection |
//! | `connection_state` | what calls need to know of a connection: its stream limit, and why it ended |
//! | `sender` | opening a stream, and waiting for one when the server limits them |
//! | `pump` | the request body's way into the stream |
//! | `body` | the response body, and what the upper layer ties to it |
//! | `error` | failures, sorted by what may be done about them |
//! | `replay` | a request body that can be sent again until its call is committed |
//! | `http2` | the seam to HTTP/2: the only file that names an implementation |
//! | `keepalive` | asking a silent server for a sign of life |
//! | `tls`, `profile` | how to speak to an address |

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
pub use sender::Sender;
pub use tls::BackendTls;

pub use crowfly_tls::TlsError;
