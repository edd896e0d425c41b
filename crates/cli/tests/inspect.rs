//! `crowfly inspect` against servers with fixed answers, which no real server gives on demand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use common::{crowfly, spawn_backend, text};
use crowfly_testkit::Reserved;
use envoy_types::{
    pb::{
        envoy::{
            admin::v3::{
                ClientResourceStatus, ClustersConfigDump, UpdateFailureState,
                clusters_config_dump::DynamicCluster,
            },
            config::{cluster::v3::Cluster, core::v3::Node},
            service::status::v3::{
                ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
                PerXdsConfig,
                client_config::GenericXdsConfig,
                client_status_discovery_service_server::{
                    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
                },
                per_xds_config::PerXdsConfig as Dump,
            },
        },
        google::protobuf::Timestamp,
    },
    util::pack_any,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_stream::{Empty, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

#[tokio::test]
async fn a_person_sees_the_rejected_version_next_to_the_one_in_use() {
    let address = csds(Ok(answer())).await;
    let said = succeeds(&["inspect", "--csds", &address.to_string()]).await;
    let expected = "\
xds:///payments (node web-1, cluster web): 3 resources, 1 in error
  TYPE      NAME      STATE      VERSION  AGE
  Listener  payments  ACKED      4        2d
  Cluster   accounts  REQUESTED  -        -
  Cluster   payments  NACKED     7        3h
      version 8 rejected 5m ago, version 7 still in use: lb_policy: not supported

#server: 1 resource
  TYPE      NAME           STATE   VERSION  AGE
  Listener  0.0.0.0:50051  SYNCED  -        -
";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_script_reads_the_same_as_json() {
    let address = csds(Ok(answer())).await;
    let address = address.to_string();
    let said = succeeds(&["inspect", "--csds", &address, "--json"]).await;
    let view: Value = serde_json::from_str(&said).unwrap();
    let client = &view["clients"][0];
    assert_eq!(client["scope"], "xds:///payments");
    assert_eq!(client["node"], json!({ "id": "web-1", "cluster": "web" }));
    let cluster = &client["resources"][2];
    assert_eq!(cluster["type_url"], CLUSTER);
    assert_eq!(cluster["state"], "NACKED");
    assert_eq!(cluster["version"], "7");
    assert_eq!(cluster["error"]["version"], "8");
    assert_eq!(cluster["error"]["details"], "lb_policy: not supported");
    let at = cluster["error"]["at"].as_str().unwrap();
    assert!(at.ends_with('Z') && at.contains('T'), "{at}");
    assert_eq!(cluster.get("config"), None);
    assert_eq!(client["resources"][1]["error"], Value::Null);
    assert_eq!(
        said,
        succeeds(&["inspect", "--csds", &address, "-o", "json"]).await
    );
}

#[tokio::test]
async fn yaml_has_the_whole_configuration() {
    let address = csds(Ok(answer())).await;
    let said = succeeds(&["inspect", "--csds", &address.to_string(), "-o", "yaml"]).await;
    let view: Value = serde_saphyr::from_str(&said).unwrap();
    let cluster = &view["clients"][0]["resources"][2];
    assert_eq!(cluster["state"], "NACKED");
    // Text, though it looks like a number.
    assert_eq!(cluster["version"], "7");
    let config = json!({ "@type": CLUSTER, "name": "payments", "alt_stat_name": "p" });
    assert_eq!(cluster["config"], config, "{said}");
}

/// Servers from before gRFC A40's generic form answer with the dumps of Envoy's admin port.
#[tokio::test]
async fn an_older_csds_is_read_too() {
    let cluster = DynamicCluster {
        version_info: "3".to_owned(),
        cluster: Some(pack_any(named("old"))),
        client_status: ClientResourceStatus::Acked.into(),
        ..DynamicCluster::default()
    };
    let dump = ClustersConfigDump {
        dynamic_active_clusters: vec![cluster],
        ..ClustersConfigDump::default()
    };
    #[allow(deprecated, reason = "that is the point")]
    let config = ClientConfig {
        xds_config: vec![PerXdsConfig {
            per_xds_config: Some(Dump::ClusterConfig(dump)),
            ..PerXdsConfig::default()
        }],
        ..ClientConfig::default()
    };
    let address = csds(Ok(ClientStatusResponse {
        config: vec![config],
    }))
    .await;
    let said = succeeds(&["inspect", "--csds", &address.to_string()]).await;
    let expected = "\
client: 1 resource
  TYPE     NAME  STATE  VERSION  AGE
  Cluster  old   ACKED  3        -
";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn an_envoy_is_shown_in_the_same_view() {
    let dump = json!({ "configs": [
        { "bootstrap": { "node": { "id": "edge", "cluster": "front" } } },
        {
            "@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump",
            "dynamic_listeners": [{
                "name": "in",
                "active_state": { "version_info": "1", "last_updated": ago_text(7300) },
                "error_state": { "details": "no filter", "last_update_attempt": ago_text(70) },
            }],
        },
    ] });
    let address = http(&format!("HTTP/1.1 200 OK\r\n\r\n{dump}")).await;
    let said = succeeds(&["inspect", "--envoy", &address.to_string()]).await;
    let expected = format!(
        "\
Envoy {address} (node edge, cluster front): 1 resource, 1 in error
  TYPE      NAME  STATE   VERSION  AGE
  Listener  in    NACKED  1        2h
      update rejected 1m ago, version 1 still in use: no filter
"
    );
    assert_eq!(said, expected);
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_told() {
    let refusing = Reserved::new();
    let address = refusing.address.to_string();
    for source in ["--csds", "--envoy"] {
        let said = fails(&["inspect", source, &address]).await;
        let expected = format!("error: cannot connect to {address}: Connection refused");
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[tokio::test]
async fn a_server_without_csds_is_told_from_one_that_is_no_grpc() {
    let (_backend, grpc) = spawn_backend("b1", &[]).await;
    let said = fails(&["inspect", "--csds", &grpc.to_string()]).await;
    let expected = format!("error: {grpc} speaks gRPC, but has no CSDS");
    assert!(said.starts_with(&expected), "{said}");
    let said = fails(&["inspect", "--envoy", &grpc.to_string()]).await;
    let expected = format!("error: {grpc} is not the admin port of an Envoy: ");
    assert!(said.starts_with(&expected), "{said}");

    let web = http("HTTP/1.1 404 Not Found\r\n\r\n").await;
    let said = fails(&["inspect", "--csds", &web.to_string()]).await;
    let expected = format!("error: {web} does not speak gRPC: ");
    assert!(said.starts_with(&expected), "{said}");
    let said = fails(&["inspect", "--envoy", &web.to_string()]).await;
    let expected =
        format!("error: {web} is not the admin port of an Envoy: it answers 404 Not Found\n");
    assert_eq!(said, expected);

    let other = http("HTTP/1.1 200 OK\r\n\r\n{}").await;
    let said = fails(&["inspect", "--envoy", &other.to_string()]).await;
    assert!(said.contains("/config_dump has no `configs`"), "{said}");
}

#[tokio::test]
async fn a_refusal_is_told_with_its_status() {
    let address = csds(Err(Status::permission_denied("not for you"))).await;
    let said = fails(&["inspect", "--csds", &address.to_string()]).await;
    assert!(said.contains(&address.to_string()), "{said}");
    assert!(said.contains("not for you"), "{said}");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    for source in ["--csds", "--envoy"] {
        let said = fails(&["inspect", source, &address, "--timeout", "300ms"]).await;
        assert_eq!(
            said,
            format!("error: {address} did not answer within 300ms\n")
        );
    }
}

#[tokio::test]
async fn one_source_is_named() {
    for (args, expected) in [
        (
            &["inspect"][..],
            "--csds <ADDR>|--envoy <ADDR>|--tree <ADDR>",
        ),
        (
            &["inspect", "--csds", "h:1", "--envoy", "h:2"],
            "cannot be used with",
        ),
        (&["inspect", "--csds", "localhost"], "expected HOST:PORT"),
        (
            &["inspect", "--csds", "h:1", "--json", "-o", "yaml"],
            "cannot be used with",
        ),
    ] {
        let output = crowfly(args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

/// Two clients: one with a rejected cluster, and one as a control plane sees it.
fn answer() -> ClientStatusResponse {
    let resource = |kind: &str, name: &str| GenericXdsConfig {
        type_url: format!("type.googleapis.com/envoy.config.{kind}"),
        name: name.to_owned(),
        ..GenericXdsConfig::default()
    };
    let nacked = GenericXdsConfig {
        version_info: "7".to_owned(),
        last_updated: ago(3 * 3600 + 60),
        xds_config: Some(pack_any(named("payments"))),
        client_status: ClientResourceStatus::Nacked.into(),
        error_state: Some(UpdateFailureState {
            version_info: "8".to_owned(),
            details: "lb_policy: not supported".to_owned(),
            last_update_attempt: ago(5 * 60 + 20),
            ..UpdateFailureState::default()
        }),
        ..resource("cluster.v3.Cluster", "payments")
    };
    let requested = GenericXdsConfig {
        client_status: ClientResourceStatus::Requested.into(),
        ..resource("cluster.v3.Cluster", "accounts")
    };
    let acked = GenericXdsConfig {
        version_info: "4".to_owned(),
        last_updated: ago(2 * 86400 + 3600),
        client_status: ClientResourceStatus::Acked.into(),
        ..resource("listener.v3.Listener", "payments")
    };
    let seen_from_a_control_plane = GenericXdsConfig {
        config_status: ConfigStatus::Synced.into(),
        ..resource("listener.v3.Listener", "0.0.0.0:50051")
    };
    let client = ClientConfig {
        node: Some(Node {
            id: "web-1".to_owned(),
            cluster: "web".to_owned(),
            ..Node::default()
        }),
        generic_xds_configs: vec![nacked, requested, acked],
        client_scope: "xds:///payments".to_owned(),
        ..ClientConfig::default()
    };
    let server = ClientConfig {
        generic_xds_configs: vec![seen_from_a_control_plane],
        client_scope: "#server".to_owned(),
        ..ClientConfig::default()
    };
    ClientStatusResponse {
        config: vec![client, server],
    }
}

fn named(name: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        alt_stat_name: "p".to_owned(),
        ..Cluster::default()
    }
}

fn ago(seconds: u64) -> Option<Timestamp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let then = now - Duration::from_secs(seconds);
    Some(Timestamp {
        seconds: i64::try_from(then.as_secs()).unwrap(),
        nanos: 0,
    })
}

fn ago_text(seconds: u64) -> String {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    humantime::format_rfc3339_millis(then).to_string()
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

/// A CSDS server that gives this answer.
async fn csds(answer: Result<ClientStatusResponse, Status>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = ClientStatusDiscoveryServiceServer::new(Fixed(answer));
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

struct Fixed(Result<ClientStatusResponse, Status>);

#[tonic::async_trait]
impl ClientStatusDiscoveryService for Fixed {
    type StreamClientStatusStream = Empty<Result<ClientStatusResponse, Status>>;

    async fn stream_client_status(
        &self,
        _: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        Err(Status::unimplemented("fetch"))
    }

    async fn fetch_client_status(
        &self,
        _: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, Status> {
        self.0.clone().map(Response::new)
    }
}

/// An HTTP/1 server that gives this response to every request.
async fn http(response: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let response = response.to_owned();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // One read takes a request of this size.
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    address
}
