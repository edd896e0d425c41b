//! What is particular to state of the world: a request lists every name, one version stands for all
//! of a type, and what a full-state response leaves out is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::rpc::Status;

use super::apply::{self, Context, Verdict};
use super::refusal::Refusal;
use super::type_state::{Names, TypeState, WILDCARD};
use crate::cache::Cache;
use crate::kind::Kind;

#[derive(Debug, Default)]
pub(super) struct SotwWire {
    /// The last version that was accepted whole. It outlives the stream.
    version: String,
    stream: OnStream,
}

/// What ends with the stream.
#[derive(Debug, Default)]
struct OnStream {
    /// Kept even when the last name goes: a request without it would be read as the stream's first.
    nonce: String,
    /// Whether a request went out. Before that, an empty list of names would mean "all".
    asked: bool,
    due: bool,
    /// What to say in the next request's `error_detail`.
    rejection: Option<Box<Status>>,
    /// The names that requests since the last response left out. If that response was on its way
    /// before such a request arrived, the request was void, and the server still believes that we
    /// hold what we have forgotten.
    doubtful: BTreeSet<Arc<str>>,
    /// The names that the next request must leave out, and a wildcard with them, so that the server
    /// sends them again when the request after it asks for them.
    withheld: BTreeSet<Arc<str>>,
}

impl SotwWire {
    pub(super) fn names_changed(&mut self) {
        self.stream.due = true;
    }

    pub(super) fn start_stream(&mut self) {
        self.stream = OnStream {
            due: true,
            ..OnStream::default()
        };
    }

    pub(super) fn is_due(&self, names: &Names) -> bool {
        let nothing_to_say = !self.stream.asked && names.is_empty();
        self.stream.due && !nothing_to_say
    }

    pub(super) fn left_out(&mut self, name: Arc<str>) {
        self.stream.doubtful.insert(name);
    }

    pub(super) fn request(
        &mut self,
        kind: Kind,
        names: &mut Names,
        node: Option<Node>,
    ) -> DiscoveryRequest {
        let withheld = std::mem::take(&mut self.stream.withheld);
        let asks_again = |name: &Arc<str>| names.all || names.by_name.contains_key(name);
        self.stream.due = withheld.iter().any(asks_again);
        self.stream.asked = true;
        let told = names.sending_all_but(&withheld);
        let wildcard = (names.all && withheld.is_empty()).then(|| WILDCARD.to_owned());
        DiscoveryRequest {
            version_info: self.version.clone(),
            node,
            resource_names: wildcard.into_iter().chain(told).collect(),
            type_url: kind.type_url.to_owned(),
            response_nonce: self.stream.nonce.clone(),
            error_detail: self.stream.rejection.take().map(|status| *status),
            ..DiscoveryRequest::default()
        }
    }

    /// Makes the next request an ACK, or a NACK that lists every error.
    ///
    /// A response with any error leaves the version where it was, although its valid resources are
    /// in use (gRFC A46): the version says what was accepted whole.
    pub(super) fn answer(
        &mut self,
        nonce: String,
        version: &str,
        errors: &Refusal,
        has_value: impl Fn(&Arc<str>) -> bool,
    ) {
        self.stream.nonce = nonce;
        self.stream.due = true;
        self.stream.rejection = errors.to_status().map(Box::new);
        let mut doubtful = std::mem::take(&mut self.stream.doubtful);
        doubtful.retain(|name| !has_value(name));
        self.stream.withheld.append(&mut doubtful);
        if errors.is_empty() {
            version.clone_into(&mut self.version);
        }
    }

    pub(super) fn forget_version(&mut self) {
        self.version.clear();
    }
}

pub(super) fn apply(
    response: DiscoveryResponse,
    state: &mut TypeState,
    cache: &mut Cache,
    context: &Context<'_>,
) -> Verdict {
    let mut verdict = Verdict::default();
    let version: Arc<str> = response.version_info.into();
    let mut seen = BTreeSet::new();
    for (index, any) in response.resources.into_iter().enumerate() {
        let parsed = apply::unwrap(state.kind, any, context.readings);
        verdict.take(index, parsed, &version, &mut seen, state, cache, context);
    }
    for error in response.resource_errors {
        verdict.take_report(error, &mut seen, state, cache, context);
    }
    if state.kind.all_in_sotw {
        delete_unlisted(state, &seen, cache, context, &mut verdict);
    }
    verdict
}

/// gRFC A53: only what was received before can be deleted. A name that never came waits for its
/// deadline, because the response may have been on its way before the server heard of it.
fn delete_unlisted(
    state: &mut TypeState,
    listed: &BTreeSet<Arc<str>>,
    cache: &mut Cache,
    context: &Context<'_>,
    verdict: &mut Verdict,
) {
    let names: Vec<Arc<str>> = if state.names.has_all() {
        state.keys(cache).into_iter().map(|key| key.name).collect()
    } else {
        state.names.by_name.keys().cloned().collect()
    };
    for name in names {
        if !listed.contains(&name) && cache.has_value(&state.kind.key(&name)) {
            verdict.delete(&name, state, cache, context);
        }
    }
}
