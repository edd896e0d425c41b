//! Every kind of client is served the fallbacks of a service in a form that it
//! accepts, and uses them.

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::product::{Backend, Config};
use crowfly_e2e::{peers, resources, rpc};
use serde_json::json;
use tonic::transport::Endpoint;

use crate::{CROWFLY, channel};

/// gRFC A37: our own channel.
#[tokio::test(flavor = "multi_thread")]
async fn our_channel_falls_back() {
    let [own, nested] = ["own", "nested"].map(|name| CROWFLY.backend(name));
    let control = CROWFLY.control(&nested_service(&[], &nested));
    let channel = channel(control.address);
    rpc::until_served_by(&channel, &["nested"]).await;
    control.configure(&nested_service(&[&own], &nested));
    rpc::until_served_by(&channel, &["own"]).await;
}

/// gRFC A37: a foreign gRPC client.
#[test]
fn c_core_falls_back() {
    let Some(python) = peers::python() else {
        return;
    };
    let [own, nested] = ["own", "nested"].map(|name| CROWFLY.backend(name));
    let control = CROWFLY.control(&nested_service(&[], &nested));
    let mut client = CCoreClient::start(python, control.address, "xds:///svc");
    client.until_served_by(&["nested"]);
    control.configure(&nested_service(&[&own], &nested));
    client.until_served_by(&["own"]);
}

/// Envoy passes over aggregates inside of aggregates, and has its own idea of an
/// aggregate's policy.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_falls_back() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let [own, nested] = ["own", "nested"].map(|name| CROWFLY.backend(name));
    let ingress = |config: Config| {
        config.with_resources([
            resources::http2_listener("ingress"),
            resources::routes("ingress", "svc"),
        ])
    };
    let control = CROWFLY.control(&ingress(nested_service(&[], &nested)));
    let envoy = Envoy::start(program, control.address);
    let address = format!("http://{}", envoy.listener("ingress"));
    let channel = Endpoint::from_shared(address).unwrap().connect_lazy();
    rpc::until_served_by(&channel, &["nested"]).await;

    control.configure(&ingress(nested_service(&[&own], &nested)));
    rpc::until_served_by(&channel, &["own"]).await;
    let rejected = "cluster_manager.cds.update_rejected";
    assert_eq!(envoy.stat(rejected), Some(0), "{rejected}");
}

/// `svc` falls back to `other`, which has no endpoints and falls back to where
/// `backend` is, by DNS.
fn nested_service(own: &[&Backend], backend: &Backend) -> Config {
    Config::service("svc", own)
        .falling_back_to([json!("other")])
        .and_service("other", &[])
        .falling_back_to([json!({ "dns": backend.address.to_string() })])
}
