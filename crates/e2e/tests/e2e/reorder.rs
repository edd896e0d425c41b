//! The list of an aggregate is reordered again and again (gRFC A99).
//!
//! A new order must cost no call and no new connection, because only the order has changed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crowfly::Channel;
use crowfly_cli::backend::{BackendOptions, BackendServer};
use crowfly_e2e::rpc;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, cluster_config, endpoints, listener, routes};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::load::Load;

const REORDERS: usize = 100;
const LEAVES: [&str; 3] = ["a", "b", "c"];
const ORDERS: [[&str; 3]; 6] = [
    ["a", "b", "c"],
    ["b", "c", "a"],
    ["c", "a", "b"],
    ["a", "c", "b"],
    ["c", "b", "a"],
    ["b", "a", "c"],
];

const CLUSTER_CONFIG: &str =
    "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";

/// S6-06, S8-10: under load, the cluster that is first in the list serves. No call fails, and each
/// backend is connected to once in all.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reorders_cost_no_call_and_no_connection() {
    let mut doors = Vec::new();
    for leaf in LEAVES {
        for number in 1..=2 {
            doors.push(Door::open(leaf, number).await);
        }
    }
    let mut server = ResourceServer::start(&ordered(ORDERS[0], &doors));
    let channel = Channel::builder("xds:///svc")
        .bootstrap(server.bootstrap())
        .aggregate_cluster_resources(true)
        .build()
        .unwrap();
    until_leaf_serves(&channel, ORDERS[0][0]).await;
    server.next_ack(CLUSTER_CONFIG).await;
    let load = Load::start(&channel);

    for order in ORDERS.into_iter().cycle().skip(1).take(REORDERS) {
        server.set(&ordered(order, &doors));
        server.next_ack(CLUSTER_CONFIG).await;
        until_leaf_serves(&channel, order[0]).await;
    }

    let answered = load.stop_without_failure().await;
    println!(
        "{REORDERS} reorders, {} calls, none failed",
        answered.values().sum::<usize>()
    );
    let accepted = doors
        .iter()
        .map(|door| door.accepted.load(Ordering::SeqCst));
    assert_eq!(
        accepted.collect::<Vec<_>>(),
        [1; 6],
        "connections accepted by each backend"
    );
}

async fn until_leaf_serves(channel: &Channel, leaf: &str) {
    let names = [1, 2].map(|number| format!("{leaf}{number}"));
    rpc::until_served_by(channel, &names.each_ref().map(String::as_str)).await;
}

fn ordered(order: [&str; 3], doors: &[Door]) -> Resources {
    let resources = Resources::new()
        .with(listener("svc").rds("routes"))
        .with(routes("routes").host("*").route("/", "aggregate"))
        .with(cluster("aggregate").aggregate_resource("list"))
        .with(cluster_config("list").clusters(order));
    LEAVES.into_iter().fold(resources, |resources, leaf| {
        let of_leaf = doors.iter().filter(|door| door.leaf == leaf);
        let addresses = of_leaf.map(|door| door.address);
        resources
            .with(cluster(leaf))
            .with(endpoints(leaf).locality("region/zone", 1, addresses))
    })
}

/// The way to a backend, with a counter of its connections.
struct Door {
    leaf: &'static str,
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    _backend: BackendServer,
}

impl Door {
    async fn open(leaf: &'static str, number: usize) -> Self {
        let backend = BackendServer::start(BackendOptions::new(format!("{leaf}{number}")));
        let backend = backend.await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let door = Self {
            leaf,
            address: listener.local_addr().unwrap(),
            accepted: Arc::default(),
            _backend: backend,
        };
        let (to, accepted) = (door._backend.addr(), Arc::clone(&door.accepted));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(relay(client, to));
            }
        });
        door
    }
}

async fn relay(mut client: TcpStream, to: SocketAddr) {
    let mut backend = TcpStream::connect(to).await.unwrap();
    for socket in [&client, &backend] {
        socket.set_nodelay(true).unwrap();
    }
    // However it ends, it ends for both sides.
    let _ = copy_bidirectional(&mut client, &mut backend).await;
}
