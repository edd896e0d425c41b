//! The bodies of the fuzz targets. The bodies are in this crate, so that a test can replay their corpus without a
//! fuzzer.
//!
//! The functions take any bytes and must not panic.

mod server;

use std::sync::Arc;
use std::time::Duration;

use crowfly_model::bootstrap::Bootstrap;
use crowfly_model::grpc::cluster::CustomPolicies;
use crowfly_model::grpc::filter::{CustomFilters, SessionCookie};
use crowfly_model::grpc::route::{CallHead, RouteTable};
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_model::{Decoded, Features, ResourceType};
use crowfly_xds::{DataErrors, Ending, EndingKind, Protocol};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use prost::Message;

pub use self::server::{ServerState, UNREAD, server, server_seed, server_state};
use crate::Script;

/// A fuzz target: its name, which is also the name of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every fuzz target.
pub const TARGETS: [Target; 10] = [
    ("bootstrap", bootstrap),
    ("cluster", parser::<Cluster>),
    ("cluster_config", parser::<ClusterConfig>),
    ("endpoints", parser::<Endpoints>),
    ("listener", parser::<Listener>),
    ("routes", routes),
    ("server", server),
    ("session", session),
    ("session_cookie", session_cookie),
    ("subject_alt_names", subject_alt_names),
];

/// The names of a certificate, which come from servers. The names must be printable, because errors show them.
pub fn subject_alt_names(bytes: &[u8]) {
    let names = crowfly_tls::sans_of(bytes).unwrap_or_default();
    for name in names {
        let is_printable = |byte: u8| matches!(byte, b' '..=b'~');
        assert!(!name.is_empty() && name.bytes().all(is_printable));
    }
}

/// A resource parser, with experiments and without. The parser must be deterministic, and must give a reason when it
/// refuses.
pub fn parser<R: ResourceType<Context = Features>>(bytes: &[u8]) {
    let everything = Features {
        custom_policies: CustomPolicies::NONE.with_all_others(Arc::new(|_| Ok(Arc::new(())))),
        custom_filters: CustomFilters::NONE.with_all_others(Arc::new(|_| Ok(Arc::new(())))),
        ..Features::ALL
    };
    for features in [everything, Features::default()] {
        parse::<R>(bytes, &features);
    }
}

fn parse<R: ResourceType<Context = Features>>(bytes: &[u8], features: &Features) {
    let Decoded { name, value } = R::parse(bytes, features);
    let again = R::parse(bytes, features);
    assert_eq!(name, again.name);
    match (value, again.value) {
        (Ok(value), Ok(again)) => assert!(value == again, "parsed differently the second time"),
        (Err(errors), Err(again)) => {
            assert!(!errors.to_string().is_empty());
            assert_eq!(errors.to_string(), again.to_string());
        }
        _ => panic!("accepted once and refused once"),
    }
}

/// The parser of route configurations, and then a call through every table. The route that a call takes must have
/// no reason against it.
pub fn routes(bytes: &[u8]) {
    parser::<RouteConfig>(bytes);
    let Ok(config) = RouteConfig::parse(bytes, &Features::ALL).value else {
        return;
    };
    let headers = [("x-user", "ann"), ("x-user", "bob"), ("x-id", "7")];
    for path in ["/a.A/M", "/b", ""] {
        let call = CallHead {
            path,
            headers: &headers[..],
        };
        for host in &config.virtual_hosts {
            let table = RouteTable::compile(host, |route| route.action.clone());
            let taken = table.position(&call, || 0);
            if let Some(route) = taken.and_then(|position| host.routes.get(position)) {
                assert_eq!(route.condition.mismatch(&call), None);
            }
            if let Err(error) = table.find(&call, || u64::MAX) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// The bootstrap file.
pub fn bootstrap(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(error) = Bootstrap::from_json(text)
    {
        assert!(!error.to_string().is_empty());
    }
}

/// The cookie of a session, which comes from callers of a program. A host that was read is read again from the cookie
/// that would be set for it.
pub fn session_cookie(bytes: &[u8]) {
    let cookie = SessionCookie {
        name: "s".to_owned(),
        path: "/".to_owned(),
        ttl: Duration::ZERO,
    };
    let host = cookie.host(bytes.split(|byte| *byte == b'\n'));
    assert!(host.addresses().len() <= 32);
    let addresses = || host.addresses().iter().copied();
    let set = cookie.set_cookie(addresses(), host.cluster());
    let again = cookie.host(set.split(';').map(str::as_bytes));
    assert!(again.is(addresses(), host.cluster()));
    assert_eq!(again.addresses(), host.addresses());
}

/// A client against a server that sends anything at any time.
///
/// The first byte chooses the protocol and the treatment of errors. Then each step is one byte for
/// the event and one for its argument. A response takes 16 times as many bytes as its argument
/// says, or all that are left.
pub fn session(bytes: &[u8]) {
    let Some((mode, mut rest)) = bytes.split_first() else {
        return;
    };
    let protocol = if mode & 1 == 0 {
        Protocol::StateOfTheWorld
    } else {
        Protocol::Delta
    };
    let mut script = Script::with(protocol, data_errors(mode >> 1));
    if mode & 0x80 != 0 {
        script.hold_sends();
    }
    while let [step, argument, after @ ..] = rest {
        rest = after;
        if step % 8 == RESPONSE {
            let length = (usize::from(*argument) * 16).min(rest.len());
            let (body, after) = rest.split_at(length);
            respond(&mut script, body);
            rest = after;
        } else {
            happen(&mut script, step % 8, *argument);
        }
        script.take_close();
        while script.take_request().is_some() {}
        script.changes();
    }
}

/// The step that is a response.
const RESPONSE: u8 = 0;

/// The bytes of one session script, for a seed of the corpus.
pub fn session_seed(mode: u8, steps: &[SeedStep]) -> Vec<u8> {
    let mut bytes = vec![mode];
    for step in steps {
        match step {
            SeedStep::Happen(step, argument) => bytes.extend([*step, *argument]),
            SeedStep::Response(body) => push_body(&mut bytes, RESPONSE, body),
        }
    }
    bytes
}

/// Adds a step that has a message. The message is padded with a field that no message here has, so that the length
/// fits.
fn push_body(bytes: &mut Vec<u8>, step: u8, body: &[u8]) {
    let mut body = body.to_vec();
    while !body.len().is_multiple_of(16) {
        body.extend([0xf8, 0x7f, 0]);
    }
    let blocks = u8::try_from(body.len() / 16).expect("a small message");
    bytes.extend([step, blocks]);
    bytes.extend(body);
}

/// A step of [`session_seed`].
#[derive(Clone, Debug)]
pub enum SeedStep {
    /// The event and its argument.
    Happen(u8, u8),
    /// The bytes of a response.
    Response(Vec<u8>),
}

fn data_errors(mode: u8) -> DataErrors {
    match mode & 3 {
        0 => DataErrors::default(),
        1 => DataErrors::Classic {
            ignore_deletion: true,
        },
        fail => DataErrors::Uniform {
            fail: fail == 3,
            timer_is_transient: mode & 4 != 0,
        },
    }
}

/// The response goes to the client as it is if it can be read at all.
fn respond(script: &mut Script, body: &[u8]) {
    if script.protocol() == Some(Protocol::Delta) {
        if let Ok(response) = DeltaDiscoveryResponse::decode(body) {
            script.receive(response);
        }
    } else if let Ok(response) = DiscoveryResponse::decode(body) {
        script.receive(response);
    }
}

fn happen(script: &mut Script, step: u8, argument: u8) {
    let name = ["a", "b", "xdstp://x/y/z?b=1&a=2", ""][usize::from(argument >> 2) % 4];
    match step {
        1 => {
            script.try_open();
        }
        2 => script.end(Ending {
            reason: "gone".into(),
            kind: match argument % 3 {
                0 => EndingKind::Ordinary,
                1 => EndingKind::TooLarge { type_known: false },
                _ => EndingKind::Unimplemented,
            },
        }),
        3 => script.advance(Duration::from_millis(u64::from(argument) * 200)),
        4 => script.confirm_send(),
        5 => match argument & 3 {
            0 => script.subscribe::<Listener>(name),
            1 => script.subscribe::<Cluster>(name),
            2 => script.subscribe::<Endpoints>(name),
            _ => script.subscribe_all::<Cluster>(),
        },
        _ => match argument & 3 {
            0 => script.unsubscribe::<Listener>(name),
            1 => script.unsubscribe::<Cluster>(name),
            2 => script.unsubscribe::<Endpoints>(name),
            _ => script.unsubscribe_all::<Cluster>(),
        },
    }
}
