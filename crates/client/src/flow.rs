//! Flow control: a server is read no faster than its watchers take its updates.
//!
//! Without it, a server that sends faster than a program reads would fill the program's memory.

use futures_channel::mpsc;

use crate::stream::{StreamEvent, StreamId};

/// A token that comes with each batch of a response. The next response is read when all batches have dropped
/// theirs, read or unread.
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
        // An error means that the client is gone, and its streams with it.
        let _ = self.events.unbounded_send(event);
    }
}
