//! The end of sockets whose backend is gone.
//!
//! A connected UDP socket would send to a backend that is gone for ever, because nobody answers that it is.
//! So the agent ends such sockets, and programs connect anew. It ends only sockets that its programs have routed,
//! which it knows by their cookie. A backend that a source still tells of, ready or not, is not gone.

#[cfg(any(target_os = "linux", test))]
pub(crate) mod attempts;
mod diag;
#[cfg(target_os = "linux")]
pub(crate) mod kernel;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;

use crate::maps::{MapError, Maps, Pair, ServiceId};
use crate::metrics::Metrics;
use crate::model::Protocol;
use crate::reconcile::Reconciler;
use crate::select::Frontend;
use crate::services::Services;

/// A connected socket that was routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Routed {
    /// The number that the kernel gives to it alone.
    pub cookie: u64,
    /// The frontend and the backend.
    pub pair: Pair,
    /// The backend.
    pub backend: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
}

/// The result of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The sockets of each pair.
    pub sockets: BTreeMap<Pair, Vec<Routed>>,
    /// False if sockets were closed so fast that the look was broken off. Then some may be missing.
    pub is_whole: bool,
    /// True if there is no room for more of them.
    pub is_full: bool,
}

/// The sockets of the kernel.
pub trait Sockets: fmt::Debug + Send {
    /// Begins to look for the sockets that were routed and may be ended, unless it does already. It does so
    /// elsewhere, because there may be hundreds of thousands.
    fn look(&mut self);

    /// True from the beginning of a look until its result was taken.
    fn is_looking(&self) -> bool;

    /// The result of a look that has ended.
    ///
    /// # Errors
    /// The map cannot be read.
    fn found(&mut self) -> Result<Option<Found>, MapError>;

    /// Ends sockets, some time from now.
    fn end(&mut self, sockets: Vec<Routed>, metrics: &Metrics);

    /// True while sockets are being ended, and while some are to be tried again.
    fn is_ending(&self) -> bool;

    /// True if sockets could not be ended and are to be tried again: by another look, because their
    /// programs may have connected them elsewhere meanwhile.
    fn must_try_again(&mut self) -> bool;
}

/// Backends that get no connections any more. Most are told for a while still, because they are not ready.
#[derive(Debug, Default)]
pub(crate) struct Leaving(HashMap<Frontend, HashSet<SocketAddr>>);

impl Leaving {
    /// Takes note of a backend that a frontend does not lead to any more.
    pub(crate) fn add(&mut self, frontend: Frontend, backend: SocketAddr) {
        self.0.entry(frontend).or_default().insert(backend);
    }

    /// Looks at a frontend that has changed. Returns true if a backend of it is gone now.
    pub(crate) fn settle<M: Maps>(
        &mut self,
        frontend: &Frontend,
        services: &Services,
        reconciler: &Reconciler<M>,
    ) -> bool {
        let Some(mut backends) = self.0.remove(frontend) else {
            return false;
        };
        let fates = Fates::new(frontend, services, reconciler);
        let mut is_any_gone = false;
        backends.retain(|backend| {
            let fate = fates.of(backend);
            is_any_gone |= fate == Fate::Gone;
            fate == Fate::Leaving
        });
        if !backends.is_empty() {
            self.0.insert(*frontend, backends);
        }
        is_any_gone
    }

    /// The sockets whose backends are gone. Backends that were leaving before this process began are noted as leaving.
    pub(crate) fn gone<M: Maps>(
        &mut self,
        sockets: BTreeMap<Pair, Vec<Routed>>,
        services: &Services,
        reconciler: &Reconciler<M>,
    ) -> Vec<Routed> {
        let mut gone = Vec::new();
        // Pairs are in the order of their services.
        let mut last: Option<(ServiceId, Option<(Frontend, Fates)>)> = None;
        for (pair, sockets) in sockets {
            if last.as_ref().is_none_or(|last| last.0 != pair.service) {
                let frontend = reconciler.frontend_of(pair.service).copied();
                let fates = frontend.map(|it| (it, Fates::new(&it, services, reconciler)));
                last = Some((pair.service, fates));
            }
            let known = last.as_ref().and_then(|last| last.1.as_ref());
            for socket in sockets {
                let fate = known.map(|(_, fates)| fates.of(&socket.backend));
                match (fate, known) {
                    (Some(Fate::Routed), _) => {}
                    (Some(Fate::Leaving), Some((frontend, _))) => {
                        self.add(*frontend, socket.backend);
                    }
                    _ => gone.push(socket),
                }
            }
        }
        gone
    }

    /// Forgets frontends that are gone.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&Frontend) -> bool) {
        self.0.retain(|frontend, _| is_known(frontend));
    }
}

/// The state of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The frontend sends connections to the backend.
    Routed,
    /// The frontend sends it none, but a source still tells of the backend.
    Leaving,
    /// No source tells of the backend any more.
    Gone,
}

/// The backends of a frontend.
struct Fates {
    routed: HashSet<SocketAddr>,
    targets: HashSet<SocketAddr>,
    left_out: HashSet<String>,
}

impl Fates {
    fn new<M: Maps>(frontend: &Frontend, services: &Services, reconciler: &Reconciler<M>) -> Self {
        let pairs = reconciler.pairs(frontend).into_iter();
        let selection = services.selection(frontend).into_iter();
        let mut fates = Self {
            routed: pairs.map(|(_, address)| address).collect(),
            targets: HashSet::new(),
            left_out: HashSet::new(),
        };
        for selection in selection {
            let targets = selection.route.targets.iter();
            fates.targets.extend(targets.map(|target| target.address));
            let left_out = selection.left_out.iter();
            fates
                .left_out
                .extend(left_out.map(|left| left.address.clone()));
        }
        fates
    }

    fn of(&self, backend: &SocketAddr) -> Fate {
        if self.routed.contains(backend) {
            return Fate::Routed;
        }
        let is_told =
            self.targets.contains(backend) || self.left_out.contains(&backend.to_string());
        if is_told { Fate::Leaving } else { Fate::Gone }
    }
}
