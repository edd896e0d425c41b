//! The server half of a delta stream.
//!
//! A delta response holds only resources that differ from those of the client, because the client says which
//! versions it has.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use super::client_node::ClientNode;
use super::early::EarlyClusters;
use super::interest::{Batch, Interest};
use super::response::Response;
use super::types::Types;
use super::{
    Held, ORDER, REMOVED_LAST, RequestOutcome, ServerHalf, StreamSettings, Wanted, Wish,
    endpoints_of, shared_type_url,
};
use crate::session::Protocol;
use crate::snapshot::{Snapshot, changed_names};

/// The server half of one incremental ADS stream.
///
/// Inputs are [`handle_request`](Self::handle_request) and
/// [`handle_snapshot`](Self::handle_snapshot); after either, call
/// [`poll_response`](Self::poll_response) until it returns `None`.
#[derive(Debug)]
pub struct DeltaSubscription {
    snapshot: Arc<Snapshot>,
    settings: Arc<StreamSettings>,
    node: Option<ClientNode>,
    /// The types that the client asked for.
    types: Types<Interest>,
    /// The clusters that were sent before the first request of the client for endpoints.
    early_clusters: EarlyClusters,
    responses: u64,
    was_answer_alone: bool,
    /// The number of resources that the wildcards of the last request stand for.
    listed: usize,
    /// The time that the driver told last; `None` without a clock.
    now: Option<Instant>,
}

impl DeltaSubscription {
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
            early_clusters: EarlyClusters::default(),
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
    ///
    /// Its names count even if its nonce is stale, because the nonce only says which response it
    /// answers (xDS protocol: Incremental xDS).
    pub fn handle_request(&mut self, mut request: DeltaDiscoveryRequest) -> RequestOutcome {
        if self.node.is_none() {
            self.node = request.node.take().map(ClientNode::new);
        }
        let type_url = mem::take(&mut request.type_url);
        let nonce = mem::take(&mut request.response_nonce);
        let error = request.error_detail.take();
        let names_nothing = request.resource_names_subscribe.is_empty()
            && request.resource_names_unsubscribe.is_empty();
        let first = self.take_names(&type_url, request);
        let interest = self
            .types
            .get_or_insert_with(shared_type_url(&type_url), Box::default);
        let answered = interest.answered(&nonce, error.is_some());
        self.was_answer_alone = answered.is_some() && names_nothing;
        match (answered, error) {
            (Some(version), None) => RequestOutcome::Ack { type_url, version },
            (Some(version), Some(error)) => RequestOutcome::Nack {
                type_url,
                version,
                message: error.message,
            },
            (None, _) if first || nonce.is_empty() => RequestOutcome::Subscribed { type_url },
            (None, _) => RequestOutcome::Stale { type_url },
        }
    }

    /// Serves from `snapshot` from now on.
    pub fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        let old = mem::replace(&mut self.snapshot, snapshot);
        for (url, interest) in self.types.iter_mut() {
            let old = old.of(url);
            interest.changed(&changed_names(old, self.snapshot.of(url)), old);
        }
    }

    /// Tells the time.
    pub fn handle_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// The next time at which a response may be due, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        let beats = self.types.values().filter_map(|of| of.pulse.time());
        beats.min()
    }

    /// The next response that is due; `None` if there is none now.
    pub fn poll_response(&mut self) -> Option<Response> {
        let with_ttl = self.node.as_ref().is_some_and(|node| node.has_ttl);
        while let Some(url) = self.next_type(ORDER, Interest::may_be_due) {
            let interest = self.types.get_mut(url.as_str())?;
            let removals_wait = REMOVED_LAST.contains(&url.as_str());
            if let Some(batch) = interest.take(self.snapshot.of(&url), removals_wait, with_ttl) {
                return Some(self.respond(url, batch));
            }
        }
        if let Some(url) = self.next_type(REMOVED_LAST, Interest::has_removals) {
            let batch = self.types.get_mut(url.as_str())?.take_removals();
            return Some(self.respond(url, batch));
        }
        if with_ttl { self.heartbeat() } else { None }
    }

    fn heartbeat(&mut self) -> Option<Response> {
        let now = self.now?;
        while let Some(url) = self.next_type(ORDER, |of| of.pulse.is_due(Some(now))) {
            let interest = self.types.get_mut(url.as_str())?;
            if let Some(batch) = interest.take_heartbeats(self.snapshot.of(&url), now) {
                return Some(self.respond(url, batch));
            }
        }
        None
    }

    /// Takes the names of a request. Returns true if it is the first of its type.
    fn take_names(&mut self, type_url: &str, request: DeltaDiscoveryRequest) -> bool {
        let first = !self.types.contains_key(type_url);
        let available = self.snapshot.of(type_url);
        let interest = self
            .types
            .get_or_insert_with(shared_type_url(type_url), Box::default);
        let subscribe = &request.resource_names_subscribe;
        let unsubscribe = &request.resource_names_unsubscribe;
        // A name in both lists ends up subscribed to, because sending too much is safer than too
        // little.
        self.listed = interest.unsubscribe(unsubscribe, available);
        self.listed += interest.subscribe(subscribe, available);
        if !first {
            return false;
        }
        let legacy_wildcard = self.settings.has_legacy_wildcard(type_url);
        if subscribe.is_empty() && unsubscribe.is_empty() && legacy_wildcard {
            // An empty first request is the old form of the wildcard, from before `*`. Only an
            // unsubscribe of `*` ends it.
            self.listed = interest.subscribe_to_all(available);
        }
        interest.continue_from(request.initial_resource_versions);
        if type_url == Endpoints::TYPE_URL {
            match mem::take(&mut self.early_clusters) {
                EarlyClusters::Names(names) => {
                    self.resend_endpoints_of(names.into_iter().map(|(name, ())| name));
                }
                EarlyClusters::Many => interest.resend_all(),
            }
        }
        true
    }

    /// The first type that is due, those in `order` before all others.
    fn next_type<const N: usize>(
        &self,
        order: [&str; N],
        due: impl Fn(&Interest) -> bool,
    ) -> Option<String> {
        let others = self.types.keys().map(|url| &**url);
        let mut urls = order.into_iter().chain(others);
        let url = urls.find(|url| self.types.get(*url).is_some_and(|of| due(of)))?;
        Some(url.to_owned())
    }

    fn respond(&mut self, type_url: String, batch: Batch) -> Response {
        self.responses += 1;
        let nonce = self.responses.to_string();
        let version = self.snapshot.version_of(&type_url).to_owned();
        if let Some(interest) = self.types.get_mut(type_url.as_str()) {
            interest.sent(nonce.clone(), version.clone(), &batch.resources);
            interest.pulse.started(&batch.resources, self.now);
        }
        if type_url == Cluster::TYPE_URL {
            let sent = batch.resources.iter().filter(|sent| sent.has_body());
            let clusters: Vec<_> = sent.map(|sent| Arc::clone(&sent.name)).collect();
            self.resend_endpoints_of(clusters);
        }
        Response {
            protocol: Protocol::Delta,
            // This version is for debugging only; the versions that count are those of the
            // resources.
            version,
            resources: batch.resources,
            type_url,
            removed: batch.removed,
            nonce,
            errors: Vec::new(),
        }
    }

    /// Sends the endpoints of these clusters again. A refused version is sent again too, because
    /// the old cluster may have been the reason for the refusal.
    fn resend_endpoints_of(&mut self, clusters: impl IntoIterator<Item = Arc<str>>) {
        let Some(endpoints) = self.types.get_mut(Endpoints::TYPE_URL) else {
            return self.early_clusters.add(clusters);
        };
        for cluster in clusters {
            if let Some(name) = endpoints_of(&self.snapshot, &cluster) {
                endpoints.resend(&name);
            }
        }
    }
}

impl ServerHalf for DeltaSubscription {
    type Request = DeltaDiscoveryRequest;

    fn new(snapshot: Arc<Snapshot>, settings: Arc<StreamSettings>) -> Self {
        Self::with_settings(snapshot, settings)
    }

    fn node(&self) -> Option<&ClientNode> {
        self.node()
    }

    fn handle_request(&mut self, request: DeltaDiscoveryRequest) -> RequestOutcome {
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

    fn node_in(request: &DeltaDiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn nonce_in(request: &DeltaDiscoveryRequest) -> &str {
        &request.response_nonce
    }

    fn names_in(request: &DeltaDiscoveryRequest) -> usize {
        let subscribe = request.resource_names_subscribe.len();
        let unsubscribe = request.resource_names_unsubscribe.len();
        let has = request.initial_resource_versions.len();
        subscribe.max(unsubscribe).max(has)
    }

    fn type_of(request: &mut DeltaDiscoveryRequest) -> &mut String {
        &mut request.type_url
    }
}
