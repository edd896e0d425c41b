//! The scenarios of the public conformance suite for xDS servers (`ii/xds-test-harness`), driven as
//! the suite drives a server: by its adapter on one port, and as a client on the other.
//!
//! Each runs over ADS and over the services of one type. The suite changes a subscription and the
//! state over two connections without waiting, so some of its checks are a race. These wait.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod delta;
mod sotw;
mod world;
