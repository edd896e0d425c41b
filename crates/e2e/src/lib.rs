//! Whole-product tests against real peers.
//!
//! Both halves of Crowfly could share a misreading of xDS and still agree with each other. So these
//! tests put foreign programs on the other side. Crowfly's control plane serves clients on gRPC C-core,
//! gRPC-Node and gRPC-Go, and Envoys. Crowfly's channel is served by an ADS server on gRPC C-core. Its
//! backends are a C-core server, a gRPC-Node server, an Envoy and an nginx. The node agent reads a real
//! etcd.
//!
//! [`peers`] finds or installs these programs. The other modules start one process each and talk to
//! it.
//!
//! Everything here is test code. A step that fails ends the test, with the name of the step and the
//! output of the processes.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a step that fails ends the test with its message"
)]

pub mod admin;
pub mod ads_server;
pub mod c_core;
pub mod comparison;
pub mod credentials;
pub mod echo;
pub mod echo_server;
pub mod envoy;
pub mod etcd;
pub mod grpc_go;
pub mod grpc_js;
pub mod loads;
pub mod nginx;
pub mod peers;
pub mod process;
pub mod product;
pub mod resources;
pub mod rpc;
pub mod scenarios;
pub mod tap;
