//! Makes load reports of the kernel's counters, so that each connection is reported at most once.
//!
//! The kernel counts connections by pair, which is two numbers. The [`Ledger`] knows the label that each pair is
//! reported under, and the counts that were reported already. The client takes a report, the ledger stores it, and then
//! the client sends it. An agent that is killed after the store loses that report, because it never sends one twice.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crowfly_names::{ClusterLoad, ConnectionLoad, LocalityLoad};

use super::label::{Label, Labels};
use crate::maps::reports::{LabelId, ReportMaps, Reported};
use crate::maps::{CounterReader, Counters, MapError, Pair};

/// The counts of all pairs, as far as they were told.
#[derive(Debug)]
pub struct Ledger<M> {
    maps: M,
    pairs: HashMap<Pair, Told>,
    /// Pairs of which nothing was told, and that are stored so, with their labels. They are apart from the others,
    /// because nearly all are so, and there are very many.
    untold: HashMap<Pair, LabelId>,
    labels: Labels,
    /// Counts of pairs that have another label now. They are in the next take.
    carried: BTreeMap<LabelId, Counters>,
    /// The take that is under way.
    taking: Option<Taking>,
    /// Pairs whose counts may not be stored as they were taken.
    unstored: Vec<Pair>,
    /// Pairs whose counts are stored and not sent yet, with what was stored before.
    on_the_way: Option<Vec<(Pair, Option<Reported>)>>,
}

/// A take that is under way.
#[derive(Debug, Default)]
struct Taking {
    /// The counts of each label, and its open connections.
    sums: BTreeMap<LabelId, (Counters, u64)>,
    /// Pairs that got another label or were forgotten since it began.
    changed: HashSet<Pair>,
}

/// The counts of a pair that were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    /// The counts that reports of this process have taken, whether they are sent or not yet. Its label is the one that
    /// later counts are reported under.
    taken: Reported,
    /// The counts that the map has.
    stored: Option<Reported>,
}

impl<M: ReportMaps> Ledger<M> {
    /// Goes on from what a former agent has stored. If it has stored nothing, the connections of its time are not
    /// reported.
    ///
    /// # Errors
    /// The maps cannot be read.
    pub fn adopt(maps: M) -> Result<Self, MapError> {
        let counters: HashMap<Pair, Counters> = maps.counters()?.into_iter().collect();
        let mut labels = Labels::default();
        for (id, text) in maps.labels()? {
            if let Some(label) = Label::from_bytes(&text) {
                labels.found(id, label);
            }
        }
        let mut ledger = Self {
            maps,
            pairs: HashMap::new(),
            untold: HashMap::new(),
            labels: Labels::default(),
            carried: BTreeMap::new(),
            taking: None,
            unstored: Vec::new(),
            on_the_way: None,
        };
        for (pair, stored) in ledger.maps.reported()? {
            labels.in_use(stored.label);
            let now = counters.get(&pair).copied().unwrap_or_default();
            // Counters that are below what was told have begun anew.
            let is_older = now.opened < stored.opened || now.closed < stored.closed;
            let taken = if is_older {
                Reported::all(stored.label, &Counters::default())
            } else {
                stored
            };
            let stored = Some(stored);
            ledger.put(pair, Told { taken, stored });
        }
        if ledger.pairs().next().is_none() {
            for (pair, counters) in &counters {
                let taken = Reported::all(LabelId::default(), counters);
                let stored = None;
                ledger.put(*pair, Told { taken, stored });
            }
        }
        ledger.labels = labels;
        Ok(ledger)
    }

    fn get(&self, pair: &Pair) -> Option<Told> {
        let untold = self.untold.get(pair).map(|label| Told::nothing(*label));
        untold.or_else(|| self.pairs.get(pair).copied())
    }

    fn put(&mut self, pair: Pair, told: Told) {
        let label = told.taken.label;
        if told == Told::nothing(label) {
            self.pairs.remove(&pair);
            self.untold.insert(pair, label);
        } else {
            self.untold.remove(&pair);
            let before = self.pairs.insert(pair, told);
            if told.is_unstored() && !before.is_some_and(|before| before.is_unstored()) {
                self.unstored.push(pair);
            }
        }
    }

    /// Sets the label that the connections of a pair are reported under from now on; with `None` they are not reported.
    /// Connections that were not told yet are told under the label of before. If that is lost, because a former agent
    /// could not store it, they are told under the new one.
    ///
    /// # Errors
    /// The label or the pair is not stored, and the next take tries again. The label is in force all the same. If the
    /// counters cannot be read, connections that were not told yet are told under the new label.
    pub fn label(&mut self, pair: Pair, label: Option<&Label>) -> Result<(), MapError> {
        let (label, mut result) = self.intern(label);
        let known = self.get(&pair);
        if known.is_some_and(|known| known.taken.label == label && known.stored.is_some()) {
            return result;
        }
        if let Some(taking) = &mut self.taking {
            taking.changed.insert(pair);
        }
        let mut told = known.unwrap_or_default();
        let is_new = told.taken.label != label && known.is_some();
        let is_heir = label != LabelId::default() && self.labels.is_lost(told.taken.label);
        if is_new && !is_heir {
            match self.maps.counters_of(pair) {
                Ok(counters) => {
                    if told.taken.label != LabelId::default() {
                        let carried = self.carried.entry(told.taken.label).or_default();
                        *carried += told.untold(&counters);
                    }
                    told.taken = Reported::all(label, &counters);
                }
                Err(error) => result = Err(error),
            }
        }
        told.taken.label = label;
        if told.stored.is_none() {
            match self.maps.set_reported(pair, Some(told.taken)) {
                Ok(()) => told.stored = Some(told.taken),
                Err(error) => result = Err(error),
            }
        }
        self.put(pair, told);
        result
    }

    /// The number of a label. A new one is stored.
    fn intern(&mut self, label: Option<&Label>) -> (LabelId, Result<(), MapError>) {
        let Some(label) = label else {
            return (LabelId::default(), Ok(()));
        };
        if let Some(id) = self.labels.id(label) {
            return (id, Ok(()));
        }
        let id = self.labels.add(label);
        (id, self.store_label(id))
    }

    fn store_label(&mut self, id: LabelId) -> Result<(), MapError> {
        if let Some(text) = self.labels.unstored(id) {
            self.maps.set_label(id, Some(text))?;
            self.labels.stored(id);
        }
        Ok(())
    }

    /// Stores some more of the labels that the map had no room for, and returns whether it may have room for others.
    pub fn store_labels(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(id) = self.labels.first_unstored() else {
                return false;
            };
            if self.store_label(id).is_err() {
                return false;
            }
        }
        true
    }

    /// Takes the loads since the last time. Clusters without any are left out.
    ///
    /// # Errors
    /// The counters cannot be read. Nothing was taken.
    pub fn take(&mut self) -> Result<Vec<ClusterLoad>, MapError> {
        self.store_labels(usize::MAX);
        let counters = self.begin_take()()?;
        self.take_some(&counters);
        Ok(self.end_take())
    }

    /// Begins to take the loads since the last time. The counters are read by the result, on whatever thread it is
    /// called, and without this ledger. [`Self::take_some`] and [`Self::end_take`] are to follow.
    pub fn begin_take(&mut self) -> CounterReader {
        self.taking = Some(Taking::default());
        self.maps.counter_reader()
    }

    /// Takes the loads of some pairs. A pair whose counts cannot be stored, or whose label is lost, is left out: they are
    /// in a later take, when there is room or another label.
    pub fn take_some(&mut self, counters: &[(Pair, Counters)]) {
        let Some(mut taking) = self.taking.take() else {
            return;
        };
        for (pair, counters) in counters {
            // The counters of such a pair may have been read before it was changed.
            if taking.changed.contains(pair) {
                continue;
            }
            let Some(mut told) = self.get(pair) else {
                continue;
            };
            if self.labels.is_lost(told.taken.label) {
                continue;
            }
            if told.stored.is_none() && !self.reserve(*pair, &mut told) {
                continue;
            }
            let (sum, active) = taking.sums.entry(told.taken.label).or_default();
            *sum += told.untold(counters);
            *active += counters.active();
            told.taken = Reported::all(told.taken.label, counters);
            self.put(*pair, told);
        }
        self.taking = Some(taking);
    }

    /// Makes room for the counts of a pair. To store them later needs none, so a full map puts off this pair alone.
    fn reserve(&mut self, pair: Pair, told: &mut Told) -> bool {
        if self.maps.set_reported(pair, Some(told.taken)).is_err() {
            return false;
        }
        told.stored = Some(told.taken);
        true
    }

    /// The loads that were taken since [`Self::begin_take`], with the counts of pairs that have another label now.
    pub fn end_take(&mut self) -> Vec<ClusterLoad> {
        let mut sums = self.taking.take().unwrap_or_default().sums;
        for (label, counts) in std::mem::take(&mut self.carried) {
            sums.entry(label).or_default().0 += counts;
        }
        let busy = sums
            .into_iter()
            .filter(|(_, (sum, active))| *active > 0 || *sum != Counters::default());
        let loads = busy.filter_map(|(label, (sum, active))| {
            let label = self.labels.get(label)?;
            Some(load(label, &sum, active))
        });
        loads.collect()
    }

    /// Stores that all that was taken is told.
    ///
    /// # Errors
    /// It is stored in part or not at all. What was stored is taken back as far as possible.
    pub fn sending(&mut self) -> Result<(), MapError> {
        self.begin_sending();
        while self.store_some(usize::MAX)? {}
        Ok(())
    }

    /// Begins to store that all that was taken is told. [`Self::store_some`] does it.
    pub fn begin_sending(&mut self) {
        self.on_the_way = Some(Vec::new());
    }

    /// Stores the counts of some more pairs, and returns whether there are others.
    ///
    /// # Errors
    /// One of them is not stored. What was stored is taken back as far as possible.
    pub fn store_some(&mut self, most: usize) -> Result<bool, MapError> {
        for _ in 0..most {
            let Some(pair) = self.unstored.pop() else {
                return Ok(false);
            };
            let Some(told) = self.pairs.get_mut(&pair) else {
                continue;
            };
            if told.stored == Some(told.taken) {
                continue;
            }
            if let Err(error) = self.maps.set_reported(pair, Some(told.taken)) {
                self.unstored.push(pair);
                self.unsent();
                return Err(error);
            }
            if let Some(on_the_way) = &mut self.on_the_way {
                on_the_way.push((pair, told.stored));
            }
            told.stored = Some(told.taken);
        }
        Ok(!self.unstored.is_empty())
    }

    /// Takes note that the report is on the connection.
    pub fn sent(&mut self) {
        self.on_the_way = None;
    }

    /// Takes note that the report was not sent. Its counts are stored as not reported until it is.
    pub fn unsent(&mut self) {
        while self.take_back_some(usize::MAX) {}
    }

    /// Takes back the counts of some pairs of a report that was not sent, and returns whether there are others.
    pub fn take_back_some(&mut self, most: usize) -> bool {
        let Some(on_the_way) = &mut self.on_the_way else {
            return false;
        };
        let some = on_the_way.len().saturating_sub(most);
        for (pair, before) in on_the_way.split_off(some) {
            // What stays stored although it was not sent is lost if this process ends: once at most.
            if let Some(mut told) = self.get(&pair)
                && self.maps.set_reported(pair, before).is_ok()
            {
                told.stored = before;
                self.put(pair, told);
            }
        }
        if some == 0 {
            self.on_the_way = None;
        }
        some > 0
    }

    /// True if the counters of a pair are told as they are, or can be told under no label, so that they may be deleted.
    pub fn is_told(&self, pair: &Pair, counters: &Counters) -> bool {
        let Some(told) = self.get(pair) else {
            return true;
        };
        let label = told.taken.label;
        if label == LabelId::default() || self.labels.is_lost(label) {
            return true;
        }
        let stored = told.stored == Some(Reported::all(label, counters));
        stored && self.on_the_way.is_none()
    }

    /// Forgets pairs that no frontend has, and the labels of which they were the last. A pair that has counters stays,
    /// because its first connection came after the counters were read by which it is to go.
    ///
    /// # Errors
    /// A map cannot be read or changed.
    pub fn forget(&mut self, pairs: &[Pair]) -> Result<(), MapError> {
        for pair in pairs {
            if self.maps.counters_of(*pair)? != Counters::default() {
                continue;
            }
            if let Some(taking) = &mut self.taking {
                taking.changed.insert(*pair);
            }
            if self.get(pair).is_some() {
                self.maps.set_reported(*pair, None)?;
                self.pairs.remove(pair);
                self.untold.remove(pair);
            }
        }
        let used = self.pairs.values().flat_map(|told| {
            let stored = told.stored.map(|stored| stored.label);
            [Some(told.taken.label), stored]
        });
        let used = used.flatten().chain(self.untold.values().copied());
        let used: HashSet<_> = used.chain(self.carried.keys().copied()).collect();
        for id in self.labels.retain(|id| used.contains(&id)) {
            self.maps.set_label(id, None)?;
        }
        Ok(())
    }

    /// The pairs that the maps speak of: their numbers are in use.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.keys().chain(self.untold.keys())
    }

    /// True if there is a label that connections are told under.
    pub fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    /// The maps.
    pub fn maps(&self) -> &M {
        &self.maps
    }

    /// The maps, for tests that change them.
    pub fn maps_mut(&mut self) -> &mut M {
        &mut self.maps
    }

    /// The maps, as they are.
    pub fn into_maps(self) -> M {
        self.maps
    }
}

impl Told {
    /// The state of a pair of which nothing was told, and that is stored so.
    fn nothing(label: LabelId) -> Self {
        let taken = Reported::all(label, &Counters::default());
        let stored = Some(taken);
        Self { taken, stored }
    }

    /// True if the map has room for the counts, and has older ones.
    fn is_unstored(&self) -> bool {
        self.stored.is_some_and(|stored| stored != self.taken)
    }

    /// The counts that were not taken yet.
    fn untold(&self, now: &Counters) -> Counters {
        Counters {
            opened: now.opened.saturating_sub(self.taken.opened),
            established: 0,
            failed: now.failed.saturating_sub(self.taken.failed),
            closed: now.closed.saturating_sub(self.taken.closed),
        }
    }
}

/// Forgets what any agent has reported. Otherwise a later agent would report the connections of the time in which this
/// one does not report.
///
/// # Errors
/// A map cannot be read or changed.
pub fn forget_all(maps: &mut impl ReportMaps) -> Result<(), MapError> {
    for (pair, _) in maps.reported()? {
        maps.set_reported(pair, None)?;
    }
    for (id, _) in maps.labels()? {
        maps.set_label(id, None)?;
    }
    Ok(())
}

/// A connection counts as a call as well, because servers read those fields.
fn load(label: &Arc<Label>, sum: &Counters, active: u64) -> ClusterLoad {
    let connections = ConnectionLoad {
        opened: sum.opened,
        failed: sum.failed,
        active,
    };
    ClusterLoad {
        cluster: Arc::clone(&label.cluster.cluster).into(),
        eds_service_name: label.cluster.eds_service.clone(),
        drops: Vec::new(),
        uncategorized_drops: 0,
        localities: vec![LocalityLoad {
            locality: label.locality.clone(),
            issued: sum.opened,
            succeeded: sum.closed,
            errors: sum.failed,
            in_progress: active,
            connections,
            ..LocalityLoad::default()
        }],
        is_sparse: true,
    }
}
