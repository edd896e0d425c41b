//! Lists a prefix in pages of one revision.
//!
//! Pages are needed, because all keys may not fit into one message. They have one revision, because
//! keys change while the pages are read.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::holding::Holding;
use super::{Action, Follower, LISTINGS, Phase, RangeFailure, end_of};
use crate::Event;
use crate::etcd::News;
use crate::etcd::api::{RangeRequest, RangeResponse};
use crate::etcd::options::Limits;

/// A listing that is under way.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) ticket: u64,
    /// The revision of all pages; none before the first one.
    revision: Option<i64>,
    /// The first key of the page that was asked for.
    from: Bytes,
    keys: usize,
    bytes: usize,
}

impl Follower {
    /// Begins as many of the queued listings as may be under way.
    pub(super) fn start_listings(&mut self) {
        while self.tickets.len() < LISTINGS {
            let mut follows = self.follows.iter();
            let queued = follows.find(|(_, follow)| matches!(follow.phase, Phase::Queued));
            let Some((prefix, _)) = queued else {
                return;
            };
            let prefix = prefix.clone();
            let listing = Listing {
                ticket: 0,
                revision: None,
                from: prefix.clone(),
                keys: 0,
                bytes: 0,
            };
            self.ask(&prefix, listing);
        }
    }

    fn ask(&mut self, prefix: &Bytes, mut listing: Listing) {
        let Some(page) = self.follows.get(prefix).map(|follow| follow.page) else {
            return;
        };
        self.last_number += 1;
        listing.ticket = self.last_number;
        self.tickets.insert(listing.ticket, prefix.clone());
        let request = RangeRequest {
            key: listing.from.clone(),
            range_end: end_of(prefix),
            limit: page.into(),
            revision: listing.revision.unwrap_or_default(),
        };
        self.actions
            .push_back(Action::Range(listing.ticket, request));
        self.set_phase(prefix, Phase::Listing(listing));
    }

    /// Takes the answer to a page that was asked for.
    pub(in super::super) fn listed(
        &mut self,
        ticket: u64,
        answer: Result<RangeResponse, RangeFailure>,
        now: Instant,
    ) {
        // A ticket of a prefix that is not followed any more is unknown.
        let Some(prefix) = self.tickets.remove(&ticket) else {
            return;
        };
        let phase = self.follows.get(&prefix).map(|follow| &follow.phase);
        let Some(Phase::Listing(listing)) = phase else {
            return;
        };
        let listing = listing.clone();
        match answer {
            Ok(page) => match listing.check(&prefix, &page, &self.settings.limits) {
                Ok(revision) => self.take_page(&prefix, listing, page, revision, now),
                Err(reason) => self.refuse(&prefix, &reason, now),
            },
            Err(RangeFailure::Compacted) => self.list_later(&prefix, Duration::ZERO, now),
            Err(RangeFailure::TooLarge) => self.ask_for_less(&prefix, listing, now),
            Err(RangeFailure::Refused(reason)) => self.refuse(&prefix, &reason, now),
            Err(RangeFailure::Lost(reason)) => self.lost(&reason, now),
        }
    }

    fn take_page(
        &mut self,
        prefix: &Bytes,
        mut listing: Listing,
        page: RangeResponse,
        revision: i64,
        now: Instant,
    ) {
        if listing.revision.is_none() {
            self.tell(prefix, News::Event(Event::Init));
            listing.revision = Some(revision);
            self.cluster_id = page.header.map(|header| header.cluster_id);
            self.hold(prefix, |holding| *holding = Holding::default());
        }
        for pair in page.kvs {
            listing.keys += 1;
            listing.bytes += pair.key.len() + pair.value.len();
            listing.from = pair.key.clone();
            self.hold(prefix, |holding| holding.put(&pair.key, &pair.value));
            self.tell(prefix, News::Event(Event::Upsert(pair.key, pair.value)));
        }
        if page.more {
            listing.from = [&listing.from[..], &[0]].concat().into();
            return self.ask(prefix, listing);
        }
        self.tell(prefix, News::Event(Event::InitDone));
        self.watch(prefix, revision, false, now);
        self.start_listings();
    }

    fn hold(&mut self, prefix: &Bytes, change: impl FnOnce(&mut Holding)) {
        if let Some(follow) = self.follows.get_mut(prefix) {
            change(&mut follow.holding);
        }
    }

    fn ask_for_less(&mut self, prefix: &Bytes, listing: Listing, now: Instant) {
        let Some(follow) = self.follows.get_mut(prefix) else {
            return;
        };
        if follow.page > 1 {
            follow.page /= 2;
            return self.ask(prefix, listing);
        }
        let after = String::from_utf8_lossy(&listing.from).into_owned();
        let limit = self.settings.limits.message;
        let reason = format!("the value at or after {after:?} has more than {limit} bytes");
        self.refuse(prefix, &reason, now);
    }
}

impl Listing {
    /// The revision of the listing. It is an error if the answer is none that an etcd gives, or if the
    /// listing becomes too large.
    fn check(&self, prefix: &[u8], page: &RangeResponse, limits: &Limits) -> Result<i64, String> {
        let revision = page.header.map(|header| header.revision);
        let revision = self.revision.or(revision).filter(|revision| *revision > 0);
        let revision = revision.ok_or("a listing without a revision")?;
        if page.more && page.kvs.is_empty() {
            return Err("an empty page, although there is more".to_owned());
        }
        let mut last: Option<&Bytes> = None;
        let mut bytes = self.bytes;
        for pair in &page.kvs {
            let is_in_order = last.map_or(self.from <= pair.key, |last| *last < pair.key);
            if !is_in_order || !pair.key.starts_with(prefix) {
                let key = String::from_utf8_lossy(&pair.key);
                return Err(format!("a listing with the key {key:?} out of its place"));
            }
            last = Some(&pair.key);
            bytes += pair.key.len() + pair.value.len();
        }
        let keys = self.keys + page.kvs.len();
        if keys > limits.keys {
            return Err(format!("more than {} keys", limits.keys));
        }
        if bytes > limits.bytes {
            return Err(format!(
                "keys and values of more than {} bytes",
                limits.bytes
            ));
        }
        Ok(revision)
    }
}
