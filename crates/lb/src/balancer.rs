//! The only mutable state of balancing.
//!
//! One balancer serves one channel. Its driver feeds it everything that happened
//! ([`Balancer::handle`]), lets it act once on the batch ([`Balancer::flush`]), and carries out what
//! it asks for ([`Balancer::poll_command`]). Plans and states that change many times in a batch are
//! worked on once; a leaf in which nothing changed is not looked at.

mod branch;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

pub(crate) use branch::{Branch, Child, Leaves};

use crate::{
    ClusterName, EndpointId, EndpointState, EndpointView, LocalityId, Picker, Plan, Tree,
    compile::compile, endpoint::Pool, leaf::LeafId, tree::cluster_label,
};

/// What happened outside of the balancer.
#[derive(Debug)]
pub enum Event<T> {
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
}

/// What the balancer asks of its driver.
pub enum Command<T> {
    /// Connect an endpoint, and report its state from now on; also again after it was idle.
    Connect {
        /// Names the endpoint in reports.
        id: EndpointId,
        /// Where it can be reached, the main address first.
        addresses: Arc<[SocketAddr]>,
    },
    /// An endpoint is not wanted any more: no new call goes to it, open ones may finish.
    Release(EndpointId),
    /// An endpoint of a cluster whose plan [reresolves](Plan::reresolves) was lost or could not be
    /// reached: look up its addresses again.
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
/// - *Views*: [`tree`](Self::tree) and [`endpoints`](Self::endpoints).
#[derive(Debug)]
pub struct Balancer<T> {
    clusters: BTreeMap<ClusterName, Cluster<T>>,
    leaves: Leaves<T>,
    pool: Pool<T>,
    rng: fastrand::Rng,
    /// Leaves to look at in the next flush.
    dirty_leaves: BTreeSet<LeafId>,
    /// Clusters to plan or to compile in the next flush.
    dirty_clusters: BTreeSet<ClusterName>,
    /// Clusters whose names are to be looked up again.
    reresolve: BTreeSet<ClusterName>,
    commands: VecDeque<Command<T>>,
}

impl<T> Balancer<T> {
    /// A balancer without clusters. The seed decides where round_robin starts.
    pub fn new(seed: u64) -> Self {
        Self {
            clusters: BTreeMap::new(),
            leaves: Leaves::new(),
            pool: Pool::new(),
            rng: fastrand::Rng::with_seed(seed),
            dirty_leaves: BTreeSet::new(),
            dirty_clusters: BTreeSet::new(),
            reresolve: BTreeSet::new(),
            commands: VecDeque::new(),
        }
    }

    /// Takes note of an event; [`flush`](Self::flush) acts on it.
    ///
    /// Reports about endpoints that were released meanwhile are ignored.
    pub fn handle(&mut self, event: Event<T>, _now: Instant) {
        match event {
            Event::Plan(plan) => {
                self.dirty_clusters.insert(plan.cluster.clone());
                match self.clusters.get_mut(&plan.cluster) {
                    Some(cluster) => cluster.next = Next::Plan(plan),
                    None => {
                        self.clusters
                            .insert(plan.cluster.clone(), Cluster::new(plan));
                    }
                }
            }
            Event::RemoveCluster(name) => {
                if let Some(cluster) = self.clusters.get_mut(&name) {
                    cluster.next = Next::Remove;
                    self.dirty_clusters.insert(name);
                }
            }
            Event::Endpoint { id, state } => {
                if let EndpointState::Idle | EndpointState::TransientFailure(_) = &state {
                    self.lost(id);
                }
                self.dirty_leaves.extend(self.pool.report(id, state));
            }
        }
    }

    /// Acts on everything that was handled since the last flush.
    ///
    /// Pickers are published before the endpoints they no longer use are released.
    pub fn flush(&mut self, _now: Instant) {
        self.apply_plans();
        self.refresh_leaves();
        self.publish();
        while let Some(release) = self.pool.next_release() {
            self.commands.push_back(release);
        }
        let reresolve = std::mem::take(&mut self.reresolve).into_iter();
        self.commands.extend(reresolve.map(Command::Reresolve));
    }

    /// The next thing to do, or `None` if there is nothing.
    pub fn poll_command(&mut self) -> Option<Command<T>> {
        self.pool
            .next_connect()
            .or_else(|| self.commands.pop_front())
    }

    /// When to flush even if nothing happens. No node of today's trees has a timer.
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The tree of a cluster with the state of every node.
    pub fn tree(&self, cluster: &str) -> Option<Tree> {
        let cluster = self.clusters.get(cluster)?;
        let state = cluster.root.state(&self.leaves);
        let root = cluster.root.tree(&self.leaves, &self.pool);
        Some(
            Tree::new(cluster_label(&cluster.plan), vec![root])
                .with_state(state)
                .with_note(cluster.plan.note.clone()),
        )
    }

    /// The endpoints of a cluster with their states and counters.
    pub fn endpoints(&self, cluster: &str) -> Vec<EndpointView> {
        let Some(cluster) = self.clusters.get(cluster) else {
            return Vec::new();
        };
        let leaves = cluster
            .root
            .leaves()
            .into_iter()
            .filter_map(|id| self.leaves.get(id.0));
        leaves.flat_map(|leaf| leaf.views(&self.pool)).collect()
    }

    /// An endpoint has no connection: perhaps it has moved.
    fn lost(&mut self, id: EndpointId) {
        let leaf = self.pool.get(id).and_then(|e| self.leaves.get(e.leaf().0));
        let cluster = leaf.and_then(|leaf| self.clusters.get(leaf.cluster()));
        if let Some(cluster) = cluster
            && cluster.plan.reresolves
        {
            self.reresolve.insert(cluster.plan.cluster.clone());
        }
    }

    /// Brings the trees in line with the newest plans.
    fn apply_plans(&mut self) {
        for name in std::mem::take(&mut self.dirty_clusters) {
            let Some(cluster) = self.clusters.get_mut(&name) else {
                continue;
            };
            let mut grower = branch::Grower {
                cluster: &name,
                leaves: &mut self.leaves,
                pool: &mut self.pool,
                rng: &mut self.rng,
                dirty: &mut self.dirty_leaves,
            };
            match std::mem::replace(&mut cluster.next, Next::Nothing) {
                Next::Nothing => {}
                Next::Plan(plan) => {
                    grower.update(&mut cluster.root, &plan.root, &LocalityId::default());
                    cluster.plan = plan;
                    self.dirty_clusters.insert(name);
                }
                Next::Remove => {
                    if let Some(cluster) = self.clusters.remove(&name) {
                        grower.fell(&cluster.root);
                    }
                }
            }
        }
    }

    fn refresh_leaves(&mut self) {
        for id in std::mem::take(&mut self.dirty_leaves) {
            let Some(leaf) = self.leaves.get_mut(id.0) else {
                continue;
            };
            if leaf.refresh(&mut self.pool) {
                self.dirty_clusters.insert(leaf.cluster().clone());
            }
        }
    }

    fn publish(&mut self) {
        for name in std::mem::take(&mut self.dirty_clusters) {
            let Some(cluster) = self.clusters.get_mut(&name) else {
                continue;
            };
            cluster.root.settle(&self.leaves);
            let picker = compile(&cluster.plan, &cluster.root, &self.leaves);
            if cluster
                .picker
                .as_ref()
                .is_some_and(|published| published.same(&picker))
            {
                continue;
            }
            let picker = Arc::new(picker);
            cluster.picker = Some(picker.clone());
            self.commands.push_back(Command::Publish {
                cluster: name,
                picker,
            });
        }
    }
}

impl<T> fmt::Debug for Command<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { id, addresses } => write!(f, "Connect({id}, {addresses:?})"),
            Self::Release(id) => write!(f, "Release({id})"),
            Self::Publish { cluster, .. } => write!(f, "Publish({cluster})"),
            Self::Reresolve(cluster) => write!(f, "Reresolve({cluster})"),
        }
    }
}

/// One cluster: its plan, the live tree, and the picker that is in use.
#[derive(Debug)]
struct Cluster<T> {
    plan: Arc<Plan>,
    next: Next,
    root: Branch,
    picker: Option<Arc<Picker<T>>>,
}

impl<T> Cluster<T> {
    fn new(plan: Arc<Plan>) -> Self {
        Self {
            next: Next::Plan(plan.clone()),
            plan,
            root: Branch::default(),
            picker: None,
        }
    }
}

/// What the next flush does to a cluster: the last event of a batch wins.
#[derive(Debug)]
enum Next {
    Nothing,
    Plan(Arc<Plan>),
    Remove,
}
