//! `crowfly clients` and `crowfly inspect --csds` with a control plane, of which a bare client
//! refuses something.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{crowfly, text};
use crowfly_control::{Catalog, ConfigFile, ControlPlane, translate};
use crowfly_testkit::Reserved;
use crowfly_xds::Snapshot;
use envoy_types::pb::{
    envoy::{
        config::core::v3::{Locality, Node},
        service::discovery::v3::{
            DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::rpc::Status,
};
use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

const PATIENCE: Duration = Duration::from_secs(20);
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

fn snapshot(port: u16) -> Snapshot {
    let file = ConfigFile {
        path: "test.yaml".into(),
        text: format!(
            "services: [{{ name: pay, endpoints: [{{ address: \"10.0.0.1:{port}\" }}] }}]"
        ),
    };
    translate(&Catalog::read(&[file]).unwrap()).unwrap()
}

/// A client that has accepted one version of the endpoints of `pay`, and refused the next.
struct Refuser {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

impl Refuser {
    async fn start(plane: &ControlPlane) -> Self {
        let channel = common::channel(plane.listen_addr()).await;
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let (requests, receiver) = mpsc::channel(4);
        let responses = client.stream_aggregated_resources(ReceiverStream::new(receiver));
        let mut refuser = Self {
            requests,
            responses: responses.await.unwrap().into_inner(),
        };
        let node = Node {
            id: "web-1".to_owned(),
            user_agent_name: "gRPC Test".to_owned(),
            locality: Some(Locality {
                region: "eu".to_owned(),
                zone: "a".to_owned(),
                sub_zone: String::new(),
            }),
            ..Node::default()
        };
        refuser.send(Some(node), None, None).await;
        let first = refuser.next().await;
        refuser.send(None, Some(&first), None).await;
        plane.set_snapshot(snapshot(2));
        let second = refuser.next().await;
        refuser.send(None, Some(&second), Some("pay: no")).await;
        refuser
    }

    async fn send(
        &self,
        node: Option<Node>,
        answered: Option<&DiscoveryResponse>,
        reason: Option<&str>,
    ) {
        let accepted = answered.filter(|_| reason.is_none());
        let request = DiscoveryRequest {
            node,
            type_url: ENDPOINTS.to_owned(),
            resource_names: vec!["pay".to_owned()],
            response_nonce: answered.map(|of| of.nonce.clone()).unwrap_or_default(),
            version_info: accepted
                .map(|of| of.version_info.clone())
                .unwrap_or_default(),
            error_detail: reason.map(|message| Status {
                message: message.to_owned(),
                ..Status::default()
            }),
            ..DiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }

    async fn next(&mut self) -> DiscoveryResponse {
        let message = timeout(PATIENCE, self.responses.message());
        message.await.unwrap().unwrap().unwrap()
    }
}

async fn plane() -> ControlPlane {
    let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let plane = ControlPlane::with_snapshot(snapshot(1), any_port, Some(any_port));
    plane.await.unwrap()
}

/// Runs the command until its output is as expected; a refusal arrives when it arrives.
async fn until(args: &[&str], expected: impl Fn(&str) -> bool) -> String {
    let shown = timeout(PATIENCE, async {
        loop {
            let output = crowfly(args).await;
            assert!(output.status.success(), "{}", text(&output.stderr));
            let shown = text(&output.stdout).to_owned();
            if expected(&shown) {
                return shown;
            }
        }
    });
    shown.await.unwrap()
}

/// F-08: the command shows all clients, or each resource of one.
#[tokio::test]
async fn clients_and_their_resources_are_shown() {
    let plane = plane().await;
    let admin = plane.admin_addr().unwrap().to_string();
    let _client = Refuser::start(&plane).await;
    let all = ["clients", "--admin", &admin];
    let shown = until(&all, |shown| shown.contains("refusing")).await;
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[0], "1 client, 1 refusing");
    let header = "NODE   KIND  PROGRAM    VIEW  LOCALITY  CONNECTED";
    assert!(lines[1].starts_with(header), "{shown}");
    assert!(
        lines[2].starts_with("web-1  grpc  gRPC Test  -     eu/a"),
        "{shown}"
    );
    assert!(lines[2].ends_with("EDS 1 of 1 refused"), "{shown}");

    let one = ["clients", "web-1", "--admin", &admin];
    let shown = until(&one, |_| true).await;
    let lines: Vec<_> = shown.lines().collect();
    assert!(
        lines[0].starts_with("web-1: gRPC Test, eu/a, from 127.0.0.1:"),
        "{shown}"
    );
    assert!(lines[2].starts_with("EDS   pay   refused  "), "{shown}");
    assert!(lines[3].ends_with("is in use: pay: no"), "{shown}");

    let json = ["clients", "--json", "web-1", "--admin", &admin];
    let shown: Value = serde_json::from_str(&until(&json, |_| true).await).unwrap();
    let resource = &shown["clients"][0]["resources"][0];
    assert_eq!(resource["nack"]["message"], "pay: no");
    assert_eq!(resource["nack"]["version"], resource["version"]);
}

/// F-08: what cannot be shown is an error, with exit status 1.
#[tokio::test]
async fn what_is_not_there_is_told() {
    let plane = plane().await;
    let admin = plane.admin_addr().unwrap().to_string();
    let _client = Refuser::start(&plane).await;
    let ads = plane.listen_addr().to_string();
    let nobody = Reserved::new();
    let nobody = nobody.address.to_string();
    for (args, expected) in [
        (
            ["clients", "web1", "--admin", &admin],
            "no client with the node id \"web1\" is connected; did you mean \"web-1\"?".to_owned(),
        ),
        (
            ["clients", "web-1", "--admin", &nobody],
            format!("cannot connect to {nobody}: Connection refused"),
        ),
        (
            ["clients", "web-1", "--admin", &ads],
            format!("{ads} is not the admin port of crowfly control: "),
        ),
    ] {
        let output = crowfly(&args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&expected), "{said}");
    }
}

/// F-09: `inspect` reads the CSDS of a control plane.
#[tokio::test]
async fn inspect_reads_the_control_plane() {
    let plane = plane().await;
    let ads = plane.listen_addr().to_string();
    let _client = Refuser::start(&plane).await;
    let args = ["inspect", "--csds", &ads];
    let shown = until(&args, |shown| shown.contains("NACKED")).await;
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("stream 1 from 127.0.0.1:"), "{shown}");
    assert!(
        lines[0].ends_with("(node web-1): 1 resource, 1 in error"),
        "{shown}"
    );
    assert!(
        lines[2].contains("ClusterLoadAssignment  pay   NACKED"),
        "{shown}"
    );
    assert!(lines[3].ends_with("still in use: pay: no"), "{shown}");
}
