//! Our channel is served by an ADS server that shares no code with us.
//!
//! A server of ours could share a misreading of xDS with the client, and both would still agree.

use std::net::SocketAddr;

use crowfly_e2e::ads_server::AdsServer;
use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::product::Backend;
use crowfly_e2e::resources::{self, CLUSTER, ENDPOINTS, LISTENER, ROUTES};
use crowfly_e2e::{peers, rpc};
use serde_json::json;

use crate::{CROWFLY, channel};

/// S1-01, S1-02, S7-01: requests and ACKs are as a foreign server expects them. Calls reach the
/// endpoints that it sends, and an update moves them without a failed call.
#[tokio::test(flavor = "multi_thread")]
async fn traffic_follows_a_foreign_control_plane() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mut ads = serving(AdsServer::start(python), &[&b1]);
    let channel = channel(loopback(ads.port()));
    rpc::until_served_by(&channel, &["b1"]).await;

    let first = ads.wait_for_request("first request", |_| true);
    assert_eq!(
        (&*first.type_url, &*first.names),
        (LISTENER, &["svc".to_owned()][..])
    );
    assert_eq!((&*first.version, &*first.nonce), ("", ""));
    assert_eq!(first.node_id.as_deref(), Some("e2e"));
    for type_url in [LISTENER, ROUTES, CLUSTER, ENDPOINTS] {
        let ack = ads.wait_for_ack(type_url, "1");
        assert_ne!(ack.nonce, "");
        assert_eq!(ack.node_id, None, "{ack:?}");
    }

    ads.set("2", &[resources::endpoints("svc", &[b2.address])]);
    ads.wait_for_ack(ENDPOINTS, "2");
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// S1-04, S1-05: the NACK of a bad resource names the resource, the field and the reason. The last
/// good one stays in use until the next good one.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_resource_is_refused_while_traffic_goes_on() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mut ads = serving(AdsServer::start(python), &[&b1]);
    let channel = channel(loopback(ads.port()));
    rpc::until_served_by(&channel, &["b1"]).await;
    ads.wait_for_ack(ENDPOINTS, "1");

    let mut bad = resources::endpoints("svc", &[b2.address]);
    bad["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] =
        json!({ "pipe": { "path": "/run/b2" } });
    ads.set("2", &[bad]);
    let nack = ads.wait_for_nack(ENDPOINTS);
    assert_eq!(nack.version, "1");
    let error = nack.error.unwrap_or_default();
    for part in [
        "svc",
        "endpoints[0].lb_endpoints[0].endpoint.address",
        "pipe",
    ] {
        assert!(error.contains(part), "expected {part:?} in {error:?}");
    }
    assert_eq!(
        rpc::spread(&channel, 20).await,
        [("b1".to_owned(), 20)].into()
    );

    ads.set("3", &[resources::endpoints("svc", &[b2.address])]);
    ads.wait_for_ack(ENDPOINTS, "3");
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// S1-17: without its control plane the channel goes on with the resources that it has. When the
/// server is back, the first requests name their versions, and updates flow again.
#[tokio::test(flavor = "multi_thread")]
async fn traffic_survives_a_restart_of_the_control_plane() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let ads = serving(AdsServer::start(python), &[&b1]);
    let channel = channel(loopback(ads.port()));
    rpc::until_served_by(&channel, &["b1"]).await;
    ads.wait_for_ack(ENDPOINTS, "1");

    let port = ads.port();
    drop(ads);
    assert_eq!(
        rpc::spread(&channel, 20).await,
        [("b1".to_owned(), 20)].into()
    );

    let mut ads = AdsServer::start_on(python, port);
    let again = ads.wait_for_request("first request", |_| true);
    assert_eq!(again.node_id.as_deref(), Some("e2e"), "{again:?}");
    let endpoints = match again.type_url == ENDPOINTS {
        true => again,
        false => ads.wait_for_request("EDS request", |request| request.type_url == ENDPOINTS),
    };
    assert_eq!((&*endpoints.version, &*endpoints.nonce), ("1", ""));
    assert_eq!(endpoints.names, ["svc"]);
    assert_eq!(
        rpc::spread(&channel, 20).await,
        [("b1".to_owned(), 20)].into()
    );

    ads.set("2", &[resources::endpoints("svc", &[b2.address])]);
    ads.wait_for_ack(ENDPOINTS, "2");
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// If this fails, suspect the peers before Crowfly: no channel and no control plane of ours is
/// in it.
#[test]
fn the_peers_agree_with_each_other() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mut ads = serving(AdsServer::start(python), &[&b1]);
    let mut client = CCoreClient::start(python, loopback(ads.port()), "xds:///svc");
    client.until_served_by(&["b1"]);
    ads.set("2", &[resources::endpoints("svc", &[b2.address])]);
    ads.wait_for_ack(ENDPOINTS, "2");
    client.until_served_by(&["b2"]);
}

/// Gives the server all that describes `svc` on `backends`, as version 1.
pub(crate) fn serving(mut ads: AdsServer, backends: &[&Backend]) -> AdsServer {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    ads.set("1", &[resources::api_listener("svc")]);
    ads.set("1", &[resources::routes("svc", "svc")]);
    ads.set("1", &[resources::cluster("svc")]);
    ads.set("1", &[resources::endpoints("svc", &addresses)]);
    ads
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
