//! The part of a session that only state of the world needs. A request lists every name, and one
//! version covers all resources of a type. A resource that a full-state response leaves out is
//! deleted.

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
    /// The last version that was accepted without an error. It outlives the stream.
    version: String,
    stream: OnStream,
}

/// The state of one type that ends with the stream.
#[derive(Debug, Default)]
struct OnStream {
    /// The nonce of the newest response. It is kept even when no name is left, because a request
    /// without it would look like the first of the stream.
    nonce: String,
    /// True if a request was sent on this stream. Before that, an empty list of names would mean
    /// "all".
    asked: bool,
    due: bool,
    /// The `error_detail` of the next request; `None` for an ACK.
    rejection: Option<Box<Status>>,
    /// The names that requests since the last response left out. If that response was sent before
    /// such a request arrived, the server ignored the request. It then still believes that this
    /// client holds resources that the client has forgotten.
    doubtful: BTreeSet<Arc<str>>,
    /// The names that the next request must leave out, and with them the wildcard. The request
    /// after it asks for them, and then the server sends them again.
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
    /// A response with any error leaves the accepted version as it was, because the version stands
    /// for a response without errors. Its valid resources are used all the same (gRFC A46).
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

/// Deletes resources that a full-state response left out, if they were received before (gRFC A53).
/// A name that never arrived waits for its deadline, because the server may have sent the response
/// before it read that name.
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
