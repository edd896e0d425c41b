//! Brings the maps to what is wanted, one frontend at a time, and never shows half of one.
//!
//! A change has this order: new backends, a whole new generation of slots, and members come first. Then the frontend's
//! entry is replaced, which is the switch. Members that left go last. What the old entry led to is deleted later, in
//! [`Reconciler::sweep`], because programs that read the old entry may be under way.
//!
//! A change that fails leaves the frontend as it was. [`Reconciler::reconcile`] tries it again, and
//! [`Reconciler::change`] does so only if something else is wanted by now. A full map therefore fails the
//! frontends that need more room, and no others.

mod backends;
mod compare;
mod counters;
mod departed;
mod garbage;
mod ids;
mod takeover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::maps::{
    BackendId, Entry, Generation, MapError, Maps, Operation, Pair, ServiceId, Slot, SlotKey,
};
use crate::select::{Frontend, Route, Without};
pub use compare::Repairs;

use backends::Backends;
use compare::Progress;
use departed::Departed;
use garbage::{Garbage, Waste};
use ids::Ids;

/// The maps, what they hold, and what they should hold.
#[derive(Debug)]
pub struct Reconciler<M> {
    maps: M,
    programmed: BTreeMap<Frontend, Programmed>,
    owners: HashMap<ServiceId, Frontend>,
    backends: Backends,
    services: Ids,
    generations: Ids,
    /// Wishes that were not tried yet.
    wanted: BTreeMap<Frontend, Wish>,
    /// Wishes that failed, and that no newer one replaces.
    unmet: BTreeMap<Frontend, Wish>,
    /// The frontends whose last change failed.
    failed: BTreeMap<Frontend, MapError>,
    /// The last of `unmet` that was tried again.
    last_retried: Option<Frontend>,
    garbage: Garbage,
    /// Frontends that were switched since somebody asked.
    switched: BTreeSet<Frontend>,
    /// Backends that frontends lead to no more, since somebody asked.
    left: Vec<(Frontend, SocketAddr)>,
    /// Pairs that the last look at the counters could have forgotten.
    idle: HashSet<Pair>,
    departed: Departed,
    compared: Progress,
}

/// The route that a frontend should have. `None` is a frontend that is to go.
type Wish = Option<Arc<Route>>;

/// The most failures of one call of [`Reconciler::reconcile`]. The agent does nothing else meanwhile, and a full
/// map may fail thousands of frontends.
const MOST_FAILURES: usize = 256;

/// A frontend as the maps have it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Programmed {
    entry: Entry,
    /// Its slots. They are empty if a former agent left only some of them.
    slots: Vec<Slot>,
    /// Its backends, which are held.
    backends: BTreeSet<BackendId>,
    members: BTreeSet<BackendId>,
}

/// The effect of one call of [`Reconciler::change`] or [`Reconciler::reconcile`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of frontends that are routed otherwise now.
    pub switched: usize,
    /// The number of frontends that are routed no more.
    pub removed: usize,
    /// The frontends that are as they were, because a change of a map failed.
    pub failed: Vec<(Frontend, MapError)>,
    /// Those of them whose last change did not fail for the same reason.
    pub newly_failed: Vec<(Frontend, MapError)>,
}

impl<M: Maps> Reconciler<M> {
    /// Takes over the maps as they are. What belongs to no frontend is deleted by the next sweeps.
    ///
    /// # Errors
    /// The maps cannot be read.
    pub fn adopt(maps: M) -> Result<Self, MapError> {
        let dump = maps.dump()?;
        let mut reconciler = Self {
            maps,
            programmed: BTreeMap::new(),
            owners: HashMap::new(),
            backends: Backends::default(),
            services: Ids::default(),
            generations: Ids::default(),
            wanted: BTreeMap::new(),
            unmet: BTreeMap::new(),
            failed: BTreeMap::new(),
            last_retried: None,
            garbage: Garbage::default(),
            switched: BTreeSet::new(),
            left: Vec::new(),
            idle: HashSet::new(),
            departed: Departed::default(),
            compared: Progress::default(),
        };
        reconciler.take_over(dump);
        Ok(reconciler)
    }

    /// Takes note of pairs that others refer to. Their numbers are in use until the counters are pruned.
    pub fn found(&mut self, pairs: &[Pair]) {
        for pair in pairs {
            self.services.found(pair.service.0);
            self.backends.ids.found(pair.backend.0);
        }
    }

    /// Says what a frontend should be; `None` ends its routing.
    pub fn want(&mut self, frontend: Frontend, route: Option<Arc<Route>>) {
        self.unmet.remove(&frontend);
        self.wanted.insert(frontend, route);
    }

    /// The frontends that the maps have.
    pub fn frontends(&self) -> impl Iterator<Item = &Frontend> {
        self.programmed.keys()
    }

    /// True if a frontend is in the maps, as it is wanted or as it was.
    pub fn is_programmed(&self, frontend: &Frontend) -> bool {
        self.programmed.contains_key(frontend)
    }

    /// The frontends whose last change failed, with the reason. It is tried again.
    pub fn failed(&self) -> &BTreeMap<Frontend, MapError> {
        &self.failed
    }

    /// The frontends that were switched since the last call.
    pub fn take_switched(&mut self) -> BTreeSet<Frontend> {
        std::mem::take(&mut self.switched)
    }

    /// The backends that frontends lead to no more, since the last call. Frontends that were removed are not
    /// among them.
    pub fn take_left(&mut self) -> Vec<(Frontend, SocketAddr)> {
        std::mem::take(&mut self.left)
    }

    /// The pairs of a frontend, with the addresses of their backends.
    pub fn pairs(&self, frontend: &Frontend) -> Vec<(Pair, SocketAddr)> {
        let programmed = self.programmed.get(frontend).into_iter();
        let pairs = programmed.flat_map(|programmed| {
            let service = programmed.entry.service;
            let backends = programmed.backends.iter();
            backends.map(move |&backend| Pair { service, backend })
        });
        let address = |pair: Pair| Some((pair, self.backends.held.get(&pair.backend)?.address()));
        pairs.filter_map(address).collect()
    }

    /// The number of entries of each map that is written here.
    pub fn entries(&self) -> Vec<(&'static str, usize)> {
        let slots = self.programmed.values().map(|it| it.slots.len());
        let members = self.programmed.values().map(|it| it.members.len());
        vec![
            ("svc", self.programmed.len()),
            ("slots", slots.sum::<usize>() + self.garbage.slots()),
            ("backends", self.backends.held.len()),
            ("members", members.sum()),
        ]
    }

    /// The number of a frontend.
    pub fn service_of(&self, frontend: &Frontend) -> Option<ServiceId> {
        let programmed = self.programmed.get(frontend)?;
        Some(programmed.entry.service)
    }

    /// The frontend of a number.
    pub fn frontend_of(&self, service: ServiceId) -> Option<&Frontend> {
        self.owners.get(&service)
    }

    /// True if something is to be deleted still.
    pub fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// The maps.
    pub fn maps(&self) -> &M {
        &self.maps
    }

    /// The maps, for tests that make them fail.
    pub fn maps_mut(&mut self) -> &mut M {
        &mut self.maps
    }

    /// The maps, as they are.
    pub fn into_maps(self) -> M {
        self.maps
    }

    /// Makes every change that was wanted since the last call.
    pub fn change(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        for (frontend, wish) in std::mem::take(&mut self.wanted) {
            self.fulfil(frontend, wish, &mut outcome);
        }
        outcome
    }

    /// Makes every change that was wanted since the last call, and tries again what failed before. After too many
    /// failures it ends, and the next call goes on behind the last one.
    pub fn reconcile(&mut self) -> Outcome {
        let before: Vec<Frontend> = self.unmet.keys().copied().collect();
        let mut outcome = self.change();
        let begin = before.partition_point(|frontend| Some(*frontend) <= self.last_retried);
        let mut failures = 0;
        for frontend in before[begin..].iter().chain(&before[..begin]) {
            let Some(wish) = self.unmet.remove(frontend) else {
                continue;
            };
            self.last_retried = Some(*frontend);
            failures += usize::from(!self.fulfil(*frontend, wish, &mut outcome));
            if failures == MOST_FAILURES {
                break;
            }
        }
        outcome
    }

    /// Makes the change that is wanted of a frontend; true if that succeeded.
    fn fulfil(&mut self, frontend: Frontend, wish: Wish, outcome: &mut Outcome) -> bool {
        let result = match &wish {
            Some(route) => self.program(frontend, route),
            None => self.remove(frontend),
        };
        match result {
            Ok(changed) => {
                self.failed.remove(&frontend);
                match wish {
                    Some(_) => outcome.switched += usize::from(changed),
                    None => outcome.removed += usize::from(changed),
                }
                true
            }
            Err(error) => {
                let before = self.failed.insert(frontend, error.clone());
                if before.as_ref() != Some(&error) {
                    outcome.newly_failed.push((frontend, error.clone()));
                }
                outcome.failed.push((frontend, error));
                self.unmet.insert(frontend, wish);
                false
            }
        }
    }

    /// Deletes what was left over before the last sweep. By then, programs that could see it have ended.
    pub fn sweep(&mut self) {
        for waste in self.garbage.take_due() {
            if self.is_waste(&waste) {
                self.delete(waste);
            }
        }
    }

    /// Deletes an entry now, or else in the next sweep; true if it is deleted.
    fn delete(&mut self, waste: Waste) -> bool {
        if self.maps.apply(&waste.operation()).is_err() {
            self.garbage.keep(waste);
            return false;
        }
        if let Waste::Backend(id) = waste {
            self.backends.forget(id);
        }
        true
    }

    /// False if a frontend uses the entry again.
    fn is_waste(&self, waste: &Waste) -> bool {
        match waste {
            Waste::Backend(id) => self.backends.held.get(id).is_some_and(|held| held.by == 0),
            // A generation that was left never comes back.
            Waste::Slot(_) => true,
            Waste::Member(pair) => {
                let owner = self.owners.get(&pair.service);
                let owner = owner.and_then(|frontend| self.programmed.get(frontend));
                owner.is_none_or(|owner| !owner.members.contains(&pair.backend))
            }
        }
    }

    fn program(&mut self, frontend: Frontend, route: &Route) -> Result<bool, MapError> {
        let before = self.programmed.get(&frontend).cloned();
        let (after, keeps_slots) = self.plan(before.as_ref(), route);
        if before.as_ref() == Some(&after) {
            self.release(&after.backends);
            return Ok(false);
        }
        if let Err(error) = self.switch(frontend, before.as_ref(), &after, keeps_slots) {
            self.undo(before.as_ref(), &after, keeps_slots);
            return Err(error);
        }
        self.owners.insert(after.entry.service, frontend);
        self.switched.insert(frontend);
        self.backends.use_all(&after.backends);
        // Counters that were read before may lack what these pairs count from now on.
        for &backend in &after.backends {
            let service = after.entry.service;
            self.idle.remove(&Pair { service, backend });
        }
        self.programmed.insert(frontend, after.clone());
        if let Some(before) = before {
            self.note_departures(frontend, &before, &after);
            self.leave(&before, Some(&after), keeps_slots);
        }
        Ok(true)
    }

    /// A frontend as a route wants it, and whether it keeps its slots. Its backends are held.
    fn plan(&mut self, before: Option<&Programmed>, route: &Route) -> (Programmed, bool) {
        let (backends, slots) = self.backends.slots(route);
        let service = match before {
            Some(before) => before.entry.service,
            None => ServiceId(self.services.take()),
        };
        let keeps_slots = before.is_some_and(|before| before.is_whole() && before.slots == slots);
        let generation = match before {
            Some(before) if keeps_slots => before.entry.generation,
            _ => Generation(self.generations.take()),
        };
        let affinity = route.affinity.map_or(0, |timeout| {
            u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX).max(1)
        });
        let after = Programmed {
            entry: Entry {
                service,
                generation,
                slots: u32::try_from(slots.len()).unwrap_or(u32::MAX),
                affinity,
                without: if slots.is_empty() {
                    route.without
                } else {
                    Without::Refused
                },
            },
            slots,
            members: match affinity {
                0 => BTreeSet::new(),
                _ => backends.clone(),
            },
            backends,
        };
        (after, keeps_slots)
    }

    /// Takes note of the backends that a frontend leads to no more, or again.
    fn note_departures(&mut self, frontend: Frontend, before: &Programmed, after: &Programmed) {
        let service = after.entry.service;
        for &backend in before.backends.difference(&after.backends) {
            if let Some(held) = self.backends.held.get(&backend) {
                self.left.push((frontend, held.address()));
                self.departed
                    .left(Pair { service, backend }, held.address());
            }
        }
        for &backend in after.backends.difference(&before.backends) {
            self.departed.returned(Pair { service, backend });
        }
    }

    /// Writes what an entry leads to, and then the entry, which is the switch.
    fn switch(
        &mut self,
        frontend: Frontend,
        before: Option<&Programmed>,
        after: &Programmed,
        keeps_slots: bool,
    ) -> Result<(), MapError> {
        for id in &after.backends {
            if let Some(held) = self.backends.held.get_mut(id)
                && !held.is_written
            {
                self.maps
                    .apply(&Operation::PutBackend(*id, held.address()))?;
                held.is_written = true;
            }
        }
        if !keeps_slots {
            for (key, slot) in after.keys().zip(&after.slots) {
                self.maps.apply(&Operation::PutSlot(key, *slot))?;
            }
        }
        for backend in &after.members {
            if before.is_none_or(|before| !before.members.contains(backend)) {
                let pair = Pair {
                    service: after.entry.service,
                    backend: *backend,
                };
                self.maps.apply(&Operation::PutMember(pair))?;
            }
        }
        self.maps
            .apply(&Operation::PutService(frontend, after.entry))
    }

    /// Takes back what a change that failed has written, at once, because a full map has no room for it
    /// and others may need that. No program has seen any of it, so its numbers may be given to others.
    fn undo(&mut self, before: Option<&Programmed>, after: &Programmed, keeps_slots: bool) {
        let mut written = Vec::new();
        if !keeps_slots {
            written.extend(after.keys().map(Waste::Slot));
        }
        let service = after.entry.service;
        let members = after
            .members
            .iter()
            .map(|&backend| Pair { service, backend });
        let is_new =
            |pair: &Pair| before.is_none_or(|before| !before.members.contains(&pair.backend));
        written.extend(members.filter(is_new).map(Waste::Member));
        for &id in &after.backends {
            if !self.backends.release(id) {
                continue;
            }
            if self.backends.was_used(id) {
                self.garbage.add(Waste::Backend(id));
            } else {
                written.push(Waste::Backend(id));
            }
        }
        let mut is_all_deleted = true;
        for waste in &written {
            is_all_deleted &= self.delete(*waste);
        }
        if !is_all_deleted {
            // The next pruning of counters frees the numbers.
            return;
        }
        if before.is_none() {
            self.services.give_back(service.0);
        }
        if !keeps_slots {
            self.generations.give_back(after.entry.generation.0);
        }
        for waste in written {
            if let Waste::Backend(id) = waste {
                self.backends.ids.give_back(id.0);
            }
        }
    }

    fn remove(&mut self, frontend: Frontend) -> Result<bool, MapError> {
        if !self.programmed.contains_key(&frontend) {
            return Ok(false);
        }
        self.maps.apply(&Operation::DeleteService(frontend))?;
        if let Some(before) = self.programmed.remove(&frontend) {
            self.owners.remove(&before.entry.service);
            self.leave(&before, None, false);
        }
        Ok(true)
    }

    /// Cleans up behind an entry that is not in force any more.
    fn leave(&mut self, before: &Programmed, after: Option<&Programmed>, keeps_slots: bool) {
        let service = before.entry.service;
        for &backend in &before.members {
            if after.is_some_and(|after| after.members.contains(&backend)) {
                continue;
            }
            // At once, because clients would return to a backend that has left.
            self.delete(Waste::Member(Pair { service, backend }));
        }
        if !keeps_slots {
            for key in before.keys() {
                self.garbage.add(Waste::Slot(key));
            }
        }
        self.release(&before.backends);
    }

    fn release(&mut self, backends: &BTreeSet<BackendId>) {
        for id in backends {
            if self.backends.release(*id) {
                self.garbage.add(Waste::Backend(*id));
            }
        }
    }
}

impl Programmed {
    /// True if the maps have all of its slots.
    fn is_whole(&self) -> bool {
        usize::try_from(self.entry.slots) == Ok(self.slots.len())
    }

    fn keys(&self) -> impl Iterator<Item = SlotKey> + use<> {
        let Entry {
            service,
            generation,
            slots,
            ..
        } = self.entry;
        (0..slots).map(move |index| SlotKey {
            service,
            generation,
            index,
        })
    }
}
