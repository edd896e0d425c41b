//! The connections that sessions keep, or ask for (A75).
//!
//! An endpoint that no leaf wants is let go, unless a session used it a short time ago. One look at those that
//! are kept is due when the first of them may have to go.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use super::super::{
    EndpointId, Pool, RosterId, Wish,
    record::{Kind, State},
};
use crate::{Health, Tree, TreeRole, plan::ClusterPlan, timing::SESSION_SWEEP_MIN};

impl<T> Pool<T> {
    /// Returns whether a leaf wants the endpoint's own connection. A `pick_first` leaf does not, because it
    /// has a list with one for all of its endpoints, and wants that.
    pub(in crate::endpoint) fn is_wanted(&self, id: EndpointId) -> bool {
        self.get(id).is_some_and(|record| {
            let is_list = matches!(record.kind, Kind::Flattened { .. });
            is_list || record.leaves().any(|leaf| !self.flattened.contains(&leaf))
        })
    }

    /// A call wants an endpoint to be connected. Returns whether the leaves that hold it must look again.
    pub(crate) fn demand(&mut self, id: EndpointId) -> bool {
        if self.is_wanted(id) {
            return self.connect(id);
        }
        if !self.connect_for_sessions(id)
            && let Some(record) = self.records.get_mut(id.0)
            && let State::Idle(wish) = &mut record.state
        {
            // The next call has to ask anew, because this one was not heard.
            *wish = Arc::new(Wish::new(id));
            self.show(id);
        }
        false
    }

    /// Connects an endpoint that no leaf wants, if it is IDLE and sessions may stick to it.
    fn connect_for_sessions(&mut self, id: EndpointId) -> bool {
        let Some(record) = self.records.get_mut(id.0) else {
            return false;
        };
        let Some(roster) = self.rosters.get_mut(record.roster.0) else {
            return false;
        };
        let tie = record.tie.as_ref();
        let may_stick = tie.is_some_and(|tie| roster.sessions.kept_until(tie).is_some());
        let Some(keeping) = roster.sessions.keeping.as_mut().filter(|_| may_stick) else {
            return false;
        };
        if !matches!(record.state, State::Idle(_)) {
            return false;
        }
        record.state = State::Connecting;
        keeping.kept.insert(id);
        keeping.sweep_at = None;
        let roster = record.roster;
        self.dial(id);
        self.show(id);
        self.stir(roster, false);
        true
    }

    /// Decides about the endpoints that a leaf or the plan has let go of since the last time.
    pub(in crate::endpoint) fn sweep_loose(&mut self, id: RosterId, now: Instant) {
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        for endpoint in std::mem::take(&mut roster.loose) {
            self.visits += 1;
            let Some(record) = self.records.get_mut(endpoint.0) else {
                continue;
            };
            let (is_held, introduced) = (!record.places.is_empty(), record.introduced);
            let left = record.tie.as_mut().and_then(|tie| tie.left.take());
            let is_listed = record.tie.as_ref().is_some_and(|tie| tie.listed > 0);
            if !is_held && !is_listed {
                if let Some(roster) = self.rosters.get_mut(id.0) {
                    roster.unheld.remove(&endpoint);
                }
                self.remove(endpoint);
                continue;
            }
            if is_held && self.is_wanted(endpoint) {
                continue;
            }
            let is_kept = self
                .kept_until(endpoint)
                .is_some_and(|kept_until| kept_until > now);
            match (is_kept, introduced, left) {
                (true, true, _) => self.keep(id, endpoint),
                (true, false, Some(address)) => self.take_over(endpoint, address),
                (false, _, _) => self.release(endpoint),
                (true, false, None) => {}
            }
        }
    }

    fn kept_until(&self, id: EndpointId) -> Option<Instant> {
        let record = self.get(id)?;
        let roster = self.rosters.get(record.roster.0)?;
        roster.sessions.kept_until(record.tie.as_ref()?)
    }

    fn keep(&mut self, id: RosterId, endpoint: EndpointId) {
        let roster = self.rosters.get_mut(id.0);
        if let Some(keeping) = roster.and_then(|roster| roster.sessions.keeping.as_mut()) {
            keeping.kept.insert(endpoint);
            keeping.sweep_at = None;
        }
    }

    /// Connects an endpoint to the address that a `pick_first` leaf gives up. The driver hears of this before it
    /// hears of that, so the connection goes from one to the other.
    fn take_over(&mut self, id: EndpointId, connected: SocketAddr) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        let others = record.addresses.iter().copied();
        let first = std::iter::once(connected);
        let rotated = first.chain(others.filter(|address| *address != connected));
        let rotated: Arc<[SocketAddr]> = rotated.collect();
        let all = std::mem::replace(&mut record.addresses, rotated);
        self.connect_for_sessions(id);
        if let Some(record) = self.records.get_mut(id.0) {
            record.addresses = all;
        }
    }

    /// Makes the map if a call has asked for it, and lets go of the connections that no session has used
    /// for a while. Returns when the next look is due.
    pub(crate) fn settle_sessions(
        &mut self,
        id: RosterId,
        plan: &ClusterPlan,
        now: Instant,
    ) -> Option<Instant> {
        let sessions = &self.rosters.get(id.0)?.sessions;
        if !sessions.are_open() {
            if !sessions.is_asked {
                return None;
            }
            self.open_sessions(id, plan, now);
        }
        let keeping = self.rosters.get(id.0)?.sessions.keeping.as_ref()?;
        let is_due = keeping.sweep_at.is_some_and(|at| at <= now);
        if !is_due && keeping.sweep_at.is_some() {
            return keeping.sweep_at;
        }
        let mut next: Option<Instant> = None;
        for endpoint in keeping.kept.clone() {
            self.visits += 1;
            if self.is_wanted(endpoint) || !self.is_introduced(endpoint) {
                self.forget_kept(id, endpoint);
                continue;
            }
            match self.kept_until(endpoint) {
                Some(until) if !is_due || until > now => {
                    next = Some(next.map_or(until, |next| next.min(until)));
                }
                _ => {
                    self.forget_kept(id, endpoint);
                    self.release(endpoint);
                }
            }
        }
        let keeping = self.rosters.get_mut(id.0)?.sessions.keeping.as_mut()?;
        if is_due {
            keeping.swept_at = Some(now);
        }
        let not_before = keeping.swept_at.map(|at| at + SESSION_SWEEP_MIN);
        keeping.sweep_at = next.map(|next| not_before.map_or(next, |at| at.max(next)));
        keeping.sweep_at
    }

    /// The endpoints that are connected for sessions alone; `None` if there are no sessions.
    pub(crate) fn kept_trees(&self, id: RosterId) -> Option<Vec<Tree>> {
        let keeping = self.rosters.get(id.0)?.sessions.keeping.as_ref()?;
        let kept = keeping.kept.iter().filter_map(|endpoint| {
            let record = self.get(*endpoint)?;
            let tie = record.tie.as_ref()?;
            let role = match tie.health {
                Health::Draining => TreeRole::Draining,
                Health::Healthy | Health::Unknown => TreeRole::Kept,
            };
            let view = record.view(*endpoint, &tie.locality);
            // The sweep has not come yet, and a leaf has taken it back.
            let is_kept = record.introduced && !self.is_wanted(*endpoint);
            is_kept.then(|| record.tree(&view, None, Some(role)))
        });
        Some(kept.collect())
    }

    fn forget_kept(&mut self, id: RosterId, endpoint: EndpointId) {
        let roster = self.rosters.get_mut(id.0);
        if let Some(keeping) = roster.and_then(|roster| roster.sessions.keeping.as_mut()) {
            keeping.kept.remove(&endpoint);
        }
    }

    /// The record goes.
    pub(in crate::endpoint) fn untie(&mut self, id: EndpointId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        let Some(tie) = &mut record.tie else {
            return;
        };
        let roster = record.roster;
        if std::mem::take(&mut tie.listed) > 0 {
            self.leave_map(id);
        }
        self.forget_kept(roster, id);
    }
}
