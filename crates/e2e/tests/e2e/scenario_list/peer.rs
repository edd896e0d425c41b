//! One interface for all clients: a process or a channel that calls services by name.
//!
//! A scenario is written once against it and runs with each client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crowfly_e2e::c_core::bootstrap_of;
use crowfly_e2e::credentials::Credentials;
use crowfly_e2e::envoy;
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::rpc::CALLS_EACH;
use serde_json::{Value, json};

use super::envoy::EnvoyPeer;
use super::kind::Kind;
use super::ours::OurChannel;
use super::{c_core, go, node};

/// The pause after calls that failed, so that other processes have time to serve the next ones.
const PAUSE: Duration = Duration::from_millis(20);

/// A client under test.
pub(super) trait Peer: Send {
    /// Makes calls to a service, one after the other. They do not wait for ready: they fail if they
    /// cannot be sent.
    fn call(&mut self, service: &str, count: usize) -> Vec<Outcome>;

    /// Checks that a call fails, because no control plane serves the client.
    fn assert_unserved(&mut self, service: &str) {
        let outcomes = self.call(service, 1);
        assert!(matches!(outcomes[..], [Outcome::Failed(_)]), "{outcomes:?}");
    }
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// The name of the backend that answered.
    Answered(String),
    /// The status, as the client words it.
    Failed(String),
}

/// Starts a client with a node id, which is served by the control plane at `control` without TLS. `None` if
/// the client is not installed; that was printed.
pub(super) fn start(kind: Kind, id: &str, control: SocketAddr) -> Option<Box<dyn Peer>> {
    start_with(kind, id, control, &Credentials::insecure())
}

/// Starts a client with a node id, which is served by the control plane at `control` if that takes these credentials.
/// `None` if the client is not installed; that was printed.
pub(super) fn start_with(
    kind: Kind,
    id: &str,
    control: SocketAddr,
    credentials: &Credentials,
) -> Option<Box<dyn Peer>> {
    let node = node_of(id);
    let bootstrap = bootstrap_of(control, &node, credentials);
    let envoy = |api_type| {
        let bootstrap = envoy::reporting_bootstrap(control, api_type, node);
        EnvoyPeer::start(&envoy::with_credentials(bootstrap, credentials))
    };
    Some(match kind {
        Kind::EnvoySotw => Box::new(envoy("GRPC")?),
        Kind::EnvoyDelta => Box::new(envoy("DELTA_GRPC")?),
        Kind::CCore => Box::new(c_core::start(&bootstrap)?),
        Kind::GrpcNode => Box::new(node::start(&bootstrap)?),
        Kind::GrpcGo => Box::new(go::start(&bootstrap)?),
        Kind::CrowflySotw => Box::new(OurChannel::start(bootstrap, &[])),
        Kind::CrowflyDelta => Box::new(OurChannel::start(bootstrap, &["xds.delta"])),
    })
}

/// The node of a client. All clients are in one zone.
fn node_of(id: &str) -> Value {
    json!({ "id": id, "cluster": "e2e", "locality": { "region": "r1", "zone": "c" } })
}

/// The calls that each backend answered. None may have failed.
pub(super) fn answers(outcomes: &[Outcome]) -> BTreeMap<&str, usize> {
    let mut answers = BTreeMap::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Answered(backend) => *answers.entry(backend.as_str()).or_default() += 1,
            Outcome::Failed(status) => panic!("a call failed: {status}"),
        }
    }
    answers
}

/// True if no call failed, and exactly the backends in `names` answered.
pub(super) fn are_served_by(outcomes: &[Outcome], names: &[&str]) -> bool {
    let answered = |outcome: &Outcome| matches!(outcome, Outcome::Answered(_));
    outcomes.iter().all(answered) && answers(outcomes).keys().eq(names)
}

/// Calls until a whole round is answered by exactly the backends in `names`. Earlier calls may
/// fail.
pub(super) fn settle(peer: &mut dyn Peer, service: &str, names: &[&str]) {
    // One call at a time, because calls that hang take long.
    until_answered(peer, service);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let outcomes = peer.call(service, names.len() * CALLS_EACH);
        if are_served_by(&outcomes, names) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "expected {names:?} to answer, found {outcomes:?}"
        );
        thread::sleep(PAUSE);
    }
}

/// Calls until a call is answered. Earlier calls may fail. Returns the outcomes of all calls.
pub(super) fn until_answered(peer: &mut dyn Peer, service: &str) -> Vec<Outcome> {
    let deadline = Instant::now() + PATIENCE;
    let mut outcomes = Vec::new();
    loop {
        outcomes.extend(peer.call(service, 1));
        if let Some(Outcome::Answered(_)) = outcomes.last() {
            return outcomes;
        }
        assert!(Instant::now() < deadline, "no answer: {outcomes:?}");
        thread::sleep(PAUSE);
    }
}
