//! `xds_override_host` (A55, A61, A75): a call of a session goes to the backend of the session, wherever in the
//! cluster that backend is.
//!
//! A pick comes here after the drops and the limit of the leaf cluster, and before its priorities. So a session may go
//! to an endpoint of any priority. The pick looks up the addresses of the session in a map that it shares with the
//! balancer, and takes no lock. The balancer writes single entries of the map, so a changed state costs the same at
//! one endpoint and at ten thousand.
//!
//! A cluster has no map until a call with a session comes, because most clusters have no sessions. That call waits
//! until the balancer has made the map.

mod anchor;
mod bell;
mod map;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;

pub(crate) use self::{
    anchor::{Anchor, AnchorState},
    map::AddressMap,
};
use crate::{
    Call, CallSession, Demand, Pick,
    endpoint::{SessionsId, Wish},
    plan::HealthSet,
    sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
};

/// The sessions of one leaf cluster, as picks see them.
#[derive(Debug)]
pub(crate) struct Sessions<T> {
    id: SessionsId,
    /// The health of endpoints that sessions may stick to.
    allowed: AtomicU8,
    /// True if a call has asked for the map.
    is_asked: AtomicBool,
    opened: ArcSwapOption<Opened<T>>,
}

/// The endpoints that sessions can stick to.
#[derive(Debug)]
pub(crate) struct Opened<T> {
    pub(crate) clock: Clock,
    pub(crate) map: AddressMap<T>,
}

impl<T> Sessions<T> {
    pub(crate) fn new(id: SessionsId) -> Self {
        Self {
            id,
            allowed: AtomicU8::new(HealthSet::default().bits()),
            is_asked: AtomicBool::new(false),
            opened: ArcSwapOption::empty(),
        }
    }

    pub(crate) fn allowed(&self) -> HealthSet {
        HealthSet::from_bits(self.allowed.load(Relaxed))
    }

    /// Sets the health of endpoints that sessions may stick to. Returns whether it has changed.
    pub(crate) fn allow(&self, allowed: HealthSet) -> bool {
        self.allowed.swap(allowed.bits(), Relaxed) != allowed.bits()
    }

    /// Gives picks a map; the last one goes on being used by those that have begun.
    pub(crate) fn open(&self, opened: Arc<Opened<T>>) {
        self.opened.store(Some(opened));
    }

    /// The cluster is gone. Calls that still find it wait for the next picker.
    pub(crate) fn close(&self) {
        self.is_asked.store(true, Relaxed);
        self.opened.store(None);
    }

    /// Picks for a call of a session (A75). Such a call goes to the backend that it sticks to. If there is
    /// none it can use or wait for, it goes where `delegate` says, and is a use of that backend.
    pub(crate) fn pick(
        &self,
        session: &CallSession<'_>,
        delegate: impl FnOnce() -> Pick<T>,
    ) -> Pick<T> {
        let opened = self.opened.load();
        let Some(opened) = &*opened else {
            return match self.is_asked.load(Relaxed) || self.is_asked.swap(true, Relaxed) {
                true => Pick::Queue,
                false => Pick::Wake(Demand::Sessions(self.id)),
            };
        };
        let at = opened.clock.tick(session.now);
        if let Some(pick) = opened.stick(session, self.allowed(), at) {
            return pick;
        }
        let pick = delegate();
        if let Pick::Ready(call) = &pick {
            opened.used(call, at);
        }
        pick
    }
}

impl<T> Opened<T> {
    /// The pick of a session that can use its backend, or must wait for it.
    fn stick(&self, session: &CallSession<'_>, allowed: HealthSet, at: Tick) -> Option<Pick<T>> {
        let mut is_known = false;
        let ready = self.find(session, allowed, |anchor| {
            is_known = true;
            anchor.start_call(at)
        });
        match ready {
            Some(call) => Some(Pick::Ready(call)),
            None if is_known => self.wait(session, allowed, at),
            None => None,
        }
    }

    /// The pick of a session none of whose addresses was READY a moment ago.
    ///
    /// It says first that it may wait and looks then, because a state that changes in between would
    /// otherwise wake nobody.
    fn wait(&self, session: &CallSession<'_>, allowed: HealthSet, at: Tick) -> Option<Pick<T>> {
        self.find(session, allowed, |anchor| {
            anchor.listen();
            None::<()>
        });
        let mut idle: Option<Arc<Wish>> = None;
        let mut absent: Option<Arc<Wish>> = None;
        let mut is_connecting = false;
        let ready = self.find(session, allowed, |anchor| {
            match &**anchor.state() {
                AnchorState::Absent(wish) if absent.is_none() => absent = Some(wish.clone()),
                AnchorState::Idle(wish) if idle.is_none() => idle = Some(wish.clone()),
                AnchorState::Absent(_) | AnchorState::Idle(_) | AnchorState::Failing => {}
                AnchorState::Connecting => {
                    is_connecting = true;
                    anchor.used(at);
                }
                AnchorState::Ready(_) => return anchor.start_call(at),
            }
            None
        });
        if let Some(call) = ready {
            return Some(Pick::Ready(call));
        }
        let wish = match (idle, is_connecting) {
            (Some(idle), _) => idle,
            (None, true) => return Some(Pick::Queue),
            (None, false) => absent?,
        };
        // A call that waits is a use: the connection is made for it, and must not go before it comes.
        self.find(session, allowed, |anchor| {
            let is_it = anchor.id == wish.endpoint();
            is_it.then(|| anchor.used(at))
        });
        Some(wish.wait())
    }

    /// The first result for an endpoint of the session that has a health that is allowed.
    fn find<R>(
        &self,
        session: &CallSession<'_>,
        allowed: HealthSet,
        mut look: impl FnMut(&Anchor<T>) -> Option<R>,
    ) -> Option<R> {
        session.addresses.iter().find_map(|address| {
            self.map.find(address, |anchor| {
                let is_allowed = allowed.contains(anchor.health());
                if is_allowed { look(anchor) } else { None }
            })
        })
    }

    /// A call of a session was sent to an endpoint, which the session will stick to.
    fn used(&self, call: &Call<T>, at: Tick) {
        self.map.find(&call.address(), |anchor| {
            let is_it = anchor.id == call.endpoint();
            is_it.then(|| anchor.used(at))
        });
    }
}

/// Turns times into small numbers, which fit into an atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

/// Milliseconds since a start, from 1; 0 is before all times.
pub(crate) type Tick = u64;

impl Clock {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start }
    }

    pub(crate) fn tick(self, at: Instant) -> Tick {
        let since = at.saturating_duration_since(self.start).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }

    /// The time of a tick; `None` for the one before all times.
    pub(crate) fn time(self, tick: Tick) -> Option<Instant> {
        self.start
            .checked_add(Duration::from_millis(tick.checked_sub(1)?))
    }
}
