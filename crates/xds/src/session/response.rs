//! What one response does to the cache.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crowfly_model::{Decoded, Errors};
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryResponse, Resource};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use super::Output;
use super::type_state::TypeState;
use crate::cache::{Cache, Changed};
use crate::error::{Reason, ResourceError};
use crate::kind::{Erased, Key, Kind};

/// The outcome of a response.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// One text for each bad resource; empty for an ACK.
    pub(super) errors: Vec<String>,
    pub(super) changes: Vec<Output>,
    /// Deadlines that no longer matter.
    pub(super) settled: Vec<(Instant, Key)>,
}

/// Takes every valid resource of the response (gRFC A46: also if others are not), reports every bad
/// one, and deletes what a full-state response left out. What nobody asked for is passed over, valid
/// or not: a server that ignores names must not have its other clients' resources judged here.
pub(super) fn apply(
    response: &DiscoveryResponse,
    state: &mut TypeState,
    cache: &mut Cache,
    node: &Arc<str>,
) -> Verdict {
    let mut verdict = Verdict::default();
    let version: Arc<str> = response.version_info.as_str().into();
    let mut seen = BTreeSet::new();
    for (index, any) in response.resources.iter().enumerate() {
        let Decoded { name, value } = decode(state.kind, any);
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let errors = value.err().unwrap_or_else(|| Errors::whole("has no name"));
            verdict.errors.push(format!(
                "{} at resources[{index}]: {errors}",
                state.kind.noun
            ));
            continue;
        };
        let name: Arc<str> = name.into();
        if !seen.insert(Arc::clone(&name)) {
            verdict.errors.push(format!(
                "{} {name}: is in the response twice",
                state.kind.noun
            ));
            continue;
        }
        if !state.wants(&name) {
            continue;
        }
        if let Err(errors) = &value {
            verdict
                .errors
                .push(format!("{} {name}: {errors}", state.kind.noun));
        }
        let key = state.key(&name);
        if let Some(deadline) = state.settle(&name) {
            verdict.settled.push((deadline, key.clone()));
        }
        let changed = match value {
            Ok(value) => cache.entry_mut(&key).accept(state.kind, value, &version),
            Err(errors) => {
                let error = error(state.kind, &name, Reason::Invalid(errors), node);
                cache.entry_mut(&key).trouble(error)
            }
        };
        verdict.push(key, changed);
    }
    if state.kind.all_in_sotw {
        delete_unlisted(state, &seen, cache, node, &mut verdict);
    }
    verdict
}

/// gRFC A53: only what was received before can be deleted. A name that never came waits for its
/// deadline, because the response may have been on its way before the server heard of it.
fn delete_unlisted(
    state: &TypeState,
    listed: &BTreeSet<Arc<str>>,
    cache: &mut Cache,
    node: &Arc<str>,
    verdict: &mut Verdict,
) {
    for key in state.keys(cache) {
        if listed.contains(&key.name) || !cache.has_value(&key) {
            continue;
        }
        let error = error(state.kind, &key.name, Reason::Deleted, node);
        let changed = cache.entry_mut(&key).fail(error);
        verdict.push(key, changed);
    }
}

fn decode(kind: Kind, any: &Any) -> Decoded<Erased> {
    if any.type_url != crate::WRAPPER_TYPE_URL {
        return decode_unwrapped(kind, any);
    }
    let wrapper = match Resource::decode(any.value.as_slice()) {
        Ok(wrapper) => wrapper,
        Err(error) => return Decoded::undecodable(error),
    };
    let wrapper_name = Some(wrapper.name).filter(|name| !name.is_empty());
    let Some(inner) = &wrapper.resource else {
        return Decoded {
            name: wrapper_name,
            value: Err(Errors::whole("the Resource wrapper is empty")),
        };
    };
    let decoded = decode_unwrapped(kind, inner);
    Decoded {
        name: decoded.name.or(wrapper_name),
        value: decoded.value,
    }
}

fn decode_unwrapped(kind: Kind, any: &Any) -> Decoded<Erased> {
    if any.type_url == kind.type_url {
        return kind.decode(&any.value);
    }
    Decoded {
        name: None,
        value: Err(Errors::whole(format!(
            "expected type {}, got {}",
            kind.type_url, any.type_url
        ))),
    }
}

fn error(kind: Kind, name: &Arc<str>, reason: Reason, node: &Arc<str>) -> ResourceError {
    ResourceError {
        noun: kind.noun,
        name: Arc::clone(name),
        reason,
        node: Arc::clone(node),
    }
}

impl Verdict {
    fn push(&mut self, key: Key, changed: Changed) {
        if changed != Changed::Nothing {
            self.changes.push(Output::Changed { key, changed });
        }
    }
}
