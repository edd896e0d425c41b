//! The snapshot that is served now, and news of the next one.

use std::sync::Arc;
use std::time::SystemTime;

use crowfly_xds::Snapshot;
use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::sync::watch;

use crate::changes::Changes;
use crate::envoy;
use crate::error::ConfigErrors;
use crate::metrics::Metrics;

/// What came of reading the configuration.
#[derive(Clone, Debug)]
pub struct Reload {
    /// When it was read.
    pub at: SystemTime,
    /// The changes, if the new snapshot is served; otherwise the snapshot before it still is.
    pub result: Result<Changes, ConfigErrors>,
}

/// Holds the current snapshot and tells of changes.
#[derive(Debug)]
pub(crate) struct Store {
    views: watch::Sender<Views>,
    reload: watch::Sender<Reload>,
    metrics: Metrics,
}

impl Store {
    pub(crate) fn new(snapshot: Snapshot, metrics: Metrics) -> Self {
        metrics.snapshot(&snapshot);
        metrics.reload(true);
        Self {
            views: watch::Sender::new(Views::new(snapshot)),
            reload: watch::Sender::new(Reload {
                at: SystemTime::now(),
                result: Ok(Changes::default()),
            }),
            metrics,
        }
    }

    /// Serves `snapshot` from now on.
    pub(crate) fn set(&self, snapshot: Snapshot) {
        self.metrics.snapshot(&snapshot);
        self.views.send_replace(Views::new(snapshot));
    }

    /// Takes the outcome of a reload; a failed one changes nothing for the clients.
    pub(crate) fn reloaded(&self, result: Result<(Snapshot, Changes), ConfigErrors>) {
        self.metrics.reload(result.is_ok());
        let result = result.map(|(snapshot, changes)| {
            self.set(snapshot);
            changes
        });
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

/// One snapshot as each kind of client should see it.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    all: Arc<Snapshot>,
    envoy: Arc<Snapshot>,
}

impl Views {
    fn new(snapshot: Snapshot) -> Self {
        Self {
            envoy: Arc::new(envoy::view(&snapshot)),
            all: Arc::new(snapshot),
        }
    }

    /// The view for a client that introduced itself as `node`.
    pub(crate) fn of(&self, node: Option<&Node>) -> Arc<Snapshot> {
        match node {
            Some(node) if node.user_agent_name == "envoy" => self.envoy.clone(),
            _ => self.all.clone(),
        }
    }
}
