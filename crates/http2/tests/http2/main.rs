//! Tests of the client against three kinds of servers. The server of h2 is right, frames written by
//! hand are mostly wrong, and a small model acts at random. A correct server alone would not show
//! how the client treats errors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod corpus;
mod ending;
mod flow_control;
mod frames;
mod framing;
mod fuzzing;
mod going_away;
mod headers;
mod interop;
mod model;
mod never_sent;
mod never_sent_tls;
mod random;
mod raw;
mod settings;
mod streams;
mod unread;
mod wire;
