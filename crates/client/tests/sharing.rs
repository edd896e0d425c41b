//! Tests of sharing: clients of one server share connections, and channels to one target share a
//! client (gRFC A71).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crowfly_client::{WatchEvent, XdsClient};
use crowfly_model::Bootstrap;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{Resources, cluster, endpoints};
use crowfly_testkit::{AdsServer, ResourceServer, response};
use crowfly_xds::Key;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// gRFC A71: each target has a client of its own, but the server sees one connection; a connection
/// takes no more streams than its window has room for.
#[tokio::test]
async fn clients_of_one_server_share_connections() {
    let server = ResourceServer::start(&Resources::new().with(cluster("a")));
    let counter = Counter::to(server.address()).await;
    let bootstrap = Arc::new(counter.bootstrap());
    let mut watches = Vec::new();
    for target in 0..17 {
        let client = XdsClient::builder(Arc::clone(&bootstrap)).target(&format!("xds:///{target}"));
        let client = client.build().unwrap();
        let mut watch = client.watch::<Cluster>("a").unwrap();
        let event = timeout(PATIENCE, watch.next()).await.unwrap();
        assert!(matches!(event, Some(WatchEvent::ResourceChanged(Ok(_)))));
        watches.push(watch);
        let expected = if target < 16 { 1 } else { 2 };
        assert_eq!(
            counter.connections(),
            expected,
            "after {} clients",
            target + 1
        );
    }
}

/// gRFC A71: one client per target. A second one of the same target and bootstrap is the same: it asks
/// the server for nothing, and hears at once what is known.
#[tokio::test]
async fn channels_to_one_target_share_a_client() {
    let mut server = AdsServer::start();
    let bootstrap = Arc::new(server.bootstrap());
    let shared = || {
        let builder = XdsClient::builder(Arc::clone(&bootstrap));
        builder.target("xds:///payments").shared().unwrap()
    };
    let mut first = shared().watch::<Cluster>("a").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    assert!(first.next().await.is_some());
    server.next_request().await;

    let mut second = shared().watch::<Cluster>("a").unwrap();
    let event = timeout(PATIENCE, second.next()).await.unwrap();
    assert!(matches!(event, Some(WatchEvent::ResourceChanged(Ok(_)))));
    let other = shared().watch::<Cluster>("b").unwrap();
    let next = server.next_request().await;
    assert_eq!(next.resource_names, ["a", "b"], "on the same stream");
    assert_eq!(next.response_nonce, "n1");
    drop(other);
}

/// A caller that asks for other settings gets a client with these settings, and not the existing one. A cluster with
/// a list of its own shows which settings the client has, because only one of them allows it (gRFC A99).
#[tokio::test]
async fn clients_with_other_settings_are_not_shared() {
    let aggregate = cluster("a").aggregate_resource("list");
    let server = ResourceServer::start(&Resources::new().with(aggregate));
    let bootstrap = Arc::new(server.bootstrap());
    let builder = || XdsClient::builder(Arc::clone(&bootstrap)).target("xds:///payments");
    let mut watches = Vec::new();
    for (data_errors, lists) in [(false, false), (true, false), (false, true)] {
        let other = builder()
            .data_error_handling(data_errors)
            .aggregate_cluster_resources(lists);
        let mut watch = other.shared().unwrap().watch::<Cluster>("a").unwrap();
        let event = timeout(PATIENCE, watch.next()).await.unwrap();
        let Some(WatchEvent::ResourceChanged(read)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(read.is_ok(), lists, "{read:?}");
        // The client lives on, because only clients in use are shared.
        watches.push(watch);
        server.has_streams(watches.len()).await;
    }
}

/// A stream whose watcher is busy holds no more of the connection than its own window: another
/// stream on the same connection goes on.
#[tokio::test]
async fn a_paused_stream_does_not_starve_another() {
    let server = ResourceServer::start(&many_endpoints(1));
    let counter = Counter::to(server.address()).await;
    let bootstrap = Arc::new(counter.bootstrap());
    let client = |target| {
        let builder = XdsClient::builder(Arc::clone(&bootstrap));
        builder.target(target).build().unwrap()
    };
    let mut busy = client("xds:///busy").subscriber();
    busy.watch(Key::of::<Endpoints>("many")).unwrap();
    let held = timeout(PATIENCE, busy.next()).await.unwrap().unwrap();
    let mut lively = client("xds:///lively").watch::<Endpoints>("many").unwrap();
    assert!(lively.next().await.is_some());
    assert_eq!(counter.connections(), 1);

    for weight in 2..5 {
        server.set(&many_endpoints(weight));
        let event = timeout(PATIENCE, lively.next()).await.unwrap();
        let Some(WatchEvent::ResourceChanged(Ok(endpoints))) = event else {
            panic!("{event:?}");
        };
        assert_eq!(endpoints.priorities[0][0].weight.get(), weight);
    }

    // Let go, the busy one catches up.
    assert_eq!(held.updates.len(), 1);
    drop(held);
    assert!(timeout(PATIENCE, busy.next()).await.unwrap().is_some());
}

/// More than the window of a stream.
fn many_endpoints(weight: u32) -> Resources {
    let addresses = (0..60_000).map(|n: u16| format!("10.0.{}.{}:80", n / 250, n % 250));
    let addresses: Vec<String> = addresses.collect();
    let addresses = addresses.iter().map(String::as_str);
    let many = endpoints("many").locality("eu/a", weight, addresses);
    assert!(many.any().value.len() > 1 << 20);
    Resources::new().with(many)
}

/// A way to a server that counts the connections made over it.
struct Counter {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Counter {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self {
            address,
            connections,
        }
    }

    fn bootstrap(&self) -> Bootstrap {
        Bootstrap::builder(self.address.to_string().as_str())
            .unwrap()
            .build()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}
