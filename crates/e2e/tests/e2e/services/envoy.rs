//! An Envoy obeys the services of our control plane. Its listener names the routes of `svc`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::product::Control;
use crowfly_e2e::rpc::{self, Spread};
use crowfly_e2e::{peers, resources};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use super::{CALLS, Fleet, assert_all, assert_share};
use crate::CROWFLY;

/// An Envoy that serves `svc`, and the control plane of both.
struct Proxied {
    envoy: Envoy,
    channel: Channel,
    _control: Control,
}

impl Proxied {
    /// `None` without the peer.
    fn start(fleet: &Fleet, svc: &str) -> Option<Self> {
        let program = peers::envoy()?;
        let listener = with_fault_filter(resources::http2_listener("svc"));
        let config = fleet.config(svc) + &format!("resources:\n- {listener}\n");
        let control = CROWFLY.control_of(&config);
        let envoy = Envoy::start(program, control.address);
        let channel = plain_channel(envoy.listener("ingress"));
        Some(Self {
            envoy,
            channel,
            _control: control,
        })
    }

    async fn outcomes(&self, calls: usize) -> Spread {
        let mut outcomes = Spread::new();
        for _ in 0..calls {
            let outcome = rpc::unary_call(&self.channel).await;
            let key = outcome.unwrap_or_else(|status| format!("{:?}", status.code()));
            *outcomes.entry(key).or_default() += 1;
        }
        self.assert_nothing_rejected();
        outcomes
    }

    fn assert_nothing_rejected(&self) {
        for counter in [
            "listener_manager.lds.update_rejected",
            "cluster_manager.cds.update_rejected",
            "http.svc.rds.svc.update_rejected",
        ] {
            assert_eq!(self.envoy.stat(counter), Some(0), "{counter}");
        }
    }
}

/// The listener with the fault filter before its router, as docs/routes.md says.
fn with_fault_filter(mut listener: Value) -> Value {
    // An Envoy's listener and gRPC's cannot both have the name of the service.
    listener["name"] = json!("ingress");
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    let fault = json!({
        "name": "envoy.filters.http.fault",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
        },
    });
    if let Some(filters) = manager["http_filters"].as_array_mut() {
        filters.insert(0, fault);
    }
    listener
}

fn plain_channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy()
}

/// gRFC A28: matches and splits mean the same to an Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_splits_the_calls_of_a_route() {
    let fleet = Fleet::start();
    let svc = r"routes: [
        { match: { headers: [{ name: x-tier, exact: gold }] }, to: slow },
        { match: { regex: '/grpc\.testing\.\w+/Stream.*' }, to: slow },
        { match: { prefix: /GRPC.testing.testservice/, headers: [{ name: x-tier, present: false }], ignore_case: true }, split: { v1: 80%, v2: 20% } }]";
    let Some(proxied) = Proxied::start(&fleet, svc) else {
        return;
    };
    let outcomes = proxied.outcomes(CALLS).await;
    assert_share(&outcomes, "v1", 80.0);
    assert_share(&outcomes, "v2", 20.0);

    let svc = r"routes: [{ match: { regex: '/grpc\.testing\.\w+/Unary.*', fraction: 30% }, to: v1 }, { to: v2 }]";
    let proxied = Proxied::start(&fleet, svc).unwrap();
    let outcomes = proxied.outcomes(CALLS).await;
    assert_share(&outcomes, "v1", 30.0);
    assert_share(&outcomes, "v2", 70.0);
}

/// gRFC A31, A33, A44: retries, timeouts and faults mean the same to an Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_retries_ends_and_fails_calls_as_the_service_says() {
    let fleet = Fleet::start();
    let retry = "retry: { attempts: 3, backoff: { base: 2ms, max: 4ms } }, routes: [{ to: flaky }]";
    let Some(proxied) = Proxied::start(&fleet, retry) else {
        return;
    };
    assert_all(&proxied.outcomes(40).await, "flaky");

    let svc =
        "fault: { abort: { status: resource_exhausted, fraction: 25% } }, routes: [{ to: v1 }]";
    let proxied = Proxied::start(&fleet, svc).unwrap();
    let outcomes = proxied.outcomes(CALLS).await;
    assert_share(&outcomes, "ResourceExhausted", 25.0);
    assert_share(&outcomes, "v1", 75.0);

    let svc = "timeout: 1h, routes: [{ to: slow, timeout: 100ms }]";
    let proxied = Proxied::start(&fleet, svc).unwrap();
    let outcomes = proxied.outcomes(1).await;
    assert!(!outcomes.contains_key("slow"), "{outcomes:?}");
}

/// An Envoy accepts everything that the example has, if its bootstrap has the secrets.
#[test]
fn envoy_accepts_the_example_with_every_key() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = fs::read_to_string(root.join("examples/routes.yaml")).unwrap();
    let mut listener = with_fault_filter(resources::http2_listener("shop"));
    listener["name"] = json!("ingress");
    let control = CROWFLY.control_of(&format!("{example}resources:\n- {listener}\n"));
    let envoy = Envoy::start(program, control.address);
    envoy.listener("ingress");
    // Its bootstrap has no secrets, so it refuses the one cluster with TLS, and says so.
    envoy.until_stat("cluster_manager.cds.update_rejected", |count| count > 0);
    assert_eq!(envoy.stat("http.shop.rds.shop.update_rejected"), Some(0));
}
