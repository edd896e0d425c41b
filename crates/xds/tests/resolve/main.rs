//! From resources and DNS answers to one whole configuration (gRFC A74, A37, A99).
//!
//! Every step of every test here, written by hand or at random, is also worked out from scratch: see
//! [`world`] and [`random`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod aggregates;
mod changes;
mod lists;
mod random;
mod server;
mod trouble;
mod watches;
mod whole;
mod world;
