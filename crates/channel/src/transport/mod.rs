//! One HTTP/2 connection to one address: the bottom layer of the channel.
//!
//! # Why `h2` directly, and not hyper
//!
//! A balancer needs three facts that hyper's client keeps to itself: that the server's SETTINGS
//! have arrived (only then is a connection READY), that GOAWAY has arrived (from then on no call
//! may pick the connection), and whether a failed call ever left this process (only then may it be
//! retried without limit, gRFC A6). A read `tap` would give the first two under hyper as well;
//! the third it hides behind its dispatch task. That task is also a hop every request and every
//! response takes through a queue. With `h2` a call opens its stream from the caller's own task,
//! and a unary call is one HEADERS and one DATA frame with no task spawned.
//!
//! # The parts
//!
//! | module | what it holds |
//! |---|---|
//! | `connection` | connecting: TCP, TLS, SETTINGS, under one timeout; what ends a connection |
//! | `sender` | opening a stream, and waiting for one when the server limits them |
//! | `pump` | the request body's way into the stream |
//! | `body` | the response body, and what the upper layer ties to it |
//! | `error` | what went wrong, sorted by what may be done about it |
//! | `replay` | a request body that can be sent again until its call is committed |
//! | `keepalive` | asking a silent server for a sign of life |
//! | `tls`, `profile` | how to speak to an address |

mod body;
mod connection;
mod error;
mod keepalive;
mod profile;
mod pump;
mod replay;
mod sender;
mod tls;

mod shared;

pub(crate) use body::grpc_status;
pub use body::{Guard, ResponseBody};
pub use connection::{Closing, Connection};
pub use crowfly_http2::{GoAway, Reason};
pub use error::{ConnectError, ConnectPhase, ConnectionLost, SendError, SendErrorKind};
pub use keepalive::Keepalive;
pub use profile::Profile;
pub use replay::{AttemptBody, DEFAULT_REPLAY_LIMIT, ReplayBody};
pub use sender::Sender;
pub use tls::{BackendTls, TlsError};
