//! The client status discovery service over real sockets: a server that says what the test tells
//! it to, a client, and a CSDS client that looks at it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crowfly_client::{Watch, WatchEvent, XdsClient, csds_service};
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_model::{Decoded, Features, ResourceType};
use crowfly_testkit::builders::cluster;
use crowfly_testkit::{AdsServer, NODE_ID, over_both_on_sockets, response};
use envoy_types::pb::envoy::admin::v3::ClientResourceStatus;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusRequest};
use envoy_types::pb::envoy::r#type::matcher::v3::NodeMatcher;
use envoy_types::pb::google::protobuf::Timestamp;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};

/// S14-01: a resource that was asked for is REQUESTED. Once it came it is ACKED, with the bytes as
/// they came, its version and its time.
#[tokio::test]
async fn a_resource_is_requested_and_then_acked_with_its_raw_bytes() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let scope = format!("requested, then acked by {protocol:?}");
        let client = client(&server, &scope);
        let mut watch = client.watch::<Cluster>("a").unwrap();
        server.next_asked().await;
        let mut csds = Csds::of(&scope).await;

        let config = csds.config().await.unwrap();
        let node = config.node.clone().unwrap();
        assert_eq!(node.id, NODE_ID);
        assert_eq!(node.user_agent_name, "crowfly");
        let requested = GenericXdsConfig {
            type_url: Cluster::TYPE_URL.to_owned(),
            name: "a".to_owned(),
            client_status: ClientResourceStatus::Requested.into(),
            ..GenericXdsConfig::default()
        };
        assert_eq!(config.generic_xds_configs, [requested]);

        // A field that no gRPC client reads: as it came means all of it.
        let sent = cluster("a")
            .edit(|cluster| cluster.alt_stat_name = "unread".to_owned())
            .any();
        let before = SystemTime::now();
        server.tell::<Cluster>("v1", [("a", sent.clone())]);
        changed(&mut watch).await.unwrap();
        let acked = csds.resource("a").await;
        assert_eq!(acked.client_status(), ClientResourceStatus::Acked);
        assert_eq!(acked.version_info, "v1");
        assert_eq!(acked.error_state, None);
        assert_eq!(acked.xds_config, Some(sent));
        assert_about_now(acked.last_updated, before);
    })
    .await;
}

/// S14-02: NACKED shows what is still in use, and beside it what was refused, why and when, for the
/// bad resource only; a good one clears it.
#[tokio::test]
async fn a_nacked_resource_shows_the_old_version_and_the_new_error() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let scope = format!("nacked by {protocol:?}");
        let client = client(&server, &scope);
        let mut a = client.watch::<Cluster>("a").unwrap();
        let mut b = client.watch::<Cluster>("b").unwrap();
        server.next_asked().await;
        let good = [("a", cluster("a").any()), ("b", cluster("b").any())];
        server.tell::<Cluster>("v1", good.clone());
        changed(&mut a).await.unwrap();
        changed(&mut b).await.unwrap();

        let before = SystemTime::now();
        let bad = [
            ("a", cluster("a").invalid().any()),
            ("b", cluster("b").any()),
        ];
        server.tell::<Cluster>("v2", bad);
        assert!(matches!(a.next().await, Some(WatchEvent::AmbientError(_))));
        let mut csds = Csds::of(&scope).await;
        let nacked = csds.resource("a").await;
        assert_eq!(nacked.client_status(), ClientResourceStatus::Nacked);
        assert_eq!(nacked.version_info, "v1");
        assert_eq!(nacked.xds_config.as_ref(), Some(&good[0].1));
        let error = nacked.error_state.unwrap();
        assert_eq!(error.version_info, "v2");
        assert!(
            error.details.starts_with("cluster a: invalid: lb_policy"),
            "{error:?}"
        );
        assert_eq!(error.failed_configuration, None);
        assert_about_now(error.last_update_attempt, before);
        let other = csds.resource("b").await;
        assert_eq!(other.client_status(), ClientResourceStatus::Acked);
        assert_eq!((&*other.version_info, other.error_state), ("v2", None));

        let new = cluster("a").eds("new").any();
        server.tell::<Cluster>("v3", [("a", new), ("b", cluster("b").any())]);
        changed(&mut a).await.unwrap();
        let recovered = csds.resource("a").await;
        assert_eq!(recovered.client_status(), ClientResourceStatus::Acked);
        assert_eq!(
            (&*recovered.version_info, recovered.error_state),
            ("v3", None)
        );
    })
    .await;
}

/// S14-03: a resource that does not come within 15 s is shown not to exist. One that is no longer
/// watched is not shown.
#[tokio::test]
async fn a_missing_resource_does_not_exist_and_an_unwatched_one_is_not_shown() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let scope = format!("missing by {protocol:?}");
        let client = client(&server, &scope);
        let mut missing = client.watch::<Endpoints>("missing").unwrap();
        let mut unwatched = client.watch::<Cluster>("unwatched").unwrap();
        server.next_asked().await;
        server.tell::<Cluster>("v1", [("unwatched", cluster("unwatched").any())]);
        changed(&mut unwatched).await.unwrap();

        tokio::time::pause();
        changed(&mut missing).await.unwrap_err();
        tokio::time::resume();
        let mut csds = Csds::of(&scope).await;
        let shown = csds.resource("missing").await;
        assert_eq!(shown.client_status(), ClientResourceStatus::DoesNotExist);
        assert_eq!((&*shown.version_info, shown.xds_config), ("", None));
        assert!(
            shown.error_state.unwrap().details.contains("within 15s"),
            "the reason"
        );
        assert_eq!(csds.resource("unwatched").await.version_info, "v1");

        drop(unwatched);
        let names: Vec<_> = csds.config().await.unwrap().generic_xds_configs;
        let names: Vec<_> = names.iter().map(|resource| &*resource.name).collect();
        assert_eq!(names, ["missing"]);
    })
    .await;
}

/// S14-04: two targets are two client scopes, each with what it watches; a client that is gone is
/// not shown.
#[tokio::test]
async fn two_targets_are_two_client_scopes() {
    over_both_on_sockets(async |protocol| {
        let server = AdsServer::speaking(protocol);
        let scopes = ["one", "two"].map(|name| format!("xds:///{name}-{protocol:?}"));
        let [one, two] = scopes.each_ref().map(|target| client(&server, target));
        let watches = (
            one.watch::<Cluster>("a").unwrap(),
            two.watch::<Cluster>("b").unwrap(),
        );
        let mut csds = Csds::of(&scopes[0]).await;
        let names = |config: ClientConfig| -> Vec<String> {
            let resources = config.generic_xds_configs.into_iter();
            resources.map(|resource| resource.name).collect()
        };
        assert_eq!(names(csds.config().await.unwrap()), ["a"]);
        csds.scope.clone_from(&scopes[1]);
        assert_eq!(names(csds.config().await.unwrap()), ["b"]);

        drop((two, watches));
        // An answer to another test, under way, may hold the client for a moment.
        let gone = async { while csds.config().await.is_some() {} };
        let gone = tokio::time::timeout(Duration::from_secs(20), gone).await;
        gone.expect("a client without watches and handles is gone");
    })
    .await;
}

/// gRFC A40: node matchers are for control planes.
#[tokio::test]
async fn node_matchers_are_refused() {
    let mut csds = Csds::of("").await;
    let request = || ClientStatusRequest {
        node_matchers: vec![NodeMatcher::default()],
        ..ClientStatusRequest::default()
    };
    let refused = |status: &Status| {
        status.code() == Code::InvalidArgument && status.message().contains("node_matchers")
    };
    let fetched = csds.client.fetch_client_status(request()).await;
    assert!(refused(&fetched.unwrap_err()));
    let requests = tokio_stream::once(request());
    let streamed = csds.client.stream_client_status(requests).await.unwrap();
    let status = streamed.into_inner().message().await.unwrap_err();
    assert!(refused(&status));
}

/// gRFC A40: the stream answers each request once, with what is so at that time.
#[tokio::test]
async fn the_stream_answers_each_request() {
    let server = AdsServer::start();
    let client = client(&server, "streamed");
    let _a = client.watch::<Cluster>("a").unwrap();
    let mut csds = Csds::of("streamed").await;
    let (requests, receiver) = tokio::sync::mpsc::unbounded_channel();
    let receiver = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
    requests.send(ClientStatusRequest::default()).unwrap();
    let streamed = csds.client.stream_client_status(receiver).await.unwrap();
    let mut responses = streamed.into_inner();
    let mut watched = async || {
        let response = responses.message().await.unwrap().unwrap();
        let mut configs = response.config.into_iter();
        let config = configs.find(|config| config.client_scope == "streamed");
        config.unwrap().generic_xds_configs.len()
    };
    assert_eq!(watched().await, 1);
    let _b = client.watch::<Cluster>("b").unwrap();
    requests.send(ClientStatusRequest::default()).unwrap();
    assert_eq!(watched().await, 2);
}

/// A client in a runtime that stands still is not shown, and does not keep the others from it.
#[tokio::test]
async fn a_client_that_does_not_answer_hides_no_other() {
    let server = AdsServer::start();
    let still = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stuck = {
        let _entered = still.enter();
        client(&server, "stuck")
    };
    let other = client(&server, "not stuck");
    let _watches = (
        stuck.watch::<Cluster>("a").unwrap(),
        other.watch::<Cluster>("b").unwrap(),
    );
    let mut csds = Csds::of("not stuck").await;
    assert_eq!(csds.config().await.unwrap().generic_xds_configs.len(), 1);
    csds.scope = "stuck".to_owned();
    assert_eq!(csds.config().await, None);
    still.shutdown_background();
}

/// The contents of resources can be left out, because they can be large.
#[tokio::test]
async fn contents_are_left_out_on_request() {
    let mut server = AdsServer::start();
    let client = client(&server, "without contents");
    let mut watch = client.watch::<Cluster>("a").unwrap();
    server.next_request().await;
    server.send(response::<Cluster>("v1", "n1", [cluster("a").any()]));
    changed(&mut watch).await.unwrap();
    let mut csds = Csds::of("without contents").await;
    assert!(csds.resource("a").await.xds_config.is_some());
    csds.request.exclude_resource_contents = true;
    let shown = csds.resource("a").await;
    assert_eq!((&*shown.version_info, shown.xds_config), ("v1", None));
}

/// Clusters whose bytes are not kept.
#[derive(Debug)]
struct Brief;

impl ResourceType for Brief {
    type Parsed = ();
    type Context = ();

    const TYPE_URL: &'static str = Cluster::TYPE_URL;
    const NOUN: &'static str = Cluster::NOUN;
    const ALL_IN_SOTW: bool = Cluster::ALL_IN_SOTW;
    const KEEPS_BYTES: bool = false;

    fn parse(bytes: &[u8], (): &()) -> Decoded<()> {
        let name = Cluster::parse(bytes, &Features::default()).name;
        Decoded {
            name,
            value: Ok(()),
        }
    }
}

/// A resource whose bytes are not kept has no contents, which is not the same as empty contents.
#[tokio::test]
async fn bytes_that_are_not_kept_are_not_shown() {
    over_both_on_sockets(async |protocol| {
        let mut server = AdsServer::speaking(protocol);
        let scope = format!("bytes are not kept by {protocol:?}");
        let client = XdsClient::builder(Arc::new(server.bootstrap()))
            .target(&scope)
            .reading::<Brief>(Arc::new(()))
            .build()
            .unwrap();
        let mut watch = client.watch::<Brief>("a").unwrap();
        server.next_asked().await;
        server.tell::<Brief>("v1", [("a", cluster("a").any())]);
        changed(&mut watch).await.unwrap();
        let shown = Csds::of(&scope).await.resource("a").await;
        assert_eq!(shown.client_status(), ClientResourceStatus::Acked);
        assert_eq!((&*shown.version_info, shown.xds_config), ("v1", None));
        let [(_, entry)] = &client.dump().await[..] else {
            panic!("one resource is watched");
        };
        assert!(entry.received().unwrap().raw.is_empty());
    })
    .await;
}

/// A CSDS client that looks at one scope: all tests of this process share its clients.
struct Csds {
    client: ClientStatusDiscoveryServiceClient<Channel>,
    scope: String,
    request: ClientStatusRequest,
}

impl Csds {
    async fn of(scope: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let server = Server::builder().add_service(csds_service());
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self {
            client: ClientStatusDiscoveryServiceClient::new(endpoint.connect().await.unwrap()),
            scope: scope.to_owned(),
            request: ClientStatusRequest::default(),
        }
    }

    async fn config(&mut self) -> Option<ClientConfig> {
        let response = self.client.fetch_client_status(self.request.clone()).await;
        let mut configs = response.unwrap().into_inner().config.into_iter();
        configs.find(|config| config.client_scope == self.scope)
    }

    async fn resource(&mut self, name: &str) -> GenericXdsConfig {
        let config = self.config().await.expect("the client is alive");
        let mut resources = config.generic_xds_configs.into_iter();
        let found = resources.find(|resource| resource.name == name);
        found.expect("the resource is watched")
    }
}

fn client(server: &AdsServer, target: &str) -> XdsClient {
    XdsClient::builder(Arc::new(server.bootstrap()))
        .target(target)
        .build()
        .unwrap()
}

/// The next value, or why there is none.
async fn changed<R: ResourceType>(
    watch: &mut Watch<R>,
) -> Result<Arc<R::Parsed>, crowfly_xds::ResourceError> {
    match watch.next().await.expect("the client is alive") {
        WatchEvent::ResourceChanged(value) => value,
        WatchEvent::AmbientError(error) => panic!("unexpected {error:?}"),
    }
}

/// The time lies between `before` and now, give or take what two clocks differ by.
fn assert_about_now(timestamp: Option<Timestamp>, before: SystemTime) {
    const SLACK: Duration = Duration::from_millis(50);
    let timestamp = timestamp.expect("a time");
    let seconds = u64::try_from(timestamp.seconds).unwrap();
    let nanos = u32::try_from(timestamp.nanos).unwrap();
    let time = UNIX_EPOCH + Duration::new(seconds, nanos);
    assert!(
        before - SLACK <= time && time <= SystemTime::now() + SLACK,
        "{time:?}"
    );
}
