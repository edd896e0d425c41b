//! Client and server half against each other: in the end the client holds what the server has.

use std::collections::BTreeSet;
use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_model::{Features, ResourceType};
use crowfly_testkit::Pair;
use crowfly_testkit::builders::{Resource, Resources, cluster, endpoints, listener, routes};
use crowfly_xds::{Key, Reason, RequestOutcome, Snapshot};
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
    let snapshot = Resources::service("web", ["127.0.0.1:80"]).snapshot();
    let mut pair = Pair::new(snapshot.clone());

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
}

/// A resource that the client refuses is refused once, and traffic stops there.
#[test]
fn refused_resource_is_not_fought_over() {
    let good = Resources::new().with(cluster("a"));
    let mut pair = Pair::new(good.snapshot());
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
        Reason::Invalid(_)
    ));
}

/// A server that goes away and comes back with news is caught up with.
#[test]
fn client_catches_up_with_a_server_that_was_away() {
    let before = Resources::new().with(endpoints("a"));
    let mut pair = Pair::new(before.snapshot());
    pair.subscribe::<Endpoints>("a");
    pair.drive(LIMIT);

    pair.set_reachable(false);
    pair.drive(LIMIT);
    let entry = pair.cache().entry(&Key::of::<Endpoints>("a")).unwrap();
    assert!(matches!(
        entry.ambient().unwrap().reason,
        Reason::Connectivity(_)
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
}

/// S1-22: a name that is given up and wanted again while an unrelated response is on its way is sent
/// again: the requests in between were void to the server, and it must not go on believing that the
/// client still holds what it has forgotten.
#[test]
fn name_that_left_and_returned_across_a_response_is_sent_again() {
    let resources = Resources::new().with(endpoints("a")).with(endpoints("b"));
    let mut pair = Pair::new(resources.snapshot());
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
    Unsubscribe(usize, &'static str),
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
        let mut pair = Pair::new(start.snapshot());
        let mut wanted = BTreeSet::new();
        for step in steps {
            run(&mut pair, step, &mut wanted);
        }

        pair.set_snapshot(end.snapshot());
        pair.set_reachable(true);
        pair.drive(LIMIT);
        // The longest wait for a stream, with its jitter, and then that for a resource.
        pair.advance(Duration::from_secs(144));
        pair.drive(LIMIT);
        pair.advance(Duration::from_secs(15));
        pair.drive(LIMIT);

        check_cache(&pair, &wanted, &end.snapshot())?;
        for type_url in TYPES {
            check_answers(&pair, type_url)?;
        }
        let messages = pair.messages();
        pair.set_snapshot(end.snapshot());
        pair.advance(Duration::from_secs(3600));
        pair.drive(LIMIT);
        prop_assert_eq!(pair.messages(), messages, "there is nothing left to say");
    }
}

fn run(pair: &mut Pair, step: Step, wanted: &mut BTreeSet<Key>) {
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
            if wanted.insert(key(kind, name)) {
                match kind {
                    0 => pair.subscribe::<Cluster>(name),
                    1 => pair.subscribe::<Endpoints>(name),
                    2 => pair.subscribe::<Listener>(name),
                    _ => pair.subscribe::<RouteConfig>(name),
                }
            }
        }
        Step::Unsubscribe(kind, name) => {
            if wanted.remove(&key(kind, name)) {
                match kind {
                    0 => pair.unsubscribe::<Cluster>(name),
                    1 => pair.unsubscribe::<Endpoints>(name),
                    2 => pair.unsubscribe::<Listener>(name),
                    _ => pair.unsubscribe::<RouteConfig>(name),
                }
            }
        }
    }
}

fn check_cache(
    pair: &Pair,
    wanted: &BTreeSet<Key>,
    server: &Snapshot,
) -> Result<(), TestCaseError> {
    let held: BTreeSet<Key> = pair.cache().iter().map(|(key, _)| key.clone()).collect();
    prop_assert_eq!(&held, wanted);
    for key in wanted {
        match key.type_url {
            Cluster::TYPE_URL => check_resource::<Cluster>(pair, key, server)?,
            Endpoints::TYPE_URL => check_resource::<Endpoints>(pair, key, server)?,
            Listener::TYPE_URL => check_resource::<Listener>(pair, key, server)?,
            _ => check_resource::<RouteConfig>(pair, key, server)?,
        }
    }
    Ok(())
}

fn check_resource<R: ResourceType>(
    pair: &Pair,
    key: &Key,
    server: &Snapshot,
) -> Result<(), TestCaseError> {
    let held = pair.cache().read::<R>(&key.name);
    let resource = server.resource(R::TYPE_URL, &key.name);
    let parsed = resource.map(|resource| R::parse(&resource.any.value, &Features::ALL).value);
    match (parsed, held) {
        (Some(Ok(expected)), Some(Ok(held))) => prop_assert_eq!(&expected, &*held),
        // It was good before, or never.
        (Some(Err(_)), Some(Ok(_))) => {}
        (Some(Err(_)), Some(Err(error))) => {
            prop_assert!(matches!(error.reason, Reason::Invalid(_)), "{:?}", error);
        }
        (None, Some(Err(_))) => {}
        // In this protocol there is no way to say that one of these is gone.
        (None, Some(Ok(_))) => prop_assert!(!R::ALL_IN_SOTW, "{:?} is gone", key),
        (expected, held) => prop_assert!(false, "{key:?}: expected {expected:?}, got {held:?}"),
    }
    Ok(())
}

/// The last response of a type was answered, and an ACK names its version.
fn check_answers(pair: &Pair, type_url: &str) -> Result<(), TestCaseError> {
    let Some(sent) = pair.last_version(type_url) else {
        return Ok(());
    };
    match pair.last_outcome(type_url) {
        Some(RequestOutcome::Ack { version, .. }) if version == sent => Ok(()),
        Some(RequestOutcome::Nack { version, .. }) if version == sent => Ok(()),
        // After a NACK, a request that changes the names still has the version in use.
        Some(RequestOutcome::Ack { .. }) if pair.refused(type_url) => Ok(()),
        other => Err(TestCaseError::fail(format!("{type_url} {sent}: {other:?}"))),
    }
}

fn key(kind: usize, name: &str) -> Key {
    Key {
        type_url: TYPES[kind],
        name: name.into(),
    }
}

/// What the server has: of each type and name, nothing or one of three forms, the last invalid.
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
    ]
}
