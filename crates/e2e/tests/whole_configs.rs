//! Our client and our control plane, with a witness of the messages between them. Each change that
//! the client accepts becomes one whole configuration, and no other message is sent.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly::Channel;
use crowfly_control::ControlPlane;
use crowfly_model::ResourceType;
use crowfly_model::bootstrap::{Bootstrap, ServerConfig, ServerFeature};
use crowfly_model::grpc::ClusterConfig;
use crowfly_testkit::builders::{Resources, cluster, cluster_config, endpoints, listener, routes};
use crowfly_testkit::{Passed, Tap};
use crowfly_xds::{Resolved, Snapshot, XdsConfig};
use tokio::sync::mpsc;

const LIST: &str = ClusterConfig::TYPE_URL;
const LEAVES: [&str; 5] = ["a", "b", "c", "d", "e"];
const ROUNDS: usize = 100;

/// S4-25: a list of clusters (gRFC A99) is reordered many times, by state of the world.
#[tokio::test]
async fn reordered_lists_become_whole_configs_in_order() {
    follow_reordered_lists(false).await;
}

/// S4-25: a list of clusters (gRFC A99) is reordered many times, by delta.
#[tokio::test]
async fn reordered_lists_become_whole_configs_in_order_by_delta() {
    follow_reordered_lists(true).await;
}

async fn follow_reordered_lists(by_delta: bool) {
    let mut order = LEAVES;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let plane = ControlPlane::with_snapshot(snapshot(&order), any_port, None);
    let plane = plane.await.unwrap();
    let tap = Tap::start(plane.listen_addr());
    let mut configs = configs(&tap, by_delta);
    let first = next(&mut configs).await;
    assert_eq!(leaves(&first), order);
    tap.until("answer to each response", |passed| {
        unanswered(passed).is_empty()
    })
    .await;
    let before = tap.passed();

    let mut orders = Vec::new();
    for round in 0..ROUNDS {
        // Another order each time, and each leaf comes to be at each place.
        order.rotate_left(1 + round % 3);
        order.swap(0, 1 + round % 4);
        orders.push(order);
        plane.set_snapshot(snapshot(&order));
        let acks = before.len() + 2 * (round + 1);
        tap.until("ACK", |passed| passed.len() >= acks).await;
    }
    let distinct = orders.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(distinct, "{orders:?}");
    for order in orders {
        let config = next(&mut configs).await;
        assert_eq!(leaves(&config), order);
        assert!(LEAVES.iter().all(|leaf| has_endpoints(&config, leaf)));
    }
    assert!(configs.try_recv().is_err(), "one more configuration");

    check(&tap.passed()[before.len()..]);
    check_names(&tap.passed());
}

/// The configurations that a channel would use.
fn configs(tap: &Tap, by_delta: bool) -> mpsc::UnboundedReceiver<Arc<XdsConfig>> {
    let mut server = ServerConfig::builder(tap.address().to_string());
    if by_delta {
        server = server.feature(ServerFeature::Delta);
    }
    let bootstrap = Bootstrap::builder(server).unwrap().node_id("e2e").build();
    let mut watch = Channel::builder("xds:///svc")
        .bootstrap(bootstrap)
        .aggregate_cluster_resources(true)
        .watch_config()
        .unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(resolved) = watch.next().await {
            let sent = match resolved {
                Resolved::Ready(config) => sender.send(config).is_ok(),
                Resolved::Waiting { .. } => true,
                // The receiver sees the end of it.
                Resolved::Error(_) => false,
            };
            if !sent {
                return;
            }
        }
    });
    receiver
}

async fn next(configs: &mut mpsc::UnboundedReceiver<Arc<XdsConfig>>) -> Arc<XdsConfig> {
    let config = tokio::time::timeout(Duration::from_secs(20), configs.recv()).await;
    config.expect("a configuration").expect("no error")
}

fn snapshot(order: &[&str]) -> Snapshot {
    let resources = Resources::new()
        .with(listener("svc").rds("svc"))
        .with(routes("svc").host("*").route("/", "all"))
        .with(cluster("all").aggregate_resource("list"))
        .with(cluster_config("list").clusters(order.iter().copied()));
    let resources = LEAVES.iter().fold(resources, |resources, leaf| {
        resources
            .with(cluster(leaf))
            .with(endpoints(leaf).locality("eu/a", 1, ["127.0.0.1:1"]))
    });
    Arc::unwrap_or_clone(resources.snapshot())
}

fn leaves(config: &XdsConfig) -> Vec<&str> {
    let state = config.clusters["all"].as_ref().unwrap();
    state.leaves().iter().map(|leaf| &**leaf).collect()
}

fn has_endpoints(config: &XdsConfig, leaf: &str) -> bool {
    let state = config.clusters[leaf].as_ref().unwrap();
    state.endpoints().is_some()
}

/// The nonces of responses without an answer.
fn unanswered(passed: &[Passed]) -> BTreeSet<(&String, &String)> {
    let mut open = BTreeSet::new();
    for passed in passed {
        match passed {
            Passed::Request {
                type_url, nonce, ..
            } => open.remove(&(type_url, nonce)),
            Passed::Response { type_url, nonce } => open.insert((type_url, nonce)),
        };
    }
    open
}

/// Checks that each change makes one response, and each response one request.
fn check(passed: &[Passed]) {
    assert_eq!(passed.len(), 2 * ROUNDS, "{passed:#?}");
    let mut nonces = BTreeSet::new();
    for pair in passed.chunks(2) {
        let [
            Passed::Response { type_url, nonce },
            Passed::Request {
                type_url: answered_type,
                nonce: answered,
                error: None,
                names,
            },
        ] = pair
        else {
            panic!("{pair:#?}");
        };
        assert_eq!((&**type_url, &**answered_type), (LIST, LIST));
        assert_eq!(nonce, answered);
        assert!(nonces.insert(nonce), "{nonce} again");
        assert_eq!(*names, ["list".to_owned()].into());
    }
}

/// No request, from the first one on, lacks a name that an earlier one of its type had: all of them
/// stay.
fn check_names(passed: &[Passed]) {
    let mut asked: BTreeMap<&str, &BTreeSet<String>> = BTreeMap::new();
    for passed in passed {
        if let Passed::Request {
            type_url, names, ..
        } = passed
        {
            let before = asked.insert(type_url, names);
            assert!(
                before.is_none_or(|before| before.is_subset(names)),
                "{passed:?}"
            );
        }
    }
    assert_eq!(asked.len(), 5, "{asked:?}");
}
