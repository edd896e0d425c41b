//! The routes, retries, timeouts, faults and TLS of services, as clients obey them. The clients are
//! gRPC C-core, an Envoy and our own channel, each served by our control plane from one file.

mod c_core;
mod crowfly;
mod envoy;
mod resilience;

use std::fmt::Write;

use crowfly_e2e::product::Backend;
use crowfly_e2e::rpc::Spread;

use crate::CROWFLY;

/// The calls that a split or a percentage is judged by.
const CALLS: usize = 1_000;

/// 80% of the calls go to `v1`, and 20% to `v2`.
const SPLIT: &str = "routes: [
    { match: { path: /a.A/B }, to: flaky },
    { match: { path: /grpc.testing.TestService/UnaryCall }, split: { v1: 80%, v2: 20% } },
    { to: slow }]";

/// 30% of the calls go to `v1`, and all others to `v2`.
const MATCHES: &str = r"routes: [
    { match: { headers: [{ name: x-tier, exact: gold }] }, to: slow },
    { match: { regex: '/grpc\.testing\.\w+/Unary.*', headers: [{ name: x-tier, present: false }], fraction: 30% }, to: v1 },
    { match: { prefix: /GRPC.testing.testservice/, ignore_case: true }, to: v2 }]";

/// Every second call would fail, if it were not tried again.
const RETRY: &str =
    "retry: { attempts: 3, backoff: { base: 2ms, max: 4ms } }, routes: [{ to: flaky }]";

/// Every call ends before its answer.
const TIMEOUT: &str = "timeout: 1h, routes: [{ to: slow, timeout: 100ms }]";

/// 25% of the calls fail with RESOURCE_EXHAUSTED.
const FAULT: &str = "
    fault: { delay: { fixed: 1ms }, abort: { status: resource_exhausted, fraction: 25% } },
    routes: [{ to: v1 }]";

/// The backends that the services below have.
struct Fleet {
    v1: Backend,
    v2: Backend,
    /// Every second call fails with UNAVAILABLE.
    flaky: Backend,
    /// A backend whose answers take longer than any timeout here, and less than the deadlines of
    /// the clients.
    slow: Backend,
}

impl Fleet {
    fn start() -> Self {
        let any_port = "127.0.0.1:0";
        Self {
            v1: CROWFLY.backend("v1"),
            v2: CROWFLY.backend("v2"),
            flaky: CROWFLY.backend_with(any_port, "flaky", &["--fail-rate", "0.5"]),
            slow: CROWFLY.backend_with(any_port, "slow", &["--delay", "8s"]),
        }
    }

    /// A service for each backend, and `svc` with these settings and no endpoints.
    fn config(&self, svc: &str) -> String {
        let mut yaml = format!("services:\n- {{ name: svc, {svc} }}\n");
        for backend in [&self.v1, &self.v2, &self.flaky, &self.slow] {
            let Backend { name, address, .. } = backend;
            // Writing to a string cannot fail.
            let _ = writeln!(
                yaml,
                "- {{ name: {name}, endpoints: [{{ address: \"{address}\" }}] }}"
            );
        }
        yaml
    }
}

/// Asserts that `key` came in `percent` of all outcomes, give or take five times the standard
/// deviation of so many draws.
fn assert_share(outcomes: &Spread, key: &str, percent: f64) {
    let count: usize = outcomes.values().sum();
    let count = count as f64;
    let share = percent / 100.0;
    let expected = count * share;
    let tolerance = 5.0 * (count * share * (1.0 - share)).sqrt();
    let found = outcomes.get(key).copied().unwrap_or_default() as f64;
    assert!(
        (found - expected).abs() <= tolerance,
        "expected {expected} times {key}, give or take {tolerance:.0}, found {outcomes:?}"
    );
}

/// Asserts that all outcomes were `key`.
fn assert_all(outcomes: &Spread, key: &str) {
    assert_eq!(outcomes.keys().collect::<Vec<_>>(), [key], "{outcomes:?}");
}

/// Asserts that no call lasted until its answer. The server may notice the end of a call before the
/// client does, and a tonic server then says CANCELLED.
fn assert_ended(outcomes: &Spread, [deadline_exceeded, cancelled]: [&str; 2]) {
    let is_end = |key: &String| key == deadline_exceeded || key == cancelled;
    assert!(outcomes.keys().all(is_end), "{outcomes:?}");
}
