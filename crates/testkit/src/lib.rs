//! What the tests of several crates share.
//!
//! * [`builders`] make xDS resources in one readable line each.
//! * [`Script`] drives a client session against responses that the test writes by hand, and
//!   [`AdsServer`] does the same over a real socket. Neither shares code with the server half of the
//!   protocol: a misreading that both halves agree on would otherwise pass.
//! * [`Servers`] is a [`Script`] with several servers, for fallback and federation.
//! * [`over_both`] runs a test over both protocols, with [`Said`] and [`Asked`] for what their
//!   messages have in common.
//! * [`Pair`] runs the two halves against each other in memory under a simulated clock, and
//!   [`ResourceServer`] serves a snapshot over a real socket, for tests that do not care how.
//! * [`Tap`] writes down what passes between a client and a control plane.
//! * [`Reserved`] is a port that stays with its test while nobody listens there.
//! * [`DnsServer`] answers what a test tells it to.
//! * [`fuzzing`] holds what the fuzz targets run, so that a test can run it too.
//! * [`recording`] writes down what a foreign client says, to compare ours with.
//!
//! Everything here panics when it does not get what it expects, since that is a failed test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod ads;
pub mod builders;
mod delta;
mod dns_server;
mod either;
pub mod fuzzing;
mod half;
mod pair;
pub mod recording;
mod reserved;
mod script;
mod servers;
mod wire;

pub use ads::{AdsServer, Passed, ResourceServer, Tap};
pub use delta::{delta, removed, report};
pub use dns_server::{DnsAnswer, DnsQuery, DnsServer};
pub use either::{Asked, PROTOCOLS, Said, over_both, over_both_on_sockets};
pub use hickory_proto::rr::RecordType;
pub use pair::Pair;
pub use reserved::Reserved;
pub use script::Script;
pub use servers::{Servers, authorities};
pub use wire::{garbled, response, wrapped};

/// The node id of every client in these tests.
pub const NODE_ID: &str = "test-node";
