//! The protocol: the server half against hand-written requests, both halves against each other, several servers, and what
//! becomes of the resources.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod fallback;
mod fallback_versions;
mod federation;
mod server;
mod server_cost;
mod server_deletion;
mod server_hostile;
mod server_lifetimes;
mod server_missing;
mod server_names;
mod server_order;
mod server_random;
mod server_responses;
mod two_halves;
mod unsupported;
