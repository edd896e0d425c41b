//! Tests of the record of a stream, with both variants of the protocol. The tests set the clock,
//! because pages show times.

mod held;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crowfly_xds::{
    DeltaSubscription, Response, ServerHalf, Snapshot, StreamSettings, Subscription,
};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status;

use super::answers::{Answers, Since};
use super::ledger::Ledger;
use super::rows::{self, Clock, Row};
use super::view::{State, TypeView};
use crate::metrics::Metrics;

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A request that both variants have.
trait Ask: ServerHalf {
    fn ask(
        type_url: &str,
        names: &[&str],
        answer: Option<(&Response, Option<&str>)>,
    ) -> Self::Request;
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn error(reason: Option<&str>) -> Option<Status> {
    let message = reason?.to_owned();
    Some(Status {
        message,
        ..Status::default()
    })
}

impl Ask for Subscription {
    fn ask(
        type_url: &str,
        names: &[&str],
        answer: Option<(&Response, Option<&str>)>,
    ) -> DiscoveryRequest {
        let version = answer.filter(|(_, reason)| reason.is_none());
        DiscoveryRequest {
            type_url: type_url.to_owned(),
            resource_names: owned(names),
            response_nonce: answer
                .map(|(of, _)| of.nonce().to_owned())
                .unwrap_or_default(),
            version_info: version
                .map(|(of, _)| of.version().to_owned())
                .unwrap_or_default(),
            error_detail: answer.and_then(|(_, reason)| error(reason)),
            ..DiscoveryRequest::default()
        }
    }
}

impl Ask for DeltaSubscription {
    fn ask(
        type_url: &str,
        names: &[&str],
        answer: Option<(&Response, Option<&str>)>,
    ) -> DeltaDiscoveryRequest {
        let subscribe = if answer.is_some() {
            Vec::new()
        } else {
            owned(names)
        };
        DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            resource_names_subscribe: subscribe,
            response_nonce: answer
                .map(|(of, _)| of.nonce().to_owned())
                .unwrap_or_default(),
            error_detail: answer.and_then(|(_, reason)| error(reason)),
            ..DeltaDiscoveryRequest::default()
        }
    }
}

/// One stream, its record, and a clock.
struct World<H> {
    half: H,
    ledger: Ledger,
    metrics: Metrics,
    start: Instant,
    now: Instant,
    names: Vec<&'static str>,
}

/// Resources of one type; each has a content of its own.
fn snapshot(type_url: &str, resources: &[(&str, u8)]) -> Arc<Snapshot> {
    let mut builder = Snapshot::builder();
    for (name, content) in resources {
        let value = vec![*content];
        let type_url = type_url.to_owned();
        builder.set(*name, Any { type_url, value });
    }
    Arc::new(builder.build())
}

impl<H: Ask> World<H> {
    fn new(served: Arc<Snapshot>) -> Self {
        let metrics = Metrics::default();
        let now = Instant::now();
        Self {
            half: H::new(served, Arc::new(StreamSettings::default())),
            ledger: Ledger::new(metrics.clone()),
            metrics,
            start: now,
            now,
            names: Vec::new(),
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn request(&mut self, request: H::Request) {
        self.half.handle_time(self.now);
        let nonce = H::nonce_in(&request).to_owned();
        let outcome = self.half.handle_request(request);
        self.ledger.received(&outcome, &nonce, &self.half, self.now);
    }

    fn subscribe(&mut self, type_url: &str, names: &[&'static str]) {
        self.names = names.to_vec();
        self.request(H::ask(type_url, names, None));
    }

    fn publish(&mut self, served: Arc<Snapshot>) {
        self.half.handle_snapshot(served);
        self.ledger.changed(&self.half, self.now);
    }

    fn poll(&mut self) -> Option<Response> {
        let response = self.half.poll_response();
        match &response {
            Some(response) => {
                let size = response.encoded_len();
                self.ledger.sent(response, size, &self.half, self.now);
            }
            None => self.ledger.look(&self.half, Since::Request(self.now)),
        }
        response
    }

    fn ack(&mut self, response: &Response) {
        let names = self.names.clone();
        self.request(H::ask(response.type_url(), &names, Some((response, None))));
    }

    fn nack(&mut self, response: &Response, reason: &str) {
        let names = self.names.clone();
        self.request(H::ask(
            response.type_url(),
            &names,
            Some((response, Some(reason))),
        ));
    }

    fn clock(&self) -> Clock {
        Clock {
            monotonic: self.now,
            wall: SystemTime::UNIX_EPOCH + (self.now - self.start),
        }
    }

    fn answers(&self, type_url: &str) -> &Answers {
        let mut types = self.ledger.types();
        types.find(|(url, _)| *url == type_url).unwrap().1
    }

    fn rows(&self, type_url: &str) -> Vec<Row> {
        rows::of_resources(&self.half, type_url, self.answers(type_url), self.clock())
    }

    fn row(&self, type_url: &str, name: &str) -> Row {
        let rows = self.rows(type_url).into_iter();
        let mut rows = rows.filter(|row| &*row.name == name);
        rows.next().unwrap()
    }

    fn of_type(&self, type_url: &str) -> TypeView {
        rows::of_type(&self.half, type_url, self.answers(type_url), self.clock())
    }

    fn counted(&self, line: &str) -> bool {
        let loads = crate::loads::Loads::default();
        let text = self.metrics.encode(&loads).unwrap();
        text.lines().any(|l| l == line)
    }
}

/// The time of a row, in seconds since the test began.
fn sent_at(row: &Row) -> Option<u64> {
    row.sent_at.map(super::unix)
}

/// F-01: a resource waits, is sent and is accepted, each with its version, its time and its lag.
#[test]
fn a_change_is_followed_to_its_ack() {
    follow_a_change::<Subscription>();
    follow_a_change::<DeltaSubscription>();
}

/// F-02: a refused version is shown with reason and time, next to the one that the client has.
#[test]
fn a_refusal_is_shown() {
    refuse::<Subscription>();
    refuse::<DeltaSubscription>();
}

/// F-02: a refusal ends when another version is accepted, and when the resource goes.
#[test]
fn a_refusal_ends() {
    end_of_a_refusal::<Subscription>();
    end_of_a_refusal::<DeltaSubscription>();
}

/// F-04: a reason that names no resource is about one of those in the response.
#[test]
fn one_of_many_is_refused() {
    refuse_one_of_many::<Subscription>();
    refuse_one_of_many::<DeltaSubscription>();
}

/// F-05: the answers of an idle client of everything take no memory for each of the names.
#[test]
fn an_idle_wildcard_is_small() {
    idle_wildcard::<Subscription>();
    idle_wildcard::<DeltaSubscription>();
}

/// F-03: a name that does not exist is shown as missing, and does not lag.
#[test]
fn a_missing_name_does_not_lag() {
    missing_name::<Subscription>();
    missing_name::<DeltaSubscription>();
}

fn follow_a_change<H: Ask>() {
    let first = snapshot(ENDPOINTS, &[("a", 1), ("b", 1)]);
    let version = |served: &Snapshot, name: &str| {
        let resource = served.resource(ENDPOINTS, name).unwrap();
        Some(Arc::clone(&resource.version))
    };
    let mut world = World::<H>::new(first.clone());
    world.subscribe(ENDPOINTS, &["a", "b"]);
    assert_eq!(world.row(ENDPOINTS, "a").state, State::Waiting);
    assert_eq!(world.row(ENDPOINTS, "a").sent, None);
    world.pass(1);
    let response = world.poll().unwrap();
    assert!(world.poll().is_none());
    let row = world.row(ENDPOINTS, "a");
    assert_eq!((row.state, sent_at(&row)), (State::Sent, Some(1)));
    assert_eq!(row.sent, version(&first, "a"));
    assert_eq!((row.acked, row.lag_seconds), (None, Some(1.0)));
    world.ack(&response);
    let row = world.row(ENDPOINTS, "a");
    assert_eq!((row.state, row.lag_seconds), (State::Acked, None));
    assert_eq!(row.acked, version(&first, "a"));

    let second = snapshot(ENDPOINTS, &[("a", 2), ("b", 1)]);
    world.publish(second.clone());
    world.pass(2);
    let row = world.row(ENDPOINTS, "a");
    assert_eq!((row.state, row.lag_seconds), (State::Waiting, Some(2.0)));
    assert_eq!(row.sent, version(&first, "a"));
    let response = world.poll().unwrap();
    assert!(world.poll().is_none());
    world.pass(3);
    let row = world.row(ENDPOINTS, "a");
    assert_eq!((row.state, row.lag_seconds), (State::Sent, Some(5.0)));
    assert_eq!(row.sent, version(&second, "a"));
    assert_eq!(row.acked, version(&first, "a"));
    assert_eq!(world.row(ENDPOINTS, "b").state, State::Acked);
    let of = world.of_type(ENDPOINTS);
    assert_eq!((of.state, of.unanswered), (State::Sent, 1));
    assert_eq!(of.lag_seconds, Some(5.0));
    world.ack(&response);
    let of = world.of_type(ENDPOINTS);
    assert_eq!((of.state, of.lag_seconds), (State::Acked, None));
    assert_eq!((of.resources, of.refused), (2, 0));

    // The first response was asked for, so only the second one is a change.
    let label = "type=\"envoy.config.endpoint.v3.ClusterLoadAssignment\"";
    assert!(world.counted(&format!(
        "crowfly_control_convergence_seconds_sum{{{label}}} 5.0"
    )));
    assert!(world.counted(&format!(
        "crowfly_control_convergence_seconds_count{{{label}}} 1"
    )));
    assert!(world.counted(&format!("crowfly_control_push_seconds_sum{{{label}}} 2.0")));
    assert!(world.counted(&format!("crowfly_control_acks_total{{{label}}} 2")));
}

fn refuse<H: Ask>() {
    let first = snapshot(CLUSTERS, &[("a", 1), ("b", 1)]);
    let mut world = World::<H>::new(first);
    world.subscribe(CLUSTERS, &["a", "b"]);
    let response = world.poll().unwrap();
    world.ack(&response);
    let accepted = world.row(CLUSTERS, "a").acked;
    assert!(accepted.is_some());

    let second = snapshot(CLUSTERS, &[("a", 2), ("b", 2)]);
    world.publish(second.clone());
    world.pass(7);
    let response = world.poll().unwrap();
    world.nack(&response, "cluster a: no such policy");
    assert!(world.poll().is_none(), "it is not sent again");
    world.pass(1);
    let row = world.row(CLUSTERS, "a");
    assert_eq!((row.state, row.lag_seconds), (State::Nacked, Some(8.0)));
    assert_eq!(row.acked, accepted);
    let refusal = row.refusal.unwrap();
    assert_eq!(
        refusal.version,
        second.resource(CLUSTERS, "a").unwrap().version
    );
    assert_eq!(refusal.reason, "cluster a: no such policy");
    assert_eq!((super::unix(refusal.at), refusal.one_of), (7, 1));
    assert_eq!(world.row(CLUSTERS, "b").state, State::Acked);
    let of = world.of_type(CLUSTERS);
    assert_eq!((of.state, of.refused), (State::Nacked, 1));
    assert_eq!(of.last_nack.unwrap().message, "cluster a: no such policy");
    let label = "type=\"envoy.config.cluster.v3.Cluster\"";
    assert!(world.counted(&format!("crowfly_control_clients_refusing{{{label}}} 1")));
    let World {
        metrics, ledger, ..
    } = world;
    drop(ledger);
    let text = metrics.encode(&crate::loads::Loads::default()).unwrap();
    assert!(text.contains(&format!("crowfly_control_clients_refusing{{{label}}} 0\n")));
}

fn end_of_a_refusal<H: Ask>() {
    let mut world = World::<H>::new(snapshot(ENDPOINTS, &[("a", 1), ("b", 1)]));
    world.subscribe(ENDPOINTS, &["a", "b"]);
    let response = world.poll().unwrap();
    world.nack(&response, "a and b are bad");
    assert_eq!(world.of_type(ENDPOINTS).refused, 2);

    let good = snapshot(ENDPOINTS, &[("a", 2), ("b", 1)]);
    world.publish(good);
    let response = world.poll().unwrap();
    let row = world.row(ENDPOINTS, "a");
    assert_eq!(
        (row.state, row.acked),
        (State::Sent, None),
        "the old one was refused"
    );
    assert!(row.refusal.is_some());
    world.ack(&response);
    assert_eq!(world.row(ENDPOINTS, "a").state, State::Acked);
    assert_eq!(world.row(ENDPOINTS, "b").state, State::Nacked);

    world.publish(snapshot(ENDPOINTS, &[("a", 2)]));
    while let Some(response) = world.poll() {
        world.ack(&response);
    }
    assert_eq!(world.of_type(ENDPOINTS).refused, 0);
    assert_eq!(world.row(ENDPOINTS, "b").state, State::Missing);
}

fn refuse_one_of_many<H: Ask>() {
    let mut world = World::<H>::new(snapshot(CLUSTERS, &[("a", 1), ("b", 1), ("c", 1)]));
    world.subscribe(CLUSTERS, &["a", "b", "c"]);
    let response = world.poll().unwrap();
    world.ack(&response);
    world.publish(snapshot(CLUSTERS, &[("a", 2), ("b", 2), ("c", 1)]));
    let response = world.poll().unwrap();
    world.nack(&response, "no");
    for (name, state) in [
        ("a", State::Nacked),
        ("b", State::Nacked),
        ("c", State::Acked),
    ] {
        let row = world.row(CLUSTERS, name);
        assert_eq!(row.state, state, "{name}");
        let one_of = row.refusal.map(|refusal| refusal.one_of);
        assert_eq!(one_of, (state == State::Nacked).then_some(2));
    }
}

fn idle_wildcard<H: Ask>() {
    let names: Vec<String> = (0..5000).map(|number| format!("r{number}")).collect();
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut world = World::<H>::new(snapshot(CLUSTERS, &resources));
    world.subscribe(CLUSTERS, &["*"]);
    world.names = vec!["*"];
    let response = world.poll().unwrap();
    assert_eq!(world.of_type(CLUSTERS).unanswered, 5000);
    world.ack(&response);
    assert!(world.poll().is_none());
    let answers = world.answers(CLUSTERS);
    assert!(answers.unanswered.is_empty());
    assert!(answers.refused.is_empty());
    assert!(size_of::<Answers>() <= 200, "{}", size_of::<Answers>());
    assert_eq!(world.rows(CLUSTERS).len(), 5000);
    assert_eq!(sent_at(&world.row(CLUSTERS, "r77")), Some(0));

    // A refusal of so many that names none marks all of them, and is kept once.
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
    world.publish(snapshot(CLUSTERS, &resources));
    let response = world.poll().unwrap();
    world.nack(&response, "no");
    assert!(world.answers(CLUSTERS).refused.all().next().is_none());
    assert_eq!(world.of_type(CLUSTERS).refused, 5000);
    let row = world.row(CLUSTERS, "r77");
    assert_eq!(
        (row.state, row.refusal.unwrap().one_of),
        (State::Nacked, 5000)
    );
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), 3)).collect();
    world.publish(snapshot(CLUSTERS, &resources));
    let response = world.poll().unwrap();
    world.ack(&response);
    assert_eq!(world.of_type(CLUSTERS).state, State::Acked);
}

fn missing_name<H: Ask>() {
    let mut world = World::<H>::new(snapshot(ENDPOINTS, &[]));
    world.subscribe(ENDPOINTS, &["a"]);
    while let Some(response) = world.poll() {
        world.ack(&response);
    }
    world.pass(9);
    let row = world.row(ENDPOINTS, "a");
    assert_eq!((row.state, row.lag_seconds), (State::Missing, None));
    let of = world.of_type(ENDPOINTS);
    assert_eq!((of.lag_seconds, of.resources), (None, 1));
    world.publish(snapshot(ENDPOINTS, &[("a", 1)]));
    assert_eq!(world.row(ENDPOINTS, "a").state, State::Waiting);
}

/// F-02: an unsubscribed resource is no longer refused.
#[test]
fn what_is_no_longer_wanted_is_no_longer_refused() {
    let mut world = World::<Subscription>::new(snapshot(ENDPOINTS, &[("a", 1), ("b", 1)]));
    world.subscribe(ENDPOINTS, &["a", "b"]);
    let response = world.poll().unwrap();
    world.nack(&response, "a is bad");
    assert_eq!(world.of_type(ENDPOINTS).refused, 1);
    world.names = vec!["b"];
    world.ack(&response);
    assert!(world.poll().is_none());
    let of = world.of_type(ENDPOINTS);
    assert_eq!((of.state, of.refused), (State::Acked, 0));
    assert_eq!(of.last_nack.unwrap().message, "a is bad");
}

/// F-02: each of many resources is refused until another version of it is accepted, or the client does not want it.
#[test]
fn a_refusal_of_many_ends_for_each_alone() {
    let names: Vec<String> = (0..2000).map(|number| format!("r{number}")).collect();
    let served = |fixed: &[&str]| {
        let version = |name: &str| if fixed.contains(&name) { 2 } else { 1 };
        let resources = names.iter().map(|name| (name.as_str(), version(name)));
        snapshot(ENDPOINTS, &resources.collect::<Vec<_>>())
    };
    let mut world = World::<DeltaSubscription>::new(served(&[]));
    world.request(DeltaDiscoveryRequest {
        type_url: ENDPOINTS.to_owned(),
        resource_names_subscribe: names.clone(),
        ..DeltaDiscoveryRequest::default()
    });
    let response = world.poll().unwrap();
    world.nack(&response, "no");
    assert_eq!(world.of_type(ENDPOINTS).refused, 2000);

    world.publish(served(&["r7"]));
    let response = world.poll().unwrap();
    world.ack(&response);
    assert_eq!(world.row(ENDPOINTS, "r7").state, State::Acked);
    assert_eq!(world.row(ENDPOINTS, "r8").state, State::Nacked);
    assert_eq!(world.of_type(ENDPOINTS).refused, 1999);

    world.publish(served(&["r7", "r8"]));
    let response = world.poll().unwrap();
    world.nack(&response, "r8 is bad still");
    let refused = world.row(ENDPOINTS, "r8").refusal.unwrap();
    assert_eq!(refused.reason, "r8 is bad still");
    assert_eq!(world.of_type(ENDPOINTS).refused, 1999, "r8 counts once");

    world.request(DeltaDiscoveryRequest {
        type_url: ENDPOINTS.to_owned(),
        resource_names_unsubscribe: names[9..].to_vec(),
        ..DeltaDiscoveryRequest::default()
    });
    assert_eq!(world.of_type(ENDPOINTS).refused, 8);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    world.publish(served(&names));
    let response = world.poll().unwrap();
    world.ack(&response);
    let of = world.of_type(ENDPOINTS);
    // The server half does not send r7 and r8 again, of which the second is refused.
    assert_eq!((of.state, of.refused), (State::Nacked, 1));
}

/// Names that are sent while many are unanswered take time in proportion to their number. Two lists
/// of this length have a billion pairs.
#[test]
fn many_unanswered_names_are_not_compared_with_each_other() {
    let names: Vec<String> = (0..32_768).map(|number| format!("r{number}")).collect();
    let served = |version| {
        let resources = names.iter().map(|name| (name.as_str(), version));
        snapshot(ENDPOINTS, &resources.collect::<Vec<_>>())
    };
    let mut world = World::<DeltaSubscription>::new(served(1));
    world.request(DeltaDiscoveryRequest {
        type_url: ENDPOINTS.to_owned(),
        resource_names_subscribe: names.clone(),
        ..DeltaDiscoveryRequest::default()
    });
    let first = world.poll().unwrap();
    world.ack(&first);
    let accepted = world.row(ENDPOINTS, "r7").acked.unwrap();
    world.publish(served(2));
    world.poll().unwrap();
    world.publish(served(3));
    let started = Instant::now();
    world.poll().unwrap();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(world.row(ENDPOINTS, "r7").acked, Some(accepted));
}

/// F-01: the lag of a type is that of its oldest change, whichever resource that is of.
#[test]
fn the_oldest_change_is_the_lag_of_a_type() {
    oldest_change::<Subscription>();
    oldest_change::<DeltaSubscription>();
}

fn oldest_change<H: Ask>() {
    let mut world = World::<H>::new(snapshot(ENDPOINTS, &[("a", 1), ("b", 1)]));
    world.subscribe(ENDPOINTS, &["a", "b"]);
    let response = world.poll().unwrap();
    world.ack(&response);
    world.publish(snapshot(ENDPOINTS, &[("a", 2), ("b", 1)]));
    let response = world.poll().unwrap();
    world.nack(&response, "a is bad");
    world.pass(5);
    world.publish(snapshot(ENDPOINTS, &[("a", 2), ("b", 2)]));
    world.pass(1);
    assert_eq!(world.row(ENDPOINTS, "b").lag_seconds, Some(1.0));
    assert_eq!(world.of_type(ENDPOINTS).lag_seconds, Some(6.0));
}
