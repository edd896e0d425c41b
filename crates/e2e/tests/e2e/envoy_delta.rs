//! An Envoy is configured by our control plane over incremental ADS.
//!
//! An Envoy warms a changed cluster until it is sent its endpoints again, so the order of responses
//! counts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::product::{Backend, Config};
use crowfly_e2e::{peers, resources, rpc};
use serde_json::json;
use tonic::transport::Endpoint;

use crate::CROWFLY;

/// P-30: xDS protocol: Incremental xDS, Resource warming. Traffic reaches the backends, and a change
/// of endpoints and a change of a cluster reach Envoy. A changed cluster that is not sent its endpoints
/// again warms for 15 s.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_follows_our_incremental_control_plane() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let control = CROWFLY.control(&proxied("4s", &[&b1]));
    let envoy = Envoy::start_delta(program, control.address);
    let ingress = format!("http://{}", envoy.listener("ingress"));
    let channel = Endpoint::from_shared(ingress).unwrap().connect_lazy();
    rpc::until_served_by(&channel, &["b1"]).await;

    control.configure(&proxied("4s", &[&b2]));
    rpc::until_served_by(&channel, &["b2"]).await;
    assert_eq!(envoy.stat("cluster_manager.cluster_modified"), Some(0));

    control.configure(&proxied("3s", &[&b2]));
    envoy.until_stat("cluster_manager.cluster_modified", |count| count == 1);
    let warming = Instant::now();
    envoy.until_cluster("svc", |cluster| cluster["connect_timeout"] == "3s");
    let warming = warming.elapsed();
    assert!(warming < Duration::from_secs(2), "warmed for {warming:?}");
    rpc::until_served_by(&channel, &["b2"]).await;

    for counter in [
        "listener_manager.lds.update_rejected",
        "cluster_manager.cds.update_rejected",
        "cluster.svc.update_rejected",
    ] {
        assert_eq!(envoy.stat(counter), Some(0), "{counter}");
    }
}

/// A listener of Envoy's, its routes, and a cluster that can be told from another by its timeout.
fn proxied(connect_timeout: &str, backends: &[&Backend]) -> Config {
    let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
    let mut cluster = resources::http2_cluster("svc");
    cluster["connect_timeout"] = json!(connect_timeout);
    Config::default().with_resources([
        resources::http2_listener("ingress"),
        resources::routes("ingress", "svc"),
        cluster,
        resources::endpoints("svc", &addresses),
    ])
}
