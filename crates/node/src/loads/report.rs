//! The ledger as the agent and the xDS client share it. The agent labels and prunes, and the client reports.
//!
//! The ledger is behind a lock, because the client reports on another thread.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use crowfly_client::{LoadRegistration, LoadWake, SharedLoadSource, XdsClient, XdsClientError};
use crowfly_model::bootstrap::{Bootstrap, ServerConfig};
use crowfly_names::ClusterLoad;
use tracing::warn;

use super::{Label, Ledger};
use crate::maps::reports::ReportMaps;
use crate::maps::{Counters, MapError, Pair};
use crate::model::ReportedAs;
use crate::select::Frontend;
use crate::services::Services;

type Books = Ledger<Box<dyn ReportMaps>>;

/// The pairs that one lock of the ledger goes over. The agent waits for it when an endpoint changes.
const SOME: usize = 256;

/// The loads of an agent; clones share them.
#[derive(Clone, Debug)]
pub struct Loads {
    books: Arc<Mutex<Books>>,
    /// Held while loads are taken, because a take is many locks of the ledger.
    turn: Arc<Mutex<()>>,
    /// True if services are reported for which no source names a cluster.
    all: bool,
    /// True if the last warning was that a load is not stored.
    is_unsafe: Arc<AtomicBool>,
    /// Wakes the client that has no stream while there is nothing to report.
    on_demand: Arc<OnceLock<LoadWake>>,
}

/// A server that takes reports, and the client that asks it for resources too.
#[derive(Clone, Debug)]
pub struct LoadServer {
    /// The client.
    pub client: XdsClient,
    /// The server, which is one of the client's.
    pub server: ServerConfig,
}

/// Keeps the reports going.
#[derive(Debug)]
pub struct Registration {
    _reports: LoadRegistration,
    client: XdsClient,
}

impl Registration {
    /// The client that reports.
    pub fn client(&self) -> &XdsClient {
        &self.client
    }
}

/// The reason why no load is reported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadsError {
    /// A map cannot be read.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The client cannot be made.
    #[error("cannot report loads")]
    Client(#[from] XdsClientError),
    /// The bootstrap has no server.
    #[error("cannot report loads: the bootstrap names no xDS server")]
    NoServer,
}

impl Loads {
    /// Goes on where another agent ended.
    ///
    /// # Errors
    /// The maps cannot be read.
    pub fn adopt(maps: Box<dyn ReportMaps>, all: bool) -> Result<Self, MapError> {
        Ok(Self {
            books: Arc::new(Mutex::new(Ledger::adopt(maps)?)),
            all,
            turn: Arc::default(),
            is_unsafe: Arc::default(),
            on_demand: Arc::default(),
        })
    }

    /// Reports to the first server of a bootstrap, by a client of its own.
    ///
    /// # Errors
    /// The bootstrap has no server, or one that the client cannot use.
    pub fn report_to(&self, bootstrap: &Bootstrap) -> Result<Registration, LoadsError> {
        let server = bootstrap.servers.first().ok_or(LoadsError::NoServer)?;
        let client = XdsClient::new(bootstrap)?;
        let (_, reports) = client.report_loads(server, |_| Arc::new(self.clone()))?;
        Ok(Registration {
            _reports: reports,
            client,
        })
    }

    /// Reports to a server of a client. There is a stream only while a cluster is reported, because nobody has
    /// said that the server takes reports until it sends one with `lrs_server`.
    ///
    /// # Errors
    /// The client cannot use the server.
    pub fn report_on_demand(&self, to: &LoadServer) -> Result<Registration, LoadsError> {
        let LoadServer { client, server } = to;
        let (_, reports) = client.report_loads(server, |wake| {
            // A second client would be told by the first.
            let _ = self.on_demand.set(wake);
            Arc::new(self.clone())
        })?;
        Ok(Registration {
            _reports: reports,
            client: client.clone(),
        })
    }

    /// Labels the pairs of a frontend as its service is now.
    pub(crate) fn label(&self, services: &Services, frontend: &Frontend, pairs: &[Paired]) {
        let Some(owner) = services.owner(frontend) else {
            return;
        };
        let cluster = match &owner.port.reported_as {
            Some(cluster) => Some(cluster.clone()),
            None if self.all => Some(ReportedAs {
                cluster: format!("{}:{}", owner.service.name, owner.port.port).into(),
                eds_service: None,
            }),
            None => None,
        };
        let Some(selection) = services.selection(frontend) else {
            return;
        };
        let targets = selection.route.targets.iter().zip(&selection.backends);
        let localities: HashMap<_, _> = targets
            .map(|(target, backend)| (target.address, &backend.locality))
            .collect();
        let mut books = self.lock();
        let had_labels = books.has_labels();
        let mut failed = None;
        for (pair, address) in pairs {
            // One that the service does not have: a change failed, and the frontend is as it was.
            let Some(&locality) = localities.get(address) else {
                continue;
            };
            let label = cluster.clone().map(|cluster| Label {
                cluster,
                locality: locality.clone(),
            });
            if let Err(error) = books.label(*pair, label.as_ref()) {
                failed = Some(error);
            }
        }
        if let Some(error) = failed
            && !self.is_unsafe.swap(true, Ordering::Relaxed)
        {
            let effect = match error.map {
                "labels" => {
                    "are reported, but what is not reported when the agent ends is lost if the service is gone when it \
                     starts again"
                }
                "stats" => "of before a change of their names are reported under the new ones",
                _ => "wait until they can be stored",
            };
            warn!("the loads of {frontend}, and maybe of others, {effect}: {error}");
        }
        self.wake_if(had_labels != books.has_labels());
    }

    fn wake_if(&self, is_changed: bool) {
        if let Some(client) = self.on_demand.get().filter(|_| is_changed) {
            client.wake();
        }
    }

    /// True if the counters of a pair were reported as they are.
    pub(crate) fn is_told(&self, pair: &Pair, counters: &Counters) -> bool {
        self.lock().is_told(pair, counters)
    }

    /// Forgets all pairs but those of which `is_kept` is true.
    pub(crate) fn retain(&self, is_kept: impl Fn(&Pair) -> bool) -> Result<(), MapError> {
        let mut books = self.lock();
        let gone: Vec<Pair> = books.pairs().filter(|it| !is_kept(it)).copied().collect();
        let had_labels = books.has_labels();
        let forgotten = books.forget(&gone);
        self.wake_if(had_labels != books.has_labels());
        forgotten
    }

    /// The pairs whose numbers are in use.
    pub(crate) fn pairs(&self) -> Vec<Pair> {
        self.lock().pairs().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pair, and the address of its backend.
pub(crate) type Paired = (Pair, SocketAddr);

impl SharedLoadSource for Loads {
    /// A stream is open while a connection that is to be reported may begin.
    fn is_in_use(&self) -> bool {
        self.on_demand.get().is_none() || self.lock().has_labels()
    }

    /// The maps are read and written by one system call for each pair.
    fn is_slow(&self) -> bool {
        true
    }

    fn take(&self) -> Vec<ClusterLoad> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while self.lock().store_labels(SOME) {
            thread::yield_now();
        }
        let read = self.lock().begin_take();
        let counters = match read() {
            Ok(counters) => counters,
            Err(error) => {
                warn!("the loads cannot be read, and are in the next report: {error}");
                return Vec::new();
            }
        };
        for some in counters.chunks(SOME) {
            self.lock().take_some(some);
            thread::yield_now();
        }
        self.lock().end_take()
    }

    fn sending(&self) -> Result<(), Arc<str>> {
        self.lock().begin_sending();
        loop {
            let stored = self.lock().store_some(SOME);
            match stored {
                Ok(true) => thread::yield_now(),
                Ok(false) => {
                    self.is_unsafe.store(false, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => return Err(error.to_string().into()),
            }
        }
    }

    fn sent(&self) {
        self.lock().sent();
    }

    fn unsent(&self) {
        while self.lock().take_back_some(SOME) {
            thread::yield_now();
        }
    }
}
