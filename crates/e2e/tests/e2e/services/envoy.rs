//! An Envoy obeys the services of our control plane.
//!
//! Its listener names the routes of `svc`, because the listener of a service is for gRPC clients
//! alone.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::product::Control;
use crowfly_e2e::rpc::{self, Spread};
use crowfly_e2e::{peers, resources};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use super::{CALLS, FAULT, Fleet, MATCHES, RETRY, SPLIT, TIMEOUT, assert_all, assert_share};
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
        let listener = with_filters(resources::http2_listener("svc"));
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
        let outcomes = rpc::outcomes(&self.channel, calls).await;
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

/// The listener with the filters of routes before its router, as docs/routes.md says.
pub(super) fn with_filters(mut listener: Value) -> Value {
    // An Envoy's listener and gRPC's cannot both have the name of the service.
    listener["name"] = json!("ingress");
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    let filter = |name: &str, message: &str| {
        let message = format!("type.googleapis.com/envoy.extensions.filters.http.{message}");
        json!({ "name": name, "typed_config": { "@type": message } })
    };
    let filters = [
        filter("envoy.filters.http.fault", "fault.v3.HTTPFault"),
        filter(
            "envoy.filters.http.stateful_session",
            "stateful_session.v3.StatefulSession",
        ),
    ];
    if let Some(all) = manager["http_filters"].as_array_mut() {
        all.splice(0..0, filters);
    }
    listener
}

pub(super) fn plain_channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy()
}

/// gRFC A28: matches and splits mean the same to an Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_matches_and_splits_calls() {
    let fleet = Fleet::start();
    for (svc, v1) in [(SPLIT, 80.0), (MATCHES, 30.0)] {
        let Some(proxied) = Proxied::start(&fleet, svc) else {
            return;
        };
        let outcomes = proxied.outcomes(CALLS).await;
        assert_share(&outcomes, "v1", v1);
        assert_share(&outcomes, "v2", 100.0 - v1);
    }
}

/// gRFC A44: retries mean the same to an Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_retries_as_the_service_says() {
    let fleet = Fleet::start();
    let Some(proxied) = Proxied::start(&fleet, RETRY) else {
        return;
    };
    assert_all(&proxied.outcomes(40).await, "flaky");
}

/// gRFC A31: a timeout ends calls in an Envoy, too, with another status.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_ends_a_call_after_the_timeout_of_its_route() {
    let fleet = Fleet::start();
    let Some(proxied) = Proxied::start(&fleet, TIMEOUT) else {
        return;
    };
    let outcomes = proxied.outcomes(1).await;
    assert!(!outcomes.contains_key("slow"), "{outcomes:?}");
}

/// gRFC A33: faults mean the same to an Envoy.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_injects_the_faults_of_a_route() {
    let fleet = Fleet::start();
    let Some(proxied) = Proxied::start(&fleet, FAULT) else {
        return;
    };
    let outcomes = proxied.outcomes(CALLS).await;
    assert_share(&outcomes, "ResourceExhausted", 25.0);
    assert_share(&outcomes, "v1", 75.0);
}

/// An Envoy accepts everything that the example has. Its bootstrap must have the secrets; if not, it
/// refuses the one cluster with TLS.
#[test]
fn envoy_accepts_the_example_with_every_key() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = fs::read_to_string(root.join("examples/routes.yaml")).unwrap();
    let listener = with_filters(resources::http2_listener("shop"));
    let control = CROWFLY.control_of(&format!("{example}resources:\n- {listener}\n"));
    let certs = tempfile::tempdir().unwrap();
    let certs = certs.path().to_str().unwrap();
    let made = Command::new(CROWFLY.program)
        .args(["certs", "--out", certs, "envoy"])
        .output();
    assert!(made.unwrap().status.success());
    for (has_secrets, rejected) in [(true, 0), (false, 1)] {
        let mut bootstrap = crowfly_e2e::envoy::bootstrap(control.address, "GRPC");
        if has_secrets {
            bootstrap["static_resources"]["secrets"] = secrets(certs);
        }
        let envoy = Envoy::start_from(program, &bootstrap.to_string());
        envoy.listener("ingress");
        let count = "cluster_manager.cds.update_rejected";
        envoy.until_stat(count, |count| count >= rejected);
        assert_eq!(envoy.stat(count), Some(rejected));
        assert_eq!(envoy.stat("http.shop.rds.shop.update_rejected"), Some(0));
    }
}

/// The secrets of docs/envoy.md.
fn secrets(certs: &str) -> Value {
    let file = |name: &str| json!({ "filename": format!("{certs}/{name}") });
    json!([
        { "name": "mesh", "validation_context": { "trusted_ca": file("ca.pem") } },
        {
            "name": "mesh",
            "tls_certificate": {
                "certificate_chain": file("envoy.pem"),
                "private_key": file("envoy.key"),
            },
        },
    ])
}
