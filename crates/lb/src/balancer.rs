//! The only mutable state of balancing. It is in one place without I/O, so that simulated time and
//! any order of events can test it.
//!
//! One balancer serves one channel. Its driver feeds it everything that happened
//! ([`Balancer::handle`]), lets it act once on the batch ([`Balancer::flush`]), and carries out what
//! it asks for ([`Balancer::poll_command`]). Plans and states that change many times in a batch are
//! worked on once; a leaf in which nothing changed is not looked at.

mod patience;
mod sessions;

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use crowfly_names::FewOrMany;

use self::patience::Patience;
use crate::{
    CallCounters, ClusterName, Connectivity, Demand, Ejection, EndpointId, EndpointState,
    EndpointView, OutlierEvent, Picker, Plan, RosterView, Tree,
    compile::compile,
    endpoint::{Pool, Record, RosterId, State},
    leaf::{Leaf, LeafId, Leaves},
    node::{Agenda, NodeContext, Place, Position},
};

/// An event that the driver passes to [`Balancer::handle`].
#[derive(Debug)]
pub enum BalancerEvent<T> {
    /// There is a plan for a cluster: its first one, or the next.
    Plan(Arc<Plan>),
    /// A cluster is not used any more.
    RemoveCluster(ClusterName),
    /// The driver reports on an endpoint that it was told to connect.
    Endpoint {
        /// The endpoint, as [`Command::Connect`] named it.
        id: EndpointId,
        /// Its new state.
        state: EndpointState<T>,
    },
    /// A call needs this before it can be sent ([`Pick::Wake`](crate::Pick::Wake)).
    Demand(Demand),
}

/// A command that the driver carries out for the balancer.
pub enum Command<T> {
    /// Connect an endpoint to one of these addresses, and report its state from now on.
    ///
    /// The command comes again when an IDLE endpoint is wanted, and when its addresses change. An
    /// endpoint that is connected to one of the addresses stays connected. Any other starts with
    /// the first address ([`Race`](crate::Race) does that).
    Connect {
        /// Names the endpoint in reports.
        id: EndpointId,
        /// The leaf cluster that the endpoint belongs to: it may say how to speak to its endpoints.
        cluster: ClusterName,
        /// The addresses of the endpoint, the main one first.
        addresses: Arc<[SocketAddr]>,
        /// True if these are all addresses of a `pick_first` leaf. Such an endpoint is not checked for
        /// its health, because `pick_first` would have nowhere else to go (A17, A61).
        is_pick_first: bool,
    },
    /// Tell the log and the metrics of an endpoint that outlier detection judged (A50, A91).
    Outlier(Box<OutlierEvent>),
    /// An endpoint is not wanted any more: no new call goes to it, open ones may finish.
    Release(EndpointId),
    /// An endpoint of this cluster was lost or could not be reached, and its addresses come from a
    /// name: look that up again.
    Reresolve(ClusterName),
    /// Calls of a cluster are to be picked by this picker from now on.
    Publish {
        /// The cluster.
        cluster: ClusterName,
        /// Its picker.
        picker: Arc<Picker<T>>,
    },
}

/// Balances the clusters of one channel.
///
/// # Kinds of method
/// - *Inputs*: [`handle`](Self::handle), then [`flush`](Self::flush) once per batch.
/// - *Outputs*: [`poll_command`](Self::poll_command) until `None`, and
///   [`next_timeout`](Self::next_timeout).
/// - *Views*: [`tree`](Self::tree), [`endpoints`](Self::endpoints) and
///   [`transport`](Self::transport).
#[derive(Debug)]
pub struct Balancer<T> {
    clusters: FewOrMany<ClusterName, Box<Root<T>>>,
    leaves: Leaves<T>,
    pool: Pool<T>,
    counters: Arc<CallCounters>,
    rng: fastrand::Rng,
    /// Leaves to look at in the next flush.
    dirty_leaves: BTreeSet<LeafId>,
    /// Clusters to plan, to settle and to compile in the next flush.
    dirty_clusters: BTreeSet<ClusterName>,
    /// The times at which clusters have to be settled even if nothing happens.
    timers: BTreeSet<(Instant, ClusterName)>,
    /// Clusters whose names are to be looked up again.
    reresolve: BTreeSet<ClusterName>,
    flush_by: Option<Instant>,
    patience: Patience,
    commands: VecDeque<Command<T>>,
}

impl<T> Balancer<T> {
    /// A balancer without clusters. The seed decides where round_robin starts; `counters` holds the
    /// open calls of clusters that others balance as well.
    pub fn new(seed: u64, counters: Arc<CallCounters>) -> Self
    where
        T: Clone,
    {
        Self {
            clusters: FewOrMany::default(),
            leaves: Leaves::new(),
            pool: Pool::new(T::clone),
            counters,
            rng: fastrand::Rng::with_seed(seed),
            dirty_leaves: BTreeSet::new(),
            dirty_clusters: BTreeSet::new(),
            timers: BTreeSet::new(),
            reresolve: BTreeSet::new(),
            flush_by: None,
            patience: Patience::default(),
            commands: VecDeque::new(),
        }
    }

    /// Takes note of an event; [`flush`](Self::flush) acts on it.
    ///
    /// Reports about endpoints that were released meanwhile are ignored.
    pub fn handle(&mut self, event: BalancerEvent<T>, now: Instant) {
        let mut flush_by = now;
        match event {
            BalancerEvent::Plan(plan) => {
                self.dirty_clusters.insert(plan.cluster.clone());
                let key = plan.cluster.clone();
                let root = self.clusters.get_or_insert_with(key, || {
                    let (name, within) = (&plan.cluster, None);
                    let roster = self.pool.open_roster(name, within, name, None);
                    Box::new(Root::new(plan.clone(), roster))
                });
                root.next = Next::Plan(plan);
            }
            BalancerEvent::RemoveCluster(name) => {
                if let Some(root) = self.clusters.get_mut(&name) {
                    root.next = Next::Remove;
                    self.dirty_clusters.insert(name);
                }
            }
            // The driver's report may have crossed our Release.
            BalancerEvent::Endpoint { id, .. } if !self.pool.is_introduced(id) => {}
            BalancerEvent::Endpoint { id, state } => {
                if let EndpointState::Idle | EndpointState::TransientFailure(_) = &state {
                    self.lost(id);
                }
                let before = self.pool.get(id).map(Record::connectivity);
                let (gained, lost) = (
                    matches!(state, EndpointState::Ready { .. }),
                    matches!(state, EndpointState::TransientFailure(_)),
                );
                if self.pool.report(id, state) {
                    let mut little = |leaf: &mut Leaf<T>| match before {
                        Some(before) if lost => leaf.lost_little(before),
                        _ => gained && leaf.gained_little(),
                    };
                    let mut can_wait = true;
                    for id in self.pool.leaves_of(id) {
                        self.touch(id);
                        can_wait &= self.leaves.get_mut(id.0).is_some_and(&mut little);
                    }
                    if can_wait {
                        flush_by = now + self.patience.wait(now);
                    }
                }
            }
            BalancerEvent::Demand(Demand::Sessions(id)) => self.pool.ask_for_sessions(id),
            BalancerEvent::Demand(Demand::Endpoint(id)) => {
                if self.pool.demand(id) {
                    // All of its leaves are looked at, also those that others have affected.
                    self.pool.take_affected();
                    for leaf in self.pool.leaves_of(id) {
                        self.touch(leaf);
                    }
                }
            }
        }
        if self.hear_sessions() {
            flush_by = now;
        }
        self.flush_by = Some(self.flush_by.map_or(flush_by, |by| by.min(flush_by)));
    }

    /// The time by which [`flush`](Self::flush) should be called for the handled events. A driver
    /// may gather more events until then. `None` if there is nothing to act on.
    pub fn flush_by(&self) -> Option<Instant> {
        self.flush_by
    }

    /// Acts on everything that was handled since the last flush.
    ///
    /// Pickers are published before the endpoints they no longer use are released.
    pub fn flush(&mut self, now: Instant) {
        self.flush_by = None;
        self.patience.flushed(now);
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, name)) = self.timers.pop_first()
        {
            self.dirty_clusters.insert(name);
        }
        for name in std::mem::take(&mut self.dirty_clusters) {
            self.follow_plan(&name, now);
            self.settle(&name, now);
            self.wake_sessions();
            self.publish(&name);
        }
        while let Some(command) = self.pool.next_after_pickers() {
            self.commands.push_back(command);
        }
        while let Some(leaf) = self.pool.next_emptied() {
            self.look_up_again(leaf);
        }
        let reresolve = std::mem::take(&mut self.reresolve).into_iter();
        self.commands.extend(reresolve.map(Command::Reresolve));
    }

    /// The next thing to do, or `None` if there is nothing.
    pub fn poll_command(&mut self) -> Option<Command<T>> {
        let connect = self.pool.next_connect();
        let command = connect.or_else(|| self.commands.pop_front());
        if command.is_none() {
            self.tidy();
        }
        command
    }

    /// The time at which to call [`flush`](Self::flush) even if nothing happens.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Makes a cluster that is IDLE connect, without a call; [`flush`](Self::flush) acts on it.
    pub fn exit_idle(&mut self, cluster: &ClusterName, now: Instant) {
        self.change_tree(cluster, now, |position, cx| {
            if let Some(position) = position {
                position.current().exit_idle(cx);
                touch_all(position, cx);
                touch_affected(cx);
            }
        });
        self.dirty_clusters.insert(cluster.clone());
        self.hear_sessions();
        self.flush_by = Some(now);
    }

    /// The tree of a cluster with the state of every node.
    pub fn tree(&self, cluster: &str) -> Option<Tree> {
        let root = self.clusters.get(cluster)?;
        let tree = Tree::cluster(&root.plan);
        let Some(position) = &root.position else {
            return Some(tree);
        };
        Some(
            tree.with_state(position.state(&self.leaves))
                .with_children(position.trees(&self.leaves, &self.pool)),
        )
    }

    /// The transport that calls to an endpoint are sent on; `None` if the endpoint is not READY.
    pub fn transport(&self, id: EndpointId) -> Option<&T> {
        match &self.pool.get(id)?.state {
            State::Ready(connection) => Some(&connection.any().transport),
            State::Connecting | State::Failing(_) | State::Idle(_) => None,
        }
    }

    /// The ejection of an endpoint, while outlier detection has it ejected (A50).
    pub fn ejection(&self, id: EndpointId) -> Option<&Ejection> {
        self.pool.ejection(id)
    }

    /// The state of a cluster; `None` until it was flushed for the first time.
    pub fn state(&self, cluster: &str) -> Option<Connectivity> {
        let position = self.clusters.get(cluster)?.position.as_ref()?;
        Some(position.state(&self.leaves))
    }

    /// The endpoints that the leaves of a cluster hold, with their states and counters. An endpoint that
    /// is in several places is shown in the first of them.
    pub fn endpoints(&self, cluster: &str) -> Vec<EndpointView> {
        let root = self.clusters.get(cluster);
        let mut views = Vec::new();
        let mut seen = HashSet::new();
        if let Some(position) = root.and_then(|root| root.position.as_ref()) {
            position.each_leaf(&mut |id| {
                let leaf = self.leaves.get(id.0);
                let held = leaf.iter().flat_map(|leaf| leaf.views(&self.pool));
                views.extend(held.filter(|view| seen.insert(view.id)));
            });
        }
        views
    }

    /// The endpoints that the leaf clusters of a cluster know, also those that no leaf holds.
    pub fn roster(&self, cluster: &str) -> Vec<RosterView> {
        self.pool.roster_views(cluster)
    }

    /// The number of endpoints that were looked at so far, by which tests measure the work.
    pub fn visits(&self) -> u64 {
        self.leaves.iter().map(Leaf::visits).sum::<u64>() + self.pool.visits
    }

    /// The number of tree nodes that were looked at so far, by which tests measure the work above
    /// the endpoints.
    pub fn steps(&self) -> u64 {
        self.clusters.values().map(|root| root.agenda.steps).sum()
    }

    /// The number of endpoints and the number of leaves that exist, for tests that look for leaks.
    #[doc(hidden)]
    pub fn held(&self) -> (usize, usize) {
        (self.pool.len(), self.leaves.len())
    }

    /// Looks at every endpoint again and compiles the whole tree anew. Returns whether that gives
    /// the picker in use, so that tests can check the work that a flush saves.
    #[doc(hidden)]
    pub fn is_settled(&mut self, cluster: &str, now: Instant) -> bool {
        let name = ClusterName::from(cluster);
        let settled = self.change_tree(&name, now, |position, cx| {
            let position = position.as_mut()?;
            position.each_leaf(&mut |id| _ = cx.dirty.insert(id));
            touch_all(position, cx);
            settle_all(position, cx);
            Some(())
        });
        let root = self
            .clusters
            .get(&name)
            .filter(|_| settled.flatten().is_some());
        let Some((root, position)) = root.and_then(|root| Some((root, root.position.as_ref()?)))
        else {
            return false;
        };
        let fresh = compile(&root.plan, position.current(), &self.leaves, &self.pool);
        root.picker
            .as_ref()
            .is_some_and(|picker| picker.same(&fresh))
    }

    /// Frees the memory that the last batch needed, because a channel is idle for most of its life.
    fn tidy(&mut self) {
        self.commands.shrink_to_fit();
        self.pool.tidy();
        if self.dirty_leaves.is_empty() {
            self.dirty_leaves = BTreeSet::new();
        }
        if self.timers.is_empty() {
            self.timers = BTreeSet::new();
        }
    }

    /// Notes that a leaf and the nodes above it must be settled in the next flush.
    fn touch(&mut self, id: LeafId) {
        if let Some(leaf) = self.leaves.get(id.0) {
            let name = leaf.tree_name();
            if let Some(root) = self.clusters.get_mut(name) {
                root.agenda.touch(leaf.within());
            }
            self.dirty_clusters.insert(name.clone());
            self.dirty_leaves.insert(id);
        }
    }

    /// Asks for a new lookup of names after an endpoint lost its connection, because it may have
    /// moved.
    fn lost(&mut self, id: EndpointId) {
        for leaf in self.pool.leaves_of(id) {
            self.look_up_again(leaf);
        }
    }

    fn look_up_again(&mut self, leaf: LeafId) {
        let leaf = self.leaves.get(leaf.0);
        if let Some(leaf) = leaf.filter(|leaf| leaf.reresolves) {
            self.reresolve.insert(leaf.tree_name().clone());
        }
    }

    /// Brings the tree in line with its newest plan.
    fn follow_plan(&mut self, name: &ClusterName, now: Instant) {
        let Some(root) = self.clusters.get_mut(name) else {
            return;
        };
        match std::mem::replace(&mut root.next, Next::Nothing) {
            Next::Nothing => {}
            Next::Plan(plan) => {
                root.plan = plan.clone();
                self.change_tree(name, now, |position, cx| match position {
                    Some(position) => position.update(&plan.root, cx),
                    None => *position = Some(Position::create(&plan.root, cx)),
                });
            }
            Next::Remove => {
                self.change_tree(name, now, |position, cx| {
                    if let Some(position) = position.take() {
                        position.remove(cx);
                    }
                });
                if let Some(root) = self.clusters.remove(name) {
                    self.pool.close_roster(root.roster);
                    let timer = root.wake_at.map(|at| (at, name.clone()));
                    timer.map(|timer| self.timers.remove(&timer));
                }
            }
        }
    }

    fn settle(&mut self, name: &ClusterName, now: Instant) {
        let wake_at = self.change_tree(name, now, |position, cx| {
            cx.agenda.fire(now);
            if let Some(position) = position {
                settle_all(position, cx);
            }
            cx.agenda.tidy();
            cx.agenda.next_alarm()
        });
        let Some(root) = self.clusters.get_mut(name) else {
            return;
        };
        let wake_at = wake_at.flatten();
        if let Some(before) = std::mem::replace(&mut root.wake_at, wake_at) {
            self.timers.remove(&(before, name.clone()));
        }
        self.timers.extend(wake_at.map(|at| (at, name.clone())));
    }

    /// Lets `f` change the tree of a cluster.
    fn change_tree<R>(
        &mut self,
        name: &ClusterName,
        now: Instant,
        f: impl FnOnce(&mut Option<Position>, &mut NodeContext<'_, T>) -> R,
    ) -> Option<R> {
        let root = self.clusters.get_mut(name)?;
        let mut cx = NodeContext {
            tree: name,
            leaves: &mut self.leaves,
            pool: &mut self.pool,
            rng: &mut self.rng,
            counters: &self.counters,
            dirty: &mut self.dirty_leaves,
            now,
            agenda: &mut root.agenda,
            place: Place::root(root.roster),
        };
        Some(f(&mut root.position, &mut cx))
    }

    fn publish(&mut self, name: &ClusterName) {
        let Some(root) = self.clusters.get_mut(name) else {
            return;
        };
        let Some(position) = &root.position else {
            return;
        };
        let wakes = std::mem::take(&mut root.wakes);
        let picker = compile(&root.plan, position.current(), &self.leaves, &self.pool);
        let picker = match &root.picker {
            Some(published) if published.same(&picker) => {
                if !wakes {
                    return;
                }
                // A call of a session waits for a state that the picker shares with the balancer.
                published.clone()
            }
            _ => Arc::new(picker),
        };
        root.picker = Some(picker.clone());
        self.commands.push_back(Command::Publish {
            cluster: name.clone(),
            picker,
        });
    }
}

impl<T> fmt::Debug for Command<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { id, addresses, .. } => write!(f, "Connect({id}, {addresses:?})"),
            Self::Outlier(event) => write!(f, "Outlier({}, {:?})", event.endpoint, event.change),
            Self::Release(id) => write!(f, "Release({id})"),
            Self::Publish { cluster, .. } => write!(f, "Publish({cluster})"),
            Self::Reresolve(cluster) => write!(f, "Reresolve({cluster})"),
        }
    }
}

/// One cluster: its plan, the live tree, and the picker that is in use.
#[derive(Debug)]
struct Root<T> {
    plan: Arc<Plan>,
    /// The endpoints that are in no leaf cluster.
    roster: RosterId,
    next: Next,
    position: Option<Position>,
    picker: Option<Arc<Picker<T>>>,
    /// True if calls of sessions may wait for a picker, even for the one in use.
    wakes: bool,
    /// The parts of the tree that have to be settled.
    agenda: Agenda,
    wake_at: Option<Instant>,
}

impl<T> Root<T> {
    fn new(plan: Arc<Plan>, roster: RosterId) -> Self {
        Self {
            roster,
            next: Next::Nothing,
            plan,
            position: None,
            picker: None,
            wakes: false,
            agenda: Agenda::new(),
            wake_at: None,
        }
    }
}

/// Settles a tree, until no leaf has changed an endpoint that another leaf holds as well.
fn settle_all<T>(position: &mut Position, cx: &mut NodeContext<'_, T>) {
    loop {
        position.settle(cx);
        let (roster, leaves, now) = (cx.place.roster, &*cx.leaves, cx.now);
        cx.pool
            .sweep(roster, now, |visit| position.each_unheld(leaves, visit));
        if !touch_affected(cx) {
            return;
        }
    }
}

/// Has the leaves looked at in which an endpoint changed because of another leaf; whether there are any.
fn touch_affected<T>(cx: &mut NodeContext<'_, T>) -> bool {
    let affected = cx.pool.take_affected();
    for &id in &affected {
        if let Some(leaf) = cx.leaves.get(id.0) {
            cx.agenda.touch(leaf.within());
            cx.dirty.insert(id);
        }
    }
    !affected.is_empty()
}

/// Notes that every part of a tree must be settled.
fn touch_all<T>(position: &Position, cx: &mut NodeContext<'_, T>) {
    position.each_leaf(&mut |id| {
        let leaf = cx.leaves.get(id.0);
        cx.agenda.touch(leaf.and_then(Leaf::within));
    });
}

/// The work of the next flush on a cluster. The last event of a batch decides it.
#[derive(Debug)]
enum Next {
    Nothing,
    Plan(Arc<Plan>),
    Remove,
}
