//! Flow control: a server is read no faster than its watchers take what it said.

use crowfly_xds::ServerId;
use tokio::sync::mpsc;

/// Held by whoever has not yet dealt with a response; when the last holder lets go, the next one is
/// read. A holder that is dropped unread lets go, too.
#[derive(Debug)]
pub(crate) struct Unconsumed {
    server: ServerId,
    stream: u64,
    consumed: mpsc::UnboundedSender<(ServerId, u64)>,
}

impl Unconsumed {
    pub(crate) fn new(
        server: ServerId,
        stream: u64,
        consumed: mpsc::UnboundedSender<(ServerId, u64)>,
    ) -> Self {
        Self {
            server,
            stream,
            consumed,
        }
    }
}

impl Drop for Unconsumed {
    fn drop(&mut self) {
        // The driver may be gone.
        let _ = self.consumed.send((self.server, self.stream));
    }
}
