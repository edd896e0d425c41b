//! The client half against a server that may say anything at any time, because a client cannot
//! choose its server's faults.

use std::collections::HashMap;
use std::time::Duration;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_testkit::builders::{cluster, endpoints, listener};
use crowfly_testkit::{Script, garbled, response, wrapped};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::google::protobuf::Any;
use proptest::collection::vec;
use proptest::prelude::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Close,
    ConfirmSend,
    Open,
    Receive(DiscoveryResponse),
    Subscribe(usize, &'static str),
    SubscribeAll(usize),
    Unsubscribe(usize, &'static str),
    UnsubscribeAll(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The session never panics, and has at most one request on its way. It introduces the node in
    /// the first request of a stream only, and answers with the last nonce of the type.
    #[test]
    fn requests_are_well_formed_whatever_comes(steps in vec(step(), 1..60)) {
        let mut script = Script::new();
        script.hold_sends();
        let mut stream = Observed::default();
        for step in steps {
            run(&mut script, step, &mut stream);
            if script.take_close() {
                stream = Observed::default();
            }
            while let Some(request) = script.try_request() {
                prop_assert!(!stream.sending, "two requests on their way");
                stream.sending = true;
                prop_assert!(stream.open, "a request without a stream");
                prop_assert_eq!(request.node.is_some(), !std::mem::replace(&mut stream.asked, true));
                let nonce = stream.nonces.get(&request.type_url).cloned().unwrap_or_default();
                prop_assert_eq!(request.response_nonce, nonce);
                let mut names = request.resource_names.clone();
                names.dedup();
                prop_assert_eq!(names, request.resource_names);
            }
        }
    }
}

/// The part of a stream that the server can see.
#[derive(Default)]
struct Observed {
    open: bool,
    asked: bool,
    sending: bool,
    /// The last nonce of each type that the client has ever asked for.
    nonces: HashMap<String, String>,
    /// The types that the client knows.
    known: Vec<&'static str>,
}

fn run(script: &mut Script, step: Step, stream: &mut Observed) {
    match step {
        Step::Advance(milliseconds) => script.advance(Duration::from_millis(milliseconds)),
        Step::Close => {
            let known = std::mem::take(&mut stream.known);
            *stream = Observed {
                known,
                ..Observed::default()
            };
            script.close("gone");
        }
        Step::ConfirmSend => {
            stream.sending = false;
            script.confirm_send();
        }
        Step::Open => {
            if script.try_open() {
                stream.open = true;
            }
        }
        Step::Receive(response) => {
            let known = stream.known.contains(&response.type_url.as_str());
            if stream.open && known {
                let (url, nonce) = (response.type_url.clone(), response.nonce.clone());
                stream.nonces.insert(url, nonce);
            }
            script.receive(response);
        }
        Step::Subscribe(kind, name) => {
            stream.known.push(TYPES[kind]);
            match kind {
                0 => script.subscribe::<Listener>(name),
                1 => script.subscribe::<Cluster>(name),
                _ => script.subscribe::<Endpoints>(name),
            }
        }
        Step::SubscribeAll(kind) => {
            stream.known.push(TYPES[kind]);
            match kind {
                0 => script.subscribe_all::<Listener>(),
                1 => script.subscribe_all::<Cluster>(),
                _ => script.subscribe_all::<Endpoints>(),
            }
        }
        Step::Unsubscribe(kind, name) => match kind {
            0 => script.unsubscribe::<Listener>(name),
            1 => script.unsubscribe::<Cluster>(name),
            _ => script.unsubscribe::<Endpoints>(name),
        },
        Step::UnsubscribeAll(kind) => match kind {
            0 => script.unsubscribe_all::<Listener>(),
            1 => script.unsubscribe_all::<Cluster>(),
            _ => script.unsubscribe_all::<Endpoints>(),
        },
    }
}

const TYPES: [&str; 3] = [Listener::TYPE_URL, Cluster::TYPE_URL, Endpoints::TYPE_URL];

fn step() -> impl Strategy<Value = Step> {
    let name = || proptest::sample::select(&NAMES[..]);
    prop_oneof![
        1 => (0..20_000_u64).prop_map(Step::Advance),
        1 => Just(Step::Close),
        6 => Just(Step::ConfirmSend),
        4 => Just(Step::Open),
        8 => any_response().prop_map(Step::Receive),
        4 => (0..3_usize, name()).prop_map(|(kind, name)| Step::Subscribe(kind, name)),
        1 => (0..3_usize).prop_map(Step::SubscribeAll),
        3 => (0..3_usize, name()).prop_map(|(kind, name)| Step::Unsubscribe(kind, name)),
        1 => (0..3_usize).prop_map(Step::UnsubscribeAll),
    ]
}

fn any_response() -> impl Strategy<Value = DiscoveryResponse> {
    let type_url = prop_oneof![
        9 => proptest::sample::select(&TYPES[..]),
        1 => Just("type.googleapis.com/no.such.Type"),
    ];
    (
        type_url,
        vec(any_resource(), 0..4),
        "[a-z]{0,2}",
        "[0-9]{0,3}",
    )
        .prop_map(|(type_url, resources, version, nonce)| DiscoveryResponse {
            type_url: type_url.to_owned(),
            ..response::<Cluster>(&version, &nonce, resources)
        })
}

fn any_resource() -> impl Strategy<Value = Any> {
    let name = proptest::sample::select(&["a", "b", "c", "d", ""][..]);
    (name, 0..9).prop_map(|(name, form)| match form {
        0 => listener(name).rds("r").any(),
        1 => listener(name).invalid().any(),
        2 => cluster(name).any(),
        3 => cluster(name).invalid().any(),
        4 => endpoints(name).any(),
        5 => garbled::<Cluster>(),
        6 => wrapped(name, cluster(name).any()),
        7 => wrapped(name, wrapped(name, listener(name).any())),
        _ => Any::default(),
    })
}
