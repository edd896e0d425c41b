//! The resources with a time to live that the client of a state-of-the-world stream accepted, and when to renew them.
//!
//! An Envoy takes a heartbeat of a version that it does not have for a resource without content, and refuses it. So only
//! what the client accepted is renewed, under the version that it accepted last.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::super::lifetime::Pulse;
use super::super::response::Sent;
use crate::sorted::SortedSet;

/// The renewal of resources of one type.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// The time of the next heartbeat.
    pulse: Pulse,
    /// `None` until a resource with a time to live is sent, because few streams have one.
    answers: Option<Box<Answers>>,
}

/// The answers of the client to resources with a time to live.
#[derive(Debug, Default)]
struct Answers {
    /// The names in the newest response, until the client accepts or refuses it.
    unanswered: Box<[Arc<str>]>,
    /// The names whose newest version the client refused.
    refused: SortedSet<Arc<str>>,
    /// The version of the response that the client accepted last, if it is not the newest response.
    accepted: Option<Box<str>>,
}

impl Renewal {
    /// Notes that a response was sent. `before` is the version of the response before it.
    pub(super) fn sent(&mut self, before: Box<str>, resources: &[Sent], now: Option<Instant>) {
        let mortal = resources.iter().filter(|sent| sent.ttl().is_some());
        let names: Box<[_]> = mortal.map(|sent| Arc::clone(&sent.name)).collect();
        if names.is_empty() && self.answers.is_none() {
            return;
        }
        let answers = self.answers.get_or_insert_default();
        answers.unanswered = names;
        answers.accepted.get_or_insert(before);
        self.pulse.started(resources, now);
    }

    /// Notes that the client accepted the newest response. If it refused that before, the names in it stay refused.
    pub(super) fn accepted(&mut self) {
        if let Some(answers) = &mut self.answers {
            for name in &mem::take(&mut answers.unanswered) {
                answers.refused.remove(name);
            }
            answers.accepted = None;
        }
    }

    /// Notes that the client refused the newest response.
    pub(super) fn refused(&mut self) {
        if let Some(answers) = &mut self.answers {
            let names = mem::take(&mut answers.unanswered).into_iter();
            answers.refused.extend(names.map(|name| (name, ())));
        }
    }

    /// Forgets the refusal of a resource that the client is to have no more.
    pub(super) fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        if let Some(answers) = &mut self.answers {
            answers.refused.retain(|name, ()| is_kept(name));
        }
    }

    /// Forgets what the client said.
    pub(super) fn start_over(&mut self) {
        self.answers = None;
    }

    /// The time of the next heartbeat. It waits until the newest response is accepted or refused.
    pub(super) fn beat(&self) -> Pulse {
        let answers = self.answers.as_ref();
        if answers.is_some_and(|of| !of.unanswered.is_empty()) {
            return Pulse::None;
        }
        self.pulse
    }

    /// Ends the heartbeats until the next response.
    pub(super) fn stop(&mut self) {
        self.pulse = Pulse::None;
    }

    /// True if the client did not refuse the newest version of a resource that it was sent.
    pub(super) fn covers(&self, name: &str) -> bool {
        let answers = self.answers.as_ref();
        answers.is_none_or(|of| !of.refused.contains_key(name))
    }

    /// The version of a heartbeat, if it is not that of the newest response.
    pub(super) fn version(&self) -> Option<&str> {
        self.answers.as_ref()?.accepted.as_deref()
    }
}
