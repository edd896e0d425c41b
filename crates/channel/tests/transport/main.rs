//! The transport over real sockets: connecting, calls, and every way in which they end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod beyond_h2;
mod calls;
mod connect;
mod endings;
mod headers;
mod never_sent;
mod replay;
mod seam;
mod support;
mod tls;

use crowfly::transport::Backend;

/// What speaks HTTP/2 here; see `over_h2.rs` for the same tests over another.
const BACKEND: Backend = Backend::Own;
