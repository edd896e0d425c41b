//! The part of a session that only delta needs. A request lists the names that were added and
//! removed, and each resource has its own version. The server names the resources that are deleted.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status;

use super::apply::{self, Context, Verdict};
use super::refusal::Refusal;
use super::type_state::{Names, TypeState, WILDCARD, Wire};
use crate::cache::Cache;
use crate::kind::{Kind, canonical};
use crate::sorted::Sorted;

#[derive(Debug, Default)]
pub(super) struct DeltaWire {
    /// The version of each resource that was accepted from this server. It outlives the stream,
    /// because the first request of the next stream lists these versions.
    versions: Sorted<Arc<str>, Arc<str>>,
    stream: OnStream,
}

/// The state of one type that ends with the stream.
#[derive(Debug, Default)]
struct OnStream {
    asked: bool,
    answered: bool,
    subscribe: BTreeSet<Arc<str>>,
    unsubscribe: BTreeSet<Arc<str>>,
    /// The names in `subscribe` that were unsubscribed and subscribed again before the server was
    /// told.
    returned: BTreeSet<Arc<str>>,
    /// The ACKs and NACKs that are not sent yet. Each response needs one of its own, because a
    /// nonce stands for one response here.
    answers: VecDeque<Answer>,
}

#[derive(Debug)]
struct Answer {
    nonce: String,
    rejection: Option<Status>,
}

impl DeltaWire {
    /// Subscribes to a name. A name that the server already believes to be wanted is sent again
    /// too, so that the server sends its resource again.
    pub(super) fn subscribe(&mut self, name: Arc<str>) {
        if self.stream.unsubscribe.remove(&name) {
            self.stream.returned.insert(Arc::clone(&name));
        }
        self.stream.subscribe.insert(name);
    }

    pub(super) fn unsubscribe(&mut self, name: Arc<str>) {
        let unsent = self.stream.subscribe.remove(&name);
        let told = self.stream.returned.remove(&name) || !unsent;
        if self.stream.asked && told {
            self.stream.unsubscribe.insert(name);
        }
    }

    pub(super) fn start_stream(&mut self, names: &Names) {
        self.stream = OnStream::default();
        if names.all {
            self.stream.subscribe.insert(WILDCARD.into());
        }
        self.stream.subscribe.extend(names.by_name.keys().cloned());
    }

    pub(super) fn is_due(&self) -> bool {
        let OnStream {
            subscribe,
            unsubscribe,
            answers,
            ..
        } = &self.stream;
        !(subscribe.is_empty() && unsubscribe.is_empty() && answers.is_empty())
    }

    pub(super) fn request(
        &mut self,
        kind: Kind,
        names: &mut Names,
        node: Option<Node>,
    ) -> DeltaDiscoveryRequest {
        for name in &self.stream.subscribe {
            names.sending(name);
        }
        let is_first = !std::mem::replace(&mut self.stream.asked, true);
        self.stream.returned.clear();
        let known = is_first.then(|| self.versions.iter());
        let known = known.into_iter().flatten();
        let known = known.filter(|(name, _)| names.has(name));
        let initial_resource_versions = known
            .map(|(name, version)| (name.to_string(), version.to_string()))
            .collect();
        let answer = self.stream.answers.pop_front();
        let (response_nonce, error_detail) =
            answer.map_or_else(Default::default, |answer| (answer.nonce, answer.rejection));
        DeltaDiscoveryRequest {
            node,
            type_url: kind.type_url.to_owned(),
            resource_names_subscribe: to_names(&mut self.stream.subscribe),
            resource_names_unsubscribe: to_names(&mut self.stream.unsubscribe),
            initial_resource_versions,
            response_nonce,
            error_detail,
            ..DeltaDiscoveryRequest::default()
        }
    }

    /// True if the version that this client holds came from this server.
    pub(super) fn has_sent(&self, name: &str) -> bool {
        self.versions.contains_key(name)
    }

    /// Notes a response. Returns true if it is the first of this type on this stream.
    pub(super) fn is_first_response(&mut self) -> bool {
        !std::mem::replace(&mut self.stream.answered, true)
    }

    pub(super) fn answer(&mut self, nonce: String, errors: &Refusal) {
        self.stream.answers.push_back(Answer {
            nonce,
            rejection: errors.to_status(),
        });
    }

    pub(super) fn answers_owed(&self) -> usize {
        self.stream.answers.len()
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.versions.remove(name);
    }

    pub(super) fn forget_unnamed(&mut self, names: &Names) {
        self.versions
            .retain(|name, _| names.by_name.contains_key(name));
    }

    pub(super) fn forget_versions(&mut self) {
        self.versions = Sorted::default();
    }
}

pub(super) fn apply(
    response: DeltaDiscoveryResponse,
    state: &mut TypeState,
    cache: &mut Cache,
    context: &Context<'_>,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut seen = BTreeSet::new();
    for (index, resource) in response.resources.into_iter().enumerate() {
        if resource.resource.is_none() && resource.ttl.is_some() {
            // A heartbeat: the resource that this client holds is still valid.
            continue;
        }
        let version: Arc<str> = resource.version.as_str().into();
        let parsed = apply::from_wrapper(state.kind, resource, context.readings);
        let taken = verdict.take(index, parsed, &version, &mut seen, state, cache, context);
        if let (Some(name), Wire::Delta(wire)) = (taken, &mut state.wire) {
            wire.versions.insert(name, version);
        }
    }
    for error in response.resource_errors {
        verdict.take_report(error, &mut seen, state, cache, context);
    }
    let gone = response.removed_resources.into_iter();
    let gone = gone.chain(
        response
            .removed_resource_names
            .into_iter()
            .map(|name| name.name),
    );
    for name in gone {
        let name = canonical(&name);
        if let Wire::Delta(wire) = &mut state.wire {
            wire.forget(&name);
        }
        if state.names.has(&name) {
            verdict.delete(&name, state, cache, context);
        }
    }
    verdict
}

fn to_names(names: &mut BTreeSet<Arc<str>>) -> Vec<String> {
    std::mem::take(names)
        .iter()
        .map(|name| name.to_string())
        .collect()
}
