//! Whole-product tests against real peers.
//!
//! Both halves of Crowfly could share a misreading of xDS and still agree with
//! each other. So these tests put something foreign on the other side: a gRPC
//! C-core client and an Envoy served by Crowfly's control plane, Crowfly's
//! channel served by an ADS server written on gRPC C-core, and as backends of the
//! channel a C-core server, a gRPC-Node server, an Envoy and an nginx. [`peers`] finds
//! or installs them; the other modules start one process each and talk to it.
//!
//! Everything here is test code: a step that fails ends the test, saying which
//! step it was and what the processes printed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a step that fails ends the test with its message"
)]

pub mod ads_server;
pub mod c_core;
pub mod echo;
pub mod echo_server;
pub mod envoy;
pub mod nginx;
pub mod peers;
pub mod process;
pub mod product;
pub mod resources;
pub mod rpc;
pub mod scenarios;
