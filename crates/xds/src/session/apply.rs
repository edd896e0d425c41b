//! The effect of a response on the cache.
//!
//! This is one module because both protocols treat a resource, a reported error and a deletion by
//! the same rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crowfly_model::{Decoded, Errors, Unsupported, wire};
use envoy_types::pb::envoy::service::discovery::v3::{Resource, ResourceError as Report};
use envoy_types::pb::google::protobuf::Any;
use tracing::warn;

use super::SessionOutput;
use super::refusal::Refusal;
use super::type_state::TypeState;
use crate::cache::{Cache, Changed, LastFailure, Received, ResourceStatus};
use crate::data_errors::DataErrors;
use crate::error::{ResourceError, TroubleReason};
use crate::kind::{Erased, Key, Kind, canonical};
use crate::readings::Readings;

/// The effect of one response.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The errors, one for each bad resource; empty for an ACK.
    pub(super) errors: Refusal,
    pub(super) valid: usize,
    /// The changes that watchers can see, one for each resource, even if it came twice.
    changes: BTreeMap<Key, Changed>,
    /// Deadlines that no longer matter.
    pub(super) settled: Vec<(Instant, Key)>,
}

/// The inputs that all responses to a session have in common.
#[derive(Debug)]
pub(super) struct Rules {
    /// The id of the node, for errors.
    pub(super) node: Arc<str>,
    pub(super) data_errors: DataErrors,
    pub(super) readings: Readings,
}

/// The inputs that all resources of a response have in common.
pub(super) struct Context<'a> {
    pub(super) node: &'a Arc<str>,
    pub(super) data_errors: DataErrors,
    pub(super) readings: &'a Readings,
    pub(super) now: Instant,
}

impl Rules {
    /// The inputs for a response that came now.
    pub(super) fn context(&self, now: Instant) -> Context<'_> {
        Context {
            node: &self.node,
            data_errors: self.data_errors,
            readings: &self.readings,
            now,
        }
    }
}

/// A resource from a response, after parsing.
pub(super) struct Parsed {
    decoded: Decoded<Erased>,
    raw: Vec<u8>,
}

impl Verdict {
    /// Takes one resource, and returns its name if it was accepted. A good resource is accepted
    /// even if others are bad (gRFC A46). If a resource comes twice, the last one counts, as in
    /// gRPC C-core.
    ///
    /// A named resource that nobody asked for is skipped, even if it is invalid. A server that
    /// ignores names would otherwise have resources for its other clients refused here.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one step, all distinct"
    )]
    pub(super) fn take(
        &mut self,
        index: usize,
        parsed: Parsed,
        version: &Arc<str>,
        seen: &mut BTreeSet<Arc<str>>,
        state: &mut TypeState,
        cache: &mut Cache,
        context: &Context<'_>,
    ) -> Option<Arc<str>> {
        let noun = state.kind.noun;
        let Decoded { name, value } = parsed.decoded;
        let is_nobodys = |name: &String| name.is_empty() && !state.names.has_all();
        if name.as_ref().is_some_and(is_nobodys) {
            return None;
        }
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let errors = value.err().unwrap_or_else(|| Errors::whole(NAMELESS));
            self.errors
                .push(format_args!("{noun} at resources[{index}]: {errors}"));
            return None;
        };
        let name = canonical(&name);
        if !state.names.has(&name) {
            return None;
        }
        seen.insert(Arc::clone(&name));
        self.settle(&name, state);
        let key = state.kind.key(&name);
        match value {
            Ok(value) => {
                self.valid += 1;
                let raw = match state.kind.keeps_bytes {
                    true => parsed.raw,
                    false => Vec::new(),
                };
                let received = Received::new(value, raw, version, context.now);
                let entry = cache.entry_mut(&key);
                let before = entry.unsupported(state.kind);
                let changed = entry.accept(state.kind, received);
                let wishes = entry.unsupported(state.kind);
                if wishes != before {
                    context.tell_unsupported(state.kind, &name, &wishes);
                }
                self.push(key, changed);
                Some(name)
            }
            Err(errors) => {
                self.errors.push(format_args!("{noun} {name}: {errors}"));
                let failure =
                    context.failure(state.kind, &name, TroubleReason::Invalid(errors), version);
                let keep = context.data_errors.keep_on_invalid();
                if !keep {
                    state.wire.lost(&name);
                }
                let changed = cache
                    .entry_mut(&key)
                    .fail(ResourceStatus::Nacked, failure, keep);
                self.push(key, changed);
                None
            }
        }
    }

    /// Takes an error that the server reports in place of a resource (xRFC TP3, gRFC A88).
    pub(super) fn take_report(
        &mut self,
        report: Report,
        seen: &mut BTreeSet<Arc<str>>,
        state: &mut TypeState,
        cache: &mut Cache,
        context: &Context<'_>,
    ) {
        let status = report.error_detail.unwrap_or_default();
        let Some(keep) = context.data_errors.keep_on_report(status.code) else {
            return;
        };
        let name = canonical(&report.resource_name.unwrap_or_default().name);
        if !state.names.has(&name) {
            return;
        }
        seen.insert(Arc::clone(&name));
        self.settle(&name, state);
        let reason = TroubleReason::Reported {
            code: status.code,
            message: status.message.into(),
        };
        let failure = context.failure(state.kind, &name, reason, &Arc::default());
        if !keep {
            state.wire.lost(&name);
        }
        let key = state.kind.key(&name);
        let changed = cache
            .entry_mut(&key)
            .fail(ResourceStatus::ReceivedError, failure, keep);
        self.push(key, changed);
    }

    /// Takes a deletion: the server says that a resource does not exist, or leaves it out of a
    /// full-state response.
    pub(super) fn delete(
        &mut self,
        name: &Arc<str>,
        state: &mut TypeState,
        cache: &mut Cache,
        context: &Context<'_>,
    ) {
        self.settle(name, state);
        let key = state.kind.key(name);
        let entry = cache.entry_mut(&key);
        let keep = context.data_errors.keep_on_deletion() && entry.has_value();
        if keep && !context.data_errors.tells_ignored_deletion() {
            if entry.ignore_deletion() {
                let (noun, node) = (state.kind.noun, &**context.node);
                warn!(%name, node, "the server deleted a {noun}; it stays in use");
            }
            return;
        }
        let failure = context.failure(state.kind, name, TroubleReason::Deleted, &Arc::default());
        let changed = entry.fail(ResourceStatus::DoesNotExist, failure, keep);
        self.push(key, changed);
    }

    fn settle(&mut self, name: &Arc<str>, state: &mut TypeState) {
        let deadline = state.settle(name);
        let key = || state.kind.key(name);
        self.settled
            .extend(deadline.map(|deadline| (deadline, key())));
    }

    fn push(&mut self, key: Key, changed: Changed) {
        if changed == Changed::Nothing {
            return;
        }
        let before = self.changes.entry(key).or_insert(changed);
        if changed == Changed::Data {
            *before = changed;
        }
    }

    /// The changes to tell watchers of.
    pub(super) fn into_changes(self) -> impl Iterator<Item = SessionOutput> {
        let changes = self.changes.into_iter();
        changes.map(|(key, changed)| SessionOutput::Changed { key, changed })
    }
}

impl Context<'_> {
    /// Logs the settings of a resource that have no effect, when they first appear and when they
    /// change.
    fn tell_unsupported(&self, kind: Kind, name: &str, wishes: &[Unsupported]) {
        if wishes.is_empty() {
            return;
        }
        let more = wishes.len().saturating_sub(MOST_WISHES);
        let told = wishes.iter().take(MOST_WISHES).map(ToString::to_string);
        let mut told = told.collect::<Vec<_>>().join("; ");
        if more > 0 {
            told = format!("{told}; and {more} more");
        }
        let (noun, node) = (kind.noun, &**self.node);
        warn!(name, node, "the {noun} asks for what is not done: {told}");
    }

    fn failure(
        &self,
        kind: Kind,
        name: &Arc<str>,
        reason: TroubleReason,
        version: &Arc<str>,
    ) -> LastFailure {
        LastFailure {
            error: ResourceError {
                noun: kind.noun,
                name: Arc::clone(name),
                reason,
                node: Arc::clone(self.node),
            },
            version: Arc::clone(version),
            at: self.now,
        }
    }
}

/// The largest number of settings without effect that one log line lists.
const MOST_WISHES: usize = 8;

/// The error of a resource that has a name neither in its message nor in a wrapper.
const NAMELESS: &str = "has no name, expected a Resource wrapper that names it";

/// Parses a resource of a state-of-the-world response, which may be in a wrapper.
pub(super) fn unwrap(kind: Kind, any: Any, readings: &Readings) -> Parsed {
    if any.type_url != crate::WRAPPER_TYPE_URL {
        return parse(kind, any, readings);
    }
    match wire::decode::<Resource>(&any.value) {
        Ok(wrapper) => from_wrapper(kind, wrapper, readings),
        Err(error) => Parsed {
            decoded: Decoded::undecodable(error),
            raw: any.value,
        },
    }
}

/// Parses a resource in its wrapper. The name of the wrapper is used if the message has none.
pub(super) fn from_wrapper(kind: Kind, wrapper: Resource, readings: &Readings) -> Parsed {
    let mut parsed = match wrapper.resource {
        Some(any) => parse(kind, any, readings),
        None => Parsed {
            decoded: Decoded {
                name: None,
                value: Err(Errors::whole("the Resource wrapper is empty")),
            },
            raw: Vec::new(),
        },
    };
    let name = parsed.decoded.name.as_deref().unwrap_or_default();
    if name.is_empty() && !wrapper.name.is_empty() {
        parsed.decoded.name = Some(wrapper.name);
    }
    parsed
}

fn parse(kind: Kind, any: Any, readings: &Readings) -> Parsed {
    let decoded = if any.type_url == kind.type_url {
        readings.decode(kind, &any.value)
    } else {
        let (expected, got) = (kind.type_url, &any.type_url);
        Decoded {
            name: None,
            value: Err(Errors::whole(format!(
                "expected type {expected}, got {got}"
            ))),
        }
    };
    Parsed {
        decoded,
        raw: any.value,
    }
}
