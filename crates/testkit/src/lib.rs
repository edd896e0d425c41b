//! Helpers that the tests of several crates share.
//!
//! * [`builders`] make xDS resources in one readable line each.
//! * [`Script`] drives a client session against responses that the test writes by hand, and
//!   [`AdsServer`] does the same over a real socket. Neither shares code with the server half of the
//!   protocol: a misreading that both halves agree on would otherwise pass.
//! * [`Servers`] is a [`Script`] with several servers, for fallback and federation.
//! * [`over_both`] runs a test over both protocols. [`Said`] and [`Asked`] hold the fields that the
//!   messages of both protocols have in common.
//! * [`Pair`] runs the two halves against each other in memory under a simulated clock.
//! * [`ResourceServer`] serves a snapshot over a real socket, for tests of resources and not of the
//!   protocol.
//! * [`Tap`] records the messages between a client and a control plane.
//! * [`Reserved`] is a port that stays with its test while no socket listens on it.
//! * [`KubeApi`] is an API server of Kubernetes, and fails as a test tells it to.
//! * [`DnsServer`] answers queries as a test tells it to.
//! * [`fuzzing`] holds the bodies of the fuzz targets, so that a test can run them too.
//! * [`recording`] records the messages of a foreign client, to compare ours with.
//!
//! Everything here panics when it does not get what it expects, because that is a failed test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod ads;
pub mod builders;
mod certificates;
mod delta;
mod dns_server;
mod either;
pub mod fuzzing;
mod half;
mod kubernetes;
mod lrs;
mod pair;
pub mod recording;
mod reserved;
mod script;
mod servers;
mod wire;

pub use ads::{AdsServer, Passed, ResourceServer, Tap};
pub use certificates::{Ca, CertificateFolder, Issued};
pub use delta::{delta, removed, report};
pub use dns_server::{DnsAnswer, DnsQuery, DnsServer};
pub use either::{Asked, PROTOCOLS, Said, over_both, over_both_on_sockets};
pub use hickory_proto::rr::RecordType;
pub use kubernetes::{Fault, KubeApi};
pub use lrs::{LoadRow, LoadSums, LrsServer, LrsStream};
pub use pair::Pair;
pub use reserved::Reserved;
pub use script::Script;
pub use servers::{Servers, authorities};
pub use wire::{garbled, response, wrapped};

/// The node id of every client in these tests.
pub const NODE_ID: &str = "test-node";
