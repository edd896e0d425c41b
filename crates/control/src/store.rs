//! The snapshot that is served now; streams wait here for the next one.
//!
//! Each kind of client has a view of the snapshot. It is worked out once for all streams, from the
//! view before and the changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crowfly_source::yaml::ConfigErrors;
use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::agents::{self, AgentView};
use crate::changes::Changes;
use crate::envoy::EnvoyView;
use crate::metrics::Metrics;

/// The outcome of reading the configuration.
#[derive(Clone, Debug)]
pub struct Reload {
    /// The time at which the configuration was read.
    pub at: SystemTime,
    /// The changes, if the new snapshot is served. On an error, the snapshot before it still is.
    pub result: Result<Changes, ConfigErrors>,
}

/// Holds the current snapshot and notifies streams of changes.
#[derive(Debug)]
pub(crate) struct Store {
    views: watch::Sender<Views>,
    /// The views for some kinds of clients. The lock is held while a snapshot is set, so that views are made in
    /// order.
    made: Mutex<MadeViews>,
    reload: watch::Sender<Reload>,
    metrics: Metrics,
}

impl Store {
    pub(crate) fn new(snapshot: Snapshot, metrics: Metrics) -> Self {
        metrics.reload(true);
        let store = Self {
            views: watch::Sender::new(Views::default()),
            made: Mutex::default(),
            reload: watch::Sender::new(Reload {
                at: SystemTime::now(),
                result: Ok(Changes::default()),
            }),
            metrics,
        };
        store.set(snapshot);
        store
    }

    /// Serves `snapshot` from now on. The work is in proportion to the change, if `snapshot` was
    /// built from the one that is served.
    pub(crate) fn set(&self, snapshot: Snapshot) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        self.metrics.snapshot(&snapshot);
        let all = Arc::new(snapshot);
        let envoy = made.envoy.follow(&all);
        let agent = made.agent.follow(&all);
        self.views.send_modify(|views| {
            views.all = all;
            views.envoy = envoy;
            views.agent = agent;
        });
    }

    /// Serves the node of this id a snapshot of its own from now on.
    pub(crate) fn set_node(&self, id: &str, snapshot: Snapshot) {
        self.views.send_modify(|views| {
            views.nodes.insert(id.to_owned(), Arc::new(snapshot));
        });
    }

    /// Takes the outcome of a reload; a failed one changes nothing for the clients.
    pub(crate) fn reloaded(&self, result: Result<Snapshot, ConfigErrors>) {
        self.metrics.reload(result.is_ok());
        let result = result.map(|snapshot| {
            let changes = Changes::between(&self.snapshot(), &snapshot);
            self.set(snapshot);
            changes
        });
        log(&result);
        let at = SystemTime::now();
        self.reload.send_replace(Reload { at, result });
    }

    pub(crate) fn views(&self) -> watch::Receiver<Views> {
        self.views.subscribe()
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.views.borrow().all.clone()
    }

    pub(crate) fn reloads(&self) -> watch::Receiver<Reload> {
        self.reload.subscribe()
    }
}

/// The views that are worked out from the views before them.
#[derive(Debug, Default)]
struct MadeViews {
    envoy: EnvoyView,
    agent: AgentView,
}

/// One snapshot, with a view for each kind of client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    all: Arc<Snapshot>,
    envoy: Arc<Snapshot>,
    agent: Arc<Snapshot>,
    /// Snapshots of single nodes, which take the place of all others.
    nodes: BTreeMap<String, Arc<Snapshot>>,
}

impl Views {
    /// The view for a client with this node.
    pub(crate) fn of(&self, node: Option<&Node>) -> Arc<Snapshot> {
        if let Some(own) = node.and_then(|node| self.nodes.get(&node.id)) {
            return Arc::clone(own);
        }
        match node {
            Some(node) if node.user_agent_name == "envoy" => self.envoy.clone(),
            Some(node) if agents::is_agent(&node.user_agent_name) => self.agent.clone(),
            _ => self.all.clone(),
        }
    }
}

fn log(result: &Result<Changes, ConfigErrors>) {
    match result {
        Ok(changes) if changes.take_away() => warn!("configuration reloaded: {changes}"),
        Ok(changes) => info!("configuration reloaded: {changes}"),
        Err(errors) => {
            for error in errors.iter() {
                error!("{error}");
            }
            error!("reload failed; the last good snapshot is served");
        }
    }
}
