//! An etcd in memory and a reader, with the rules between them, in simulated time.
//!
//! The store answers when a test says so, so that a test decides what happens between two answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::*;
use crate::Table;
use crate::etcd::api::watch_event::EventType;
use crate::etcd::api::{
    KeyValue, RangeResponse, ResponseHeader, WatchCreateRequest, WatchEvent, WatchResponse,
};

pub(super) const PREFIX: Bytes = Bytes::from_static(b"a/");

/// A store of keys that remembers its history.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) cluster_id: u64,
    pub(super) revision: i64,
    compacted: i64,
    /// Every change: its revision, key and value; no value if it was deleted.
    log: Vec<(i64, Bytes, Option<Bytes>)>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            cluster_id: 7,
            revision: 1,
            compacted: 0,
            log: Vec::new(),
        }
    }

    pub(super) fn set(&mut self, key: &str, value: Option<&str>) {
        self.revision += 1;
        let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.log.push((self.revision, key, value));
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    pub(super) fn state(&self, prefix: &[u8], revision: i64) -> BTreeMap<Bytes, Bytes> {
        let mut state = BTreeMap::new();
        for (_, key, value) in self.log.iter().filter(|(at, ..)| *at <= revision) {
            match value {
                Some(value) if key.starts_with(prefix) => state.insert(key.clone(), value.clone()),
                _ => state.remove(key),
            };
        }
        state
    }

    pub(super) fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: 1,
            revision: self.revision,
        })
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, RangeFailure> {
        let revision = match request.revision {
            0 => self.revision,
            revision if revision < self.compacted => return Err(RangeFailure::Compacted),
            revision => revision,
        };
        let mut state = self.state(b"", revision);
        state.retain(|key, _| *key >= request.key && *key < request.range_end);
        let limit = usize::try_from(request.limit).unwrap();
        let more = state.len() > limit;
        let pairs = state.into_iter().take(limit);
        let kvs = pairs.map(|(key, value)| KeyValue {
            key,
            value,
            ..KeyValue::default()
        });
        Ok(RangeResponse {
            header: self.header(),
            kvs: kvs.collect(),
            more,
        })
    }

    /// The changes that a watch has to tell, from a revision on.
    fn events(&self, watch: &WatchCreateRequest, from: i64) -> Vec<WatchEvent> {
        let is_wanted = |(at, key, _): &&(i64, Bytes, Option<Bytes>)| {
            *at >= from && *key >= watch.key && *key < watch.range_end
        };
        let changes = self.log.iter().filter(is_wanted);
        let events = changes.map(|(at, key, value)| {
            let kind = match value {
                Some(_) => EventType::Put,
                None => EventType::Delete,
            };
            event(kind, key, value.as_deref().unwrap_or_default(), *at)
        });
        events.collect()
    }
}

pub(super) fn event(kind: EventType, key: &[u8], value: &[u8], at: i64) -> WatchEvent {
    WatchEvent {
        r#type: kind.into(),
        kv: Some(KeyValue {
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(value),
            mod_revision: at,
        }),
    }
}

/// The rules between a store and a reader.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) follower: Follower,
    pub(super) store: Store,
    pub(super) table: Table<Bytes, Bytes>,
    /// All that was told.
    pub(super) told: Vec<News>,
    /// The members that were connected to, with the time.
    pub(super) connects: Vec<(usize, Instant)>,
    pub(super) is_reachable: bool,
    /// Requests for pages that are not answered yet.
    pub(super) pages: VecDeque<(u64, RangeRequest)>,
    /// The watches of the connection, with the revision that they have told.
    pub(super) watches: BTreeMap<i64, (WatchCreateRequest, i64)>,
}

pub(super) fn settings() -> Settings {
    Settings {
        members: 1,
        page: 2,
        heartbeat: None,
        limits: Limits::default(),
    }
}

impl World {
    pub(super) fn new(settings: Settings, seed: u64) -> Self {
        let now = Instant::now();
        let mut follower = Follower::new(settings, seed, now);
        follower.follow(PREFIX);
        Self {
            now,
            follower,
            store: Store::new(),
            table: Table::default(),
            told: Vec::new(),
            connects: Vec::new(),
            is_reachable: true,
            pages: VecDeque::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Performs what the rules ask for; pages stay unanswered.
    pub(super) fn perform(&mut self) {
        while let Some(action) = self.follower.next_action() {
            match action {
                Action::Connect(member) => {
                    self.connects.push((member, self.now));
                    if self.is_reachable {
                        self.follower.connected(self.now);
                    } else {
                        self.follower.lost(&"refused".into(), self.now);
                    }
                }
                Action::Disconnect => {
                    self.pages.clear();
                    self.watches.clear();
                }
                Action::Range(ticket, request) => self.pages.push_back((ticket, request)),
                Action::Watch(request) => self.watch(request),
            }
        }
        for (prefix, news) in self.follower.take_news() {
            if let News::Event(event) = &news
                && prefix == PREFIX
            {
                self.table.handle(event.clone());
            }
            self.told.push(news);
        }
    }

    fn watch(&mut self, request: WatchRequest) {
        match request.request_union.unwrap() {
            RequestUnion::CancelRequest(cancel) => {
                self.watches.remove(&cancel.watch_id);
            }
            RequestUnion::CreateRequest(create) => {
                let (id, start) = (create.watch_id, create.start_revision);
                let mut created = WatchResponse {
                    header: self.store.header(),
                    watch_id: id,
                    created: true,
                    ..WatchResponse::default()
                };
                if start > 0 && start <= self.store.compacted {
                    created.canceled = true;
                    created.compact_revision = self.store.compacted;
                } else {
                    let from = if start == 0 {
                        self.store.revision + 1
                    } else {
                        start
                    };
                    self.watches.insert(id, (create, from));
                }
                self.follower.watched(created, self.now);
            }
        }
    }

    /// Answers the next page.
    pub(super) fn answer(&mut self) -> bool {
        let Some((ticket, request)) = self.pages.pop_front() else {
            return false;
        };
        let answer = self.store.range(&request);
        self.follower.listed(ticket, answer, self.now);
        self.perform();
        true
    }

    /// Tells all watches what they have not told.
    pub(super) fn notify(&mut self) {
        let ids: Vec<i64> = self.watches.keys().copied().collect();
        for id in ids {
            let Some((create, from)) = self.watches.get_mut(&id) else {
                continue;
            };
            let events = self.store.events(create, *from);
            *from = self.store.revision + 1;
            if !events.is_empty() || create.progress_notify {
                let response = WatchResponse {
                    header: self.store.header(),
                    watch_id: id,
                    events,
                    ..WatchResponse::default()
                };
                self.follower.watched(response, self.now);
                self.perform();
            }
        }
    }

    pub(super) fn lose(&mut self) {
        self.follower.lost(&"reset".into(), self.now);
        self.perform();
    }

    /// Lets time pass, and does what is due in it.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for round in 0.. {
            // A test that hangs shows nothing.
            assert!(round < 10_000, "the rules are in a loop");
            let deadline = self.follower.deadline();
            let Some(deadline) = deadline.filter(|deadline| *deadline <= end) else {
                break;
            };
            self.now = self.now.max(deadline);
            self.follower.tick(self.now);
            self.perform();
        }
        self.now = end;
    }

    /// Lets everything come to rest.
    pub(super) fn settle(&mut self) {
        for _ in 0..100 {
            self.pass(Duration::from_secs(40));
            while self.answer() {}
            self.notify();
            if self.is_quiet() {
                return;
            }
        }
        panic!("no rest: {:?}", self.follower);
    }

    pub(super) fn is_quiet(&self) -> bool {
        let follow = self.follower.follows.get(&PREFIX).unwrap();
        matches!(follow.phase, Phase::Watching(_)) && self.follower.failure.is_none()
    }

    pub(super) fn keys(&self) -> Vec<&str> {
        let keys = self.table.iter();
        keys.map(|(key, _)| std::str::from_utf8(key).unwrap())
            .collect()
    }

    pub(super) fn last_failure(&self) -> &str {
        let failures = self.told.iter().rev().filter_map(|news| match news {
            News::Event(Event::Failed(reason)) => Some(&**reason),
            _ => None,
        });
        failures.into_iter().next().unwrap_or_default()
    }

    pub(super) fn count(&self, wanted: &News) -> usize {
        self.told.iter().filter(|news| *news == wanted).count()
    }
}
