//! The answers of one client to the responses of one type.
//!
//! The server half knows the resources that a client has. Only the exceptions are kept here: responses
//! that are not answered, and resources that were refused. So an idle stream holds next to nothing, even
//! if its client has all resources.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crowfly_xds::Response;

use super::blame;
use super::recent::Recent;
use super::refused::{Nack, Refusal, Refused};
use super::unanswered::{InFlight, Item, Unanswered};
use crate::metrics::TypeMetrics;

/// The largest number of names in all responses that wait for an answer.
const MAX_NAMES_IN_FLIGHT: usize = 1 << 16;

/// The largest number of resources that one refusal marks with their versions. Of more than that, only the names are
/// kept.
const MAX_SUSPECTS: usize = 1 << 10;

/// The answers to the responses of one type.
#[derive(Debug)]
pub(super) struct Answers {
    metrics: Arc<TypeMetrics>,
    /// The oldest change that is not sent yet.
    pub(super) waiting: Option<Since>,
    pub(super) unanswered: Unanswered,
    pub(super) refused: Refused,
    pub(super) sent: Option<(Box<str>, Instant)>,
    pub(super) acked: Option<(Box<str>, Instant)>,
    pub(super) recent: Recent,
    /// True if the stream counts among those that refuse the type.
    counts_as_refusing: bool,
}

/// The reason why something is to be sent, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// A snapshot with a newer version was published.
    Change(Instant),
    /// The client asked for it.
    Request(Instant),
}

impl Since {
    pub(super) fn time(self) -> Instant {
        match self {
            Self::Change(at) | Self::Request(at) => at,
        }
    }
}

impl Answers {
    pub(super) fn new(metrics: Arc<TypeMetrics>) -> Self {
        Self {
            metrics,
            waiting: None,
            unanswered: Unanswered::default(),
            refused: Refused::default(),
            sent: None,
            acked: None,
            recent: Recent::default(),
            counts_as_refusing: false,
        }
    }

    /// Notes whether there is something to send.
    pub(super) fn look(&mut self, is_waiting: bool, since: Since) {
        if is_waiting {
            self.waiting.get_or_insert(since);
        } else {
            self.waiting = None;
        }
    }

    /// Notes that a response of `size` bytes was sent, and whether there is more to send.
    pub(super) fn sent(&mut self, response: &Response, size: usize, more: bool, now: Instant) {
        let since = if more {
            self.waiting
        } else {
            self.waiting.take()
        };
        self.metrics.responses.inc();
        self.metrics.bytes.observe(size as f64);
        if let Some(Since::Change(at)) = since {
            self.metrics.push.observe_time(now, at);
        }
        for name in response.removed() {
            self.refused.unmark(name);
        }
        let items = self.items(response);
        let sent = items.iter().map(|item| &item.name);
        self.recent.sent(sent, now);
        self.unanswered
            .push(InFlight::new(response, items, since, now));
        self.sent = Some((response.version().into(), now));
        self.count_refusing();
    }

    /// Notes that a request came that answers no response of late.
    pub(super) fn stale(&self) {
        self.metrics.stale.inc();
    }

    /// Notes that the client accepted a response.
    pub(super) fn acked(&mut self, nonce: &str, version: &str, now: Instant) {
        // After a refusal a client may repeat the version that it holds, which accepts nothing.
        let Some(response) = self.unanswered.take(nonce, Some(version)) else {
            return;
        };
        self.metrics.acks.inc();
        if let Some(Since::Change(at)) = response.since {
            self.metrics.convergence.observe_time(now, at);
        }
        if response.is_whole {
            self.refused.retain(|_| false);
        }
        for item in &response.items {
            self.refused.unmark(&item.name);
        }
        self.acked = Some((version.into(), now));
        self.count_refusing();
    }

    /// Notes that the client refused a response. Resources that its reason names are refused, and the
    /// others accepted, as gRPC clients and Envoys do. If it names none, any new one may be bad.
    pub(super) fn nacked(&mut self, nonce: &str, version: &str, reason: &str, now: Instant) {
        self.metrics.nacks.inc();
        let response = self.unanswered.take(nonce, None);
        let items: &[Item] = response.as_ref().map_or(&[], |of| &of.items);
        let due_since = response.as_ref().map_or(now, InFlight::due_since);
        let named = blame::named(reason, items.iter().map(|item| &*item.name));
        let is_named = named.contains(&true);
        let has_new = items.iter().any(|item| item.is_new);
        let is_suspect = |item: &Item, named: bool| match is_named {
            true => named,
            false => item.is_new || !has_new,
        };
        let pairs = || items.iter().zip(named.iter().copied());
        let suspects = pairs().filter(|(item, named)| is_suspect(item, *named));
        let suspects = suspects.count();
        let nack = Arc::new(Nack {
            version: version.into(),
            one_of: if is_named { 1 } else { suspects.max(1) },
            reason: reason.into(),
            at: now,
        });
        self.refused.refused(&nack);
        let refusal = |item: &Item| Refusal {
            nack: Arc::clone(&nack),
            version: Arc::clone(&item.version),
            accepted: item.accepted.clone(),
            since: due_since,
        };
        for (item, named) in pairs() {
            if !is_suspect(item, named) {
                self.refused.unmark(&item.name);
            } else if suspects <= MAX_SUSPECTS {
                self.refused.mark(&item.name, refusal(item));
            }
        }
        if suspects > MAX_SUSPECTS {
            let names = pairs().filter(|(item, named)| is_suspect(item, *named));
            let names = names.map(|(item, _)| Arc::clone(&item.name));
            self.refused.mark_crowd(&nack, due_since, names);
        }
        self.count_refusing();
    }

    /// Forgets refusals of resources that are no longer served to the client.
    pub(super) fn keep(&mut self, is_served: impl Fn(&str) -> bool) {
        self.refused.retain(is_served);
        self.count_refusing();
    }

    /// The bytes that are held because the client left responses unanswered or refused them.
    pub(super) fn held(&self) -> usize {
        self.unanswered.held() + self.refused.held()
    }

    pub(super) fn is_refusing(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The resources of a response that are kept until it is answered. A whole response has all
    /// resources of its type, so only the new ones are kept: they are the ones that can be refused.
    fn items(&self, response: &Response) -> Vec<Item> {
        let room = MAX_NAMES_IN_FLIGHT.saturating_sub(self.unanswered.names());
        let is_whole = response.is_whole();
        let unanswered = self.unanswered(response);
        let deliveries = response.deliveries();
        let noted = deliveries.filter(|of| !is_whole || of.is_new()).take(room);
        let items = noted.map(|of| Item {
            name: Arc::clone(of.name),
            version: Arc::clone(of.version),
            accepted: self.accepted(of.name, of.before, &unanswered),
            is_new: of.is_new(),
        });
        let mut items: Vec<_> = items.collect();
        items.shrink_to_fit();
        items
    }

    /// The version of a resource that the client accepted last. The version that it was sent before may
    /// be refused or not answered.
    fn accepted(
        &self,
        name: &str,
        before: Option<&Arc<str>>,
        unanswered: &HashMap<&str, &Item>,
    ) -> Option<Arc<str>> {
        if let Some(refusal) = self.refused.of(name) {
            return refusal.accepted.clone();
        }
        match unanswered.get(name) {
            Some(item) => item.accepted.clone(),
            None => before.cloned(),
        }
    }

    /// The resources of a response that wait for an answer already, by name. Of several responses the
    /// oldest counts, because it has what was accepted before all of them.
    fn unanswered(&self, response: &Response) -> HashMap<&str, &Item> {
        let mut unanswered = HashMap::new();
        if self.unanswered.is_empty() {
            return unanswered;
        }
        let sent: HashSet<&str> = response.deliveries().map(|of| &**of.name).collect();
        for item in self.unanswered.iter().flat_map(|of| &of.items) {
            if sent.contains(&*item.name) {
                unanswered.entry(&*item.name).or_insert(item);
            }
        }
        unanswered
    }

    fn count_refusing(&mut self) {
        match (self.counts_as_refusing, self.is_refusing()) {
            (false, true) => self.metrics.refusing.inc(),
            (true, false) => self.metrics.refusing.dec(),
            _ => return,
        };
        self.counts_as_refusing = !self.counts_as_refusing;
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if self.counts_as_refusing {
            self.metrics.refusing.dec();
        }
    }
}
