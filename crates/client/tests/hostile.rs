//! The client against a server that means it ill, over real sockets: it costs bounded memory, is told
//! of, and is never a panic.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_client::{WatchEvent, XdsClient};
use crowfly_model::Bootstrap;
use crowfly_model::grpc::Cluster;
use crowfly_testkit::builders::cluster;
use crowfly_testkit::{AdsServer, NODE_ID, over_both_on_sockets, response, wrapped};
use crowfly_xds::{Protocol, TroubleReason};
use envoy_types::pb::google::protobuf::Any;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use support::{ambient, error, next, value};

/// Shorter than the shortest wait before the next stream.
const NOT_YET: Duration = Duration::from_millis(700);

/// A response over the limit is an error that says so, and is not asked for again at once; what is
/// in use stays, and a response within the limit heals.
#[tokio::test]
async fn response_over_the_limit_is_an_error_and_no_loop() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::builder(Arc::new(server.bootstrap()))
            .max_response_bytes(1024)
            .build()
            .unwrap();
        let mut known = client.watch::<Cluster>("a").unwrap();
        let mut unknown = client.watch::<Cluster>("b").unwrap();
        server.next_asked().await;
        server.tell::<Cluster>("v1", [("a", cluster("a").any())]);
        value(&mut known).await;

        let huge = cluster("b").eds(&"x".repeat(4096)).any();
        server.tell::<Cluster>("v2", [("a", cluster("a").any()), ("b", huge)]);

        let error = error(&mut unknown).await.to_string();
        assert!(error.starts_with("cluster b: xDS server: "), "{error}");
        let what = "a response of envoy.config.cluster.v3.Cluster over the limit of 1024 bytes";
        assert!(error.contains(what), "{error}");
        assert!(!error.contains("asked for"), "the type is known: {error}");
        assert!(error.ends_with("[node test-node]"), "{error}");
        let trouble = ambient(&mut known).await.unwrap();
        assert!(matches!(trouble.reason, TroubleReason::Connectivity(_)));
        let again = timeout(NOT_YET, server.next_stream()).await;
        assert!(again.is_err(), "the next stream waits");

        server.next_stream().await;
        server.next_asked().await;
        let both = ["a", "b"].map(|name| (name, cluster(name).any()));
        server.tell::<Cluster>("v3", both);
        assert_eq!(value(&mut unknown).await.name, "b");
        assert_eq!(ambient(&mut known).await, None);
    })
    .await;
}

/// The type is found in a wrapper, too; a response that begins with something else, and goes on for
/// long, may be of any type that was asked for.
#[tokio::test]
async fn response_over_the_limit_is_of_a_type_as_far_as_it_shows() {
    let mut server = AdsServer::start();
    let client = XdsClient::builder(Arc::new(server.bootstrap()))
        .max_response_bytes(1024)
        .build()
        .unwrap();
    let mut watch = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    let huge = wrapped("a", cluster("a").eds(&"x".repeat(4096)).any());
    server.send(response::<Cluster>("v1", "n1", [huge]));
    let first = error(&mut watch).await.to_string();
    let what = "a response of envoy.config.cluster.v3.Cluster over the limit of 1024 bytes";
    assert!(first.contains(what), "{first}");

    server.next_stream().await;
    server.next_request().await;
    let version = "v".repeat(4096);
    server.send(response::<Cluster>(&version, "n1", [cluster("a").any()]));

    let second = error(&mut watch).await.to_string();
    let what = "a response over the limit of 1024 bytes (asked for: cluster)";
    assert!(second.contains(what), "{second}");
}

/// A server that answers each NACK with the same bad resource gets one NACK for each, its watcher
/// hears once, and a good resource ends it.
#[tokio::test]
async fn endless_nacks_are_one_error() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut watch = client.watch::<Cluster>("a").unwrap();
        server.next_asked().await;

        for nonce in 1..=500 {
            let nonce = nonce.to_string();
            let bad = cluster("a").invalid().any();
            server.tell::<Cluster>(&nonce, [("a", bad)]);
            if nonce == "1" {
                let error = error(&mut watch).await;
                assert!(matches!(error.reason, TroubleReason::Invalid(_)), "{error}");
            }
            let nack = server.next_asked().await;
            assert_eq!(nack.nonce, nonce);
            assert!(nack.refusal.is_some());
        }
        server.tell::<Cluster>("good", [("a", cluster("a").any())]);

        assert_eq!(value(&mut watch).await.name, "a", "nothing in between");
    })
    .await;
}

/// One name a hundred thousand times is one change, and the last counts. If each is bad, that is told in a
/// request that a server can take.
#[tokio::test]
async fn one_name_many_times_is_one_change() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut watch = client.watch::<Cluster>("a").unwrap();
        server.next_asked().await;

        let many = std::iter::repeat_n(("a", cluster("a").any()), 100_000);
        let last = ("a", cluster("a").eds("last").any());
        server.tell::<Cluster>("v1", many.chain([last]));

        assert_eq!(value(&mut watch).await.eds_name(), Some("last"));
        assert_eq!(server.next_asked().await.refusal, None);
        let bad = ("a", cluster("a").invalid().any());
        server.tell::<Cluster>("v2", std::iter::repeat_n(bad, 100_000));
        let message = server.next_asked().await.refusal.unwrap();
        assert!(message.len() < 1 << 20, "{} bytes", message.len());
        let told = watch.next().await.unwrap();
        assert!(
            matches!(told, WatchEvent::AmbientError(Some(_))),
            "{told:?}"
        );
        server.tell::<Cluster>("v3", [("a", cluster("a").eds("b").any())]);
        assert_eq!(value(&mut watch).await.eds_name(), Some("b"));
    })
    .await;
}

/// Resources with nothing in them, by the hundred thousand, are refused before each of them takes a
/// hundred times its size in memory; the next stream heals.
#[tokio::test]
async fn empty_resources_are_refused_unread() {
    let mut server = AdsServer::start();
    let client = XdsClient::new(&server.bootstrap()).unwrap();
    let mut watch = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;

    let nothing = std::iter::repeat_n(Any::default(), 100_000);
    server.send(response::<Cluster>("v1", "n1", nothing));

    let error = error(&mut watch).await.to_string();
    let what = "lists 100000 resources: expected at least 16 bytes of each";
    assert!(error.contains(what), "{error}");
    server.next_stream().await;
    server.next_request().await;
    server.tell::<Cluster>("v2", [("a", cluster("a").any())]);
    assert_eq!(value(&mut watch).await.name, "a");
}

/// A hundred thousand resources that nobody asked for are not kept.
#[tokio::test]
async fn unrequested_resources_are_not_kept() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut watch = client.watch::<Cluster>("77").unwrap();
        server.next_asked().await;

        let names: Vec<String> = (0..100_000).map(|index| index.to_string()).collect();
        let resources = names.iter().map(|name| (&**name, cluster(name).any()));
        server.tell::<Cluster>("v1", resources);

        assert_eq!(value(&mut watch).await.name, "77");
        assert_eq!(server.next_asked().await.refusal, None);
        assert_eq!(client.dump().await.len(), 1);
    })
    .await;
}

/// A message nested deeper than any stack is refused, and the client goes on.
#[tokio::test]
async fn deep_nesting_is_refused() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let client = XdsClient::new(&server.bootstrap()).unwrap();
        let mut watch = client.watch::<Cluster>("a").unwrap();
        server.next_asked().await;

        let nested = match protocol {
            Protocol::Delta => nested(10_000),
            Protocol::StateOfTheWorld => wrapped("a", nested(10_000)),
        };
        server.tell::<Cluster>("v1", [("a", nested), ("b", cluster("b").any())]);

        let error = error(&mut watch).await.to_string();
        assert!(error.contains("recursion limit"), "{error}");
        assert!(server.next_asked().await.refusal.is_some());
        server.tell::<Cluster>("v2", [("a", cluster("a").any())]);
        assert_eq!(value(&mut watch).await.name, "a");
    })
    .await;
}

/// A response that comes byte by byte is taken when it is whole; one that breaks off in the middle
/// is an end of the stream like any other.
#[tokio::test]
async fn response_byte_by_byte_is_taken_when_whole() {
    let mut server = AdsServer::start();
    let front = drip(server.address()).await;
    let bootstrap = Bootstrap::builder(&front.to_string()).unwrap();
    let client = XdsClient::new(&bootstrap.node_id(NODE_ID).build()).unwrap();
    let mut watch = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    let long = "x".repeat(2000);
    server.send(response::<Cluster>(
        "v1",
        "n1",
        [cluster("a").eds(&long).any()],
    ));
    assert_eq!(value(&mut watch).await.eds_name(), Some(long.as_str()));
    server.next_request().await;

    let cut = "y".repeat(FIRST_CONNECTION);
    server.send(response::<Cluster>(
        "v2",
        "n2",
        [cluster("a").eds(&cut).any()],
    ));
    server.next_stream().await;

    let request = server.next_request().await;
    assert_eq!(request.version_info, "v1", "it was not taken");
    server.send(response::<Cluster>(
        "v3",
        "n1",
        [cluster("a").eds("z").any()],
    ));
    loop {
        match next(&mut watch).await {
            WatchEvent::ResourceChanged(Ok(value)) => {
                assert_eq!(value.eds_name(), Some("z"));
                break;
            }
            WatchEvent::AmbientError(_) => {}
            WatchEvent::ResourceChanged(Err(error)) => panic!("{error}"),
        }
    }
}

/// The number of bytes after which the first connection breaks.
const FIRST_CONNECTION: usize = 10_000;

/// A way to `server` that passes on what it says byte by byte, and breaks once.
async fn drip(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut life = FIRST_CONNECTION;
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_on(client, server, life));
            life = usize::MAX;
        }
    });
    address
}

async fn pass_on(client: TcpStream, server: SocketAddr, mut life: usize) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    while let Ok(byte) = from_server.read_u8().await {
        life -= 1;
        if life == 0 || to_client.write_u8(byte).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    there.abort();
}

/// A cluster whose metadata is a list in a list in a list.
fn nested(depth: usize) -> Any {
    let mut inner = Vec::new();
    for _ in 0..depth {
        // A ListValue's `values`, inside a Value's `list_value`.
        inner = field(6, &field(1, &inner));
    }
    let metadata = field(1, &[field(1, b"k"), field(2, &entry(&inner))].concat());
    let mut resource = cluster("a").any();
    resource.value.extend(field(25, &metadata));
    resource
}

/// A Struct with one field.
fn entry(value: &[u8]) -> Vec<u8> {
    field(1, &[field(1, b"k"), field(2, value)].concat())
}

fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len() + 8);
    varint(u64::from(number) << 3 | 2, &mut all);
    varint(bytes.len() as u64, &mut all);
    all.extend(bytes);
    all
}

fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}
