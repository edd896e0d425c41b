//! The client half of the protocol against hand-written responses.
//!
//! A promise that holds in both protocols is written once and runs over both. What is true in one of them only, such as
//! which names a request repeats, is in [`sotw`] or [`delta`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod accepting;
mod arbitrary;
mod data_errors;
mod delta;
mod envoy_recording;
mod expected;
mod names;
mod resources;
mod sotw;
mod streams;
mod timer;
