//! The transport over real sockets: connecting, calls, and every way in which they end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod calls;
mod connect;
mod endings;
mod replay;
mod support;
mod tls;
