//! The control plane dies under load, and no call fails.
//!
//! Calls need the control plane only for changes, so its outage must not reach them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crowfly::{Bootstrap, Channel};
use crowfly_e2e::ads_server::AdsServer;
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::product::Config;
use crowfly_e2e::resources::{self, ENDPOINTS};
use crowfly_e2e::{peers, rpc};
use crowfly_testkit::Reserved;
use tokio::time::sleep;

use crate::CROWFLY;
use crate::load::Load;

/// Long enough for several attempts to connect: the waits are 1 s, 1.6 s, 2.6 s and so on.
const RESTART: Duration = Duration::from_secs(10);
const OUTAGE: Duration = Duration::from_secs(30);

/// S1-17, S1-33: the control plane is killed under load and is back later with another version. No
/// call fails meanwhile, traffic follows, and the fallback is left alone, for nothing is missing.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_while_a_killed_control_plane_restarts() {
    let [b1, b2, f1] = ["b1", "b2", "f1"].map(|name| CROWFLY.backend(name));
    let primary_at = Reserved::new();
    let mut primary = CROWFLY.control_on(
        &primary_at.address.to_string(),
        &Config::service("svc", &[&b1]),
    );
    let fallback = CROWFLY.control(&Config::service("svc", &[&f1]));
    let channel = channel("xds:///svc", primary_at.address, fallback.address);
    rpc::until_served_by(&channel, &["b1"]).await;
    let load = Load::start(&channel);

    primary.process.kill();
    sleep(RESTART).await;
    assert_eq!(rpc::spread(&channel, 20).await, [("b1".into(), 20)].into());
    let primary = CROWFLY.control_on(
        &primary_at.address.to_string(),
        &Config::service("svc", &[&b2]),
    );
    rpc::until_served_by(&channel, &["b2"]).await;

    let answered = load.stop_without_failure().await;
    assert!(answered.keys().eq(["b1", "b2"]), "{answered:?}");
    drop(primary);
}

/// S1-31, S1-33: while the primary is gone, the fallback serves a client that lacks a resource. A
/// client that lacks nothing goes on as before. When the primary is back, both follow it.
#[tokio::test(flavor = "multi_thread")]
async fn the_fallback_serves_until_the_primary_returns() {
    let [b1, b2, f1] = ["b1", "b2", "f1"].map(|name| CROWFLY.backend(name));
    let primary_at = Reserved::new();
    let config = |backend| Config::service("svc", &[backend]).and_service("late", &[backend]);
    let mut primary = CROWFLY.control_on(&primary_at.address.to_string(), &config(&b1));
    let fallback = CROWFLY.control(&config(&f1));
    let early = channel("xds:///svc", primary_at.address, fallback.address);
    rpc::until_served_by(&early, &["b1"]).await;
    let early_load = Load::start(&early);

    primary.process.kill();
    let late = channel("xds:///late", primary_at.address, fallback.address);
    rpc::until_served_by(&late, &["f1"]).await;
    let late_load = Load::start(&late);
    sleep(OUTAGE).await;
    assert_eq!(rpc::spread(&late, 20).await, [("f1".into(), 20)].into());
    assert_eq!(rpc::spread(&early, 20).await, [("b1".into(), 20)].into());

    let primary = CROWFLY.control_on(&primary_at.address.to_string(), &config(&b2));
    rpc::until_served_by(&late, &["b2"]).await;
    rpc::until_served_by(&early, &["b2"]).await;

    let answered = late_load.stop_without_failure().await;
    assert!(answered.keys().eq(["b2", "f1"]), "{answered:?}");
    let answered = early_load.stop_without_failure().await;
    assert!(answered.keys().eq(["b1", "b2"]), "{answered:?}");

    // From now on the channel follows the primary and not the fallback.
    fallback.configure(&Config::service("other", &[&f1]));
    primary.configure(&config(&b1));
    rpc::until_served_by(&late, &["b1"]).await;
}

/// S1-32: the primary dies in the middle of an update, with one resource missing. The fallback is
/// asked, and its resources replace those of the primary. When the primary is back and whole, its
/// resources replace those of the fallback.
///
/// Calls may fail in between. The routes of one server lead to a cluster that the other does not
/// have, until its own routes come.
#[tokio::test(flavor = "multi_thread")]
async fn the_fallback_takes_over_when_the_primary_dies_in_an_update() {
    let Some(python) = peers::python() else {
        return;
    };
    let [b1, b2, f1] = ["b1", "b2", "f1"].map(|name| CROWFLY.backend(name));
    let mut primary = AdsServer::start(python);
    let port = primary.port();
    primary.set("1", &[resources::api_listener("svc")]);
    primary.set("1", &[resources::routes("svc", "svc")]);
    primary.set("1", &[resources::cluster("svc")]);
    primary.set("1", &[resources::endpoints("svc", &[b1.address])]);
    let fallback = CROWFLY.control(&Config::service("svc", &[&f1]));
    let primary_at = SocketAddr::from(([127, 0, 0, 1], port));
    let channel = channel("xds:///svc", primary_at, fallback.address);
    rpc::until_served_by(&channel, &["b1"]).await;

    primary.set("2", &["svc", "new"].map(resources::cluster));
    primary.set("2", &[resources::routes("svc", "new")]);
    primary.wait_for_request("request for the new endpoints", |request| {
        request.type_url == ENDPOINTS && request.names.contains(&"new".to_owned())
    });
    drop(primary);
    until_first_answer_of(&channel, "f1").await;
    rpc::until_served_by(&channel, &["f1"]).await;

    let mut primary = AdsServer::start_on(python, port);
    primary.set("3", &[resources::endpoints("new", &[b2.address])]);
    primary.set("3", &[resources::cluster("new")]);
    primary.set("3", &[resources::routes("svc", "new")]);
    primary.set("3", &[resources::api_listener("svc")]);
    until_first_answer_of(&channel, "b2").await;
    rpc::until_served_by(&channel, &["b2"]).await;
}

/// Calls until `backend` answers. Earlier calls may fail.
async fn until_first_answer_of(channel: &Channel, backend: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let result = rpc::unary_call(channel).await;
        if result.as_deref().is_ok_and(|answered| answered == backend) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no answer of {backend}, the last: {result:?}"
        );
    }
}

/// Our channel to `target`, with a primary and a fallback to ask.
fn channel(target: &str, primary: SocketAddr, fallback: SocketAddr) -> Channel {
    let bootstrap = Bootstrap::builder(&primary.to_string())
        .unwrap()
        .server(&fallback.to_string())
        .unwrap()
        .node_id("e2e")
        .build();
    Channel::builder(target)
        .bootstrap(bootstrap)
        .build()
        .unwrap()
}
