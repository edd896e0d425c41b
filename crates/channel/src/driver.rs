//! The task behind a channel: it moves values from the xDS client through `resolve()` and `plan()`
//! to the balancer, and from the connections back to it. All mutable state of a channel is here.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use crowfly_client::{Batch, Subscriber};
use crowfly_lb::{Balancer, Command, Event};
use crowfly_xds::{Cache, Key, Kind, ResolveError, Resolved, Roots, XdsConfig, resolve};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, sleep_until};
use tracing::{info, warn};

use crate::endpoints::{Change, Endpoints};
use crate::plan::plan;
use crate::published::Published;
use crate::routing::{Balancing, Cluster, Router, Routing};
use crate::subchannel::Report;
use crate::transport::Sender;

/// What a handle asks of the task. The task ends when the last handle is gone.
#[derive(Debug)]
pub(crate) enum Query {
    /// The trees of all clusters, printed.
    Tree(oneshot::Sender<String>),
}

pub(crate) struct Driver {
    routing: Arc<Published<Routing>>,
    roots: Roots,
    node: String,
    subscriber: Subscriber,
    /// This channel's view of the client's cache, at one instant.
    view: Cache,
    watches: BTreeMap<Key, Kind>,
    config: Option<Arc<XdsConfig>>,
    clusters: BTreeMap<String, Arc<Cluster>>,
    balancer: Balancer<Sender>,
    endpoints: Endpoints,
    reports: mpsc::UnboundedReceiver<Report>,
    queries: mpsc::UnboundedReceiver<Query>,
}

impl Driver {
    pub(crate) fn new(
        routing: Arc<Published<Routing>>,
        roots: Roots,
        node: String,
        subscriber: Subscriber,
        (endpoints, reports): (Endpoints, mpsc::UnboundedReceiver<Report>),
        queries: mpsc::UnboundedReceiver<Query>,
    ) -> Self {
        Self {
            routing,
            roots,
            node,
            subscriber,
            view: Cache::default(),
            watches: BTreeMap::new(),
            config: None,
            clusters: BTreeMap::new(),
            balancer: Balancer::new(fastrand::u64(..)),
            endpoints,
            reports,
            queries,
        }
    }

    pub(crate) async fn run(mut self) {
        self.resolve();
        loop {
            tokio::select! {
                query = self.queries.recv() => match query {
                    Some(query) => self.answer(query),
                    None => return,
                },
                batch = self.subscriber.next() => match batch {
                    Some(batch) => self.updated(batch),
                    None => return,
                },
                Some(report) = self.reports.recv() => self.reported(report),
                () = until(self.balancer.next_timeout()) => {}
            }
            self.flush();
        }
    }

    fn updated(&mut self, batch: Batch) {
        for update in batch.updates {
            // What was on its way when its watch ended is no longer of interest.
            if self.watches.contains_key(&update.key) {
                self.view.put(update.key, update.entry);
            }
        }
        self.resolve();
    }

    /// Works out the configuration anew, adjusts the watches, and publishes it if it is whole. A
    /// config in use stays until the next one is whole (gRFC A74), or until there cannot be one.
    fn resolve(&mut self) {
        let resolution = resolve(&self.view, &self.roots);
        self.rewatch(resolution.watches);
        match resolution.resolved {
            Resolved::Error(error) => self.fail(&error),
            Resolved::Ready(config) => self.apply(config),
            Resolved::Waiting(missing) if self.config.is_none() => {
                let text = format!("{missing} from the xDS server [node {}]", self.node);
                self.routing.publish(Routing::Waiting(text.into()));
            }
            Resolved::Waiting(_) => {}
        }
    }

    fn rewatch(&mut self, watches: BTreeMap<Key, Kind>) {
        for (key, kind) in &watches {
            if !self.watches.contains_key(key) {
                self.subscriber.watch(key.clone(), *kind);
            }
        }
        for key in self.watches.keys() {
            if !watches.contains_key(key) {
                self.subscriber.unwatch(key.clone());
                self.view.remove(key);
            }
        }
        self.watches = watches;
    }

    fn fail(&mut self, error: &ResolveError) {
        warn!(target = &*self.roots.listener, %error, "no configuration");
        let text = match error {
            ResolveError::Resource(error) => error.to_string(),
            other => format!("{other} [node {}]", self.node),
        };
        self.routing.publish(Routing::Failed(text.into()));
        self.config = None;
        self.remove_clusters_except(|_| false);
    }

    /// The balancer hears of a cluster before a route leads to it.
    fn apply(&mut self, config: Arc<XdsConfig>) {
        if self.config.as_ref() == Some(&config) {
            return;
        }
        for (name, state) in &config.clusters {
            let known = self.config.as_ref().and_then(|c| c.clusters.get(name));
            if known != Some(state) {
                let plan = plan(name, state, &self.node);
                self.balancer.handle(Event::Plan(Arc::new(plan)), now());
            }
            self.clusters
                .entry(name.clone())
                .or_insert_with(|| Arc::new(Cluster::new(name)));
        }
        self.flush();
        let router = Router::new(&config, &self.clusters);
        self.routing.publish(Routing::Ready(router));
        self.remove_clusters_except(|name| config.clusters.contains_key(name));
        info!(target = &*self.roots.listener, clusters = ?config.clusters.keys(), "configuration applied");
        self.config = Some(config);
    }

    fn remove_clusters_except(&mut self, keep: impl Fn(&str) -> bool) {
        self.clusters.retain(|name, cluster| {
            if keep(name) {
                return true;
            }
            let event = Event::RemoveCluster(name.as_str().into());
            self.balancer.handle(event, now());
            cluster.balancing.publish(Balancing::Removed);
            false
        });
    }

    fn reported(&mut self, report: Report) {
        self.changed(report);
        // Many endpoints often change together: one flush serves them all.
        while let Ok(report) = self.reports.try_recv() {
            self.changed(report);
        }
    }

    fn changed(&mut self, report: Report) {
        let changes = self.endpoints.handle(report);
        tell(&mut self.balancer, changes);
    }

    /// Lets the balancer draw its conclusions, and does what it asks for.
    fn flush(&mut self) {
        self.balancer.flush(now());
        while let Some(command) = self.balancer.poll_command() {
            match command {
                Command::Connect { id, addresses } => {
                    let change = self.endpoints.connect(id, &addresses);
                    tell(&mut self.balancer, change);
                    self.balancer.flush(now());
                }
                Command::Publish { cluster, picker } => {
                    if let Some(cluster) = self.clusters.get(cluster.as_str()) {
                        cluster.balancing.publish(Balancing::Live(picker));
                    }
                }
                Command::Release(id) => self.endpoints.release(id),
            }
        }
    }

    fn answer(&self, query: Query) {
        match query {
            Query::Tree(reply) => {
                let trees = self.clusters.keys();
                let trees = trees.filter_map(|name| self.balancer.tree(name));
                // Whoever asked may have lost interest.
                let _ = reply.send(trees.map(|tree| tree.to_string()).collect());
            }
        }
    }
}

fn tell(balancer: &mut Balancer<Sender>, changes: impl IntoIterator<Item = Change>) {
    for (id, state) in changes {
        balancer.handle(Event::Endpoint { id, state }, now());
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
