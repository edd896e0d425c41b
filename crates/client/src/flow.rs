//! Flow control: a server is read no faster than its watchers take what it said.

use futures_channel::mpsc;

use crate::stream::{StreamEvent, StreamId};

/// Held by whoever has not yet dealt with a response; when the last holder lets go, the next one is
/// read. A holder that is dropped unread lets go, too.
#[derive(Debug)]
pub(crate) struct Unconsumed {
    stream: StreamId,
    events: mpsc::UnboundedSender<(StreamId, StreamEvent)>,
}

impl Unconsumed {
    pub(crate) fn new(
        stream: StreamId,
        events: mpsc::UnboundedSender<(StreamId, StreamEvent)>,
    ) -> Self {
        Self { stream, events }
    }
}

impl Drop for Unconsumed {
    fn drop(&mut self) {
        let event = (self.stream, StreamEvent::Consumed);
        // The driver is gone only when the client is.
        let _ = self.events.unbounded_send(event);
    }
}
