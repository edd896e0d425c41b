//! The protocol: the client half against hand-written responses, the server half against
//! hand-written requests, both against each other, and what becomes of the resources.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod data_errors;
mod fallback;
mod fallback_versions;
mod federation;
mod server;
mod server_cost;
mod server_deletion;
mod server_names;
mod server_order;
mod server_responses;
mod session_accepting;
mod session_arbitrary;
mod session_names;
mod session_resources;
mod session_streams;
mod session_timer;
mod two_halves;
mod unsupported;
