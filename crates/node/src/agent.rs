//! The agent without its surroundings: services in, maps out.
//!
//! It is given events and the time to clean up, and holds no clock and no task. The driver in
//! `serve.rs` connects it with files, timers and a socket.

mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crowfly_source::Event;
use tracing::warn;

use crate::loads::Loads;
use crate::maps::{Counters, MapError, Maps, Pair};
use crate::metrics::Metrics;
use crate::model::Place;
use crate::reconcile::{Outcome, Reconciler, Repairs};
use crate::select::Frontend;
use crate::services::{Change, ServiceEvent, Services};
use crate::sockets::{Leaving, Sockets};

/// The services, and the maps that follow them.
#[derive(Debug)]
pub struct Agent<M> {
    services: Services,
    reconciler: Reconciler<M>,
    /// The number of services that were too large when frontends that no source knows were taken out of the maps;
    /// `None` before that. Frontends of a former agent may be theirs.
    pruned_beside: Option<usize>,
    /// Frontends of a former agent that are as it left them.
    adopted: BTreeSet<Frontend>,
    /// Those of them whose service is told otherwise by now. They change when no source that was not heard yet can have
    /// another route for them.
    held: BTreeSet<Frontend>,
    /// False once frontends are held no more.
    may_hold: bool,
    /// True until the API server said where this node is, if it is asked for that.
    awaits_node: bool,
    /// The number of sources that were heard, and `awaits_node`, when held frontends were last looked at.
    heard: (usize, bool),
    /// The last failure of each source.
    failures: Vec<Option<Failure>>,
    /// The load reports, if there are any.
    loads: Option<Loads>,
    metrics: Metrics,
    sockets: Option<Box<dyn Sockets>>,
    /// True if backends have gone since sockets were looked at.
    may_end: bool,
    /// True if the last look at sockets was broken off.
    looks_again: bool,
    /// True if the last look found more sockets than can be ended.
    has_too_many_sockets: bool,
    /// True if the last pruning found no room for the counters of another pair.
    has_full_counters: bool,
    leaving: Leaving,
    comparison_period: Option<Duration>,
}

/// A failure of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    reason: Arc<str>,
    at: SystemTime,
}

impl<M: Maps> Agent<M> {
    /// Takes over the maps as they are.
    ///
    /// A frontend that they hold stays as it is until all sources that may have it were heard. Otherwise a source that
    /// is heard early would take it from its owner for a moment. It is deleted only after all sources were heard. See
    /// also [`Self::wait_for_node`].
    ///
    /// # Errors
    /// The maps cannot be read.
    pub fn new(mut services: Services, maps: M) -> Result<Self, MapError> {
        let mut room = maps.capacities().into_iter();
        if let Some((_, slots)) = room.find(|(map, _)| *map == "slots") {
            services.set_room(slots);
        }
        let reconciler = Reconciler::adopt(maps)?;
        Ok(Self {
            adopted: reconciler.frontends().copied().collect(),
            failures: vec![None; services.sources().count()],
            services,
            reconciler,
            pruned_beside: None,
            held: BTreeSet::new(),
            may_hold: true,
            awaits_node: false,
            heard: (0, false),
            loads: None,
            metrics: Metrics::default(),
            sockets: None,
            // Backends may have gone while there was no agent.
            may_end: true,
            looks_again: false,
            has_too_many_sockets: false,
            has_full_counters: false,
            leaving: Leaving::default(),
            comparison_period: None,
        })
    }

    /// Reports loads: every frontend from now on has its label in them.
    pub fn report_loads(&mut self, loads: Loads) {
        self.reconciler.found(&loads.pairs());
        self.loads = Some(loads);
    }

    /// Takes note of failures among the events of a source, with their time.
    pub fn note_failures(&mut self, source: usize, events: &[ServiceEvent], now: SystemTime) {
        for event in events {
            if let (Event::Failed(reason), Some(last)) = (event, self.failures.get_mut(source)) {
                *last = Some(Failure {
                    reason: Arc::clone(reason),
                    at: now,
                });
            }
        }
    }

    /// Frontends of a former agent stay as they are until [`Self::node_heard`]. The zone of the node and the addresses
    /// of its pods decide which backends are local.
    pub fn wait_for_node(&mut self) {
        self.awaits_node = true;
    }

    /// True if the place of the node is not known yet, although somebody was asked for it.
    pub fn awaits_node(&self) -> bool {
        self.awaits_node
    }

    /// Takes note that the place of the node is known, and that sources have told their services by it.
    pub fn node_heard(&mut self) -> Outcome {
        self.awaits_node = false;
        self.follow(Vec::new())
    }

    /// Holds no frontend any more, for a source that stays silent too long. Frontends that no source
    /// knows stay even then.
    pub fn release(&mut self) -> Outcome {
        self.may_hold = false;
        self.follow(Vec::new())
    }

    /// Ends sockets from now on whose backends are gone.
    pub fn watch_sockets(&mut self, sockets: Box<dyn Sockets>) {
        self.sockets = Some(sockets);
    }

    /// Ends the sockets whose backends are gone, once all sources were heard. A call begins to look for
    /// them, and a later one ends those that were found.
    pub fn end_sockets(&mut self) {
        let must_look = self.must_look();
        let Some(sockets) = &mut self.sockets else {
            return;
        };
        if must_look && !sockets.is_looking() {
            self.may_end = false;
            return sockets.look();
        }
        match sockets.found() {
            Ok(None) => {}
            Ok(Some(found)) => {
                self.looks_again |= !found.is_whole;
                if found.is_full && !self.has_too_many_sockets {
                    warn!(
                        "the map routed is full: further sockets are routed, but are not ended when their backend \
                         is gone"
                    );
                }
                self.has_too_many_sockets = found.is_full;
                let leaving = &mut self.leaving;
                let gone = leaving.gone(found.sockets, &self.services, &self.reconciler);
                sockets.end(gone, &self.metrics);
            }
            Err(error) => warn!("sockets to backends that are gone are not ended: {error}"),
        }
    }

    fn must_look(&self) -> bool {
        self.may_end && self.sockets.is_some() && self.services.has_synced()
    }

    /// Takes note of backends that went, among them those that got no connections before.
    fn note_gone(&mut self, removed: usize, changed: &BTreeSet<Frontend>) {
        let left = self.reconciler.take_left();
        if self.sockets.is_none() {
            return;
        }
        for (frontend, backend) in left {
            self.leaving.add(frontend, backend);
        }
        for frontend in changed {
            let (services, reconciler) = (&self.services, &self.reconciler);
            self.may_end |= self.leaving.settle(frontend, services, reconciler);
        }
        if removed > 0 {
            self.may_end = true;
            let reconciler = &self.reconciler;
            self.leaving
                .retain(|frontend| reconciler.is_programmed(frontend));
        }
    }

    /// The counters of this agent's work.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts inputs that a source refused.
    pub fn note_refused(&self, source: usize, inputs: u64) {
        if let Some(name) = self.services.source(source) {
            self.metrics.refused(name, inputs);
        }
    }

    /// Takes events of a source that belong together.
    pub fn handle(&mut self, source: usize, events: Vec<ServiceEvent>) -> Outcome {
        let has_failed = events.iter().any(|event| matches!(event, Event::Failed(_)));
        if let Some(name) = self.services.source(source).filter(|_| has_failed) {
            self.metrics.source_failed(name);
        }
        let changes = self.services.handle(source, events);
        self.follow(changes)
    }

    /// Takes note that the node is elsewhere.
    pub fn move_to(&mut self, place: Place) -> Outcome {
        let changes = self.services.move_to(place);
        self.follow(changes)
    }

    fn follow(&mut self, changes: Vec<Change>) -> Outcome {
        let mut frontends: BTreeSet<Frontend> = changes.into_iter().map(|it| it.0).collect();
        // What is held may be free now.
        let heard = (self.services.heard(), self.awaits_node);
        if heard != self.heard || !self.may_hold {
            self.heard = heard;
            frontends.append(&mut self.held);
        }
        for frontend in frontends {
            self.held.remove(&frontend);
            if self.is_held(&frontend) {
                self.held.insert(frontend);
                continue;
            }
            let route = self.services.routes().get(&frontend).map(Arc::clone);
            if route.is_some() || self.may_remove(&frontend) {
                self.adopted.remove(&frontend);
                self.reconciler.want(frontend, route);
            }
        }
        self.prune_frontends();
        let outcome = self.reconciler.change();
        self.reconciled(outcome)
    }

    /// Takes frontends that no source knows out of the maps, once all sources were heard.
    fn prune_frontends(&mut self) {
        let refused = self.services.refused().count();
        if !self.services.has_synced() || self.pruned_beside == Some(refused) {
            return;
        }
        self.pruned_beside = Some(refused);
        let services = &self.services;
        let is_unknown = |frontend: &&Frontend| {
            !services.routes().contains_key(frontend) && !services.is_refused(&frontend.address)
        };
        let unknown = self.reconciler.frontends().filter(is_unknown);
        let unknown: Vec<Frontend> = unknown.copied().collect();
        for frontend in unknown {
            self.reconciler.want(frontend, None);
        }
    }

    /// Takes note of changes of the maps.
    fn reconciled(&mut self, outcome: Outcome) -> Outcome {
        let mut changed = self.reconciler.take_switched();
        changed.extend(self.services.take_touched());
        self.note_gone(outcome.removed, &changed);
        changed.retain(|frontend| !self.held.contains(frontend));
        if let Some(loads) = &self.loads {
            for frontend in &changed {
                loads.label(&self.services, frontend, &self.reconciler.pairs(frontend));
            }
        }
        outcome
    }

    fn is_held(&self, frontend: &Frontend) -> bool {
        self.may_hold
            && self.adopted.contains(frontend)
            && (self.awaits_node || !self.services.waits_for(frontend).is_empty())
    }

    /// The sources that a held frontend waits for, and `node` if it waits for the place of the node.
    fn waits_for(&self, frontend: &Frontend) -> Vec<String> {
        if !self.held.contains(frontend) {
            return Vec::new();
        }
        let sources = self.services.waits_for(frontend).into_iter();
        let node = self.awaits_node.then(|| "node".to_owned());
        sources.map(ToString::to_string).chain(node).collect()
    }

    /// A source that was not heard yet may know a frontend of a former agent. Or the frontend is of a service that is
    /// too large now.
    fn may_remove(&self, frontend: &Frontend) -> bool {
        !self.services.is_refused(&frontend.address)
            && (self.services.has_synced() || !self.adopted.contains(frontend))
    }

    /// The warnings of the services since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.services.take_warnings()
    }

    /// Deletes what was left over before the last call.
    pub fn sweep(&mut self) {
        self.reconciler.sweep();
    }

    /// Says how often the maps are compared with what they should hold; `None` never does.
    pub fn compare_every(&mut self, period: Option<Duration>) {
        self.comparison_period = period;
    }

    /// The time between two comparisons.
    pub fn comparison_period(&self) -> Option<Duration> {
        self.comparison_period
    }

    /// Begins to compare the maps with what they should hold. Calls of [`Self::compare`] do it.
    pub fn begin_comparison(&mut self) {
        self.reconciler.begin_comparison();
    }

    /// Compares some more entries of the maps, and repairs them.
    pub fn compare(&mut self) -> Repairs {
        self.reconciler.compare()
    }

    /// Tries again what failed.
    pub fn retry(&mut self) -> Outcome {
        if let Some(sockets) = &mut self.sockets {
            self.may_end |= sockets.must_try_again() || self.looks_again;
            self.looks_again = false;
        }
        let outcome = self.reconciler.reconcile();
        self.reconciled(outcome)
    }

    /// Forgets counters that nothing refers to.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn prune_counters(&mut self) -> Result<(), MapError> {
        let counters = self.reconciler.maps().counters()?;
        self.prune_counters_with(&counters)
    }

    /// Forgets counters that nothing refers to, among those that were read before.
    pub(crate) fn prune_counters_with(
        &mut self,
        counters: &[(Pair, Counters)],
    ) -> Result<(), MapError> {
        self.note_full_counters(counters.len());
        let Some(loads) = &self.loads else {
            self.reconciler.prune_counters_with(counters, |_, _| true);
            return Ok(());
        };
        let is_told = |pair: &Pair, counters: &Counters| loads.is_told(pair, counters);
        let kept = self.reconciler.prune_counters_with(counters, is_told);
        loads.retain(|pair| kept.contains(pair))
    }

    /// Warns once while there is no room for the counters of another pair, because the programs cannot say so.
    fn note_full_counters(&mut self, pairs: usize) {
        let mut capacities = self.reconciler.maps().capacities().into_iter();
        let room = capacities.find(|(map, _)| *map == "stats");
        let is_full = room.is_some_and(|(_, room)| u32::try_from(pairs).is_ok_and(|it| it >= room));
        if is_full && !self.has_full_counters {
            warn!(
                "the map stats is full: connections to further backends are routed, but neither counted nor reported; \
                 a larger --max-backends makes room"
            );
        }
        self.has_full_counters = is_full;
    }

    /// True if a sweep has something to delete or to compare, or sockets to look at.
    pub fn has_garbage(&self) -> bool {
        let sockets = self.sockets.as_ref();
        self.reconciler.has_garbage()
            || self.reconciler.is_comparing()
            || self.must_look()
            || sockets.is_some_and(|sockets| sockets.is_looking())
    }

    /// True if a change failed that is to be tried again, or the end of a socket may have.
    pub fn has_failed(&self) -> bool {
        let sockets = self.sockets.as_ref();
        !self.reconciler.failed().is_empty()
            || self.looks_again
            || sockets.is_some_and(|sockets| sockets.is_ending())
    }

    /// The services.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// The maps, and what is in them.
    pub fn reconciler(&self) -> &Reconciler<M> {
        &self.reconciler
    }
}
