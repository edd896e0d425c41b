//! The client half of incremental ADS against hand-written responses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod accepting;
mod envoy_recording;
mod names;
mod resources;
mod streams;
