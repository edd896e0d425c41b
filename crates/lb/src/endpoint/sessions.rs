//! The endpoints that sessions stick to: the balancer's half of `xds_override_host` (A55, A61, A75).
//!
//! A session may stick to any endpoint of the plan: one of a priority that is not needed, or one
//! that is draining. So once there are sessions, every endpoint of the plan has a record with a
//! [`Tie`], which shows picks the state of the record. An endpoint that no leaf wants any more
//! stays connected for as long as sessions use it. It is also connected if a session asks for it.

mod inherit;
mod keep;
mod show;

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Instant};

use super::{EndpointId, Pool, RosterId, ready::ReadyEndpoint, record::Kind};
use crate::{
    ClusterName, Health, LocalityId,
    node::ChildId,
    override_host::{AddressMap, Anchor, AnchorState, Clock, Opened, Sessions},
    plan::{ClusterPlan, Endpoint, HealthSet, OverrideHost},
};

/// Names the sessions of a leaf cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionsId(RosterId);

/// The tie between an endpoint and its sessions.
#[derive(Debug)]
pub(super) struct Tie<T> {
    anchor: Arc<Anchor<T>>,
    /// The number of times that the plan has the endpoint.
    listed: u32,
    health: Health,
    /// The locality that the plan has it in.
    pub(super) locality: LocalityId,
    /// The connection of a `pick_first` leaf, while that is a connection to this endpoint.
    lent: Option<Arc<ReadyEndpoint<T>>>,
    /// The address of a lent connection that the leaf is about to give up. The endpoint may take it over.
    left: Option<SocketAddr>,
}

/// The sessions of a roster.
#[derive(Debug)]
pub(super) struct RosterSessions<T> {
    shared: Arc<Sessions<T>>,
    settings: OverrideHost,
    /// True if a call has asked for its session to be found.
    is_asked: bool,
    /// `None` until then.
    keeping: Option<Box<Keeping<T>>>,
}

/// The keeping of a cluster that has sessions.
#[derive(Debug)]
struct Keeping<T> {
    opened: Arc<Opened<T>>,
    /// The number of entries in the map.
    entries: usize,
    /// The endpoints of the plan.
    listing: Vec<Listed>,
    /// Endpoints that are connected for sessions alone.
    kept: BTreeSet<EndpointId>,
    /// The time of the next look at the kept endpoints; `None` if it is to be found anew.
    sweep_at: Option<Instant>,
    swept_at: Option<Instant>,
}

/// An endpoint of the plan.
#[derive(Debug)]
struct Listed {
    id: EndpointId,
    addresses: Arc<[SocketAddr]>,
    health: Health,
    locality: LocalityId,
}

/// A leaf cluster in which something changed that concerns sessions.
#[derive(Debug)]
pub(crate) struct Stirred {
    pub(crate) tree: ClusterName,
    pub(crate) within: Option<ChildId>,
    /// True if calls may wait for the change, and so for a new picker.
    pub(crate) wakes: bool,
}

impl<T> RosterSessions<T> {
    pub(super) fn new(roster: RosterId) -> Self {
        Self {
            shared: Arc::new(Sessions::new(SessionsId(roster))),
            settings: OverrideHost::default(),
            is_asked: false,
            keeping: None,
        }
    }

    pub(super) fn are_open(&self) -> bool {
        self.keeping.is_some()
    }

    pub(super) fn close(&self) {
        self.shared.close();
    }

    /// The time until which an endpoint that no leaf wants is kept for its sessions; `None` if it is not.
    fn kept_until(&self, tie: &Tie<T>) -> Option<Instant> {
        let draining = HealthSet::of(Health::Draining);
        if tie.listed == 0
            || tie.health == Health::Draining && !self.settings.health.contains(draining)
        {
            return None;
        }
        let clock = self.keeping.as_ref()?.opened.clock;
        let last_used = clock.time(tie.anchor.last_used())?;
        last_used.checked_add(self.settings.idle_timeout)
    }
}

/// The settings, the list of endpoints, and the map.
impl<T> Pool<T> {
    /// The sessions of a leaf cluster, for its picker.
    pub(crate) fn sessions(&self, id: RosterId) -> Option<&Arc<Sessions<T>>> {
        Some(&self.rosters.get(id.0)?.sessions.shared)
    }

    /// Takes the settings of the next plan.
    pub(crate) fn set_override_host(&mut self, id: RosterId, settings: OverrideHost) {
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        let before = std::mem::replace(&mut roster.sessions.settings, settings);
        let is_other = roster.sessions.shared.allow(settings.health);
        let Some(keeping) = &mut roster.sessions.keeping else {
            return;
        };
        if before.idle_timeout != settings.idle_timeout {
            keeping.sweep_at = None;
        }
        if is_other {
            roster.loose.extend(&keeping.kept);
            roster.is_swept = false;
            self.stir(id, true);
        }
    }

    /// A call is the first with a session.
    pub(crate) fn ask_for_sessions(&mut self, SessionsId(id): SessionsId) {
        if let Some(roster) = self.rosters.get_mut(id.0) {
            roster.sessions.is_asked = true;
            self.stir(id, true);
        }
    }

    /// Makes the map, with every endpoint of the plan.
    fn open_sessions(&mut self, id: RosterId, plan: &ClusterPlan, now: Instant) {
        let Some(roster) = self.rosters.get_mut(id.0) else {
            return;
        };
        let mut addresses = 0;
        plan.each_endpoint(&mut |endpoint, _, _| addresses += endpoint.addresses().len());
        let opened = Arc::new(Opened {
            clock: Clock::new(now),
            map: AddressMap::with_room(addresses),
        });
        roster.sessions.keeping = Some(Box::new(Keeping {
            opened: opened.clone(),
            entries: 0,
            listing: Vec::new(),
            kept: BTreeSet::new(),
            sweep_at: None,
            swept_at: None,
        }));
        self.list_for_sessions(id, plan);
        if let Some(roster) = self.rosters.get(id.0) {
            roster.sessions.shared.open(opened);
        }
        self.stir(id, true);
    }

    /// Takes the endpoints of the next plan. Those that are at their old places are not looked at.
    pub(crate) fn list_for_sessions(&mut self, id: RosterId, plan: &ClusterPlan) {
        let roster = self.rosters.get_mut(id.0);
        let Some(keeping) = roster.and_then(|roster| roster.sessions.keeping.as_mut()) else {
            return;
        };
        let mut listing = std::mem::take(&mut keeping.listing);
        let (mut index, mut gone) = (0, Vec::new());
        let visits = self.visits;
        plan.each_endpoint(&mut |endpoint, health, locality| {
            let place = listing.get_mut(index);
            index += 1;
            if place
                .as_ref()
                .is_some_and(|listed| listed.is(endpoint, health, locality))
            {
                return;
            }
            self.visits += 1;
            let (found, _) = self.find_or_add(id, endpoint);
            self.list_endpoint(found, health, locality);
            let next = Listed {
                id: found,
                addresses: endpoint.addresses().clone(),
                health,
                locality: locality.clone(),
            };
            match place {
                Some(place) => gone.push(std::mem::replace(place, next).id),
                None => listing.push(next),
            }
        });
        gone.extend(listing.drain(index..).map(|listed| listed.id));
        // After all others, so that an endpoint that moves is never missing.
        gone.into_iter().for_each(|id| self.unlist(id));
        let roster = self.rosters.get_mut(id.0);
        if let Some(keeping) = roster.and_then(|roster| roster.sessions.keeping.as_mut()) {
            keeping.listing = listing;
        }
        if self.visits != visits {
            self.lend_all(id);
        }
    }

    /// The plan has the endpoint.
    fn list_endpoint(&mut self, id: EndpointId, health: Health, locality: &LocalityId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        let tie = record.tie.get_or_insert_with(|| {
            Box::new(Tie {
                // Shown below, before picks can find it.
                anchor: Arc::new(Anchor::new(id, health, AnchorState::Connecting)),
                listed: 0,
                health,
                locality: locality.clone(),
                lent: None,
                left: None,
            })
        });
        tie.listed += 1;
        tie.health = health;
        tie.locality = locality.clone();
        let (is_new, is_awaited) = (tie.listed == 1, tie.anchor.set_health(health));
        let roster = record.roster;
        if record.places.is_empty()
            && let Some(roster) = self.rosters.get_mut(roster.0)
        {
            roster.unheld.insert(id);
        }
        self.show(id);
        if is_new {
            self.inherit(id);
            self.enter_map(id);
        }
        if is_awaited {
            self.stir(roster, true);
        }
    }

    /// The plan no longer has the endpoint, at one of its places.
    fn unlist(&mut self, id: EndpointId) {
        let Some(record) = self.records.get_mut(id.0) else {
            return;
        };
        let Some(tie) = record.tie.as_mut().filter(|tie| tie.listed > 0) else {
            return;
        };
        tie.listed -= 1;
        if tie.listed == 0 {
            tie.anchor.forget_uses();
            let roster = record.roster;
            self.leave_map(id);
            if let Some(roster) = self.rosters.get_mut(roster.0) {
                roster.loosen(id);
            }
        }
    }

    fn enter_map(&mut self, id: EndpointId) {
        let Some((keeping, shared, tie, addresses)) = self.map_entry(id) else {
            return;
        };
        keeping.entries += addresses.len();
        if keeping.entries > keeping.opened.map.room() {
            keeping.opened = Arc::new(Opened {
                clock: keeping.opened.clock,
                map: keeping.opened.map.grown(keeping.entries * 2),
            });
            shared.open(keeping.opened.clone());
        }
        for address in addresses.iter() {
            keeping.opened.map.insert(*address, &tie.anchor);
        }
    }

    fn leave_map(&mut self, id: EndpointId) {
        let Some((keeping, _, tie, addresses)) = self.map_entry(id) else {
            return;
        };
        keeping.entries -= addresses.len();
        for address in addresses.iter() {
            keeping.opened.map.remove(address, &tie.anchor);
        }
        if tie.anchor.ring()
            && let Some(record) = self.get(id)
        {
            let roster = record.roster;
            self.stir(roster, true);
        }
    }

    #[allow(clippy::type_complexity, reason = "the parts of one entry")]
    fn map_entry(
        &mut self,
        id: EndpointId,
    ) -> Option<(
        &mut Keeping<T>,
        &Arc<Sessions<T>>,
        &Tie<T>,
        &Arc<[SocketAddr]>,
    )> {
        let record = self.records.get(id.0)?;
        let sessions = &mut self.rosters.get_mut(record.roster.0)?.sessions;
        let keeping = sessions.keeping.as_mut()?;
        match &record.kind {
            Kind::Endpoint { identity, .. } => {
                Some((keeping, &sessions.shared, record.tie.as_ref()?, identity))
            }
            Kind::Flattened { .. } => None,
        }
    }
}

impl Listed {
    fn is(&self, endpoint: &Endpoint, health: Health, locality: &LocalityId) -> bool {
        let (before, now) = (&self.addresses, endpoint.addresses());
        self.health == health
            && self.locality == *locality
            && (Arc::ptr_eq(before, now) || before == now)
    }
}
