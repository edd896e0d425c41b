//! An Envoy, a gRPC proxy in front of our backends, is configured by our
//! control plane.

use std::net::SocketAddr;

use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::product::{Backend, Config};
use crowfly_e2e::{peers, resources, rpc};
use tonic::transport::{Channel, Endpoint};

use crate::CROWFLY;

/// S7-01: an Envoy can serve a service of gRPC clients as well, and an endpoint change reaches it.
/// Its listener and routes are raw resources next to the service, and the endpoints are the
/// service's own.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_proxies_to_our_backends_and_follows_an_endpoint_change() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let [b1, b2, b3] = ["b1", "b2", "b3"].map(|name| CROWFLY.backend(name));
    let control = CROWFLY.control(&proxied_service(&[&b1, &b2]));
    let envoy = Envoy::start(program, control.address);
    let channel = plain_channel(envoy.listener("ingress"));
    rpc::until_served_by(&channel, &["b1", "b2"]).await;

    control.configure(&proxied_service(&[&b2, &b3]));
    rpc::until_served_by(&channel, &["b2", "b3"]).await;

    for counter in [
        "listener_manager.lds.update_rejected",
        "cluster_manager.cds.update_rejected",
    ] {
        assert_eq!(envoy.stat(counter), Some(0), "{counter}");
    }
}

/// A service, and a listener of Envoy's in front of it.
fn proxied_service(backends: &[&Backend]) -> Config {
    Config::service("svc", backends).with_resources([
        resources::http2_listener("ingress"),
        resources::routes("ingress", "svc"),
    ])
}

fn plain_channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy()
}
