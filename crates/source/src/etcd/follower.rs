//! The rules of following prefixes, without I/O and without a clock.
//!
//! Each prefix is listed in pages of one revision, then watched from the next revision on. After a
//! lost connection a watch goes on where it ended. A prefix is listed anew if that is impossible.
//! Either the etcd has forgotten the revision (compaction), or it is another etcd or an older state
//! of it (a backup).
//!
//! An answer of an etcd is not believed if it would make this loop for ever or grow without limit.

mod holding;
mod listing;
mod watching;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::News;
use super::api::watch_request::RequestUnion;
use super::api::{RangeRequest, WatchCancelRequest, WatchCreateRequest, WatchRequest};
use super::options::{Heartbeat, Limits};
use super::pace::Pace;
use crate::Event;
use holding::Holding;
use listing::Listing;
use watching::Watching;

/// The number of listings under way at the same time. More would make the etcd slow for its other clients.
const LISTINGS: usize = 8;

/// The part of the driver's settings that its rules depend on.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) members: usize,
    pub(super) page: u32,
    pub(super) heartbeat: Option<Heartbeat>,
    pub(super) limits: Limits,
}

/// A task for the driver.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Connect to the member of this number.
    Connect(usize),
    /// Close the connection, and forget all that is under way on it.
    Disconnect,
    /// Ask for keys. The answer has the same ticket.
    Range(u64, RangeRequest),
    /// Send this on the stream of watches.
    Watch(WatchRequest),
}

/// The reason why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RangeFailure {
    /// The revision is gone.
    Compacted,
    /// The page has more bytes than a message may have.
    TooLarge,
    /// The etcd does not want to answer this, and may answer others.
    Refused(Arc<str>),
    /// The connection is of no use.
    Lost(Arc<str>),
}

/// The state of all prefixes that are followed, and of the connection.
#[derive(Debug)]
pub(super) struct Follower {
    settings: Settings,
    link: Link,
    /// The member that is connected to next.
    member: usize,
    /// The members that failed since the last wait.
    failed_members: usize,
    pace: Pace,
    follows: BTreeMap<Bytes, Follow>,
    /// The prefix of each watch; none if it is the heartbeat.
    watches: BTreeMap<i64, Option<Bytes>>,
    tickets: BTreeMap<u64, Bytes>,
    last_beat: Instant,
    /// The failure that was told last, until something works again.
    failure: Option<Arc<str>>,
    /// The etcd that the revisions belong to.
    cluster_id: Option<u64>,
    last_number: u64,
    random: fastrand::Rng,
    actions: VecDeque<Action>,
    news: Vec<(Bytes, News)>,
}

#[derive(Debug)]
enum Link {
    Down { until: Instant },
    Connecting,
    Up { since: Instant },
}

/// The state of one prefix.
#[derive(Debug)]
struct Follow {
    phase: Phase,
    /// The revision up to which everything was told, since a listing was complete.
    told: Option<i64>,
    holding: Holding,
    page: u32,
    pace: Pace,
}

#[derive(Debug)]
enum Phase {
    /// The prefix waits for a connection.
    Parked,
    /// The prefix waits until fewer prefixes are being listed.
    Queued,
    /// Its listing failed. It is listed again at this time.
    Waiting(Instant),
    Listing(Listing),
    Watching(Watching),
}

impl Follower {
    pub(super) fn new(settings: Settings, seed: u64, now: Instant) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            link: Link::Down { until: now },
            // All nodes have the same list of members, and should not all choose the first.
            member: random.usize(..settings.members.max(1)),
            failed_members: 0,
            pace: Pace::default(),
            follows: BTreeMap::new(),
            watches: BTreeMap::new(),
            tickets: BTreeMap::new(),
            last_beat: now,
            failure: None,
            cluster_id: None,
            last_number: 0,
            random,
            actions: VecDeque::new(),
            news: Vec::new(),
            settings,
        }
    }

    /// Follows a prefix from now on.
    pub(super) fn follow(&mut self, prefix: Bytes) {
        if self.follows.contains_key(&prefix) {
            return;
        }
        let is_up = matches!(self.link, Link::Up { .. });
        let follow = Follow {
            phase: if is_up { Phase::Queued } else { Phase::Parked },
            told: None,
            holding: Holding::default(),
            page: self.settings.page,
            pace: Pace::default(),
        };
        self.follows.insert(prefix, follow);
        self.start_listings();
    }

    /// Follows a prefix no more. Nothing is told of it from now on.
    pub(super) fn unfollow(&mut self, prefix: &Bytes) {
        let Some(follow) = self.follows.remove(prefix) else {
            return;
        };
        match follow.phase {
            Phase::Watching(watching) => self.cancel(watching.id),
            Phase::Listing(listing) => {
                self.tickets.remove(&listing.ticket);
            }
            Phase::Parked | Phase::Queued | Phase::Waiting(_) => {}
        }
        self.news.retain(|(of, _)| of != prefix);
        self.start_listings();
    }

    /// Returns the next task for the driver, if there is one.
    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The news that were not told yet, by prefix.
    pub(super) fn take_news(&mut self) -> Vec<(Bytes, News)> {
        std::mem::take(&mut self.news)
    }

    /// The time at which [`Self::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.link {
            Link::Down { until } => Some(until),
            Link::Connecting => None,
            Link::Up { .. } => {
                let heartbeat = self.settings.heartbeat.as_ref();
                let dead = heartbeat.map(|heartbeat| self.last_beat + heartbeat.patience);
                let waiting = self
                    .follows
                    .values()
                    .filter_map(|follow| match follow.phase {
                        Phase::Waiting(until) => Some(until),
                        _ => None,
                    });
                waiting.chain(dead).min()
            }
        }
    }

    /// Does what is due at `now`: connects, lists again, or gives up a silent member.
    pub(super) fn tick(&mut self, now: Instant) {
        match self.link {
            Link::Down { until } if until <= now => {
                self.link = Link::Connecting;
                self.actions.push_back(Action::Connect(self.member));
            }
            Link::Down { .. } | Link::Connecting => {}
            Link::Up { .. } => {
                if let Some(reason) = self.missed_heartbeat(now) {
                    return self.lost(&reason, now);
                }
                for follow in self.follows.values_mut() {
                    if matches!(follow.phase, Phase::Waiting(until) if until <= now) {
                        follow.phase = Phase::Queued;
                    }
                }
                self.start_listings();
            }
        }
    }

    fn missed_heartbeat(&self, now: Instant) -> Option<Arc<str>> {
        let Heartbeat { key, patience } = self.settings.heartbeat.as_ref()?;
        let is_missed = self.last_beat + *patience <= now;
        is_missed.then(|| {
            let key = String::from_utf8_lossy(key);
            let reason = format!(
                "no update of {key} for {patience:?}: the etcd has no quorum, or nobody writes to it"
            );
            reason.into()
        })
    }

    /// Takes note of a new connection.
    pub(super) fn connected(&mut self, now: Instant) {
        self.link = Link::Up { since: now };
        self.last_beat = now;
        if let Some(Heartbeat { key, .. }) = self.settings.heartbeat.clone() {
            let id = self.number();
            self.watches.insert(id, None);
            self.send(RequestUnion::CreateRequest(WatchCreateRequest {
                key,
                watch_id: id,
                ..WatchCreateRequest::default()
            }));
        }
        let prefixes: Vec<Bytes> = self.follows.keys().cloned().collect();
        for prefix in prefixes {
            let told = self.follows.get(&prefix).and_then(|follow| follow.told);
            match told {
                Some(told) => self.watch(&prefix, told, true, now),
                None => self.set_phase(&prefix, Phase::Queued),
            }
        }
        self.start_listings();
    }

    /// The connection, or the attempt to have one, has failed.
    pub(super) fn lost(&mut self, reason: &Arc<str>, now: Instant) {
        let worked = match self.link {
            Link::Down { .. } => return,
            Link::Connecting => Duration::ZERO,
            Link::Up { since } => now.saturating_duration_since(since),
        };
        self.actions.clear();
        self.actions.push_back(Action::Disconnect);
        self.watches.clear();
        self.tickets.clear();
        self.member = (self.member + 1) % self.settings.members.max(1);
        self.failed_members += 1;
        // All members are tried before a wait, because another one may work.
        let wait = if self.failed_members < self.settings.members {
            Duration::ZERO
        } else {
            self.failed_members = 0;
            self.pace.failed(worked, &mut self.random)
        };
        self.link = Link::Down { until: now + wait };
        for follow in self.follows.values_mut() {
            follow.phase = Phase::Parked;
        }
        if self.failure.as_ref() != Some(reason) {
            self.failure = Some(Arc::clone(reason));
            for prefix in self.follows.keys() {
                let failed = News::Event(Event::Failed(Arc::clone(reason)));
                self.news.push((prefix.clone(), failed));
            }
        }
    }

    /// Gives up one prefix for this reason, and tries it again after a while.
    fn refuse(&mut self, prefix: &Bytes, reason: &str, now: Instant) {
        let reason = format!("{}: {reason}", String::from_utf8_lossy(prefix));
        self.tell(prefix, News::Event(Event::Failed(reason.into())));
        self.list_later(prefix, Duration::ZERO, now);
    }

    /// Lists a prefix anew, after a wait that grows if this happens often.
    fn list_later(&mut self, prefix: &Bytes, worked: Duration, now: Instant) {
        if let Some(follow) = self.follows.get_mut(prefix) {
            follow.told = None;
            let wait = follow.pace.failed(worked, &mut self.random);
            follow.phase = Phase::Waiting(now + wait);
        }
        self.start_listings();
    }

    fn tell(&mut self, prefix: &Bytes, news: News) {
        if matches!(news, News::Resumed | News::Event(Event::Init)) {
            self.failure = None;
        }
        self.news.push((prefix.clone(), news));
    }

    fn set_phase(&mut self, prefix: &Bytes, phase: Phase) {
        if let Some(follow) = self.follows.get_mut(prefix) {
            follow.phase = phase;
        }
    }

    fn send(&mut self, request: RequestUnion) {
        self.actions.push_back(Action::Watch(WatchRequest {
            request_union: Some(request),
        }));
    }

    fn cancel(&mut self, watch_id: i64) {
        self.watches.remove(&watch_id);
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }));
    }

    /// A number that no watch and no listing has had.
    fn number(&mut self) -> i64 {
        self.last_number += 1;
        i64::try_from(self.last_number).unwrap_or(i64::MAX)
    }

    /// True if this is a number that we gave. An etcd that numbers watches by itself begins with 0.
    fn has_numbered(&self, id: i64) -> bool {
        u64::try_from(id).is_ok_and(|id| (1..=self.last_number).contains(&id))
    }
}

/// The first key behind all keys with this prefix. If there is none, it is etcd's sign for "to the end".
fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(&[0])
}

#[cfg(test)]
mod tests;
