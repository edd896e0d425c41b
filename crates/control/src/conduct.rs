//! The conduct of one client on one stream: what it holds, how fast it asks, and whether it reads.
//!
//! A client that asks too fast is read more slowly, because that is enough to keep it from harming
//! others. A client that makes us hold too much is told so, and its stream ends.

use std::time::{Duration, Instant};

use crowfly_xds::Held;

use crate::incoming::{Peer, Share};
use crate::limits::{Beyond, Limit};

/// The bytes that a name takes besides its text: it is in several maps.
const NAME_OVERHEAD: usize = 128;

/// The bytes that a resource counts if a request asks for it without naming it. So 4,096 resources are as much work as
/// one request.
const LISTED_BYTES: usize = 16;

/// The longest time for which a client is not read. A request is never refused for its pace.
const PATIENCE: Duration = Duration::MAX;

/// The conduct of the client of one stream.
#[derive(Debug)]
pub(crate) struct Conduct {
    peer: Peer,
    held: Share,
    node_bytes: usize,
    /// The time until which no request is read.
    paused_until: Option<Instant>,
    /// The time since which a response waits for the client.
    waits_since: Option<Instant>,
    is_slow: bool,
}

/// The result of a look at a client that may be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slowness {
    /// The client is within its limit.
    None,
    /// The client has just become slow.
    Slow,
    /// The client exceeded its limit: the stream ends.
    TooSlow,
}

impl Conduct {
    /// A client that is read from `from` on.
    pub(crate) fn new(peer: Peer, from: Instant) -> Self {
        Self {
            held: peer.share(),
            peer,
            node_bytes: 0,
            paused_until: Some(from),
            waits_since: None,
            is_slow: false,
        }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Notes the bytes that are kept of the client's node, once it has introduced itself.
    pub(crate) fn introduced(&mut self, node_bytes: usize) {
        self.node_bytes = node_bytes;
    }

    /// Checks the number of names in the longest list of a request, before any of them is looked at.
    ///
    /// # Errors
    /// It is more than a stream may hold.
    pub(crate) fn check_names(&self, names: usize) -> Result<(), Beyond> {
        let most = self.peer.limits().names;
        if names > most {
            return Err(Beyond::too_many_names(most, names));
        }
        Ok(())
    }

    /// Checks what the stream holds after a request or a response: what its client asked for, and the bytes of
    /// responses that it left unanswered or refused.
    ///
    /// # Errors
    /// It is more than a limit allows.
    pub(crate) fn check_held(&mut self, held: Held, answers: usize) -> Result<(), Beyond> {
        let types = self.peer.limits().types;
        if held.types > types {
            let text = format!(
                "expected at most {types} types on a stream, got {}",
                held.types
            );
            return Err(Beyond::new(Limit::Types, text));
        }
        self.check_names(held.names)?;
        let names = held.bytes + held.all_names * NAME_OVERHEAD;
        self.held.set(names + self.node_bytes + answers)
    }

    /// Notes a request that the client made by itself, which asks for `listed` resources without naming them. True if it
    /// was one too many for now, so that the client is not read for a while.
    pub(crate) fn requested(&mut self, bytes: usize, listed: usize, now: Instant) -> bool {
        let cost = bytes.saturating_add(listed.saturating_mul(LISTED_BYTES));
        let until = self.peer.pace(cost, PATIENCE, now);
        self.pause(until, now)
    }

    /// Notes an answer to a response. True if its bytes were too many for now.
    pub(crate) fn answered(&mut self, bytes: usize, now: Instant) -> bool {
        let until = self.peer.pace_answer(bytes, now);
        self.pause(Some(until), now)
    }

    fn pause(&mut self, until: Option<Instant>, now: Instant) -> bool {
        self.paused_until = until.filter(|until| *until > now);
        self.paused_until.is_some()
    }

    /// The time from which the client is read; `None` if it is read now.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    pub(crate) fn read_on(&mut self) {
        self.paused_until = None;
    }

    /// Notes whether a response waits for the client. True if the client is slow no more.
    pub(crate) fn set_waiting(&mut self, waits: bool, now: Instant) -> bool {
        if waits {
            self.waits_since.get_or_insert(now);
            return false;
        }
        self.taken()
    }

    /// Notes that the client took a response. True if the client is slow no more.
    pub(crate) fn taken(&mut self) -> bool {
        self.waits_since = None;
        std::mem::take(&mut self.is_slow)
    }

    /// The next time at which the client may be slow or too slow.
    pub(crate) fn slow_at(&self) -> Option<Instant> {
        let limits = self.peer.limits();
        let patience = if self.is_slow {
            limits.close_after
        } else {
            limits.slow_after.min(limits.close_after)
        };
        self.waits_since?.checked_add(patience)
    }

    /// Looks whether the client is slow by now.
    pub(crate) fn slowness(&mut self, now: Instant) -> Slowness {
        let Some(since) = self.waits_since else {
            return Slowness::None;
        };
        let waited = now.saturating_duration_since(since);
        let limits = self.peer.limits();
        if waited >= limits.close_after {
            return Slowness::TooSlow;
        }
        if waited >= limits.slow_after && !self.is_slow {
            self.is_slow = true;
            return Slowness::Slow;
        }
        Slowness::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incoming::test_peer;
    use crate::limits::Limits;

    fn conduct(limits: Limits) -> Conduct {
        Conduct::new(test_peer(limits), Instant::now())
    }

    /// L-04: the limit that a client went beyond is named, with the number that was expected.
    #[test]
    fn limits_of_a_stream_are_named() {
        let limits = || Limits {
            types: 2,
            names: 3,
            held_bytes: 1_000,
            ..Limits::default()
        };
        let held = |types, names, bytes| Held {
            types,
            names,
            all_names: names,
            bytes,
        };
        assert_eq!(conduct(limits()).check_held(held(2, 3, 616), 0), Ok(()));
        for (held, limit, told) in [
            (held(3, 0, 0), Limit::Types, "at most 2 types"),
            (held(1, 4, 0), Limit::Names, "at most 3 names"),
            (held(2, 3, 617), Limit::HeldBytes, "at most 1000 bytes"),
        ] {
            let beyond = conduct(limits()).check_held(held, 0).unwrap_err();
            assert_eq!(beyond.limit, limit);
            assert!(beyond.text.contains(told), "{}", beyond.text);
        }
        assert_eq!(conduct(limits()).check_held(held(1, 0, 0), 1_000), Ok(()));
        assert!(conduct(limits()).check_held(held(1, 0, 0), 1_001).is_err());
        let mut introduced = conduct(limits());
        introduced.introduced(1_001);
        assert!(introduced.check_held(held(0, 0, 0), 0).is_err());
    }

    /// L-05: a client that asks too fast is read later; none of its requests is lost.
    #[test]
    fn a_client_that_asks_too_fast_is_paused() {
        let mut conduct = conduct(Limits {
            requests_per_second: 100,
            ..Limits::default()
        });
        let start = Instant::now();
        conduct.read_on();
        let free = (0..2_000).take_while(|_| !conduct.requested(10, 0, start));
        assert_eq!(free.count(), 1_000);
        let until = conduct.paused_until().unwrap();
        assert_eq!(until, start + Duration::from_millis(10));
        conduct.read_on();
        assert!(
            conduct.requested(10, 0, until),
            "the next one has to wait, too"
        );
    }

    /// L-05: a short request for many resources counts by them, because it is as much work as a long one.
    #[test]
    fn a_request_for_everything_counts_by_the_resources() {
        let mut conduct = conduct(Limits {
            requests_per_second: 10,
            ..Limits::default()
        });
        let start = Instant::now();
        let free = (0..1_000).take_while(|_| !conduct.requested(10, 4 * 4_096, start));
        assert_eq!(free.count(), 20);
    }

    /// L-07: a client that does not take a response is slow after a while, and too slow later.
    #[test]
    fn a_client_that_does_not_read_becomes_slow() {
        let mut conduct = conduct(Limits {
            slow_after: Duration::from_secs(10),
            close_after: Duration::from_secs(60),
            ..Limits::default()
        });
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(conduct.slow_at(), None);
        conduct.set_waiting(true, start);
        conduct.set_waiting(true, at(5));
        assert_eq!(conduct.slow_at(), Some(at(10)));
        assert_eq!(conduct.slowness(at(9)), Slowness::None);
        assert_eq!(conduct.slowness(at(10)), Slowness::Slow);
        assert_eq!(conduct.slowness(at(11)), Slowness::None, "it is named once");
        assert_eq!(conduct.slow_at(), Some(at(60)));
        assert_eq!(conduct.slowness(at(60)), Slowness::TooSlow);
        assert!(conduct.taken(), "it is slow no more");
        assert!(!conduct.taken());
        conduct.set_waiting(true, at(70));
        assert_eq!(conduct.slow_at(), Some(at(80)));
    }
}
