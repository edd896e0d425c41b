//! `crowfly node` against the kernel: real sockets, in a cgroup and network namespaces of their own.
//!
//! These tests need root, and a kernel with cgroup v2. [`lab`] says what happens without them.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod affinity;
mod bench;
mod commands;
mod control;
mod counters;
mod demo;
mod fire;
mod kubernetes;
mod lab;
mod lifecycle;
mod loads;
mod lrs;
mod metrics;
mod older;
mod outages;
mod place;
mod probe;
mod repair;
mod rights;
mod routing;
mod settings;
mod sockets;
mod sources;

/// Not a test: the process that [`lab::Probe`] starts. Without its variable it does nothing.
#[test]
fn probe_process() {
    if std::env::var_os(probe::CGROUP).is_some() {
        probe::run();
    }
}

/// A service with these ClusterIPs on port 80, and TCP backends at these addresses of a namespace.
fn web(cluster_ips: &str, more: &str, backends: &[&str]) -> String {
    let backends = backends.iter().map(|backend| {
        let (address, port) = backend.rsplit_once(':').unwrap();
        format!("  - {{ addresses: [\"{address}\"], ports: [{{ port: {port} }}] }}\n")
    });
    let endpoints: String = backends.collect();
    let endpoints = match endpoints.as_str() {
        "" => "  endpoints: []\n".to_owned(),
        some => format!("  endpoints:\n{some}"),
    };
    format!(
        "services:\n- name: web\n  cluster_ips: [{cluster_ips}]\n  ports: [{{ port: 80 }}]\n{more}{endpoints}"
    )
}
