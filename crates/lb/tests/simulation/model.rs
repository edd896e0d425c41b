//! The rules, worked out anew after every step by code that is simple enough to be right.
//!
//! It keeps no timers, lists of changes or compiled choices: everything is walked each time.

use std::collections::BTreeMap;

use crowfly_lb::Connectivity::{self, Connecting, Ready, TransientFailure};

use crate::script::{Child, LeafSpec, Reported, Shape, Zone};

/// Seconds since the start.
pub(crate) type Time = u64;

const FAILOVER: Time = 10;
const KEPT: Time = 900;

/// Names an endpoint: the tree it was planted with, its leaf cluster, its priority and locality,
/// and a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Name {
    pub(crate) tree: u16,
    pub(crate) leaf: usize,
    pub(crate) child: usize,
    pub(crate) zone: usize,
    pub(crate) number: u16,
}

pub(crate) type States = BTreeMap<Name, State>;

#[derive(Debug)]
pub(crate) struct State {
    reported: bool,
    pub(crate) view: Connectivity,
}

impl State {
    pub(crate) fn report(&mut self, reported: Reported) {
        self.reported = true;
        self.view = match (self.view, reported) {
            (_, Reported::Ready) => Ready,
            (_, Reported::Failing) | (TransientFailure, _) => TransientFailure,
            (_, Reported::Idle | Reported::Connecting) => Connecting,
        };
    }
}

/// A cluster: the tree in use, and one that is to replace it.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) states: States,
    current: Option<Tree>,
    pending: Option<Tree>,
    trees: u16,
}

struct Tree {
    number: u16,
    root: Root,
}

enum Root {
    Failing,
    Leaf(usize, Cluster),
    Aggregate(Priorities<Cluster>),
}

impl Model {
    /// The number of the tree that will follow a plan of this shape, and whether it is a new one.
    pub(crate) fn tree_for(&self, shape: &Shape) -> u16 {
        let newest = self.pending.as_ref().or(self.current.as_ref());
        let fits = newest.filter(|tree| tree.root.fits(shape));
        fits.map_or(self.trees, |tree| tree.number)
    }

    pub(crate) fn plan(&mut self, shape: &Shape, now: Time) {
        let newest = self.pending.as_mut().or(self.current.as_mut());
        if let Some(tree) = newest.filter(|tree| tree.root.fits(shape)) {
            let at = At::tree(tree.number);
            return tree.root.update(shape, at, &mut self.states, now);
        }
        let number = self.trees;
        self.trees += 1;
        let mut root = match shape {
            Shape::Broken => Root::Failing,
            Shape::Leaf(leaf) => Root::Leaf(leaf.0, Cluster::default()),
            Shape::Aggregate(_) => Root::Aggregate(Priorities::default()),
        };
        root.update(shape, At::tree(number), &mut self.states, now);
        let tree = Tree { number, root };
        let replaced = if self.current.is_none() || matches!(shape, Shape::Broken) {
            let pending = self.pending.take();
            [self.current.replace(tree), pending]
        } else {
            [self.pending.replace(tree), None]
        };
        self.forget(replaced);
    }

    pub(crate) fn remove(&mut self) {
        let trees = [self.current.take(), self.pending.take()];
        self.forget(trees);
    }

    pub(crate) fn settle(&mut self, now: Time) {
        for tree in self.current.iter_mut().chain(&mut self.pending) {
            tree.root
                .settle(At::tree(tree.number), &mut self.states, now);
        }
        if let (Some(current), Some(pending)) = (&self.current, &self.pending)
            && !(pending.root.state() == Connecting && current.root.state() == Ready)
        {
            let pending = self.pending.take();
            let replaced = std::mem::replace(&mut self.current, pending);
            self.forget([replaced, None]);
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.current.is_some()
    }

    pub(crate) fn state(&self) -> Connectivity {
        let current = self.current.as_ref();
        current.map_or(TransientFailure, |tree| tree.root.state())
    }

    /// When something happens by itself.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        let mut times = Vec::new();
        for tree in self.current.iter().chain(&self.pending) {
            match &tree.root {
                Root::Failing => {}
                Root::Leaf(_, cluster) => cluster.timers(&mut times),
                Root::Aggregate(leaves) => leaves.timers(&mut times),
            }
        }
        times.into_iter().min()
    }

    /// The probability of every endpoint that calls can go to.
    pub(crate) fn shares(&self) -> BTreeMap<Name, f64> {
        let mut shares = BTreeMap::new();
        if let Some(tree) = &self.current {
            let at = At::tree(tree.number);
            match &tree.root {
                Root::Failing => {}
                Root::Leaf(leaf, cluster) => {
                    cluster.shares(1.0, at.below(*leaf), &self.states, &mut shares);
                }
                Root::Aggregate(leaves) => leaves.shares(1.0, at, &self.states, &mut shares),
            }
        }
        shares.retain(|_, share| *share > 0.0);
        shares
    }

    /// How many lists of endpoints there are, and the leaf clusters that have any state.
    pub(crate) fn census(&self) -> (usize, Vec<usize>) {
        let (mut zones, mut leaves) = (0, Vec::new());
        for tree in self.current.iter().chain(&self.pending) {
            match &tree.root {
                Root::Failing => {}
                Root::Leaf(leaf, cluster) => {
                    leaves.push(*leaf);
                    zones += cluster.zones();
                }
                Root::Aggregate(all) => {
                    leaves.extend(all.children.keys());
                    zones += all.children.values().map(|c| c.node.zones()).sum::<usize>();
                }
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        (zones, leaves)
    }

    fn forget<const N: usize>(&mut self, trees: [Option<Tree>; N]) {
        for tree in trees.into_iter().flatten() {
            self.states.retain(|name, _| name.tree != tree.number);
        }
    }
}

impl Root {
    fn fits(&self, shape: &Shape) -> bool {
        match (self, shape) {
            (Self::Failing, Shape::Broken) | (Self::Aggregate(_), Shape::Aggregate(_)) => true,
            (Self::Leaf(name, _), Shape::Leaf(leaf)) => *name == leaf.0,
            _ => false,
        }
    }

    fn update(&mut self, shape: &Shape, at: At, states: &mut States, now: Time) {
        match (self, shape) {
            (Self::Leaf(name, cluster), Shape::Leaf(leaf)) => {
                cluster.update(leaf, at.below(*name), states, now);
            }
            (Self::Aggregate(priorities), Shape::Aggregate(leaves)) => {
                priorities.follow(leaves, KEPT, at, states, now);
            }
            _ => {}
        }
    }

    fn settle(&mut self, at: At, states: &mut States, now: Time) {
        match self {
            Self::Failing => {}
            Self::Leaf(name, cluster) => cluster.settle(at.below(*name), states, now),
            Self::Aggregate(leaves) => leaves.settle_all(at, states, now),
        }
    }

    fn state(&self) -> Connectivity {
        match self {
            Self::Failing => TransientFailure,
            Self::Leaf(_, cluster) => cluster.state(),
            Self::Aggregate(leaves) => leaves.chosen_state(),
        }
    }
}

/// Where a node is: the numbers on the way to it.
#[derive(Clone, Copy)]
struct At {
    tree: u16,
    path: [usize; 2],
    depth: usize,
}

impl At {
    fn tree(tree: u16) -> Self {
        Self {
            tree,
            path: [0; 2],
            depth: 0,
        }
    }

    fn below(mut self, index: usize) -> Self {
        self.path[self.depth] = index;
        self.depth += 1;
        self
    }

    fn has(self, name: &Name) -> bool {
        let path = [name.leaf, name.child];
        name.tree == self.tree && path[..self.depth] == self.path[..self.depth]
    }

    fn name(self, zone: usize, number: u16) -> Name {
        let [leaf, child] = self.path;
        Name {
            tree: self.tree,
            leaf,
            child,
            zone,
            number,
        }
    }
}

/// What a priority chooses among.
trait Node: Default {
    type Spec: Clone;
    fn name(spec: &Self::Spec) -> usize;
    fn update(&mut self, spec: &Self::Spec, at: At, states: &mut States, now: Time);
    fn settle(&mut self, at: At, states: &mut States, now: Time);
    fn state(&self) -> Connectivity;
    fn timers(&self, into: &mut Vec<Time>);
    fn shares(&self, of: f64, at: At, states: &States, into: &mut BTreeMap<Name, f64>);
}

struct Priorities<N: Node> {
    specs: Vec<N::Spec>,
    children: BTreeMap<usize, PriorityChild<N>>,
    chosen: Option<usize>,
}

struct PriorityChild<N> {
    node: N,
    state: Connectivity,
    failover: Option<Time>,
    well: bool,
    kept: Option<Time>,
}

impl<N: Node> Default for Priorities<N> {
    fn default() -> Self {
        Self {
            specs: vec![],
            children: BTreeMap::new(),
            chosen: None,
        }
    }
}

impl<N: Node> Priorities<N> {
    fn follow(&mut self, specs: &[N::Spec], keep: Time, at: At, states: &mut States, now: Time) {
        self.specs = specs.to_vec();
        let removed: Vec<_> = self.children.keys().copied().collect();
        for name in removed {
            if let Some(spec) = specs.iter().find(|spec| N::name(spec) == name) {
                let child = self.children.get_mut(&name).unwrap();
                child.node.update(spec, at.below(name), states, now);
            } else if keep == 0 {
                self.drop_child(name, at, states);
            } else {
                let child = self.children.get_mut(&name).unwrap();
                child.kept.get_or_insert(now + keep);
            }
        }
    }

    fn drop_child(&mut self, name: usize, at: At, states: &mut States) {
        self.children.remove(&name);
        let gone = at.below(name);
        states.retain(|name, _| !gone.has(name));
    }

    fn settle_all(&mut self, at: At, states: &mut States, now: Time) {
        let names: Vec<_> = self.children.keys().copied().collect();
        for name in names {
            let child = self.children.get_mut(&name).unwrap();
            if child.kept.is_some_and(|until| until <= now) {
                self.drop_child(name, at, states);
            } else {
                child.settle(at.below(name), states, now);
            }
        }
        self.choose(at, states, now);
    }

    /// A56: "Algorithm for Choosing a Priority", sentence by sentence.
    fn choose(&mut self, at: At, states: &mut States, now: Time) {
        let specs = self.specs.clone();
        self.chosen = None;
        for (place, spec) in specs.iter().enumerate() {
            let name = N::name(spec);
            let child = self.children.entry(name).or_insert_with(|| {
                let mut node = N::default();
                node.update(spec, at.below(name), states, now);
                let mut child = PriorityChild {
                    node,
                    state: Connecting,
                    failover: Some(now + FAILOVER),
                    well: false,
                    kept: None,
                };
                child.settle(at.below(name), states, now);
                child
            });
            child.kept = None;
            if child.state == Ready {
                self.chosen = Some(name);
                for lower in &specs[place + 1..] {
                    if let Some(lower) = self.children.get_mut(&N::name(lower)) {
                        lower.kept.get_or_insert(now + KEPT);
                    }
                }
                return;
            }
            if child.failover.is_some() {
                self.chosen = Some(name);
                return;
            }
        }
        let mut names = specs.iter().map(N::name);
        let last = specs.last().map(N::name);
        self.chosen = names
            .find(|name| self.children[name].state == Connecting)
            .or(last);
    }

    fn chosen_state(&self) -> Connectivity {
        let chosen = self.chosen.map(|name| self.children[&name].state);
        chosen.unwrap_or(TransientFailure)
    }

    fn timers(&self, into: &mut Vec<Time>) {
        for child in self.children.values() {
            into.extend(child.failover);
            into.extend(child.kept);
            child.node.timers(into);
        }
    }

    fn shares(&self, of: f64, at: At, states: &States, into: &mut BTreeMap<Name, f64>) {
        if let Some(name) = self.chosen {
            self.children[&name]
                .node
                .shares(of, at.below(name), states, into);
        }
    }
}

impl<N: Node> PriorityChild<N> {
    fn settle(&mut self, at: At, states: &mut States, now: Time) {
        self.node.settle(at, states, now);
        let before = std::mem::replace(&mut self.state, self.node.state());
        if self.state != Connecting {
            self.failover = None;
            self.well = self.state == Ready;
        } else if before != Connecting && self.well {
            self.failover = Some(now + FAILOVER);
        }
        self.failover = self.failover.filter(|at| *at > now);
    }
}

#[derive(Default)]
struct Cluster {
    drops: u32,
    priorities: Priorities<Zones>,
}

impl Cluster {
    fn zones(&self) -> usize {
        let children = self.priorities.children.values();
        children.map(|child| child.node.0.len()).sum()
    }
}

impl Node for Cluster {
    type Spec = LeafSpec;

    fn name(spec: &LeafSpec) -> usize {
        spec.0
    }

    fn update(&mut self, spec: &LeafSpec, at: At, states: &mut States, now: Time) {
        self.drops = spec.1;
        self.priorities.follow(&spec.2, 0, at, states, now);
    }

    fn settle(&mut self, at: At, states: &mut States, now: Time) {
        self.priorities.settle_all(at, states, now);
    }

    fn state(&self) -> Connectivity {
        if self.drops >= 1_000_000 {
            Ready
        } else {
            self.priorities.chosen_state()
        }
    }

    fn timers(&self, into: &mut Vec<Time>) {
        self.priorities.timers(into);
    }

    fn shares(&self, of: f64, at: At, states: &States, into: &mut BTreeMap<Name, f64>) {
        let passing = 1.0 - f64::from(self.drops) / 1e6;
        self.priorities.shares(of * passing, at, states, into);
    }
}

#[derive(Default)]
struct Zones(Vec<ZoneState>);

struct ZoneState {
    zone: usize,
    /// Its weight, or until when it is kept without one.
    weight: Result<u32, Time>,
    current: Vec<u16>,
    pending: Option<Vec<u16>>,
    counts_as: Connectivity,
}

impl Node for Zones {
    type Spec = Child;

    fn name(spec: &Child) -> usize {
        spec.0
    }

    fn update(&mut self, spec: &Child, at: At, states: &mut States, now: Time) {
        for left in &mut self.0 {
            if spec.1.iter().all(|zone| zone.0 != left.zone) {
                left.weight = left.weight.map_or_else(Err, |_| Err(now + KEPT));
            }
        }
        for Zone(zone, weight, ports) in &spec.1 {
            if self.0.iter().all(|known| known.zone != *zone) {
                self.0.push(ZoneState {
                    zone: *zone,
                    weight: Ok(*weight),
                    current: vec![],
                    pending: None,
                    counts_as: Connecting,
                });
            }
            let known = self.0.iter_mut().find(|known| known.zone == *zone).unwrap();
            known.weight = Ok(*weight);
            known.pending = Some(ports.clone());
            for &port in ports {
                let fresh = State {
                    reported: false,
                    view: Connecting,
                };
                states.entry(at.name(*zone, port)).or_insert(fresh);
            }
            known.forget(at, states);
        }
    }

    fn settle(&mut self, at: At, states: &mut States, now: Time) {
        self.0
            .retain(|zone| zone.weight.is_ok() || zone.weight > Err(now));
        let zones: Vec<_> = self.0.iter().map(|zone| zone.zone).collect();
        states.retain(|name, _| !at.has(name) || zones.contains(&name.zone));
        for zone in &mut self.0 {
            zone.swap(at, states);
            let best = best(
                zone.current
                    .iter()
                    .map(|&n| states[&at.name(zone.zone, n)].view),
            );
            if zone.counts_as != TransientFailure || best == Ready {
                zone.counts_as = best;
            }
        }
    }

    fn state(&self) -> Connectivity {
        let used = self.0.iter().filter(|zone| zone.weight.is_ok());
        best(used.map(|zone| zone.counts_as))
    }

    fn timers(&self, into: &mut Vec<Time>) {
        into.extend(self.0.iter().filter_map(|zone| zone.weight.err()));
    }

    fn shares(&self, of: f64, at: At, states: &States, into: &mut BTreeMap<Name, f64>) {
        let weight = |zone: &ZoneState| match zone.weight {
            Ok(weight) if zone.counts_as == Ready => f64::from(weight),
            _ => 0.0,
        };
        let total: f64 = self.0.iter().map(weight).sum();
        for zone in &self.0 {
            let names = zone.current.iter().map(|&n| at.name(zone.zone, n));
            let ready: Vec<_> = names.filter(|name| states[name].view == Ready).collect();
            for name in &ready {
                into.insert(*name, of * weight(zone) / total / ready.len() as f64);
            }
        }
    }
}

impl ZoneState {
    /// A61: the next list replaces the one in use when it is as good.
    fn swap(&mut self, at: At, states: &mut States) {
        let Some(pending) = &self.pending else { return };
        let state = |number: &u16| &states[&at.name(self.zone, *number)];
        let is = |wanted| move |number: &u16| state(number).view == wanted;
        let swap = !self.current.iter().any(is(Ready))
            || pending.iter().any(is(Ready)) && pending.iter().all(|n| state(n).reported)
            || pending.iter().all(is(TransientFailure));
        if swap {
            self.current = self.pending.take().unwrap();
            self.forget(at, states);
        }
    }

    fn forget(&self, at: At, states: &mut States) {
        states.retain(|name, _| {
            let pending = self.pending.iter().flatten();
            !at.has(name)
                || name.zone != self.zone
                || self
                    .current
                    .iter()
                    .chain(pending)
                    .any(|n| *n == name.number)
        });
    }
}

fn best(states: impl Iterator<Item = Connectivity>) -> Connectivity {
    let states: Vec<_> = states.collect();
    let found = [Ready, Connecting]
        .into_iter()
        .find(|state| states.contains(state));
    found.unwrap_or(TransientFailure)
}
