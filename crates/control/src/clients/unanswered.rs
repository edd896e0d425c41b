//! The responses of one type that a client has not answered, and what they hold.
//!
//! The sums are kept and not worked out, because they are compared with a limit after each request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crowfly_xds::Response;

use super::answers::Since;

/// The largest number of responses that may wait for an answer. Beyond it the oldest is forgotten,
/// because a client that never answers must not fill our memory.
const MAX_IN_FLIGHT: usize = 256;

/// The responses that wait for an answer, the oldest first. Nearly all clients have answered everything, and hold next
/// to nothing here.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Option<Box<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    responses: VecDeque<InFlight>,
    names: usize,
    bytes: usize,
}

/// A response that is not answered.
#[derive(Debug)]
pub(super) struct InFlight {
    nonce: Box<str>,
    version: Box<str>,
    pub(super) sent_at: Instant,
    pub(super) since: Option<Since>,
    /// True if the response has all resources of the type.
    pub(super) is_whole: bool,
    pub(super) items: Vec<Item>,
    bytes: usize,
}

/// A resource in a response that is not answered.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: Arc<str>,
    pub(super) version: Arc<str>,
    /// The version that the client accepted before.
    pub(super) accepted: Option<Arc<str>>,
    pub(super) is_new: bool,
}

impl Unanswered {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The responses, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.0.iter().flat_map(|queue| &queue.responses)
    }

    /// The number of names in all responses.
    pub(super) fn names(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.names)
    }

    /// The bytes of all responses but the newest. That one is free, because a client has it while it thinks about its
    /// answer, and a large configuration must not end the streams of clients that answer.
    pub(super) fn held(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| {
            let newest = queue.responses.back().map_or(0, |of| of.bytes);
            queue.bytes - newest
        })
    }

    pub(super) fn push(&mut self, response: InFlight) {
        let queue = self.0.get_or_insert_default();
        if queue.responses.len() == MAX_IN_FLIGHT {
            queue.remove(0);
        }
        queue.names += response.items.len();
        queue.bytes += response.bytes;
        queue.responses.push_back(response);
    }

    /// Takes the response that a client answers. An acceptance must have its version too.
    pub(super) fn take(&mut self, nonce: &str, version: Option<&str>) -> Option<InFlight> {
        let is_it = |of: &InFlight| {
            *of.nonce == *nonce && version.is_none_or(|version| *of.version == *version)
        };
        let queue = self.0.as_mut()?;
        let position = queue.responses.iter().position(is_it)?;
        let response = queue.remove(position);
        if queue.responses.is_empty() {
            self.0 = None;
        }
        response
    }
}

impl Queue {
    fn remove(&mut self, position: usize) -> Option<InFlight> {
        let response = self.responses.remove(position)?;
        self.names -= response.items.len();
        self.bytes -= response.bytes;
        Some(response)
    }
}

impl InFlight {
    /// A response that is sent now, with the resources in it that are kept until it is answered.
    pub(super) fn new(
        response: &Response,
        items: Vec<Item>,
        since: Option<Since>,
        sent_at: Instant,
    ) -> Self {
        let (nonce, version) = (response.nonce(), response.version());
        let items_bytes: usize = items.iter().map(Item::bytes).sum();
        Self {
            nonce: nonce.into(),
            version: version.into(),
            sent_at,
            since,
            is_whole: response.is_whole(),
            items,
            bytes: size_of::<Self>() + nonce.len() + version.len() + items_bytes,
        }
    }

    /// The time since when the client should have this.
    pub(super) fn due_since(&self) -> Instant {
        self.since.map_or(self.sent_at, Since::time)
    }
}

impl Item {
    /// The bytes of the item, with its texts. They are shared with the snapshot, but only until the resource changes.
    fn bytes(&self) -> usize {
        let accepted = self.accepted.as_ref().map_or(0, |of| of.len());
        size_of::<Self>() + self.name.len() + self.version.len() + accepted
    }
}

#[cfg(test)]
impl Unanswered {
    /// The bytes of all responses but the newest, by a look at each.
    pub(super) fn counted(&self) -> usize {
        let mut bytes: Vec<_> = self.iter().map(|of| of.bytes).collect();
        bytes.pop();
        bytes.iter().sum()
    }
}
