//! Whole processes over loopback: Crowfly with foreign peers on the other side, and the whole
//! product by itself.
//!
//! In a debug build on two cores each test takes a second or two, most of it the start of its
//! processes. The tests run in parallel, on ports that the kernel chooses. Those in `survival` take
//! as long as their outages, the longest 45 s.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code"
)]

mod aggregate_phases;
mod backend_tls;
mod c_core_client;
mod comparison;
mod documents;
mod envoy_delta;
mod envoy_proxy;
mod envoy_recording;
mod failover;
mod fallback;
mod first_steps;
mod foreign_control_plane;
mod foreign_csds;
mod foreign_delta;
mod foreign_load_reports;
mod foreign_servers;
mod health;
mod inspect;
mod load;
mod load_reports;
mod proxies;
mod readings;
mod reorder;
mod scenario_list;
mod services;
mod silent_backend;
mod survival;

use std::net::SocketAddr;

use crowfly::{Bootstrap, Channel};
use crowfly_e2e::product::Crowfly;

const CROWFLY: Crowfly = Crowfly {
    program: env!("CARGO_BIN_EXE_crowfly-under-test"),
};

/// Our channel to `svc`, served by the control plane at `control`.
fn channel(control: SocketAddr) -> Channel {
    let bootstrap = Bootstrap::builder(&control.to_string())
        .unwrap()
        .node_id("e2e")
        .build();
    Channel::builder("xds:///svc")
        .bootstrap(bootstrap)
        .build()
        .unwrap()
}
