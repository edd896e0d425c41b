//! The record of one stream: when its client was sent something, and how it answered. The server
//! half of the protocol keeps no times and no reasons, so they are kept here.

use std::borrow::Cow;
use std::time::Instant;

use crowfly_xds::{RequestOutcome, Response, ServerHalf, shared_type_url};

use super::answers::{Answers, Since};
use crate::metrics::Metrics;

/// The record of one stream, by type.
#[derive(Debug)]
pub(crate) struct Ledger {
    metrics: Metrics,
    /// The answers by type URL, in order. A map would reserve room for many types, and there are few.
    types: Vec<(Cow<'static, str>, Box<Answers>)>,
}

impl Ledger {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            types: Vec::new(),
        }
    }

    /// Notes a request, which `half` has taken, and its meaning. Returns the number of refused resources that were looked
    /// at, because the bytes of the request say nothing about that work.
    pub(crate) fn received(
        &mut self,
        outcome: &RequestOutcome,
        nonce: &str,
        half: &impl ServerHalf,
        now: Instant,
    ) -> usize {
        let type_url = match outcome {
            RequestOutcome::Subscribed { type_url } => type_url,
            RequestOutcome::Stale { type_url } => {
                self.of(type_url).stale();
                type_url
            }
            RequestOutcome::Ack { type_url, version } => {
                self.of(type_url).acked(nonce, version, now);
                type_url
            }
            RequestOutcome::Nack {
                type_url,
                version,
                message,
            } => {
                self.of(type_url).nacked(nonce, version, message, now);
                type_url
            }
        };
        let answers = self.of(type_url);
        let mut looked_at = 0;
        // An answer changes nothing about what the client wants, and answers are not paced.
        if !half.was_answer_alone() && answers.is_refusing() {
            looked_at = answers.refused.count();
            answers.keep(|name| half.serves(type_url, name));
        }
        self.look(half, Since::Request(now));
        looked_at
    }

    /// Notes that `half` has a newer snapshot, which was published at a time, and forgets the refusals of resources that
    /// the client is no longer served.
    pub(crate) fn changed(&mut self, half: &impl ServerHalf, published: Instant) {
        self.look(half, Since::Change(published));
        for (type_url, answers) in &mut self.types {
            if answers.is_refusing() {
                answers.keep(|name| half.serves(type_url, name));
            }
        }
    }

    /// Looks at what `half` has to send, after something else may have become due.
    pub(crate) fn look(&mut self, half: &impl ServerHalf, since: Since) {
        for (type_url, answers) in &mut self.types {
            answers.look(half.is_waiting(type_url), since);
        }
    }

    /// Notes a response, which `half` has made, and its size in bytes.
    pub(crate) fn sent(
        &mut self,
        response: &Response,
        size: usize,
        half: &impl ServerHalf,
        now: Instant,
    ) {
        let more = half.is_waiting(response.type_url());
        self.of(response.type_url()).sent(response, size, more, now);
    }

    /// The bytes that are held because the client left responses unanswered or refused them.
    pub(crate) fn held(&self) -> usize {
        self.types.iter().map(|(_, of)| of.held()).sum()
    }

    pub(super) fn types(&self) -> impl Iterator<Item = (&str, &Answers)> {
        self.types.iter().map(|(url, of)| (&**url, &**of))
    }

    fn of(&mut self, type_url: &str) -> &mut Answers {
        let known = self
            .types
            .binary_search_by(|(url, _)| (**url).cmp(type_url));
        let index = known.unwrap_or_else(|index| {
            let answers = Answers::new(self.metrics.of_type(type_url));
            self.types.reserve_exact(1);
            let entry = (shared_type_url(type_url), Box::new(answers));
            self.types.insert(index, entry);
            index
        });
        &mut self.types[index].1
    }
}
