//! The server half of a state-of-the-world stream.
//!
//! Listeners and clusters are sent all together in each response, because a client takes one that is missing for
//! deleted. Other types are sent only where they changed (gRFC A53).

mod interest;
mod renewal;

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;

use super::client_node::ClientNode;
use super::missing::not_found;
use super::response::{Form, Response, Sent};
use super::types::Types;
use super::{
    Held, ORDER, REMOVED_LAST, RequestOutcome, ServerHalf, StreamSettings, Wanted, Wish,
    all_in_one_response, endpoints_of, shared_type_url,
};
use crate::session::Protocol;
use crate::snapshot::{Snapshot, SnapshotResource, changed_names};
use interest::{Context, Interest};

/// The time for which later types wait for the answer to an earlier one. A client that does not
/// answer in this time may never do so, and must still be sent the other types.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server half of one state-of-the-world stream.
///
/// Inputs are [`handle_request`](Self::handle_request),
/// [`handle_snapshot`](Self::handle_snapshot) and [`handle_time`](Self::handle_time); after each,
/// call [`poll_response`](Self::poll_response) until it returns `None`.
#[derive(Debug)]
pub struct Subscription {
    snapshot: Arc<Snapshot>,
    settings: Arc<StreamSettings>,
    node: Option<ClientNode>,
    /// The types that the client asked for.
    types: Types<Interest>,
    responses: u64,
    was_answer_alone: bool,
    /// The number of resources that the wildcard of the last request stands for.
    listed: usize,
    /// The time that the driver told last; `None` without a clock.
    now: Option<Instant>,
}

/// The part of a change that a response is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Changes,
    /// The removal of what nothing refers to any more.
    Removals,
    /// The renewal of times to live.
    Heartbeats,
}

impl Subscription {
    /// A stream that has just been opened, to be served from `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self::with_settings(snapshot, Arc::default())
    }

    /// A stream with settings of its own.
    pub fn with_settings(snapshot: Arc<Snapshot>, settings: Arc<StreamSettings>) -> Self {
        Self {
            snapshot,
            settings,
            node: None,
            types: Types::default(),
            responses: 0,
            was_answer_alone: false,
            listed: 0,
            now: None,
        }
    }

    /// The identity of the client; `None` until its first request.
    pub fn node(&self) -> Option<&ClientNode> {
        self.node.as_ref()
    }

    /// Takes a request, and returns its meaning.
    pub fn handle_request(&mut self, request: DiscoveryRequest) -> RequestOutcome {
        if self.node.is_none() {
            self.node = request.node.map(ClientNode::new);
        }
        self.was_answer_alone = false;
        self.listed = 0;
        let legacy_wildcard = self.settings.has_legacy_wildcard(&request.type_url);
        let available = self.snapshot.of(&request.type_url);
        let type_url = shared_type_url(&request.type_url);
        let interest = self.types.get_or_insert_with(type_url, Box::default);
        if interest.is_stale(&request.response_nonce) {
            return RequestOutcome::Stale {
                type_url: request.type_url,
            };
        }
        let is_nack = request.error_detail.is_some();
        let is_first_answer = interest.awaits_answer && !request.response_nonce.is_empty();
        // A NACK without a nonce must not make the server send the refused version again.
        if request.response_nonce.is_empty() && !is_nack {
            interest.start_over();
        } else {
            interest.answered(is_nack, &request.version_info);
        }
        // A NACK may change the names too, so they are taken from every request.
        let has_changed = interest.set_names(request.resource_names, legacy_wildcard, available);
        self.was_answer_alone = is_first_answer && !has_changed;
        self.listed = interest.listed(available);
        match request.error_detail {
            Some(error) => RequestOutcome::Nack {
                type_url: request.type_url,
                version: interest.version.to_string(),
                message: error.message,
            },
            None if request.response_nonce.is_empty() => RequestOutcome::Subscribed {
                type_url: request.type_url,
            },
            None => RequestOutcome::Ack {
                type_url: request.type_url,
                version: request.version_info,
            },
        }
    }

    /// Serves from `snapshot` from now on.
    pub fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        let old = mem::replace(&mut self.snapshot, snapshot);
        for (url, interest) in self.types.iter_mut() {
            let (old, new) = (old.of(url), self.snapshot.of(url));
            interest.changed(url, &changed_names(old, new), old, new);
        }
    }

    /// Tells the time.
    pub fn handle_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// The next time at which a response may be due, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.types.values().filter(|interest| {
            interest.awaits_answer && interest.is_pending() && self.is_patient_with(interest)
        });
        let until = waiting.filter_map(|interest| Some(interest.sent_at? + PATIENCE));
        let beats = self.types.values().filter_map(|of| of.beat().time());
        until.chain(beats).min()
    }

    /// The next response that is due; `None` if there is none now.
    ///
    /// Only one response of a type is in flight at a time. Until the client has seen it, requests
    /// of the client are stale and ignored. If a second response were sent meanwhile, a name could
    /// leave and return without the server noticing.
    pub fn poll_response(&mut self) -> Option<Response> {
        while let Some((type_url, stage)) = self.next_turn() {
            let response = self.respond(type_url, stage);
            if response.is_some() {
                return response;
            }
        }
        None
    }

    /// The type that may speak next.
    ///
    /// A type that waits for an answer makes the later types of the order wait too, because they
    /// may refer to its resources. (xDS protocol: Eventual consistency considerations.) Of
    /// endpoints, only those of [waiting clusters](Self::endpoints_of_waiting_clusters) wait. Types
    /// outside the order never wait.
    fn next_turn(&self) -> Option<(String, Stage)> {
        let mut must_wait = false;
        for url in ORDER {
            let pending = self.types.get(url).filter(|interest| interest.is_pending());
            match pending {
                Some(interest) if interest.awaits_answer => {
                    must_wait |= self.is_patient_with(interest);
                }
                Some(interest) if !must_wait || self.has_endpoints_to_send(url, interest) => {
                    return Some((url.to_owned(), Stage::Changes));
                }
                _ => {}
            }
        }
        let mut others = self.types.iter().filter(|(url, interest)| {
            !ORDER.contains(&&***url) && interest.is_pending() && !interest.awaits_answer
        });
        if let Some((url, _)) = others.next() {
            return Some((url.to_string(), Stage::Changes));
        }
        let removed = |url: &&str| {
            let interest = self.types.get(*url);
            interest.is_some_and(|of| of.has_leaving() && !of.awaits_answer)
        };
        let url = REMOVED_LAST.into_iter().find(removed);
        if let Some(url) = url.filter(|_| !must_wait) {
            return Some((url.to_owned(), Stage::Removals));
        }
        let mut types = self.types.iter();
        let beating = types.find(|(_, of)| of.beat().is_due(self.now));
        beating.map(|(url, _)| (url.to_string(), Stage::Heartbeats))
    }

    /// True if these are endpoints, and some of them need not wait for clusters.
    fn has_endpoints_to_send(&self, type_url: &str, interest: &Interest) -> bool {
        type_url == Endpoints::TYPE_URL
            && interest.is_pending_beside(&self.endpoints_of_waiting_clusters())
    }

    /// The names of the endpoints whose cluster has a change that waits for an answer. A change of
    /// these endpoints must arrive after that of their cluster.
    ///
    /// All other endpoints are sent at once. An Envoy answers for clusters when they are warm, and
    /// they are warm when it has their endpoints. So each would wait for the other.
    fn endpoints_of_waiting_clusters(&self) -> BTreeSet<String> {
        let clusters = self.types.get(Cluster::TYPE_URL);
        let waiting = clusters.filter(|of| of.awaits_answer && self.is_patient_with(of));
        let names = waiting.into_iter().flat_map(|of| of.pending_names());
        names
            .filter_map(|name| endpoints_of(&self.snapshot, name))
            .collect()
    }

    /// True if others still wait for the answer to the newest response of a type.
    fn is_patient_with(&self, interest: &Interest) -> bool {
        match (interest.sent_at, self.now) {
            (Some(sent_at), Some(now)) => now < sent_at + PATIENCE,
            _ => true,
        }
    }

    fn respond(&mut self, type_url: String, stage: Stage) -> Option<Response> {
        let node = self.node.as_ref();
        let with_ttl = node.is_some_and(|node| node.has_ttl);
        let waiting = if type_url == Endpoints::TYPE_URL {
            self.endpoints_of_waiting_clusters()
        } else {
            BTreeSet::new()
        };
        let interest = self.types.get_mut(type_url.as_str())?;
        let context = Context {
            available: self.snapshot.of(&type_url),
            full_state: all_in_one_response(&type_url),
            tells_missing: node.is_some_and(|node| node.is_told_missing),
            waiting: &waiting,
        };
        let due = match stage {
            Stage::Changes => interest.take_due(context),
            Stage::Removals => interest.take_leaving(context),
            Stage::Heartbeats => interest.take_heartbeats(context),
        }?;
        self.responses += 1;
        interest.nonce = self.responses.to_string().into();
        interest.awaits_answer = true;
        interest.sent_at = self.now;
        let version = match due.heartbeats {
            true => interest.version_of_heartbeats(),
            false => version_of(&self.snapshot, &type_url, due.kept).into(),
        };
        let before = mem::replace(&mut interest.version, version);
        let resources = if due.heartbeats {
            interest.heartbeats(due.resources)
        } else {
            let resources = due.resources.into_iter();
            resources
                .map(|of| on_the_wire(of, &due.before, with_ttl))
                .collect()
        };
        interest.renewal.sent(before, &resources, self.now);
        let errors = due.missing.iter().map(|name| not_found(&type_url, name));
        let response = Response {
            protocol: Protocol::StateOfTheWorld,
            version: interest.version.to_string(),
            nonce: interest.nonce.to_string(),
            resources,
            removed: Vec::new(),
            errors: errors.collect(),
            type_url,
        };
        if response.type_url == Cluster::TYPE_URL {
            self.resend_endpoints_of(&due.changed);
        }
        Some(response)
    }

    fn resend_endpoints_of(&mut self, clusters: &[Arc<str>]) {
        let Some(endpoints) = self.types.get_mut(Endpoints::TYPE_URL) else {
            return;
        };
        for cluster in clusters {
            if let Some(name) = endpoints_of(&self.snapshot, cluster) {
                endpoints.forget(&name);
            }
        }
    }
}

impl ServerHalf for Subscription {
    type Request = DiscoveryRequest;

    fn new(snapshot: Arc<Snapshot>, settings: Arc<StreamSettings>) -> Self {
        Self::with_settings(snapshot, settings)
    }

    fn node(&self) -> Option<&ClientNode> {
        self.node()
    }

    fn handle_request(&mut self, request: DiscoveryRequest) -> RequestOutcome {
        self.handle_request(request)
    }

    fn was_answer_alone(&self) -> bool {
        self.was_answer_alone
    }

    fn listed(&self) -> usize {
        self.listed
    }

    fn held(&self) -> Held {
        self.types.held()
    }

    fn wish(&self, type_url: &str) -> Option<Wish> {
        self.types.wish(type_url, &self.snapshot)
    }

    fn is_waiting(&self, type_url: &str) -> bool {
        self.types.is_waiting(type_url)
    }

    fn wanted(&self, type_url: &str) -> Vec<Wanted> {
        self.types.wanted(type_url, &self.snapshot)
    }

    fn serves(&self, type_url: &str, name: &str) -> bool {
        self.types.serves(type_url, name, &self.snapshot)
    }

    fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.handle_snapshot(snapshot);
    }

    fn handle_time(&mut self, now: Instant) {
        self.handle_time(now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next_timeout()
    }

    fn poll_response(&mut self) -> Option<Response> {
        self.poll_response()
    }

    fn node_in(request: &DiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn nonce_in(request: &DiscoveryRequest) -> &str {
        &request.response_nonce
    }

    fn names_in(request: &DiscoveryRequest) -> usize {
        request.resource_names.len()
    }

    fn type_of(request: &mut DiscoveryRequest) -> &mut String {
        &mut request.type_url
    }
}

/// The version of a response. It differs while the response keeps resources that the snapshot no
/// longer has, because a version has one content.
fn version_of(snapshot: &Snapshot, type_url: &str, kept: usize) -> String {
    let version = snapshot.version_of(type_url);
    if kept == 0 || snapshot.is_labelled(type_url) {
        version.to_owned()
    } else {
        format!("{version}+{kept}")
    }
}

/// A resource as it is sent. Only a wrapper can hold a time to live. `before` has the version before
/// of each resource that the client does not have in this version, by name.
fn on_the_wire(
    (name, resource): (Arc<str>, Arc<SnapshotResource>),
    before: &[(Arc<str>, Option<Arc<str>>)],
    with_ttl: bool,
) -> Sent {
    let ttl = resource.ttl.filter(|_| with_ttl);
    let form = if resource.wrapped || ttl.is_some() {
        Form::Wrapped { ttl }
    } else {
        Form::Bare
    };
    let changed = before.binary_search_by(|(changed, _)| changed.cmp(&name));
    let before = match changed {
        Ok(at) => before.get(at).and_then(|(_, before)| before.clone()),
        Err(_) => Some(Arc::clone(&resource.version)),
    };
    Sent {
        name,
        resource,
        form,
        before,
    }
}
