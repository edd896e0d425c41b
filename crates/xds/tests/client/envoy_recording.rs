//! Compares our client with a recording of Envoy on delta streams: given the same responses, it
//! must say the same.
//!
//! The comparison is of the protocol, so the resource types here accept what Envoy accepted. Two
//! things differ by design. Our client asks for everything by `*`, where Envoy uses the older form
//! of an empty first request. The words of an error are each client's own.

use std::collections::BTreeMap;

use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_model::{Decoded, Errors, Features, ResourceType};
use crowfly_testkit::Script;
use crowfly_testkit::recording::{self, Event, Message};
use crowfly_xds::{DataErrors, Protocol, Readings, Request};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

const RECORDING: &str = include_str!("../fixtures/envoy-delta.jsonl");

/// Subscriptions, ACKs, NACKs and initial versions are those of Envoy, type by type, on both of its
/// streams.
#[test]
fn client_says_what_envoy_said() {
    let events = recording::read(RECORDING);
    let mut player = Player::new();
    for stream in [1, 2] {
        player.play(events.iter().filter(|event| event.stream == stream));
    }
    let both: Vec<u64> = events.iter().map(|event| event.stream).collect();
    assert!(both.contains(&1) && both.contains(&2));
}

/// The recording has what the comparison is about: a NACK, an unsubscription, versions on the
/// second stream.
#[test]
fn recording_shows_every_kind_of_request() {
    let events = recording::read(RECORDING);
    let has = |wanted: fn(&DeltaDiscoveryRequest) -> bool| {
        events.iter().any(|event| match &event.message {
            Message::Request(request) => wanted(request),
            Message::Response(_) => false,
        })
    };
    assert!(has(|request| request.error_detail.is_some()));
    assert!(has(|request| !request
        .resource_names_unsubscribe
        .is_empty()));
    assert!(has(|request| !request.initial_resource_versions.is_empty()));
    assert!(has(
        |request| !request.response_nonce.is_empty() && request.error_detail.is_none()
    ));
}

struct Player {
    script: Script,
    /// Types that are asked for as a whole.
    whole: Vec<String>,
}

impl Player {
    fn new() -> Self {
        Self {
            script: Script::reading(Protocol::Delta, DataErrors::default(), lenient()),
            whole: Vec::new(),
        }
    }

    /// Plays one stream: what Envoy wanted is wanted of our client, what it was told is told to
    /// ours, and both must have said the same of each type in the same order.
    fn play<'a>(&mut self, events: impl Iterator<Item = &'a Event>) {
        let mut opened = false;
        let (mut theirs, mut ours) = (Said::default(), Said::default());
        for event in events {
            match &event.message {
                Message::Request(request) => {
                    self.want(request, !theirs.contains_key(&request.type_url));
                    theirs.add(request);
                }
                Message::Response(response) => self.script.receive(response.clone()),
            }
            if !std::mem::replace(&mut opened, true) {
                self.script.open();
            }
            while let Some(request) = self.script.take_request() {
                let Request::Delta(request) = request else {
                    panic!("expected delta, got {request:?}");
                };
                ours.add(&request);
            }
        }
        let nonces: usize = theirs.values().map(|said| said.answers.len()).sum();
        assert!(nonces > 0, "Envoy answered");
        for (type_url, said) in &*theirs {
            let ours = ours.get(type_url).expect("the type is asked for");
            assert_eq!(ours, said, "{type_url}");
        }
        self.script.close("the recording ends here");
    }

    /// Makes our client want what Envoy's request shows that it wants.
    fn want(&mut self, request: &DeltaDiscoveryRequest, is_first: bool) {
        let url = &request.type_url;
        if is_first && request.resource_names_subscribe.is_empty() && !self.whole.contains(url) {
            self.whole.push(url.clone());
            each_type(&mut self.script, url, &Change::All);
        }
        for name in &request.resource_names_subscribe {
            each_type(&mut self.script, url, &Change::Add(name));
        }
        for name in &request.resource_names_unsubscribe {
            each_type(&mut self.script, url, &Change::Remove(name));
        }
    }
}

/// All that a client said on a stream, by type.
#[derive(Debug, Default)]
struct Said(BTreeMap<String, OfType>);

/// The requests of a client for one type.
#[derive(Debug, Default, PartialEq)]
struct OfType {
    /// Names, with whether they are wanted, in order.
    names: Vec<(String, bool)>,
    versions: BTreeMap<String, String>,
    /// Nonces, with whether the response was refused, in order.
    answers: Vec<(String, bool)>,
}

impl std::ops::Deref for Said {
    type Target = BTreeMap<String, OfType>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Said {
    fn add(&mut self, request: &DeltaDiscoveryRequest) {
        let said = self.0.entry(request.type_url.clone()).or_default();
        let named = |name: &&String| *name != "*";
        let subscribed = request.resource_names_subscribe.iter().filter(named);
        said.names
            .extend(subscribed.map(|name| (name.clone(), true)));
        let unsubscribed = request.resource_names_unsubscribe.iter();
        said.names
            .extend(unsubscribed.map(|name| (name.clone(), false)));
        let versions = request.initial_resource_versions.clone();
        said.versions.extend(versions);
        if !request.response_nonce.is_empty() {
            let refused = request.error_detail.is_some();
            said.answers.push((request.response_nonce.clone(), refused));
        }
    }
}

enum Change<'a> {
    Add(&'a str),
    All,
    Remove(&'a str),
}

fn each_type(script: &mut Script, type_url: &str, change: &Change<'_>) {
    match type_url {
        Cluster::TYPE_URL => apply::<Lenient<Cluster>>(script, change),
        Endpoints::TYPE_URL => apply::<Lenient<Endpoints>>(script, change),
        Listener::TYPE_URL => apply::<Lenient<Listener>>(script, change),
        RouteConfig::TYPE_URL => apply::<Lenient<RouteConfig>>(script, change),
        other => panic!("the recording has a new type: {other}"),
    }
}

fn apply<R: ResourceType>(script: &mut Script, change: &Change<'_>) {
    match change {
        Change::Add(name) => script.subscribe::<R>(name),
        Change::All => script.subscribe_all::<R>(),
        Change::Remove(name) => script.unsubscribe::<R>(name),
    }
}

fn lenient() -> Readings {
    Readings::default()
        .with::<Lenient<Cluster>>(Features::ALL)
        .with::<Lenient<Endpoints>>(Features::ALL)
        .with::<Lenient<Listener>>(Features::ALL)
        .with::<Lenient<RouteConfig>>(Features::ALL)
}

/// The type `R` as Envoy judged it in the recording: everything is valid but what is named `bad`.
struct Lenient<R>(std::marker::PhantomData<fn() -> R>);

impl<R: ResourceType> ResourceType for Lenient<R> {
    type Parsed = Vec<u8>;
    type Context = R::Context;

    const TYPE_URL: &'static str = R::TYPE_URL;
    const NOUN: &'static str = R::NOUN;
    const ALL_IN_SOTW: bool = R::ALL_IN_SOTW;

    fn parse(bytes: &[u8], context: &R::Context) -> Decoded<Vec<u8>> {
        let name = R::parse(bytes, context).name;
        let value = if name.as_deref() == Some("bad") {
            Err(Errors::whole("Envoy refused it"))
        } else {
            Ok(bytes.to_vec())
        };
        Decoded { name, value }
    }
}
