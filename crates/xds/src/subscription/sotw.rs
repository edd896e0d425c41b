//! The server half of a state-of-the-world stream.
//!
//! Listeners and clusters are sent all together in each response, other types only where they
//! changed (gRFC A53).

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use super::{EMPTY_VERSION, ORDER, RequestOutcome, ServerHalf, WILDCARD, endpoints_of, wrapped};
use crate::snapshot::{Snapshot, SnapshotResource, TypeSnapshot, changed_names};

/// The server half of one state-of-the-world ADS stream.
///
/// Inputs are [`handle_request`](Self::handle_request) and
/// [`handle_snapshot`](Self::handle_snapshot); after either, call
/// [`poll_response`](Self::poll_response) until it returns `None`.
#[derive(Debug)]
pub struct Subscription {
    snapshot: Arc<Snapshot>,
    node: Option<Node>,
    types: BTreeMap<String, Interest>,
    responses: u64,
}

impl Subscription {
    /// A stream that has just been opened, to be served from `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            snapshot,
            node: None,
            types: BTreeMap::new(),
            responses: 0,
        }
    }

    /// The identity of the client; `None` until its first request.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// Takes a request, and returns its meaning.
    pub fn handle_request(&mut self, request: DiscoveryRequest) -> RequestOutcome {
        if self.node.is_none() {
            self.node = request.node;
        }
        let interest = self.types.entry(request.type_url.clone()).or_default();
        if interest.is_stale(&request.response_nonce) {
            return RequestOutcome::Stale {
                type_url: request.type_url,
            };
        }
        if request.response_nonce.is_empty() {
            interest.start_over();
        } else {
            interest.awaits_answer = false;
        }
        // A NACK may change the names too, so they are taken from every request.
        interest.set_names(request.resource_names);
        match request.error_detail {
            Some(error) => RequestOutcome::Nack {
                type_url: request.type_url,
                version: interest.version.clone(),
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
        for (url, interest) in &mut self.types {
            interest.changed(&changed_names(old.of(url), self.snapshot.of(url)));
        }
    }

    /// The next response that is due; `None` if there is none now.
    ///
    /// Only one response of a type is in flight at a time. Until the client has seen it, requests
    /// of the client are stale and ignored. If a second response were sent meanwhile, a name could
    /// leave and return without the server noticing. The types that come later in the order wait
    /// too.
    pub fn poll_response(&mut self) -> Option<DiscoveryResponse> {
        let others = self.types.keys().map(String::as_str);
        let urls: Vec<String> = ORDER
            .into_iter()
            .chain(others.filter(|url| !ORDER.contains(url)))
            .map(str::to_owned)
            .collect();
        for url in &urls {
            let Some(interest) = self.types.get(url) else {
                continue;
            };
            if interest.awaits_answer && !interest.pending.is_empty() {
                return None;
            }
            if let Some(response) = self.respond(url) {
                return Some(response);
            }
        }
        None
    }

    fn respond(&mut self, type_url: &str) -> Option<DiscoveryResponse> {
        let interest = self.types.get_mut(type_url)?;
        let due = interest.take_due(type_url, self.snapshot.of(type_url))?;
        self.responses += 1;
        interest.nonce = self.responses.to_string();
        interest.awaits_answer = true;
        interest.version = self
            .snapshot
            .of(type_url)
            .map_or_else(|| EMPTY_VERSION.to_owned(), |of| of.version().to_owned());
        let response = DiscoveryResponse {
            version_info: interest.version.clone(),
            resources: due.resources,
            type_url: type_url.to_owned(),
            nonce: interest.nonce.clone(),
            ..DiscoveryResponse::default()
        };
        if type_url == Cluster::TYPE_URL {
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
    type Response = DiscoveryResponse;

    fn new(snapshot: Arc<Snapshot>) -> Self {
        Self::new(snapshot)
    }

    fn node(&self) -> Option<&Node> {
        self.node()
    }

    fn handle_request(&mut self, request: DiscoveryRequest) -> RequestOutcome {
        self.handle_request(request)
    }

    fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.handle_snapshot(snapshot);
    }

    fn poll_response(&mut self) -> Option<DiscoveryResponse> {
        self.poll_response()
    }

    fn requested_type(request: &DiscoveryRequest) -> &str {
        &request.type_url
    }

    fn type_and_version(response: &DiscoveryResponse) -> (&str, &str) {
        (&response.type_url, &response.version_info)
    }
}

/// The resources of one type that a client wants, and those that it was sent.
#[derive(Debug, Default)]
struct Interest {
    wildcard: bool,
    names: BTreeSet<String>,
    /// True once a request had a name. An empty list of names means "everything" only before that.
    has_named: bool,
    /// The version of each resource that was sent and is still wanted. Refused versions are
    /// included, so that they are not sent again.
    sent: BTreeMap<Arc<str>, Arc<str>>,
    /// True if a response of this type was sent on this stream, and no request without a nonce came
    /// after it.
    responded: bool,
    /// True if the client has not yet accepted or refused the newest response.
    awaits_answer: bool,
    /// The nonce of the newest response.
    nonce: String,
    version: String,
    pending: Pending,
}

/// The names to check for the next response. Only these are checked, so that the work is in
/// proportion to what changed or was asked for.
#[derive(Debug, Default)]
enum Pending {
    /// Every name that is wanted or was sent.
    #[default]
    All,
    Names(BTreeSet<Arc<str>>),
}

impl Pending {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Names(names) if names.is_empty())
    }

    fn add(&mut self, name: &Arc<str>) {
        if let Self::Names(names) = self {
            names.insert(Arc::clone(name));
        }
    }
}

/// The content of a response, and the names in it that changed.
struct Due {
    resources: Vec<Any>,
    changed: Vec<Arc<str>>,
}

impl Interest {
    /// True if the nonce is of an earlier response, because the client has not seen the newest one
    /// yet. The client will repeat its names in the answer to the newest.
    fn is_stale(&self, nonce: &str) -> bool {
        !nonce.is_empty() && !self.nonce.is_empty() && nonce != self.nonce
    }

    /// Forgets what was sent. A request without a nonce comes from a client that has seen no
    /// response, or has forgotten them all. So nothing is known about the resources that it holds.
    fn start_over(&mut self) {
        self.sent.clear();
        self.responded = false;
        self.pending = Pending::All;
    }

    fn set_names(&mut self, names: Vec<String>) {
        let legacy_wildcard = names.is_empty() && !self.has_named;
        self.has_named |= !names.is_empty();
        let names: BTreeSet<String> = names.into_iter().collect();
        let wildcard = legacy_wildcard || names.contains(WILDCARD);
        if wildcard != self.wildcard || names != self.names {
            self.pending = Pending::All;
        }
        self.wildcard = wildcard;
        self.names = names;
        let (wildcard, names) = (self.wildcard, &self.names);
        // A name that is left out is forgotten, so that it is sent again if the client asks for it
        // later.
        self.sent
            .retain(|name, _| wildcard || names.contains(&**name));
    }

    fn forget(&mut self, name: &str) {
        if let Some((name, _)) = self.sent.remove_entry(name) {
            self.pending.add(&name);
        }
    }

    /// Notes that these resources changed in the snapshot.
    fn changed(&mut self, names: &[Arc<str>]) {
        for name in names {
            if self.wants(name) {
                self.pending.add(name);
            }
        }
    }

    fn take_due(&mut self, type_url: &str, available: Option<&TypeSnapshot>) -> Option<Due> {
        let looked_at = match mem::replace(&mut self.pending, Pending::Names(BTreeSet::new())) {
            Pending::All => self.wanted_or_sent(available),
            Pending::Names(names) => names,
        };
        let found = |name: &str| available.and_then(|of| of.resources().get_key_value(name));
        let mut changed = Vec::new();
        let mut removed = false;
        for name in looked_at {
            match found(&name) {
                None => removed |= self.sent.remove(&name).is_some(),
                Some((_, now)) if self.sent.get(&name) == Some(&now.version) => {}
                Some(due) => changed.push(due),
            }
        }
        let full_state = all_in_one_response(type_url);
        // Envoy's start waits for the first answer to a wildcard, even if that is empty. A client
        // that comes from another stream may hold resources that were deleted in the meantime.
        let first_answer = (self.wildcard || full_state) && !self.responded;
        if changed.is_empty() && !first_answer && !(full_state && removed) {
            return None;
        }
        for (name, resource) in &changed {
            let version = Arc::clone(&resource.version);
            self.sent.insert(Arc::clone(name), version);
        }
        self.responded = true;
        let resources = if full_state {
            let all = self.sent.keys().filter_map(|name| found(name));
            all.map(|(name, resource)| on_the_wire(name, resource))
                .collect()
        } else {
            let changed = changed.iter();
            changed
                .map(|(name, resource)| on_the_wire(name, resource))
                .collect()
        };
        let changed = changed.into_iter().map(|(name, _)| Arc::clone(name));
        Some(Due {
            resources,
            changed: changed.collect(),
        })
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// The names that are wanted and exist, and those that were sent and may be deleted.
    fn wanted_or_sent(&self, available: Option<&TypeSnapshot>) -> BTreeSet<Arc<str>> {
        let mut names: BTreeSet<Arc<str>> = self.sent.keys().cloned().collect();
        let Some(resources) = available.map(TypeSnapshot::resources) else {
            return names;
        };
        if self.wildcard {
            names.extend(resources.keys().cloned());
            return names;
        }
        let named = self.names.iter();
        let found = named.filter_map(|name| resources.get_key_value(name));
        names.extend(found.map(|(name, _)| Arc::clone(name)));
        names
    }
}

/// True for types where absence means deletion, so that each response lists all resources (gRFC
/// A53).
fn all_in_one_response(type_url: &str) -> bool {
    type_url == Listener::TYPE_URL || type_url == Cluster::TYPE_URL
}

fn on_the_wire(name: &str, resource: &SnapshotResource) -> Any {
    if !resource.wrapped {
        return resource.any.clone();
    }
    Any {
        type_url: crate::WRAPPER_TYPE_URL.to_owned(),
        value: wrapped(name, resource).encode_to_vec(),
    }
}
