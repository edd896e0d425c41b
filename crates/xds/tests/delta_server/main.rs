//! The server half of the incremental protocol, without a socket.
//!
//! Each test shows one rule, and cites the section of the xDS protocol's text that it comes from.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod answers;
mod cost;
mod interleavings;
mod order;
mod reconnects;
mod subscriptions;
mod support;
