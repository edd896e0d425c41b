//! Runs the client half and the server half against each other. In the end the client must hold
//! what the server has, whatever was lost or late.

use std::collections::BTreeSet;
use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_model::{Features, ResourceType};
use crowfly_testkit::builders::{Resource, Resources, cluster, endpoints, listener, routes};
use crowfly_testkit::{Pair, over_both};
use crowfly_xds::{Key, Protocol, RequestOutcome, Snapshot, TroubleReason};
use proptest::collection::vec;
use proptest::prelude::*;

/// More than any exchange of these tests needs for one change.
const LIMIT: usize = 100;

const NAMES: [&str; 3] = ["a", "b", "c"];
const TYPES: [&str; 4] = [
    Cluster::TYPE_URL,
    Endpoints::TYPE_URL,
    Listener::TYPE_URL,
    RouteConfig::TYPE_URL,
];

/// A client is sent what it asks for, and says that it has it.
#[test]
fn client_gets_what_it_asks_for() {
    over_both(|protocol| {
        let snapshot = Resources::service("web", ["127.0.0.1:80"]).snapshot();
        let mut pair = Pair::new(protocol, snapshot.clone());

        pair.subscribe::<Listener>("web");
        pair.drive(LIMIT);

        let listener = pair.cache().read::<Listener>("web").unwrap().unwrap();
        assert_eq!(listener.name, "web");
        let version = snapshot.of(Listener::TYPE_URL).unwrap().version();
        assert_eq!(
            pair.last_outcome(Listener::TYPE_URL),
            Some(&RequestOutcome::Ack {
                type_url: Listener::TYPE_URL.to_owned(),
                version: version.to_owned()
            })
        );
        assert_eq!(pair.messages(), 3, "a request, a response and its ACK");
    });
}

/// A resource that the client refuses is refused once, and traffic stops there.
#[test]
fn refused_resource_is_not_fought_over() {
    over_both(|protocol| {
        let good = Resources::new().with(cluster("a"));
        let mut pair = Pair::new(protocol, good.snapshot());
        pair.subscribe::<Cluster>("a");
        pair.drive(LIMIT);
        let before = pair.messages();

        pair.set_snapshot(good.with(cluster("a").invalid()).snapshot());
        pair.drive(LIMIT);

        assert_eq!(pair.messages() - before, 2, "a response and its NACK");
        let outcome = pair.last_outcome(Cluster::TYPE_URL);
        assert!(
            matches!(outcome, Some(RequestOutcome::Nack { .. })),
            "{outcome:?}"
        );
        let entry = pair.cache().entry(&Key::of::<Cluster>("a")).unwrap();
        assert!(entry.has_value());
        assert!(matches!(
            entry.ambient().unwrap().reason,
            TroubleReason::Invalid(_)
        ));
    });
}

/// A server that goes away and comes back with news is caught up with.
#[test]
fn client_catches_up_with_a_server_that_was_away() {
    over_both(|protocol| {
        let before = Resources::new().with(endpoints("a"));
        let mut pair = Pair::new(protocol, before.snapshot());
        pair.subscribe::<Endpoints>("a");
        pair.drive(LIMIT);

        pair.set_reachable(false);
        pair.drive(LIMIT);
        let entry = pair.cache().entry(&Key::of::<Endpoints>("a")).unwrap();
        assert!(matches!(
            entry.ambient().unwrap().reason,
            TroubleReason::Connectivity(_)
        ));

        let news = endpoints("a").locality("z", 1, ["127.0.0.1:80"]);
        pair.set_snapshot(before.with(news).snapshot());
        pair.set_reachable(true);
        pair.advance(Duration::from_secs(2));
        pair.drive(LIMIT);

        let entry = pair.cache().entry(&Key::of::<Endpoints>("a")).unwrap();
        let value = entry.read::<Endpoints>().unwrap().unwrap();
        assert_eq!(value.priorities.len(), 1);
        assert_eq!(entry.ambient(), None);
    });
}

/// S1-22: a name that is given up and wanted again while an unrelated response is on its way is
/// sent again. The requests in between were void to the server, which must not believe that the
/// client still has the resource.
#[test]
fn name_that_left_and_returned_across_a_response_is_sent_again() {
    over_both(|protocol| {
        let resources = Resources::new().with(endpoints("a")).with(endpoints("b"));
        let mut pair = Pair::new(protocol, resources.snapshot());
        pair.subscribe::<Endpoints>("a");
        pair.subscribe::<Endpoints>("b");
        pair.drive(LIMIT);

        let news = endpoints("b").locality("z", 1, ["127.0.0.1:80"]);
        pair.set_snapshot(resources.with(news).snapshot());
        pair.unsubscribe::<Endpoints>("a");
        pair.confirm_send();
        pair.subscribe::<Endpoints>("a");
        pair.drive(LIMIT);

        let value = pair.cache().read::<Endpoints>("a");
        assert_eq!(value.unwrap().unwrap().name, "a");
    });
}

/// S1-22: a name that is given up and returns by a wildcard is sent again.
#[test]
fn name_that_left_and_returned_by_a_wildcard_is_sent_again() {
    over_both(|protocol| {
        let resources = Resources::new().with(endpoints("a"));
        let mut pair = Pair::new(protocol, resources.snapshot());
        pair.subscribe::<Cluster>("keeps the stream");
        pair.subscribe::<Endpoints>("a");
        pair.drive(LIMIT);

        pair.unsubscribe::<Endpoints>("a");
        let news = endpoints("a").locality("z", 1, ["127.0.0.1:80"]);
        pair.set_snapshot(resources.with(news).snapshot());
        pair.deliver_response();
        pair.subscribe_all::<Endpoints>();
        pair.drive(LIMIT);

        let value = pair.cache().read::<Endpoints>("a");
        assert_eq!(value.unwrap().unwrap().priorities.len(), 1);
    });
}

/// S1-22: the refusal of a name whose watch has just ended is known when the name is wanted again.
#[test]
fn refusal_of_a_name_that_left_and_returned_is_known() {
    over_both(|protocol| {
        let resources = Resources::new().with(endpoints("a").invalid());
        let mut pair = Pair::new(protocol, resources.snapshot());
        pair.subscribe::<Cluster>("b");
        pair.subscribe::<Endpoints>("a");
        pair.connect();
        while pair.confirm_send() | pair.deliver_request() {}
        pair.deliver_response();
        pair.unsubscribe::<Endpoints>("a");
        while pair.deliver_response() {}
        pair.subscribe::<Endpoints>("a");
        pair.drive(LIMIT);

        let error = pair.cache().read::<Endpoints>("a").unwrap().unwrap_err();
        assert!(matches!(error.reason, TroubleReason::Invalid(_)), "{error}");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Break,
    ConfirmSend,
    Connect,
    DeliverRequest,
    DeliverResponse,
    Reachable(bool),
    SetSnapshot(Contents),
    Subscribe(usize, &'static str),
    SubscribeAll(usize),
    Unsubscribe(usize, &'static str),
    UnsubscribeAll(usize),
}

/// Runs an expression with `$r` as the type at a position in [`TYPES`].
macro_rules! by_kind {
    ($kind:expr, $r:ident => $run:expr) => {
        match $kind {
            0 => {
                type $r = Cluster;
                $run
            }
            1 => {
                type $r = Endpoints;
                $run
            }
            2 => {
                type $r = Listener;
                $run
            }
            _ => {
                type $r = RouteConfig;
                $run
            }
        }
    };
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// After any history, once the network is whole and everything is delivered, the client holds
    /// exactly what it wants and the server has, has answered every response, and both are silent.
    #[test]
    fn client_and_server_agree_in_the_end(
        start in contents(),
        steps in vec(step(), 0..80),
        end in contents(),
    ) {
        History::new(Protocol::StateOfTheWorld, &start).ends_well(steps, &end)?;
    }

    /// By delta, after any history, the client holds exactly what it wants and the server has, and
    /// both are silent.
    #[test]
    fn client_and_server_agree_in_the_end_by_delta(
        start in contents(),
        steps in vec(step(), 0..80),
        end in contents(),
    ) {
        History::new(Protocol::Delta, &start).ends_well(steps, &end)?;
    }
}

/// A pair of halves, and what is wanted of it.
struct History {
    protocol: Protocol,
    pair: Pair,
    wanted: BTreeSet<Key>,
    whole: BTreeSet<usize>,
    was_whole: BTreeSet<usize>,
}

impl History {
    fn new(protocol: Protocol, start: &Contents) -> Self {
        Self {
            protocol,
            pair: Pair::new(protocol, start.snapshot()),
            wanted: BTreeSet::new(),
            whole: BTreeSet::new(),
            was_whole: BTreeSet::new(),
        }
    }

    fn ends_well(&mut self, steps: Vec<Step>, end: &Contents) -> Result<(), TestCaseError> {
        for step in steps {
            self.run(step);
        }
        self.pair.set_snapshot(end.snapshot());
        self.pair.set_reachable(true);
        self.pair.drive(LIMIT);
        // The longest wait for a stream, with its jitter, and then that for a resource.
        self.pair.advance(Duration::from_secs(144));
        self.pair.drive(LIMIT);
        self.pair.advance(Duration::from_secs(15));
        self.pair.drive(LIMIT);

        self.check_cache(&end.snapshot())?;
        for type_url in TYPES {
            self.check_answers(type_url)?;
        }
        let messages = self.pair.messages();
        self.pair.set_snapshot(end.snapshot());
        self.pair.advance(Duration::from_secs(3600));
        self.pair.drive(LIMIT);
        prop_assert_eq!(self.pair.messages(), messages, "nothing is left to say");
        Ok(())
    }

    fn run(&mut self, step: Step) {
        let pair = &mut self.pair;
        match step {
            Step::Advance(milliseconds) => pair.advance(Duration::from_millis(milliseconds)),
            Step::Break => pair.break_stream(),
            Step::ConfirmSend => drop(pair.confirm_send()),
            Step::Connect => drop(pair.connect()),
            Step::DeliverRequest => drop(pair.deliver_request()),
            Step::DeliverResponse => drop(pair.deliver_response()),
            Step::Reachable(reachable) => pair.set_reachable(reachable),
            Step::SetSnapshot(contents) => pair.set_snapshot(contents.snapshot()),
            Step::Subscribe(kind, name) => {
                if self.wanted.insert(key(kind, name)) {
                    by_kind!(kind, R => pair.subscribe::<R>(name));
                }
            }
            Step::SubscribeAll(kind) => {
                self.was_whole.insert(kind);
                if self.whole.insert(kind) {
                    by_kind!(kind, R => pair.subscribe_all::<R>());
                }
            }
            Step::Unsubscribe(kind, name) => {
                if self.wanted.remove(&key(kind, name)) {
                    by_kind!(kind, R => pair.unsubscribe::<R>(name));
                }
            }
            Step::UnsubscribeAll(kind) => {
                if self.whole.remove(&kind) {
                    by_kind!(kind, R => pair.unsubscribe_all::<R>());
                }
            }
        }
    }

    fn check_cache(&self, server: &Snapshot) -> Result<(), TestCaseError> {
        let held = self.pair.cache().iter().map(|(key, _)| key.clone());
        let held: BTreeSet<Key> = held.collect();
        prop_assert!(held.is_superset(&self.wanted), "{held:?}");
        let unnamed = held.difference(&self.wanted);
        let unasked =
            unnamed.filter(|key| !self.whole.iter().any(|k| TYPES[*k] == key.kind.type_url));
        prop_assert_eq!(unasked.count(), 0, "{:?}", &held);
        for kind in 0..TYPES.len() {
            for name in NAMES {
                by_kind!(kind, R => self.check_resource::<R>(&key(kind, name), server)?);
            }
        }
        Ok(())
    }

    fn check_resource<R: ResourceType<Context = Features>>(
        &self,
        key: &Key,
        server: &Snapshot,
    ) -> Result<(), TestCaseError> {
        let named = self.wanted.contains(key);
        if !named
            && !self
                .whole
                .iter()
                .any(|kind| TYPES[*kind] == key.kind.type_url)
        {
            return Ok(());
        }
        let held = self.pair.cache().read::<R>(&key.name);
        let resource = server.resource(R::TYPE_URL, &key.name);
        let parsed = resource.map(|resource| R::parse(&resource.any.value, &Features::ALL).value);
        match (parsed, held) {
            (Some(Ok(expected)), Some(Ok(held))) => prop_assert_eq!(&expected, &*held),
            // It was good before, or never.
            (Some(Err(_)), Some(Ok(_))) => {}
            (Some(Err(_)), Some(Err(error))) => {
                let refused = matches!(error.reason, TroubleReason::Invalid(_));
                prop_assert!(refused || self.may_be_silent(key), "{:?}", error);
            }
            (None, Some(Err(_))) if named => {}
            // Only a name is remembered for its trouble.
            (None | Some(Err(_)), None) if !named => {}
            // In this protocol there is no way to say that one of these is gone.
            (None, Some(Ok(_))) => prop_assert!(
                self.protocol == Protocol::StateOfTheWorld && !R::ALL_IN_SOTW,
                "{:?} is gone",
                key
            ),
            (expected, held) => prop_assert!(false, "{key:?}: expected {expected:?}, got {held:?}"),
        }
        Ok(())
    }

    /// True if the server may say nothing of a resource. In state of the world it does not send a
    /// refused resource again, although the client forgot it while it was not named.
    fn may_be_silent(&self, key: &Key) -> bool {
        let was_whole = self
            .was_whole
            .iter()
            .any(|k| TYPES[*k] == key.kind.type_url);
        self.protocol == Protocol::StateOfTheWorld && was_whole
    }

    /// The last response of a type was answered, and an ACK names its version.
    fn check_answers(&self, type_url: &str) -> Result<(), TestCaseError> {
        let Some(sent) = self.pair.last_version(type_url) else {
            return Ok(());
        };
        match self.pair.last_outcome(type_url) {
            Some(RequestOutcome::Ack { version, .. }) if version == sent => Ok(()),
            Some(RequestOutcome::Nack { version, .. }) if version == sent => Ok(()),
            // After a NACK, a request that changes the names still has the version in use.
            Some(RequestOutcome::Ack { .. }) if self.pair.refused(type_url) => Ok(()),
            other => Err(TestCaseError::fail(format!("{type_url} {sent}: {other:?}"))),
        }
    }
}

fn key(kind: usize, name: &str) -> Key {
    by_kind!(kind, R => Key::of::<R>(name))
}

/// The resources of the server: of each type and name, nothing or one of three forms, the last
/// invalid.
#[derive(Clone, Debug)]
struct Contents(Vec<u8>);

impl Contents {
    fn snapshot(&self) -> std::sync::Arc<Snapshot> {
        let mut all = Resources::new();
        let mut forms = self.0.iter();
        let mut form = || forms.next().copied().unwrap_or_default();
        for name in NAMES {
            all = add(all, form(), |eds| cluster(name).eds(eds), |c| c.invalid());
            all = add(
                all,
                form(),
                |zone| endpoints(name).locality(zone, 1, ["127.0.0.1:9"]),
                |e| e.invalid(),
            );
            all = add(all, form(), |rds| listener(name).rds(rds), |l| l.invalid());
            all = add(all, form(), |host| routes(name).host(host), |r| r.invalid());
        }
        all.snapshot()
    }
}

fn add<B: Resource>(
    all: Resources,
    form: u8,
    build: impl Fn(&str) -> B,
    invalid: impl Fn(B) -> B,
) -> Resources {
    match form {
        0 => all,
        1 => all.with(build("one")),
        2 => all.with(build("two")),
        _ => all.with(invalid(build("bad"))),
    }
}

fn contents() -> impl Strategy<Value = Contents> {
    let form = prop_oneof![2 => Just(0_u8), 4 => Just(1), 4 => Just(2), 1 => Just(3)];
    vec(form, NAMES.len() * TYPES.len()).prop_map(Contents)
}

fn step() -> impl Strategy<Value = Step> {
    let name = || proptest::sample::select(&NAMES[..]);
    prop_oneof![
        1 => (0..20_000_u64).prop_map(Step::Advance),
        1 => Just(Step::Break),
        8 => Just(Step::ConfirmSend),
        4 => Just(Step::Connect),
        8 => Just(Step::DeliverRequest),
        8 => Just(Step::DeliverResponse),
        1 => any::<bool>().prop_map(Step::Reachable),
        3 => contents().prop_map(Step::SetSnapshot),
        6 => (0..4_usize, name()).prop_map(|(kind, name)| Step::Subscribe(kind, name)),
        4 => (0..4_usize, name()).prop_map(|(kind, name)| Step::Unsubscribe(kind, name)),
        1 => (0..4_usize).prop_map(Step::SubscribeAll),
        1 => (0..4_usize).prop_map(Step::UnsubscribeAll),
    ]
}
