//! Tests of load reports (LRS, gRFC A27) with simulated time, because reports come at intervals.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod log;
mod property;
mod reports;
mod sim;
mod source;
mod streams;
