//! An agent with its kernel and its reports, and all that may happen to them in any order.

use std::collections::{BTreeMap, BTreeSet};

use crowfly_names::ClusterLoad;
use crowfly_node::loads::Ledger;
use crowfly_node::maps::reports::MemoryReports;
use crowfly_node::maps::{Counters, Pair};
use proptest::prelude::*;

use crate::{label, pair};

#[derive(Clone, Debug)]
enum Step {
    /// A pair has connections: opened, of which failed, of which closed.
    Connections(usize, u64, u64, u64),
    /// A pair gets another label.
    Label(usize, usize),
    /// A pair is replaced by one of another number.
    Replace(usize),
    /// The map has no room for another label, or has room again.
    FillLabels(bool),
    /// The counters are read for the next pruning.
    Read,
    /// The counters of pairs that were replaced are pruned.
    Prune,
    /// The reporter looks, as it does when something changes.
    Take,
    /// A report is due. It is sent, or not, or the agent is killed before one knows.
    Report(Way),
    /// The agent is killed and another one starts.
    Kill,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Sent,
    Unsent,
    Killed,
}

const PAIRS: usize = 3;
const LABELS: [(&str, &str); 3] = [("web", "a"), ("web", "b"), ("api", "")];

fn step() -> impl Strategy<Value = Step> {
    let at = 0..PAIRS;
    prop_oneof![
        4 => (at.clone(), 0..5_u64, 0..2_u64, 0..4_u64)
            .prop_map(|(at, opened, failed, closed)| Step::Connections(at, opened, failed, closed)),
        1 => (at.clone(), 0..LABELS.len()).prop_map(|(at, label)| Step::Label(at, label)),
        1 => at.prop_map(Step::Replace),
        1 => any::<bool>().prop_map(Step::FillLabels),
        1 => Just(Step::Read),
        1 => Just(Step::Prune),
        1 => Just(Step::Take),
        2 => prop_oneof![3 => Just(Way::Sent), 1 => Just(Way::Unsent), 1 => Just(Way::Killed)]
            .prop_map(Step::Report),
        1 => Just(Step::Kill),
    ]
}

/// Opened, failed and closed.
type Sums = [u64; 3];

fn add(sums: &mut Sums, loads: &[ClusterLoad]) {
    for load in loads {
        let at = &load.localities[0];
        for (sum, count) in sums.iter_mut().zip([at.issued, at.errors, at.succeeded]) {
            *sum += count;
        }
    }
}

/// An agent with its kernel.
struct World {
    ledger: Ledger<MemoryReports>,
    pairs: [u32; PAIRS],
    labels: [usize; PAIRS],
    last: u32,
    truth: Sums,
    /// Taken by the reporter, not sent.
    books: Sums,
    told: Sums,
    lost: Sums,
    /// Pairs that were replaced, and whose label was lost with an agent.
    nameless: BTreeSet<Pair>,
    /// The counters that were read for the next pruning.
    read: Option<BTreeMap<Pair, Counters>>,
    /// Pairs that the last pruning could have forgotten.
    idle: BTreeSet<Pair>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            ledger: Ledger::adopt(MemoryReports::default()).unwrap(),
            pairs: [1, 2, 3],
            labels: [0, 1, 2],
            last: 3,
            truth: [0; 3],
            books: [0; 3],
            told: [0; 3],
            lost: [0; 3],
            nameless: BTreeSet::new(),
            read: None,
            idle: BTreeSet::new(),
        };
        world.label();
        world
    }

    fn label(&mut self) {
        for (number, at) in self.pairs.into_iter().zip(self.labels) {
            let (cluster, zone) = LABELS[at];
            let label = label(cluster, zone);
            let labelled = self.ledger.label(pair(number), Some(&label));
            if let Err(error) = labelled {
                assert_eq!(error.map, "labels");
            }
        }
    }

    fn take(&mut self) {
        add(&mut self.books, &self.ledger.take().unwrap());
    }

    fn restart(&mut self) {
        let ledger = Ledger::adopt(MemoryReports::default()).unwrap();
        let maps = std::mem::replace(&mut self.ledger, ledger).into_maps();
        self.lose_nameless(&maps);
        self.ledger = Ledger::adopt(maps).unwrap();
        self.books = [0; 3];
        self.read = None;
        self.idle.clear();
        // It reports before its sources are heard.
        self.take();
        self.label();
    }

    /// A pair that was replaced gets no label any more. If its label is lost, so is what was not told yet.
    fn lose_nameless(&mut self, maps: &MemoryReports) {
        for (pair, told) in &maps.reported {
            let is_live = self.pairs.contains(&pair.backend.0);
            if is_live || maps.labels.contains_key(&told.label) || !self.nameless.insert(*pair) {
                continue;
            }
            let now = maps.counters.get(pair).copied().unwrap_or_default();
            let untold = [
                now.opened - told.opened,
                now.failed - told.failed,
                now.closed - told.closed,
            ];
            for (lost, count) in self.lost.iter_mut().zip(untold) {
                *lost += count;
            }
        }
    }

    fn report(&mut self, way: Way) {
        self.take();
        self.ledger.sending().unwrap();
        match way {
            Way::Sent => {
                self.ledger.sent();
                for (told, count) in self.told.iter_mut().zip(std::mem::take(&mut self.books)) {
                    *told += count;
                }
            }
            Way::Unsent => self.ledger.unsent(),
            Way::Killed => {
                for (lost, count) in self.lost.iter_mut().zip(self.books) {
                    *lost += count;
                }
                self.restart();
            }
        }
    }

    fn counters(&self) -> BTreeMap<Pair, Counters> {
        self.ledger.maps().counters.clone()
    }

    /// As the agent does it: by counters that were read a while ago, and by two looks at them.
    fn prune(&mut self) {
        let counters = self.read.take().unwrap_or_else(|| self.counters());
        let was_idle = std::mem::take(&mut self.idle);
        let live: BTreeSet<Pair> = self.pairs.into_iter().map(pair).collect();
        let mut kept = live.clone();
        for (pair, counters) in counters {
            let is_used = live.contains(&pair) || counters.active() > 0;
            if !is_used && was_idle.contains(&pair) && self.ledger.is_told(&pair, &counters) {
                self.ledger.maps_mut().counters.remove(&pair);
                continue;
            }
            if !is_used {
                self.idle.insert(pair);
            }
            kept.insert(pair);
        }
        let gone = self.ledger.pairs().filter(|pair| !kept.contains(pair));
        let gone: Vec<Pair> = gone.copied().collect();
        self.ledger.forget(&gone).unwrap();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Connections(at, opened, failed, closed) => {
                let counters = &mut self.ledger.maps_mut().counters;
                let counters = counters.entry(pair(self.pairs[at])).or_default();
                let failed = failed.min(opened);
                let closed = closed.min(counters.active() + opened - failed);
                counters.opened += opened;
                counters.failed += failed;
                counters.closed += closed;
                for (sum, count) in self.truth.iter_mut().zip([opened, failed, closed]) {
                    *sum += count;
                }
            }
            Step::Label(at, label) => {
                self.labels[at] = label;
                self.label();
            }
            Step::Replace(at) => {
                self.last += 1;
                self.pairs[at] = self.last;
                self.label();
            }
            Step::FillLabels(is_full) => self.ledger.maps_mut().has_full_labels = is_full,
            Step::Read => {
                let counters = self.counters();
                self.read.get_or_insert(counters);
            }
            Step::Prune => self.prune(),
            Step::Take => self.take(),
            Step::Report(way) => self.report(way),
            Step::Kill => self.restart(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// N-71, N-73: through all faults, each connection is in one report that was sent, or in one
    /// that was on its way at a kill, unless its backend is gone and its label was lost. No more labels and pairs are
    /// stored than are in use.
    #[test]
    fn each_connection_is_told_once(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            for (told, truth) in world.told.iter().zip(world.truth) {
                prop_assert!(*told <= truth);
            }
        }
        world.report(Way::Sent);
        let mut sum = world.told;
        for (sum, lost) in sum.iter_mut().zip(world.lost) {
            *sum += lost;
        }
        prop_assert_eq!(sum, world.truth);
        // The first may be by counters that were read before, and two must see that a pair is idle.
        for _ in 0..3 {
            world.prune();
        }
        let open = world.counters();
        let is_live = |pair: &Pair| world.pairs.contains(&pair.backend.0);
        let stored = world.ledger.maps().reported.keys();
        let unused = stored.filter(|pair| !is_live(pair) && !open.contains_key(pair));
        prop_assert_eq!(unused.count(), 0);
        let told = open.iter().filter(|(pair, it)| !is_live(pair) && it.active() == 0);
        prop_assert_eq!(told.count(), 0);
        prop_assert!(world.ledger.maps().labels.len() <= LABELS.len());
    }
}
