//! The xDS source over real sockets, in both protocols: against the control plane, and against a server that shares
//! no code with it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use std::net::SocketAddr;
use std::time::Duration;

use crowfly_control::{Catalog, ConfigFile, ControlPlane, translate};
use crowfly_model::ResourceType;
use crowfly_model::bootstrap::{Bootstrap, ServerConfig, ServerFeature};
use crowfly_node::kubernetes::NodeFacts;
use crowfly_node::model::Place;
use crowfly_node::services::{Change, Services};
use crowfly_node::xds::{NodeCluster, NodeEndpoints, NodeListener, XdsOptions, XdsSource};
use crowfly_source::Status;
use crowfly_testkit::{AdsServer, Passed, Said, Tap, over_both_on_sockets};
use crowfly_xds::{Protocol, Snapshot};
use envoy_types::pb::google::protobuf::Any;
use golden::table;
use tokio::time::timeout;

/// Everything here happens within milliseconds; this is for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// An agent without maps: a source, and the table of its services.
struct Agent {
    source: XdsSource,
    services: Services,
}

impl Agent {
    fn new(server: SocketAddr, protocol: Protocol) -> Self {
        let server = ServerConfig::builder(server.to_string());
        let server = match protocol {
            Protocol::Delta => server.feature(ServerFeature::Delta),
            Protocol::StateOfTheWorld => server,
        };
        Self::with(XdsOptions::to_server(server, "node-a").unwrap())
    }

    fn with(options: XdsOptions) -> Self {
        let place = Place {
            node: Some("node-a".into()),
            zone: Some("a".into()),
        };
        Self {
            source: XdsSource::new(options).unwrap(),
            services: Services::new(vec!["xds".into()], place),
        }
    }

    /// Takes the next changes of the server. Returns the frontends that they change.
    async fn next(&mut self) -> Vec<Change> {
        let events = timeout(PATIENCE, self.source.next()).await;
        let events = events.unwrap_or_else(|_| panic!("nothing came; now:\n{}", self.table()));
        self.services.handle(0, events.unwrap())
    }

    /// Waits for a table. Returns all changes on the way.
    async fn until(&mut self, expected: &str) -> Vec<Change> {
        let mut changes = Vec::new();
        while self.table() != expected {
            changes.extend(self.next().await);
        }
        changes
    }

    async fn until_status(&mut self, expected: impl Fn(&Status) -> bool) -> Vec<Change> {
        let mut changes = Vec::new();
        while !expected(&self.status()) {
            changes.extend(self.next().await);
        }
        changes
    }

    fn status(&self) -> Status {
        self.services.sources().next().unwrap().1.clone()
    }

    fn table(&self) -> String {
        table(&self.services)
    }
}

fn snapshot(text: &str) -> Snapshot {
    let file = ConfigFile {
        path: "control.yaml".into(),
        text: text.to_owned(),
    };
    let catalog = Catalog::read(&[file]).unwrap_or_else(|errors| panic!("{errors}"));
    translate(&catalog).unwrap_or_else(|errors| panic!("{errors}"))
}

async fn serve(text: &str) -> ControlPlane {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let plane = ControlPlane::with_snapshot(snapshot(text), anywhere, None);
    plane.await.unwrap()
}

/// N-51: the ranges of pods in the Node of Kubernetes decide which endpoints are on this node. They may come after the
/// endpoints, and change.
#[tokio::test]
async fn ranges_of_the_node_reach_the_mapping() {
    let text = "
services:
- name: web
  cluster_ip: 10.96.0.1
  internal_traffic_policy: Local
  ports: [{ port: 80 }]
  endpoints: [{ address: \"10.244.1.1:8080\" }, { address: \"10.244.2.1:8080\" }]
";
    let plane = serve(text).await;
    let mut agent = Agent::new(plane.listen_addr(), Protocol::StateOfTheWorld);
    let facts = tokio::sync::watch::Sender::new(NodeFacts::default());
    agent.source.follow_node(facts.subscribe());
    let table = |backend: &str| format!("10.96.0.1:80/TCP default/web\n  -> {backend}\n");
    while !agent.table().starts_with(&table("EHOSTUNREACH")) {
        agent.next().await;
    }
    for (range, backend) in [
        ("10.244.1.0/24", "10.244.1.1:8080 weight 1"),
        ("10.244.2.0/24", "10.244.2.1:8080 weight 1"),
        ("10.244.3.0/24", "EHOSTUNREACH"),
    ] {
        facts.send_replace(NodeFacts {
            place: Place {
                node: Some("node-a".into()),
                zone: None,
            },
            pod_cidrs: vec![range.parse().unwrap()],
        });
        let expected = table(backend);
        while !agent.table().starts_with(&expected) {
            agent.next().await;
        }
    }
    plane.shutdown().await;
}

/// A service of the short form, with two endpoints of these weights.
fn web(weights: [u32; 2]) -> String {
    let [a, b] = weights;
    format!(
        "services:
- name: shop/web
  cluster_ips: [10.96.0.1, 'fd00:96::1']
  client_ip_affinity: 10m
  load_reports: true
  ports: [{{ name: http, port: 80 }}, {{ name: dns, port: 53, target_port: 5353, protocol: UDP }}]
  endpoints:
  - {{ address: '10.244.0.1:8080', weight: {a}, node: node-a }}
  - {{ address: '10.244.0.2:8080', weight: {b} }}
- {{ name: grpc, endpoints: [{{ address: '10.244.9.9:50051' }}], fallback: [shop/web] }}
"
    )
}

fn web_table([a, b]: [u32; 2]) -> String {
    let targets = |frontend: &str, port: u16| {
        format!(
            "{frontend} shop/web affinity=600s\n  -> 10.244.0.1:{port} weight {a}\n  \
             -> 10.244.0.2:{port} weight {b}\n"
        )
    };
    let none = |frontend: &str, port: u16| {
        let why = "no address of this IP family";
        format!(
            "{frontend} shop/web affinity=600s\n  -> ECONNREFUSED\n  x  10.244.0.1:{port}: {why}\n  \
             x  10.244.0.2:{port}: {why}\n"
        )
    };
    targets("10.96.0.1:53/UDP", 5353)
        + &targets("10.96.0.1:80/TCP", 8080)
        + &none("[fd00:96::1]:53/UDP", 5353)
        + &none("[fd00:96::1]:80/TCP", 8080)
}

fn refusals(passed: &[Passed]) -> Vec<String> {
    let refusals = passed.iter().filter_map(|passed| match passed {
        Passed::Request { error, .. } => error.clone(),
        Passed::Response { .. } => None,
    });
    refusals.collect()
}

/// N-63, N-66, N-67, N-69: services of the control plane's short form are routed; weights change, a service
/// goes, and nothing is refused.
#[tokio::test]
async fn the_short_form_of_the_control_plane_is_routed() {
    over_both_on_sockets(async |protocol| {
        let plane = serve(&web([1, 1])).await;
        let tap = Tap::start(plane.listen_addr());
        let mut agent = Agent::new(tap.address(), protocol);
        agent.until(&web_table([1, 1])).await;
        assert_eq!(agent.status(), Status::Synced);
        let port = agent.services.routes().keys().next().unwrap();
        let reported = agent.services.owner(port).unwrap().port.reported_as.clone();
        assert_eq!(&*reported.unwrap().cluster, "cluster_ip:shop/web:53/UDP");

        plane.set_snapshot(snapshot(&web([9, 1])));
        let changes = agent.until(&web_table([9, 1])).await;
        let gone = changes.iter().filter(|(_, route)| route.is_none());
        assert_eq!(gone.count(), 0, "no frontend goes on the way");

        plane.set_snapshot(snapshot("services: [{ name: grpc }]"));
        agent.until("").await;
        assert_eq!(refusals(&tap.passed()), [""; 0]);
        plane.shutdown().await;
    })
    .await;
}

/// A listener in proto JSON, to one cluster.
fn raw_listener(name: &str, prefix: &str, length: u8) -> String {
    format!(
        "- '@type': type.googleapis.com/envoy.config.listener.v3.Listener
  name: {name}
  filter_chains:
  - filter_chain_match: {{ prefix_ranges: [{{ address_prefix: {prefix}, prefix_len: {length} }}], destination_port: 80 }}
    filters:
    - name: tcp
      typed_config: {{ '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: x, cluster: c }}
"
    )
}

fn raw(listeners: &[String], backend: &str) -> String {
    format!(
        "resources:
{}- {{ '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: EDS, eds_cluster_config: {{ eds_config: {{ ads: {{}} }} }} }}
- '@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: c
  endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: {backend}, port_value: 80 }} }} }} }}] }}]
",
        listeners.concat()
    )
}

/// N-61, N-68: a bad listener is refused with its name and field and its last version serves on; others of the
/// same response are applied.
#[tokio::test]
async fn a_bad_resource_is_refused_and_the_rest_is_applied() {
    over_both_on_sockets(async |protocol| {
        let good = [raw_listener("one", "10.96.0.1", 32)];
        let plane = serve(&raw(&good, "10.244.0.1")).await;
        let tap = Tap::start(plane.listen_addr());
        let mut agent = Agent::new(tap.address(), protocol);
        let frontend =
            |address: &str| format!("{address}:80/TCP (xds)/c\n  -> 10.244.0.1:80 weight 1\n");
        agent.until(&frontend("10.96.0.1")).await;

        let mixed = [
            raw_listener("one", "10.96.0.0", 24),
            raw_listener("two", "10.96.0.2", 32),
        ];
        plane.set_snapshot(snapshot(&raw(&mixed, "10.244.0.1")));
        agent
            .until(&(frontend("10.96.0.1") + &frontend("10.96.0.2")))
            .await;
        tap.until("NACK", |passed| !refusals(passed).is_empty())
            .await;
        let [refusal] = refusals(&tap.passed()).try_into().unwrap();
        let field = "filter_chains[0].filter_chain_match.prefix_ranges[0].prefix_len: expected 32";
        assert!(
            refusal.contains("one") && refusal.contains(field),
            "{refusal}"
        );
        assert!(!refusal.contains("two"), "{refusal}");

        // Mended, it is applied.
        let mended = [
            raw_listener("one", "10.96.0.9", 32),
            raw_listener("two", "10.96.0.2", 32),
        ];
        plane.set_snapshot(snapshot(&raw(&mended, "10.244.0.1")));
        agent
            .until(&(frontend("10.96.0.2") + &frontend("10.96.0.9")))
            .await;
        plane.shutdown().await;
    })
    .await;
}

/// N-58, N-62: a server that goes and comes back takes nothing away. Changes that were made
/// meanwhile are applied.
#[tokio::test]
async fn a_reconnect_does_not_flap() {
    over_both_on_sockets(async |protocol| {
        let plane = serve(&web([1, 1])).await;
        let address = plane.listen_addr();
        let mut agent = Agent::new(address, protocol);
        agent.until(&web_table([1, 1])).await;
        plane.shutdown().await;
        let changes = agent
            .until_status(|status| matches!(status, Status::Failed(_)))
            .await;
        assert_eq!(changes, [], "the last state serves on");

        let plane = ControlPlane::with_snapshot(snapshot(&web([2, 1])), address, None);
        let plane = plane.await.unwrap();
        let changes = agent.until(&web_table([2, 1])).await;
        assert!(
            changes.iter().all(|(_, route)| route.is_some()),
            "{changes:?}"
        );
        agent.until_status(|status| *status == Status::Synced).await;
        plane.shutdown().await;
    })
    .await;
}

/// N-58: a server that was never there is a failure with its reason, and no reason to begin.
#[tokio::test]
async fn a_server_out_of_reach_is_said() {
    let reserved = crowfly_testkit::Reserved::new();
    let mut agent = Agent::new(reserved.address, Protocol::StateOfTheWorld);
    agent
        .until_status(|status| matches!(status, Status::Failed(_)))
        .await;
    assert!(!agent.services.has_synced());
}

/// N-58, gRFC A71: the first server of a list is dead and the second one serves. The source is synced, and the
/// further attempts at the first server do not make it a failed one.
#[tokio::test]
async fn a_dead_server_is_no_failure_while_a_fallback_serves() {
    let dead = crowfly_testkit::Reserved::new();
    let plane = serve(&web([1, 1])).await;
    let bootstrap = Bootstrap::builder(dead.address.to_string().as_str()).unwrap();
    let bootstrap = bootstrap
        .server(plane.listen_addr().to_string().as_str())
        .unwrap();
    let mut agent = Agent::with(XdsOptions::new(bootstrap.node_id("node-a").build()));
    agent.until(&web_table([1, 1])).await;
    assert_eq!(agent.status(), Status::Synced);
    // The first pause of a client is about a second, so the dead server is tried again within this time.
    let failed = agent.until_status(|status| *status != Status::Synced);
    let failed = timeout(Duration::from_secs(3), failed).await;
    assert!(failed.is_err(), "{:?}", agent.status());
    plane.shutdown().await;
    let failed = agent.until_status(|status| matches!(status, Status::Failed(_)));
    assert_eq!(
        failed.await,
        [],
        "without any server, the last state serves on"
    );
}

fn any<R: ResourceType>(snapshot: &Snapshot, name: &str) -> Any {
    let resource = snapshot.resource(R::TYPE_URL, name);
    resource.unwrap().any.clone()
}

/// N-62, N-66: a server by hand, which shares no code with our control plane. Listeners come first, then clusters,
/// then endpoints. After a cut, the agent says what it has; a removal alone is applied.
#[tokio::test]
async fn a_foreign_server_in_another_order() {
    over_both_on_sockets(async |protocol| {
        let listeners = [raw_listener("one", "10.96.0.1", 32), raw_listener("two", "10.96.0.2", 32)];
        let all = snapshot(&raw(&listeners, "10.244.0.1"));
        let (one, two) = (any::<NodeListener>(&all, "one"), any::<NodeListener>(&all, "two"));
        let mut server = AdsServer::speaking(protocol);
        let mut agent = Agent::new(server.address(), protocol);
        server.next_stream().await;
        let both = || [("one", one.clone()), ("two", two.clone())];
        server.tell::<NodeListener>("l1", both());
        server.tell::<NodeCluster>("c1", [("c", any::<NodeCluster>(&all, "c"))]);
        // The agent reads on only while its batches are taken.
        let asked = async |server: &mut AdsServer| loop {
            let asked = server.next_asked().await;
            if asked.type_url == NodeEndpoints::TYPE_URL {
                return asked;
            }
        };
        let names = tokio::select! {
            asked = asked(&mut server) => asked.names,
            () = async { loop { assert_eq!(agent.next().await, [], "nothing is told before all is known") } } => vec![],
        };
        assert_eq!(names, ["c"]);
        server.tell::<NodeEndpoints>("e1", [("c", any::<NodeEndpoints>(&all, "c"))]);
        let route = "(xds)/c\n  -> 10.244.0.1:80 weight 1\n";
        let (first, second) = (format!("10.96.0.1:80/TCP {route}"), format!("10.96.0.2:80/TCP {route}"));
        agent.until(&format!("{first}{second}")).await;

        server.close_stream(tonic_unavailable());
        server.next_stream().await;
        let again = loop {
            let asked = server.next_asked().await;
            if asked.type_url == NodeListener::TYPE_URL {
                break asked;
            }
        };
        assert!(again.held.values().any(|version| version == "l1"), "{again:?}");
        let said = Said::without::<NodeListener>(protocol, "l2", "l2", "one", [("two", two.clone())]);
        server.send(said);
        let changes = agent.until(&second).await;
        assert_eq!(changes.len(), 1, "{changes:?}");
    })
    .await;
}

fn tonic_unavailable() -> tonic::Status {
    tonic::Status::unavailable("gone for a moment")
}

/// The client is shared with load reports, which go to the same server.
#[tokio::test]
async fn the_client_can_be_shared() {
    let plane = serve("services: []").await;
    let agent = Agent::new(plane.listen_addr(), Protocol::Delta);
    let (client, server) = (agent.source.client(), agent.source.server().cloned());
    assert_eq!(client.node().user_agent_name, "crowfly-node");
    assert_eq!(server.unwrap().uri, plane.listen_addr().to_string());
    plane.shutdown().await;
}
