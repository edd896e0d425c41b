//! `crowfly inspect --tree` over real sockets: live channels, and servers with strange answers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{crowfly, spawn_backend, text};
use crowfly::{
    Channel, ConnectivityState,
    debug::v1::{
        self, ListChannelsRequest, ListChannelsResponse, State,
        debug_server::{Debug, DebugServer},
        tree::{Kind, Role},
    },
};
use crowfly_testkit::{
    Reserved, ResourceServer,
    builders::{Resources, cluster, endpoints, listener, routes},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first cluster of an aggregate cannot be reached. The second has one open call and two that
/// wait for the stream limit. The third is not needed.
#[tokio::test]
async fn the_tree_of_a_live_aggregate() {
    let dead = Reserved::new().refusing();
    let busy = backend(1).await;
    let server = ResourceServer::start(&shop(dead, busy));
    let channel = Channel::builder("xds:///shop")
        .bootstrap(server.bootstrap())
        .build()
        .unwrap();
    // While the first cluster connects, calls may be dropped by its rules.
    let mut states = channel.watch_state();
    while states.state() != ConnectivityState::Ready {
        states.changed().await.unwrap();
    }
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        calls.spawn(watch_health(channel.clone()));
    }
    until(async || channel.tree().await.contains("3 in flight, 2 waiting")).await;

    let address = serve(crowfly::debug_service()).await.to_string();
    let said = succeeds(&["inspect", "--tree", &address]).await;
    let redact = |text: &str| {
        let text = text.replace(&dead.to_string(), "DEAD");
        text.replace(&busy.to_string(), "BUSY")
    };
    insta::assert_snapshot!(redact(&said));

    let said = succeeds(&["inspect", "--tree", &address, "--json"]).await;
    insta::assert_snapshot!("the_tree_of_a_live_aggregate_as_json", redact(&said));

    // A channel is listed for as long as it lives.
    calls.shutdown().await;
    drop(channel);
    until(async || succeeds(&["inspect", "--tree", &address]).await == "no channels\n").await;
}

#[tokio::test]
async fn what_another_process_says_is_printed_with_care() {
    let address = fixed(Ok(strange_channels())).await;
    let said = succeeds(&["inspect", "--tree", &address]).await;
    let expected = "\
xds:///a (node web-1): TRANSIENT_FAILURE
  cluster_impl a\\u{1b} limit 8, drops thr\\u{1b}ottle 10%
  └ 127.0.0.1:80,\\u{7} TRANSIENT_FAILURE (leaving, \\u{1b}[31mno\\nroute)
  of a later version

xds:///b: CONNECTING (waits for listener b)
";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn json_and_yaml_print_the_fields_of_a_tree() {
    let address = fixed(Ok(strange_channels())).await;
    let said = succeeds(&["inspect", "--tree", &address, "--json"]).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    let [a, b] = said["channels"].as_array().unwrap().as_slice() else {
        panic!("{said}");
    };
    let leaf = json!({
        "kind": "endpoint",
        "name": "127.0.0.1:80",
        "addresses": ["127.0.0.1:80", "\u{7}"],
        "weight": 3,
        "state": "TRANSIENT_FAILURE",
        "role": "leaving",
        "in_flight": 0,
        "picks": 9,
        "note": "\u{1b}[31mno\nroute",
        "children": [],
    });
    let cluster = json!({
        "kind": "cluster_impl",
        "name": "a\u{1b}",
        "limit": 8,
        "drops": [{ "category": "thr\u{1b}ottle", "per_million": 100_000 }],
        "state": null,
        "role": null,
        "note": null,
        "children": [leaf],
    });
    assert_eq!(a["clusters"][0], cluster);
    assert_eq!(a["clusters"][1]["kind"], Value::Null);
    assert_eq!(a["clusters"][1]["name"], "of a later version");
    assert_eq!(b["node"], Value::Null);
    assert_eq!(b["note"], "waits for listener b");

    let yaml = succeeds(&["inspect", "--tree", &address, "-o", "yaml"]).await;
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), said);
}

#[tokio::test]
async fn a_server_without_the_service_is_told() {
    let (_backend, grpc) = spawn_backend("b1", &[]).await;
    let said = fails(&["inspect", "--tree", &grpc.to_string()]).await;
    let expected = format!(
        "error: {grpc} speaks gRPC, but has no debug service (crowfly.debug.v1.Debug): a program \
         mounts crowfly::debug_service() beside CSDS\n"
    );
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_refusal_is_told_with_its_status() {
    let address = fixed(Err(Status::permission_denied("not for you"))).await;
    let said = fails(&["inspect", "--tree", &address]).await;
    let expected = format!("error: debug service on {address} answers ");
    assert!(said.starts_with(&expected), "{said}");
    assert!(said.ends_with(": not for you\n"), "{said}");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let said = fails(&["inspect", "--tree", &address, "--timeout", "300ms"]).await;
    let expected = format!("error: {address} did not answer within 300ms\n");
    assert_eq!(said, expected);
}

/// Two channels with control characters in their texts, and values of a later version.
fn strange_channels() -> ListChannelsResponse {
    let leaf = v1::Tree {
        kind: Kind::Endpoint.into(),
        name: "127.0.0.1:80".to_owned(),
        addresses: vec!["127.0.0.1:80".to_owned(), "\u{7}".to_owned()],
        weight: Some(3),
        state: State::TransientFailure.into(),
        role: Role::Leaving.into(),
        in_flight: Some(0),
        picks: Some(9),
        note: "\u{1b}[31mno\nroute".to_owned(),
        ..v1::Tree::default()
    };
    let drop = v1::tree::Drop {
        category: "thr\u{1b}ottle".to_owned(),
        per_million: 100_000,
    };
    let tree = v1::Tree {
        kind: Kind::ClusterImpl.into(),
        name: "a\u{1b}".to_owned(),
        limit: Some(8),
        drops: vec![drop],
        children: vec![leaf],
        // A state and a role of a later version.
        state: 17,
        role: 17,
        ..v1::Tree::default()
    };
    let later = v1::Tree {
        kind: 17,
        name: "of a later version".to_owned(),
        ..v1::Tree::default()
    };
    let channels = vec![
        v1::Channel {
            target: "xds:///a".to_owned(),
            node_id: "web-1".to_owned(),
            state: State::TransientFailure.into(),
            clusters: vec![tree, later],
            ..v1::Channel::default()
        },
        v1::Channel {
            target: "xds:///b".to_owned(),
            state: State::Connecting.into(),
            note: "waits for listener b".to_owned(),
            ..v1::Channel::default()
        },
    ];
    ListChannelsResponse { channels }
}

fn shop(dead: SocketAddr, busy: SocketAddr) -> Resources {
    let near = endpoints("near")
        .drop("throttle", 100_000)
        .locality("eu/a", 3, [dead]);
    // This address is dead too, but the spare cluster is never needed.
    let spare = endpoints("spare").locality("us/b", 1, [dead]);
    Resources::new()
        .with(listener("shop").routes(routes("").host("*").route("/", "shop")))
        .with(cluster("shop").aggregate(["near", "far", "spare"]))
        .with(cluster("near"))
        .with(near)
        .with(cluster("far"))
        .with(endpoints("far").locality("us/a", 7, [busy]))
        .with(cluster("spare"))
        .with(spare)
}

/// A server whose calls of [`watch_health`] stay open, and which takes this many at once.
async fn backend(at_once: u32) -> SocketAddr {
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .max_concurrent_streams(at_once)
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

/// A call that never ends.
async fn watch_health(channel: Channel) {
    let mut client = HealthClient::new(channel);
    let mut states = client
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    while states.message().await.unwrap().is_some() {}
}

/// A debug service that gives this answer.
async fn fixed(answer: Result<ListChannelsResponse, Status>) -> String {
    serve(DebugServer::new(Fixed(answer))).await.to_string()
}

struct Fixed(Result<ListChannelsResponse, Status>);

#[tonic::async_trait]
impl Debug for Fixed {
    async fn list_channels(
        &self,
        _: Request<ListChannelsRequest>,
    ) -> Result<Response<ListChannelsResponse>, Status> {
        self.0.clone().map(Response::new)
    }
}

async fn serve<D: Debug>(service: DebugServer<D>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

async fn until(is_so: impl AsyncFn() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looking).await;
    found.expect("it happens");
}

async fn succeeds(args: &[&str]) -> String {
    let output = crowfly(args).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

async fn fails(args: &[&str]) -> String {
    let output = crowfly(args).await;
    let said = text(&output.stderr).to_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(text(&output.stdout), "");
    said
}
