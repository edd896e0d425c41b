//! The task behind a channel. The task passes configurations from the xDS client through `resolve()` and `plan()` to
//! the balancer. The task also gives the balancer the states of connections. All mutable state of a channel is here,
//! because one task needs no locks for it.
//!
//! Messages to the task come through queues of `futures-channel`, because an empty one holds no
//! memory for messages. A queue of tokio keeps room for 32.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use crowfly_lb::{
    Balancer, BalancerEvent, CallCounters, Command, Connectivity, Demand, Tree, TreeKind,
};
use crowfly_xds::{
    ClusterError, ClusterResult, ResolveError, Resolved, ResourceError, TroubleReason, XdsConfig,
};
use futures_channel::mpsc;
use tokio::sync::oneshot;
use tokio::time::{self, sleep_until};
use tracing::{debug, info, warn};

use crate::clusters::Clusters;
use crate::configs::{ConfigSource, Configs};
use crate::endpoints::{Change, Endpoints};
use crate::idle::IdleTimer;
use crate::outliers::Outliers;
use crate::plan::{EndpointChoice, Planner};
use crate::published::Published;
use crate::routing::{Router, Routes, Routing};
use crate::state::{ConnectivityState, StateTeller};
use crate::subchannel::Report;
use crate::transport::Sender;

/// A request from a handle of the channel to the task. The task ends when the last handle is
/// dropped.
#[derive(Debug)]
pub(crate) enum Query {
    /// The user of a handle wants an IDLE channel to connect.
    Connect,
    /// A call needs this before it can be sent.
    Demand(Demand),
    /// The trees of all clusters.
    Trees(oneshot::Sender<Vec<Tree>>),
    /// A call found that there is no configuration, because the channel is idle.
    Wake,
}

/// The values that the task publishes and handles read.
#[derive(Debug)]
pub(crate) struct Outlets {
    pub(crate) routing: Arc<Published<Routing>>,
    pub(crate) states: StateTeller,
    pub(crate) outliers: Outliers,
}

pub(crate) struct Driver {
    outlets: Outlets,
    source: ConfigSource,
    /// `None` while the channel is idle.
    configs: Option<Configs>,
    /// The configuration in use.
    config: Option<Arc<XdsConfig>>,
    /// The routes that were compiled last.
    routes: Option<Arc<Routes>>,
    clusters: Clusters,
    ended_leases: mpsc::UnboundedReceiver<Arc<str>>,
    planner: Planner,
    balancer: Balancer<Sender>,
    endpoints: Endpoints,
    reports: mpsc::UnboundedReceiver<Report>,
    idle: IdleTimer,
    queries: mpsc::UnboundedReceiver<Query>,
}

impl Driver {
    pub(crate) fn new(
        outlets: Outlets,
        source: ConfigSource,
        counters: Arc<CallCounters>,
        choice: EndpointChoice,
        (endpoints, reports): (Endpoints, mpsc::UnboundedReceiver<Report>),
        idle: IdleTimer,
        queries: mpsc::UnboundedReceiver<Query>,
    ) -> Self {
        let (clusters, ended_leases) = Clusters::new();
        Self {
            outlets,
            configs: Some(source.watch()),
            config: None,
            routes: None,
            clusters,
            ended_leases,
            planner: Planner::new(choice).with_loads(source.load_stores()),
            source,
            balancer: Balancer::new(fastrand::u64(..), counters),
            endpoints,
            reports,
            idle,
            queries,
        }
    }

    /// Starts the task, which runs until the last handle is dropped.
    pub(crate) fn start(mut self) {
        // An async function that takes the driver by value would have room for it twice.
        tokio::spawn(async move { self.run().await });
    }

    async fn run(&mut self) {
        loop {
            let timeouts = [
                self.next_flush(),
                self.endpoints.next_timeout(),
                self.idle.next_timeout(),
            ];
            let next_timeout = timeouts.into_iter().flatten().min();
            tokio::select! {
                query = self.queries.recv() => match query {
                    Ok(query) => self.answer(query),
                    Err(_) => return,
                },
                resolved = next_config(&mut self.configs) => match resolved {
                    Some(resolved) => self.resolved(resolved),
                    None => return,
                },
                Ok(name) = self.ended_leases.recv() => self.lease_ended(&name),
                Ok(report) = self.reports.recv() => self.reported(report),
                () = until(next_timeout) => {}
            }
            let changes = self.endpoints.handle_timeouts(now());
            tell(&mut self.balancer, changes);
            if self.next_flush().is_some_and(|at| at <= now()) {
                self.flush();
            }
            let (clusters, balancer) = (&self.clusters, &self.balancer);
            let routing = &self.outlets.routing;
            let are_open = || routing.waiting() > 0 || clusters.have_calls(balancer);
            if self.idle.is_idle(are_open, now()) {
                self.rest();
            }
        }
    }

    /// A config in use stays until the next one is whole (gRFC A74), or until there cannot be one. The clusters of that
    /// config go on changing meanwhile.
    fn resolved(&mut self, resolved: Resolved) {
        match resolved {
            Resolved::Error(error) => self.fail(&error),
            Resolved::Ready(config) => self.apply(config),
            Resolved::Waiting {
                in_use: Some(config),
                ..
            } => self.apply(config),
            Resolved::Waiting {
                missing,
                in_use: None,
            } => {
                let text = self.source.awaited(&missing);
                self.publish(Routing::Waiting(text.into()));
            }
        }
    }

    fn fail(&mut self, error: &ResolveError) {
        warn!(target = self.target(), %error, "no configuration");
        let text = match error {
            ResolveError::Resource(error) => error.without_node(),
            other => other.to_string(),
        };
        self.publish(Routing::Failed(text.into()));
        self.config = None;
        self.clusters.mark_last(|_| true);
    }

    /// Makes the channel idle, because there was no call for a while. Without routes the leases of all clusters end,
    /// and their connections close. A call that still has a lease keeps its cluster.
    fn rest(&mut self) {
        info!(target = self.target(), "idle");
        self.configs = None;
        self.config = None;
        self.routes = None;
        self.idle.stop();
        self.publish(Routing::Idle);
    }

    /// Follows configurations again, as a new channel does.
    fn wake(&mut self) {
        if self.configs.is_some() {
            return;
        }
        let mut configs = self.source.watch();
        for name in self.clusters.names() {
            configs.hold(name);
        }
        self.configs = Some(configs);
        self.idle.start(now());
        self.publish(Routing::nothing());
    }

    fn publish(&self, routing: Routing) {
        self.outlets.routing.publish(routing);
        self.tell_state();
    }

    fn tell_state(&self) {
        let state = match &**self.outlets.routing.load() {
            Routing::Broken(_) | Routing::Failed(_) => ConnectivityState::TransientFailure,
            Routing::Idle => ConnectivityState::Idle,
            Routing::Ready(_) => {
                let states = self.clusters.names().map(|name| self.balancer.state(name));
                let states = states.map(|state| state.unwrap_or(Connectivity::Connecting));
                Connectivity::aggregate(states).into()
            }
            Routing::Waiting(_) => ConnectivityState::Connecting,
        };
        self.outlets.states.tell(state);
    }

    /// The balancer gets a cluster before a route leads to it (gRFC A31). Clusters that no route leads to any more stay
    /// for the calls that have them.
    fn apply(&mut self, config: Arc<XdsConfig>) {
        let in_use = self.config.as_ref();
        if in_use.is_some_and(|in_use| Arc::ptr_eq(in_use, &config)) {
            return;
        }
        let routes = self.routes_of(&config);
        // A new cluster may have been in the last config as a leaf, so it need not differ.
        let (router, new) = self.bind(&routes, &config);
        let known = self.config.clone();
        let known = known.as_deref();
        self.introduce(known, &config);
        for name in self.clusters.names() {
            if let Some(state) = config.clusters.get(name)
                && known.is_none_or(|known| new.contains(name) || differs(name, known, &config))
            {
                let plan = self.planner.plan(name, state, &config);
                self.balancer
                    .handle(BalancerEvent::Plan(Arc::new(plan)), now());
            }
        }
        // A router with other notes alone leads calls where they went before.
        let is_rerouted = router.as_ref().is_some_and(|router| {
            !matches!(&**self.outlets.routing.load(), Routing::Ready(old) if old.has_routes_of(router))
        });
        let is_reshaped = is_rerouted || known.is_none_or(|known| reshapes(known, &config));
        self.flush();
        self.clusters.mark_last(|name| {
            !routes.lead_to(name) || config.clusters.get(name).is_some_and(is_deleted)
        });
        if let Some(router) = router {
            self.publish(Routing::Ready(router));
        }
        let (target, clusters) = (self.target(), config.clusters.keys());
        if is_reshaped {
            info!(target, ?clusters, "configuration applied");
        } else {
            debug!(target, ?clusters, "endpoints or errors applied");
        }
        self.planner
            .retain(|name| config.clusters.contains_key(name));
        self.endpoints
            .retain_clusters(|name| config.clusters.contains_key(name));
        self.config = Some(config);
    }

    /// Gives the endpoints the security of the clusters that changed (gRFC A29), and the host names of their endpoints.
    /// The function runs before a plan, because a plan makes endpoints connect.
    fn introduce(&mut self, known: Option<&XdsConfig>, config: &XdsConfig) {
        for (name, state) in &config.clusters {
            let Ok(state) = state else { continue };
            let known = known.and_then(|known| known.clusters.get(name));
            if !matches!(known, Some(Ok(known)) if Arc::ptr_eq(known, state)) {
                let endpoints = state.endpoints().map(|endpoints| &**endpoints);
                let mut changes = self.endpoints.name(name, endpoints);
                changes.extend(self.endpoints.secure(name, &state.cluster));
                tell(&mut self.balancer, changes);
            }
        }
    }

    /// The routes of a configuration: the last ones, unless the configuration has others.
    fn routes_of(&mut self, config: &XdsConfig) -> Arc<Routes> {
        let known = self.routes.take().filter(|routes| routes.are_of(config));
        let routes = known.unwrap_or_else(|| Arc::new(Routes::compile(config)));
        Arc::clone(self.routes.insert(routes))
    }

    /// A router to publish, and the clusters that are new with it. `None` if the published router has the same routes,
    /// for example when only endpoints have changed.
    fn bind(
        &mut self,
        routes: &Arc<Routes>,
        config: &XdsConfig,
    ) -> (Option<Router>, HashSet<Arc<str>>) {
        let mut new = HashSet::new();
        if let Routing::Ready(router) = &**self.outlets.routing.load()
            && router.is_for(routes, &config.notes)
        {
            return (None, new);
        }
        let leases = routes.clusters().iter().map(|name| {
            let (lease, is_new) = self.clusters.lease(name);
            if is_new {
                if let Some(configs) = &mut self.configs {
                    configs.hold(name);
                }
                new.insert(Arc::clone(name));
            }
            lease
        });
        let router = Router::new(Arc::clone(routes), leases.collect(), &config.notes);
        (Some(router), new)
    }

    /// Removes a cluster that no route and no call uses, unless there is a newer lease.
    fn lease_ended(&mut self, name: &Arc<str>) {
        if self.clusters.remove_unleased(name) {
            if let Some(configs) = &mut self.configs {
                configs.release(name);
            }
            let event = BalancerEvent::RemoveCluster((&**name).into());
            self.balancer.handle(event, now());
        }
    }

    /// The time at which the balancer must be flushed. While thousands of endpoints connect, the
    /// balancer puts it off, so that one flush serves many of them.
    fn next_flush(&self) -> Option<Instant> {
        let times = [self.balancer.flush_by(), self.balancer.next_timeout()];
        times.into_iter().flatten().min()
    }

    fn target(&self) -> &str {
        self.source.target()
    }

    fn reported(&mut self, report: Report) {
        self.changed(report);
        // Many endpoints often change together: one flush serves them all.
        while let Ok(report) = self.reports.try_recv() {
            self.changed(report);
        }
    }

    fn changed(&mut self, report: Report) {
        let changes = self.endpoints.handle(report, now());
        tell(&mut self.balancer, changes);
    }

    /// Flushes the balancer and carries out its commands. Both are repeated, because a command may cause a new event at
    /// once.
    fn flush(&mut self) {
        loop {
            self.balancer.flush(now());
            while let Some(command) = self.balancer.poll_command() {
                self.obey(command);
            }
            if self.balancer.flush_by().is_none_or(|at| at > now()) {
                break;
            }
        }
        self.tell_state();
    }

    fn obey(&mut self, command: Command<Sender>) {
        match command {
            Command::Connect {
                id,
                cluster,
                addresses,
                is_pick_first,
            } => {
                // gRFC A61: the only server that `pick_first` has is used even if it is unhealthy.
                let is_checked = !is_pick_first;
                let endpoints = &mut self.endpoints;
                let changes = endpoints.connect(id, &cluster, addresses, is_checked, now());
                tell(&mut self.balancer, changes);
            }
            Command::Outlier(event) => self.outlets.outliers.tell(&event),
            Command::Publish { cluster, picker } => {
                self.clusters.publish(cluster.as_str(), picker);
            }
            Command::Release(id) => self.endpoints.release(id),
            Command::Reresolve(_) => {
                if let Some(configs) = &mut self.configs {
                    configs.reresolve();
                }
            }
        }
    }

    /// Connects clusters that wait for a call.
    fn exit_idle(&mut self) {
        for name in self.clusters.names() {
            if self.balancer.state(name) == Some(Connectivity::Idle) {
                let name = Arc::clone(name).into();
                self.balancer.exit_idle(&name, now());
            }
        }
    }

    fn answer(&mut self, query: Query) {
        match query {
            Query::Connect if self.configs.is_none() => self.wake(),
            Query::Connect => self.exit_idle(),
            Query::Demand(demand) => {
                self.balancer.handle(BalancerEvent::Demand(demand), now());
            }
            Query::Trees(reply) => {
                // The send fails if the asking handle no longer waits, which is no error.
                let _ = reply.send(self.trees());
            }
            Query::Wake => self.wake(),
        }
    }

    /// The trees, with the facts that only connections know.
    fn trees(&self) -> Vec<Tree> {
        let names = self.clusters.names();
        let mut trees: Vec<Tree> = names.filter_map(|name| self.balancer.tree(name)).collect();
        for tree in &mut trees {
            tree.visit_mut(&mut |node| {
                let sender = node.endpoint.and_then(|id| self.balancer.transport(id));
                node.waiting = sender.map(|sender| sender.waiting() as u64);
                let ejection = node.endpoint.and_then(|id| self.balancer.ejection(id));
                if let (Some(shown), Some(known)) = (&mut node.ejection, ejection) {
                    let passed = now().saturating_duration_since(known.since);
                    shown.left = Some(known.time.saturating_sub(passed));
                }
                if node.kind == TreeKind::ClusterImpl {
                    node.security = self.endpoints.security_of(&node.name);
                }
            });
        }
        trees
    }
}

/// Returns whether a cluster or one of its leaf clusters has changed between two configurations.
fn differs(name: &str, known: &XdsConfig, config: &XdsConfig) -> bool {
    let differs = |name: &str| match (known.clusters.get(name), config.clusters.get(name)) {
        (Some(Ok(known)), Some(Ok(state))) => !Arc::ptr_eq(known, state),
        (known, state) => known != state,
    };
    let leaves = match config.clusters.get(name) {
        Some(Ok(state)) => state.leaves(),
        _ => &[],
    };
    differs(name) || leaves.iter().any(|leaf| differs(leaf))
}

/// Returns whether two configurations with the same routes differ in more than endpoints: in the
/// list of clusters, or in the definition of one. Only such a change is logged at INFO.
fn reshapes(known: &XdsConfig, config: &XdsConfig) -> bool {
    let is_same = |(known, state): (&ClusterResult, &ClusterResult)| match (known, state) {
        (Ok(known), Ok(state)) => {
            Arc::ptr_eq(known, state)
                || (known.cluster == state.cluster && known.leaves() == state.leaves())
        }
        (known, state) => known == state,
    };
    let mut states = known.clusters.values().zip(config.clusters.values());
    !known.clusters.keys().eq(config.clusters.keys()) || !states.all(is_same)
}

/// Returns whether the server has deleted the cluster. Calls must not wait for such a cluster,
/// because it gets no further picker (gRFC A31).
fn is_deleted(state: &ClusterResult) -> bool {
    let Err(error) = state else { return false };
    let reason = |error: &ResourceError| error.reason == TroubleReason::Deleted;
    matches!(&**error, ClusterError::Resource(error) if reason(error))
}

fn tell(balancer: &mut Balancer<Sender>, changes: impl IntoIterator<Item = Change>) {
    for (id, state) in changes {
        balancer.handle(BalancerEvent::Endpoint { id, state }, now());
    }
}

/// The next configuration. No configuration comes while the channel is idle.
async fn next_config(configs: &mut Option<Configs>) -> Option<Resolved> {
    match configs {
        Some(configs) => configs.next().await,
        None => pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}

fn now() -> Instant {
    time::Instant::now().into_std()
}
