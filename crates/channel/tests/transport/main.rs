//! Tests of the transport over real sockets: connecting, calls, and every way in which they end.
//!
//! Most of them also run over the `h2` crate, because one interface must serve both (`over_h2.rs`).

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

/// The HTTP/2 of these tests. `over_h2.rs` runs them over another one.
const BACKEND: Backend = Backend::Own;
