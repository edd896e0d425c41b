//! Tests of times to live and heartbeats, as the server half sends them (xDS protocol: TTL). A
//! client forgets a resource that is not renewed in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_xds::{
    DeltaSubscription, Response, ServerHalf, Snapshot, SnapshotResource, StreamSettings,
    Subscription, WRAPPER_TYPE_URL,
};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status;
use prost::Message;

const TTL: Duration = Duration::from_secs(10);

/// A client that understands the time to live is sent it with the resource, and a heartbeat after
/// half of it, without the body: over and over, as long as it answers.
#[test]
fn resource_is_renewed_after_half_of_its_time() {
    let start = Instant::now();
    let mut sotw = Stream::<Subscription>::open("envoy", &served(), start);
    sotw.ask(Endpoints::TYPE_URL);
    let mut delta = Stream::<DeltaSubscription>::open("envoy", &served(), start);
    delta.ask(Endpoints::TYPE_URL);

    let first = sotw.wrappers();
    assert_eq!(first.len(), 1, "the mortal one is wrapped");
    check(&first[0], true);
    let version = sotw.version.clone();
    check(&delta.wrappers()[0], true);

    for beat in 1..4 {
        let due = start + TTL / 2 * beat;
        assert_eq!(sotw.half.next_timeout(), Some(due));
        assert_eq!(delta.half.next_timeout(), Some(due));
        sotw.at(due - Duration::from_millis(1));
        assert!(sotw.half.poll_response().is_none(), "not yet");
        sotw.at(due);
        delta.at(due);
        let beats = sotw.wrappers();
        check(&beats[0], false);
        assert_eq!(
            beats[0].version, version,
            "the version of the response that it renews"
        );
        let beats = delta.wrappers();
        check(&beats[0], false);
        assert_eq!(*beats[0].version, *mortal().version);
        assert!(delta.half.poll_response().is_none());
    }
}

/// A client that does not understand it is sent the resource as any other, and no heartbeats.
#[test]
fn others_are_sent_no_time_and_no_heartbeats() {
    let start = Instant::now();
    let mut sotw = Stream::<Subscription>::open("gRPC C-core", &served(), start);
    sotw.ask(Endpoints::TYPE_URL);
    assert_eq!(sotw.wrappers(), []);
    assert_eq!(sotw.half.next_timeout(), None);
    let mut delta = Stream::<DeltaSubscription>::open("gRPC C-core", &served(), start);
    delta.ask(Endpoints::TYPE_URL);
    assert!(delta.wrappers().iter().all(|wrapper| wrapper.ttl.is_none()));
    delta.at(start + TTL);
    assert!(delta.half.poll_response().is_none());
}

/// Clusters are renewed by the whole state, because absence would delete them.
#[test]
fn full_state_is_renewed_whole() {
    let start = Instant::now();
    let mut sotw = Stream::<Subscription>::open("envoy", &served(), start);
    sotw.ask(Cluster::TYPE_URL);
    assert_eq!(sotw.next().resources.len(), 2);
    sotw.at(start + TTL / 2);
    let renewed = sotw.next();
    assert_eq!(renewed.resources.len(), 2);
    assert!(sotw.half.poll_response().is_none());
}

/// A client that comes back with the newest version is sent a heartbeat at once, because nobody
/// knows how much of the time has passed.
#[test]
fn reconnect_renews_at_once() {
    let start = Instant::now();
    let mut delta = Stream::<DeltaSubscription>::open("envoy", &served(), start);
    let has = ("mortal".to_owned(), mortal().version.to_string());
    delta.half.handle_request(DeltaDiscoveryRequest {
        node: node("envoy"),
        type_url: Endpoints::TYPE_URL.to_owned(),
        resource_names_subscribe: vec!["mortal".to_owned()],
        initial_resource_versions: [has].into(),
        ..DeltaDiscoveryRequest::default()
    });
    check(&delta.wrappers()[0], false);
}

/// By state of the world a reconnect brings everything, and with it new times.
#[test]
fn reconnect_by_state_of_the_world_renews_at_once() {
    let start = Instant::now();
    let snapshot = served();
    let mut sotw = Stream::<Subscription>::open("envoy", &snapshot, start);
    sotw.half.handle_request(DiscoveryRequest {
        node: node("envoy"),
        type_url: Cluster::TYPE_URL.to_owned(),
        version_info: snapshot.version_of(Cluster::TYPE_URL).to_owned(),
        ..DiscoveryRequest::default()
    });
    assert_eq!(sotw.next().resources.len(), 2);
    assert!(sotw.half.poll_response().is_none());
    assert_eq!(sotw.half.next_timeout(), Some(start + TTL / 2));
}

/// P-05: a version that was refused is not renewed, in either variant, until the client accepts another.
#[test]
fn what_was_refused_is_not_renewed() {
    for type_url in [Cluster::TYPE_URL, Endpoints::TYPE_URL] {
        let start = Instant::now();
        let mut sotw = Stream::<Subscription>::open("envoy", &served(), start);
        sotw.ask(type_url);
        sotw.refuse();
        let mut delta = Stream::<DeltaSubscription>::open("envoy", &served(), start);
        delta.ask(type_url);
        let nonce = delta.respond().nonce().to_owned();
        delta.answer(type_url, &nonce, Some(Status::default()));

        sotw.at(start + TTL);
        delta.at(start + TTL);
        assert!(sotw.half.poll_response().is_none(), "{type_url}");
        assert!(delta.half.poll_response().is_none(), "{type_url}");
        assert_eq!(
            (sotw.half.next_timeout(), delta.half.next_timeout()),
            (None, None)
        );

        sotw.half.handle_snapshot(changed());
        delta.half.handle_snapshot(changed());
        sotw.next();
        let nonce = delta.respond().nonce().to_owned();
        delta.answer(type_url, &nonce, None);
        sotw.at(start + TTL * 2);
        delta.at(start + TTL * 2);
        assert!(sotw.half.poll_response().is_some(), "{type_url}");
        assert!(delta.half.poll_response().is_some(), "{type_url}");
    }
}

/// P-05: a client that changes its names after a refusal repeats the nonce of what it refused, and accepts nothing.
#[test]
fn changed_names_accept_nothing_that_was_refused() {
    for type_url in [Cluster::TYPE_URL, Endpoints::TYPE_URL] {
        let start = Instant::now();
        let mut sotw = Stream::<Subscription>::open("envoy", &served(), start);
        sotw.ask(type_url);
        let refused = sotw.refuse();
        sotw.answer(&refused, &["mortal"], None);
        sotw.at(start + TTL);
        assert!(sotw.half.poll_response().is_none(), "{type_url}");
    }
}

/// A refusal of one resource leaves others that the client accepted alive, in either variant.
#[test]
fn what_was_accepted_beside_a_refusal_is_renewed() {
    let start = Instant::now();
    let with_second = |port: u16| {
        let address = format!("10.0.0.1:{port}");
        let any = endpoints("second").locality("z", 1, [&*address]).any();
        let mut builder = served().to_builder();
        builder.put(
            "second",
            Arc::new(SnapshotResource::new(any, false).with_ttl(TTL)),
        );
        Arc::new(builder.build())
    };

    let mut sotw = Stream::<Subscription>::open("envoy", &served(), start);
    sotw.ask(Endpoints::TYPE_URL);
    check(&sotw.wrappers()[0], true);
    let accepted = sotw.version.clone();
    sotw.half.handle_snapshot(with_second(1));
    assert_ne!(sotw.refuse().version_info, accepted);
    for beat in 2..5 {
        sotw.at(start + TTL / 2 * beat);
        let renewed = sotw.wrappers();
        assert_eq!(renewed.len(), 1);
        check(&renewed[0], false);
        assert_eq!((&renewed[0].version, &sotw.version), (&accepted, &accepted));
        assert!(sotw.half.poll_response().is_none());
    }
    sotw.half.handle_snapshot(with_second(2));
    let next = sotw.next();
    sotw.at(start + TTL * 3);
    let renewed = sotw.wrappers();
    assert_eq!(renewed.len(), 2);
    assert!(renewed.iter().all(|of| of.version == next.version_info));

    let mut delta = Stream::<DeltaSubscription>::open("envoy", &served(), start);
    delta.ask(Endpoints::TYPE_URL);
    let nonce = delta.respond().nonce().to_owned();
    delta.answer(Endpoints::TYPE_URL, &nonce, None);
    delta.half.handle_snapshot(with_second(1));
    let nonce = delta.respond().nonce().to_owned();
    delta.answer(Endpoints::TYPE_URL, &nonce, Some(Status::default()));
    delta.at(start + TTL);
    let renewed = delta.wrappers();
    assert_eq!(renewed.len(), 1);
    check(&renewed[0], false);
}

/// Another time to live is a change: the resource is sent again.
#[test]
fn changed_time_is_sent() {
    let again = SnapshotResource::new(mortal().any, false);
    assert_ne!(again.version, mortal().version);
    assert_ne!(again.with_ttl(TTL * 2).version, mortal().version);
}

fn check(wrapper: &Resource, has_body: bool) {
    assert_eq!(wrapper.name, "mortal");
    assert_eq!(wrapper.ttl.unwrap().seconds, 10);
    assert_eq!(wrapper.resource.is_some(), has_body);
}

fn mortal() -> SnapshotResource {
    let any = endpoints("mortal").locality("z", 1, ["10.0.0.1:1"]).any();
    SnapshotResource::new(any, false).with_ttl(TTL)
}

/// Endpoints and clusters: one of each with a time to live, and one without.
fn served() -> Arc<Snapshot> {
    let mut builder = Snapshot::builder();
    builder.put("mortal", Arc::new(mortal()));
    builder.set("other", endpoints("other").any());
    let mortal_cluster = SnapshotResource::new(cluster("mortal").any(), false).with_ttl(TTL);
    builder.put("mortal", Arc::new(mortal_cluster));
    builder.set("other", cluster("other").any());
    Arc::new(builder.build())
}

/// The same with another version of what has a time to live.
fn changed() -> Arc<Snapshot> {
    let mut builder = served().to_builder();
    let any = endpoints("mortal").locality("z", 1, ["10.0.0.1:2"]).any();
    let mortal = SnapshotResource::new(any, false).with_ttl(TTL);
    builder.put("mortal", Arc::new(mortal));
    let any = cluster("mortal").eds("other").any();
    let mortal = SnapshotResource::new(any, false).with_ttl(TTL);
    builder.put("mortal", Arc::new(mortal));
    Arc::new(builder.build())
}

fn node(agent: &str) -> Option<Node> {
    Some(Node {
        user_agent_name: agent.to_owned(),
        ..Node::default()
    })
}

struct Stream<H> {
    half: H,
    agent: String,
    version: String,
}

impl<H: ServerHalf> Stream<H> {
    fn open(agent: &str, snapshot: &Arc<Snapshot>, now: Instant) -> Self {
        let settings = Arc::new(StreamSettings::default());
        let mut half = H::new(Arc::clone(snapshot), settings);
        half.handle_time(now);
        Self {
            half,
            agent: agent.to_owned(),
            version: String::new(),
        }
    }

    fn at(&mut self, now: Instant) {
        self.half.handle_time(now);
    }

    fn respond(&mut self) -> Response {
        self.half.poll_response().expect("a response is due")
    }
}

impl Stream<Subscription> {
    fn ask(&mut self, type_url: &str) {
        self.half.handle_request(DiscoveryRequest {
            node: node(&self.agent),
            type_url: type_url.to_owned(),
            ..DiscoveryRequest::default()
        });
    }

    fn next(&mut self) -> DiscoveryResponse {
        let response: DiscoveryResponse = self.respond().to_message().unwrap();
        self.version.clone_from(&response.version_info);
        self.answer(&response, &[], None);
        response
    }

    /// Refuses the next response.
    fn refuse(&mut self) -> DiscoveryResponse {
        let response = self.respond().to_message().unwrap();
        self.answer(&response, &[], Some(Status::default()));
        response
    }

    /// Answers a response with the version that the client accepted last.
    fn answer(&mut self, to: &DiscoveryResponse, names: &[&str], error_detail: Option<Status>) {
        self.half.handle_request(DiscoveryRequest {
            type_url: to.type_url.clone(),
            resource_names: names.iter().map(ToString::to_string).collect(),
            version_info: self.version.clone(),
            response_nonce: to.nonce.clone(),
            error_detail,
            ..DiscoveryRequest::default()
        });
    }

    /// The wrapped resources of the next response.
    fn wrappers(&mut self) -> Vec<Resource> {
        let resources = self.next().resources;
        let wrapped = |any: &&Any| any.type_url == WRAPPER_TYPE_URL;
        let wrapped = resources.iter().filter(wrapped);
        wrapped
            .map(|any| Resource::decode(any.value.as_slice()).unwrap())
            .collect()
    }
}

impl Stream<DeltaSubscription> {
    fn ask(&mut self, type_url: &str) {
        self.half.handle_request(DeltaDiscoveryRequest {
            node: node(&self.agent),
            type_url: type_url.to_owned(),
            ..DeltaDiscoveryRequest::default()
        });
    }

    fn answer(&mut self, type_url: &str, nonce: &str, error_detail: Option<Status>) {
        self.half.handle_request(DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail,
            ..DeltaDiscoveryRequest::default()
        });
    }

    fn wrappers(&mut self) -> Vec<Resource> {
        let response: DeltaDiscoveryResponse = self.respond().to_message().unwrap();
        response.resources
    }
}
