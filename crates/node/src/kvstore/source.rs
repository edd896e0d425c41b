//! The driver of a [`Mesh`]: it has the connection, the clock and the log, because the mesh is without I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crowfly_source::etcd::Etcd;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::mesh::Mesh;
use super::options::{KvstoreError, KvstoreOptions};
use super::step::{LogLine, Step};
use crate::serve::Told;

/// A ClusterMesh that is followed.
#[derive(Debug)]
pub struct KvstoreSource {
    etcd: Etcd,
    options: KvstoreOptions,
    counts: Arc<KvstoreCounts>,
}

/// Counts of a source, for metrics.
#[derive(Debug, Default)]
pub struct KvstoreCounts {
    /// The clusters whose services are complete.
    pub clusters: AtomicU64,
    /// The services.
    pub services: AtomicU64,
    /// The keys whose value is refused now.
    pub refused: AtomicU64,
    /// The times that a value was refused.
    pub refusals: AtomicU64,
    /// The times that the etcd could not be read any more.
    pub failures: AtomicU64,
}

impl KvstoreSource {
    /// A source that has not connected yet.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn new(options: KvstoreOptions) -> Result<Self, KvstoreError> {
        options.validate()?;
        Ok(Self {
            etcd: Etcd::new(options.etcd())?,
            options,
            counts: Arc::default(),
        })
    }

    /// The counts, which stay up to date while the source runs.
    pub fn counts(&self) -> Arc<KvstoreCounts> {
        Arc::clone(&self.counts)
    }

    /// Follows the mesh, and tells the agent under this rank, until the agent is gone.
    pub async fn run(mut self, rank: usize, told: mpsc::Sender<Told>) {
        let (mut mesh, step) = Mesh::new(self.options.layout(), now());
        self.follow(&step);
        loop {
            let deadline = mesh.deadline();
            let timer = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            let step = tokio::select! {
                news = self.etcd.next() => mesh.handle(news, now()),
                () = timer => mesh.tick(now()),
                () = told.closed() => return,
            };
            self.follow(&step);
            let refused = self.count(&mesh, &step);
            for note in step.notes {
                match note {
                    LogLine::Info(text) => info!("KVStore: {text}"),
                    LogLine::Warn(text) => warn!("KVStore: {text}"),
                }
            }
            let refused = (refused > 0).then_some(Told::Refused(rank, refused));
            let services = (!step.events.is_empty()).then_some(Told::Services(rank, step.events));
            for message in refused.into_iter().chain(services) {
                if told.send(message).await.is_err() {
                    return;
                }
            }
        }
    }

    fn follow(&mut self, step: &Step) {
        for prefix in &step.unfollow {
            self.etcd.unfollow(prefix);
        }
        for prefix in &step.follow {
            self.etcd.follow(prefix.clone());
        }
    }

    /// Brings the counts up to date, and returns the number of new refusals.
    fn count(&self, mesh: &Mesh, step: &Step) -> u64 {
        let set = |count: &AtomicU64, number: usize| {
            count.store(u64::try_from(number).unwrap_or(u64::MAX), Ordering::Relaxed);
        };
        set(&self.counts.clusters, mesh.clusters());
        set(&self.counts.services, mesh.services());
        set(&self.counts.refused, mesh.refused());
        let refusals = mesh.refusals();
        let before = self.counts.refusals.swap(refusals, Ordering::Relaxed);
        if step.is_failure() {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
        }
        refusals.saturating_sub(before)
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
