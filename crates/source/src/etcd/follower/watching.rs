//! Watches a prefix, and the key of the heartbeat.
//!
//! A watch that goes on after a break is checked: another etcd, or an older state of it, would say
//! nothing of the changes between.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::{Follower, Phase, end_of};
use crate::Event;
use crate::etcd::News;
use crate::etcd::api::watch_event::EventType;
use crate::etcd::api::watch_request::RequestUnion;
use crate::etcd::api::{ResponseHeader, WatchCreateRequest, WatchEvent, WatchResponse};

/// A watch that was asked for.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) id: i64,
    /// The first revision that it tells.
    start: i64,
    /// The newest revision in the fragments of a response that is not complete.
    newest: i64,
    /// True if it goes on where another one ended.
    is_resumed: bool,
    since: Instant,
}

impl Follower {
    /// Watches a prefix whose state at revision `told` is known.
    pub(super) fn watch(&mut self, prefix: &Bytes, told: i64, is_resumed: bool, now: Instant) {
        let id = self.number();
        let start = told.saturating_add(1);
        if let Some(follow) = self.follows.get_mut(prefix) {
            follow.told = Some(told);
            follow.phase = Phase::Watching(Watching {
                id,
                start,
                newest: told,
                is_resumed,
                since: now,
            });
        }
        self.watches.insert(id, Some(prefix.clone()));
        self.send(RequestUnion::CreateRequest(WatchCreateRequest {
            key: prefix.clone(),
            range_end: end_of(prefix),
            start_revision: start,
            // Without them, the revision of a quiet prefix would fall behind compaction.
            progress_notify: true,
            watch_id: id,
            fragment: true,
        }));
    }

    /// Takes a response of the stream of watches.
    pub(in super::super) fn watched(&mut self, response: WatchResponse, now: Instant) {
        let Some(watch) = self.watches.get(&response.watch_id).cloned() else {
            // Responses of watches that were cancelled may still come, the first one too.
            if self.has_numbered(response.watch_id) {
                return;
            }
            if response.created && !response.canceled {
                let reason = "it numbers watches by itself: etcd 3.4 or a newer one is needed";
                self.lost(&Arc::from(reason), now);
            } else if response.created {
                self.lost(&refusal(b"", &response), now);
            }
            return;
        };
        match watch {
            Some(prefix) => self.watched_prefix(&prefix, response, now),
            None if response.canceled => {
                let heartbeat = self.settings.heartbeat.as_ref();
                let key = heartbeat.map(|heartbeat| heartbeat.key.clone());
                self.lost(&refusal(&key.unwrap_or_default(), &response), now);
            }
            None => {
                if !response.events.is_empty() {
                    self.last_beat = now;
                }
            }
        }
    }

    fn watched_prefix(&mut self, prefix: &Bytes, response: WatchResponse, now: Instant) {
        let phase = self.follows.get(prefix).map(|follow| &follow.phase);
        let Some(Phase::Watching(watching)) = phase else {
            return;
        };
        let worked = now.saturating_duration_since(watching.since);
        if response.canceled && response.compact_revision > 0 {
            self.watches.remove(&response.watch_id);
            return self.list_later(prefix, worked, now);
        }
        if response.canceled {
            return self.lost(&refusal(prefix, &response), now);
        }
        if response.created {
            let (start, is_resumed) = (watching.start, watching.is_resumed);
            if !self.is_same_history(response.header, start) {
                self.cancel(response.watch_id);
                return self.list_later(prefix, worked, now);
            }
            if is_resumed {
                self.tell(prefix, News::Resumed);
            }
        }
        self.take_events(prefix, response, now);
    }

    /// True if the etcd is the one that was listed, and has not gone back to an earlier state. A watch of
    /// a revision to come would be silent until that revision.
    fn is_same_history(&self, header: Option<ResponseHeader>, start: i64) -> bool {
        header.is_some_and(|header| {
            let is_same_cluster = self
                .cluster_id
                .is_none_or(|known| known == header.cluster_id);
            is_same_cluster && header.revision >= start.saturating_sub(1)
        })
    }

    fn take_events(&mut self, prefix: &Bytes, response: WatchResponse, now: Instant) {
        let Some(follow) = self.follows.get_mut(prefix) else {
            return;
        };
        let Phase::Watching(watching) = &mut follow.phase else {
            return;
        };
        let is_progress = response.events.is_empty() && !response.created;
        if let Some(header) = response.header.filter(|_| is_progress) {
            watching.newest = watching.newest.max(header.revision);
        }
        for event in response.events {
            let is_delete = event.r#type() == EventType::Delete;
            let WatchEvent { kv: Some(pair), .. } = event else {
                continue;
            };
            // Neither is told by an etcd. An old event would undo a newer one.
            if pair.mod_revision < watching.start || !pair.key.starts_with(prefix) {
                continue;
            }
            watching.newest = watching.newest.max(pair.mod_revision);
            let event = if is_delete {
                follow.holding.delete(&pair.key);
                Event::Delete(pair.key)
            } else {
                follow.holding.put(&pair.key, &pair.value);
                if let Some(excess) = follow.holding.excess(&self.settings.limits) {
                    self.cancel(response.watch_id);
                    return self.refuse(prefix, &excess, now);
                }
                Event::Upsert(pair.key, pair.value)
            };
            self.news.push((prefix.clone(), News::Event(event)));
        }
        // A revision whose fragments are not all there would be lost if a watch went on behind it.
        if !response.fragment {
            follow.told = Some(watching.newest);
        }
    }
}

fn refusal(key: &[u8], response: &WatchResponse) -> Arc<str> {
    let reason = match response.cancel_reason.as_str() {
        "" => "no reason was given",
        reason => reason,
    };
    let key = String::from_utf8_lossy(key);
    format!("the watch of {key:?} was cancelled: {reason}").into()
}
