//! Our channel is served by a delta ADS server that shares no code with us.
//!
//! A server of ours could share a misreading of the delta protocol with the client.

use std::path::Path;
use std::time::Instant;

use crowfly::{Bootstrap, Channel};
use crowfly_e2e::ads_server::AdsServer;
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::product::Backend;
use crowfly_e2e::resources::{self, CLUSTER, ENDPOINTS, LISTENER, ROUTES};
use crowfly_e2e::{peers, rpc};
use serde_json::json;
use tonic::{Code, Status};

use crate::CROWFLY;

/// S1-01, S1-02: each type begins with its names and nothing else. Each response gets an ACK with
/// nothing but its nonce, and an update moves the calls.
#[tokio::test(flavor = "multi_thread")]
async fn traffic_follows_a_foreign_delta_server() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mut ads = serving(AdsServer::start(python), &b1);
    let channel = delta_channel(&ads);
    rpc::until_served_by(&channel, &["b1"]).await;

    for type_url in [LISTENER, ROUTES, CLUSTER, ENDPOINTS] {
        let first = ads.wait_for_delta_request("first request", |_| true);
        assert_eq!(first.type_url, type_url, "{first:?}");
        assert_eq!(first.subscribe, ["svc"], "{first:?}");
        assert!(first.unsubscribe.is_empty() && first.initial_versions.is_empty());
        assert_eq!(first.nonce, "", "{first:?}");
        let introduced = (type_url == LISTENER).then_some("e2e");
        assert_eq!(first.node_id.as_deref(), introduced, "{first:?}");
        expect_ack(&ads, type_url, "1");
    }

    ads.set("2", &[resources::endpoints("svc", &[b2.address])]);
    expect_ack(&ads, ENDPOINTS, "2");
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// S1-04, S1-05: a bad resource is refused with the reason, while the last good one stays in use
/// until the next good one.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_resource_is_refused_by_delta_while_traffic_goes_on() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mut ads = serving(AdsServer::start(python), &b1);
    let channel = delta_channel(&ads);
    rpc::until_served_by(&channel, &["b1"]).await;

    let mut bad = resources::endpoints("svc", &[b2.address]);
    bad["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] =
        json!({ "pipe": { "path": "/run/b2" } });
    ads.set("2", &[bad]);
    let nack = ads.wait_for_delta_answer(ENDPOINTS, "svc", "2");
    let error = nack.error.unwrap_or_default();
    for part in [
        "svc",
        "endpoints[0].lb_endpoints[0].endpoint.address",
        "pipe",
    ] {
        assert!(error.contains(part), "expected {part:?} in {error:?}");
    }
    assert_eq!(rpc::spread(&channel, 20).await, [("b1".into(), 20)].into());

    ads.set("3", &[resources::endpoints("svc", &[b2.address])]);
    expect_ack(&ads, ENDPOINTS, "3");
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// S1-11: a removed resource is gone, with an ACK and without a timer; calls say so until it is
/// back.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_resource_is_gone_until_it_is_back() {
    let Some(python) = peers::python() else {
        return;
    };
    let b1 = CROWFLY.backend("b1");
    let mut ads = serving(AdsServer::start(python), &b1);
    let channel = delta_channel(&ads);
    rpc::until_served_by(&channel, &["b1"]).await;

    ads.clear("2", LISTENER);
    let ack = ads.wait_for_removal_answer(LISTENER, "svc");
    assert_eq!(ack.error, None);
    let gone = until(&channel, Result::err).await;
    assert_eq!(gone.code(), Code::Unavailable, "{gone:?}");
    assert!(gone.message().contains("svc"), "{gone:?}");

    ads.set("3", &[resources::api_listener("svc")]);
    expect_ack(&ads, LISTENER, "3");
    until(&channel, Result::ok).await;
    rpc::until_served_by(&channel, &["b1"]).await;
}

/// S1-17, S1-20: the first requests to a server that is back say what the client has; it need not
/// send that again, and updates flow.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_delta_stream_begins_with_the_versions_in_use() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let ads = serving(AdsServer::start(python), &b1);
    let channel = delta_channel(&ads);
    rpc::until_served_by(&channel, &["b1"]).await;
    expect_ack(&ads, ENDPOINTS, "1");

    let ads = restart(ads, python);
    let mut node_ids = Vec::new();
    for type_url in [LISTENER, ROUTES, CLUSTER, ENDPOINTS] {
        let first = ads.wait_for_delta_request("first request", |_| true);
        assert_eq!(first.type_url, type_url, "{first:?}");
        assert_eq!(first.subscribe, ["svc"], "{first:?}");
        let in_use = [("svc".to_owned(), "1".to_owned())];
        assert_eq!(first.initial_versions, in_use.into());
        assert_eq!(first.nonce, "", "{first:?}");
        node_ids.extend(first.node_id);
    }
    assert_eq!(node_ids, ["e2e"]);

    // Nothing of version 1 is sent again: the next response is version 2.
    let mut ads = serving(ads, &b1);
    ads.set("2", &[resources::endpoints("svc", &[b2.address])]);
    expect_ack(&ads, ENDPOINTS, "2");
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// A server that does not speak delta is asked for state of the world, and no call fails for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_delta_is_spoken_to_in_state_of_the_world() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2] = ["b1", "b2"].map(|name| CROWFLY.backend(name));
    let mut ads = serving(AdsServer::start_without_delta(python), &b1);
    let channel = delta_channel(&ads);
    rpc::until_served_by(&channel, &["b1"]).await;
    ads.wait_for_ack(ENDPOINTS, "1");
    ads.set("2", &[resources::endpoints("svc", &[b2.address])]);
    ads.wait_for_ack(ENDPOINTS, "2");
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// Our channel to `svc`, which speaks delta.
fn delta_channel(ads: &AdsServer) -> Channel {
    let bootstrap = json!({
        "xds_servers": [{
            "server_uri": format!("127.0.0.1:{}", ads.port()),
            "channel_creds": [{ "type": "insecure" }],
            "server_features": ["xds.delta"],
        }],
        "node": { "id": "e2e" },
    });
    let bootstrap = Bootstrap::from_json(&bootstrap.to_string()).unwrap();
    Channel::builder("xds:///svc")
        .bootstrap(bootstrap)
        .build()
        .unwrap()
}

/// Gives the server all that describes `svc`, as version 1.
fn serving(mut ads: AdsServer, backend: &Backend) -> AdsServer {
    ads.set("1", &[resources::api_listener("svc")]);
    ads.set("1", &[resources::routes("svc", "svc")]);
    ads.set("1", &[resources::cluster("svc")]);
    ads.set("1", &[resources::endpoints("svc", &[backend.address])]);
    ads
}

/// Starts another server in the place of one that is killed.
fn restart(ads: AdsServer, python: &Path) -> AdsServer {
    let port = ads.port();
    drop(ads);
    AdsServer::start_on(python, port)
}

/// An ACK says nothing but what it answers.
fn expect_ack(ads: &AdsServer, type_url: &str, version: &str) {
    let ack = ads.wait_for_delta_answer(type_url, "svc", version);
    assert_eq!((&ack.error, &ack.node_id), (&None, &None), "{ack:?}");
    assert!(
        ack.subscribe.is_empty() && ack.unsubscribe.is_empty() && ack.initial_versions.is_empty(),
        "{ack:?}"
    );
}

/// Calls until the result is as wanted.
async fn until<T>(channel: &Channel, wanted: impl Fn(Result<String, Status>) -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = wanted(rpc::unary_call(channel).await) {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}");
    }
}
