//! The client against servers of three kinds: one that is right (h2's), ones that are not (frames
//! written by hand), and one of a small model that says what comes to its mind.
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
