//! The control plane as a whole: its ports, its tasks, and how they stop.
//!
//! Only this module knows all parts, because they must start and stop in order.

mod parts;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_tls::ServerSource;
use crowfly_xds::{Snapshot, StreamSettings};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::{Router, TcpIncoming};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{error, info, warn};

use crate::conformance::{Conformance, ConformanceServer};
use crate::loads::Loads;
use crate::lrs::LoadBooks;
use crate::options::{Options, StartError};
use crate::ports::Ports;
use crate::services;
use crate::sources::{Configuration, Reloader};
use crate::store::{Desired, Reload, Store};
use parts::Parts;

/// The time that clients have to close their streams when the control plane stops.
const GRACE: Duration = Duration::from_secs(2);

/// The shortest time between two load reports: gRPC clients report no more often.
const MIN_LOAD_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A running control plane. Dropping it stops it at once; [`shutdown`](Self::shutdown) ends the
/// streams of its clients first.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use crowfly_control::{ControlPlane, Options, Ports};
///
/// let ports = Ports::new("127.0.0.1:0".parse()?);
/// let plane = ControlPlane::start(Options::new("control.yaml", ports)).await?;
/// println!("ADS on {}", plane.listen_addr());
/// plane.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct ControlPlane {
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    store: Arc<Store>,
    loads: LoadBooks,
    health: HealthReporter,
    ports: Ports,
    /// Asks for the certificates to be read again.
    reread: Arc<Notify>,
    stopping: watch::Sender<bool>,
    /// True if all connections are closed, even those of clients that do not let go.
    closed: watch::Sender<bool>,
    load_report_interval: watch::Sender<Duration>,
    tasks: JoinSet<()>,
    reloads: JoinSet<()>,
    /// The channel that asks for a reload; `None` if there are no files.
    ask: Option<mpsc::Sender<()>>,
}

impl ControlPlane {
    /// Serves the configuration that `options` names, and follows its changes.
    ///
    /// A configuration that is bad at the start is an error; one that becomes bad later is logged,
    /// and the last good one is served.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let configuration = Configuration::new(options.config, options.allow_empty, options.force);
        let (reloader, desired) = Reloader::start(configuration).await?;
        let settings = StreamSettings {
            named_only: options.named_only,
        };
        let mut plane = Self::serve(desired, options.ports, settings).await?;
        plane.set_load_report_interval(options.load_report_interval);
        let (ask, asked) = mpsc::channel(1);
        plane.ask = Some(ask);
        plane
            .reloads
            .spawn(reloader.run(plane.store.clone(), asked));
        Ok(plane)
    }

    /// Serves `snapshot`, until [`set_snapshot`](Self::set_snapshot) gives it another one.
    pub async fn with_snapshot(
        snapshot: Snapshot,
        listen: SocketAddr,
        admin: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        let ports = Ports {
            admin,
            ..Ports::new(listen)
        };
        Self::with_ports(snapshot, ports).await
    }

    /// Serves `snapshot` on these ports, until [`set_snapshot`](Self::set_snapshot) gives it another
    /// one.
    ///
    /// # Errors
    /// If a port cannot be opened or would be insecure, or if the certificates cannot be used.
    pub async fn with_ports(snapshot: Snapshot, ports: Ports) -> Result<Self, StartError> {
        Self::serve(snapshot.into(), ports, StreamSettings::default()).await
    }

    async fn serve(
        desired: Desired,
        ports: Ports,
        settings: StreamSettings,
    ) -> Result<Self, StartError> {
        ports.check()?;
        let tls = match &ports.tls {
            Some(files) => Some(Arc::new(ServerSource::start(files.clone()).await?)),
            None => None,
        };
        let parts = Parts::new(desired, &ports);
        let (listener, listen) = bind(ports.listen).await?;
        let mut tasks = JoinSet::new();
        let health = parts
            .serve_ads(listener, tls.clone(), settings, &mut tasks)
            .await?;
        let admin = parts.serve_admin(ports.admin, &mut tasks).await?;
        let (mut reloads, reread) = (JoinSet::new(), Arc::new(Notify::new()));
        let has_tls = tls.is_some();
        if let Some(tls) = tls {
            reloads.spawn(reread_certificates(tls, Arc::clone(&reread)));
        }
        let shown = admin.map(tracing::field::display);
        info!(ads = %listen, tls = has_tls, admin = shown, "control plane is up");
        Ok(Self {
            listen,
            admin,
            store: parts.store,
            loads: parts.loads,
            health,
            ports,
            reread,
            stopping: parts.stopping,
            closed: parts.closed,
            load_report_interval: parts.load_report_interval,
            tasks,
            reloads,
            ask: None,
        })
    }

    /// The address on which ADS is served.
    pub fn listen_addr(&self) -> SocketAddr {
        self.listen
    }

    /// The address on which the admin pages are served.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The snapshot that is served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.store.snapshot()
    }

    /// Serves `snapshot` from now on, until a file changes.
    pub fn set_snapshot(&self, snapshot: Snapshot) {
        self.store.set(snapshot.into());
    }

    /// Asks all clients for a load report per `interval` from now on. Less than a second is taken
    /// for a second, because gRPC clients do that too.
    pub fn set_load_report_interval(&self, interval: Duration) {
        let interval = interval.max(MIN_LOAD_REPORT_INTERVAL);
        self.load_report_interval.send_if_modified(|current| {
            let before = std::mem::replace(current, interval);
            before != interval
        });
    }

    /// The loads that clients have reported so far.
    pub fn loads(&self) -> Loads {
        self.loads.view()
    }

    /// Reads the configuration and the certificates again, even if no change was seen. The outcome
    /// is logged; that of the configuration is sent to [`reloads`](Self::reloads).
    pub fn reload(&self) {
        self.reread.notify_one();
        if let Some(ask) = &self.ask {
            // A full queue already holds a request for a reload.
            ask.try_send(()).ok();
        }
    }

    /// The outcome of the last reload; the receiver is notified of each new one.
    pub fn reloads(&self) -> watch::Receiver<Reload> {
        self.store.reloads()
    }

    /// Serves the adapter of the conformance suite `ii/xds-test-harness` at `address`, and returns
    /// the address. A node that the suite names is served what the suite says, and nothing else.
    ///
    /// # Errors
    /// If the port cannot be opened.
    pub async fn serve_conformance(
        &mut self,
        address: SocketAddr,
    ) -> Result<SocketAddr, StartError> {
        self.ports
            .check_plaintext("the conformance adapter", address)?;
        let (listener, address) = bind(address).await?;
        let adapter = Conformance::new(Arc::clone(&self.store));
        let router = Server::builder().add_service(ConformanceServer::new(adapter));
        let stopping = self.stopping.subscribe();
        self.tasks.spawn(serve_adapter(router, listener, stopping));
        info!(%address, "conformance adapter is up");
        Ok(address)
    }

    /// Ends every stream with UNAVAILABLE, so that clients connect to another server, and closes
    /// the ports. Connections of clients that do not let go within two seconds are closed.
    pub async fn shutdown(mut self) {
        self.reloads.abort_all();
        services::report(&self.health, self.ports.csds, ServingStatus::NotServing).await;
        self.stopping.send_replace(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            warn!("some clients did not let go in {GRACE:?}: their connections are closed");
        }
        self.closed.send_replace(true);
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane")
            .field("listen", &self.listen)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.stopping.send_replace(true);
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let failed = |source| StartError::Listen { address, source };
    bound.await.map_err(failed)
}

async fn serve_adapter(router: Router, listener: TcpListener, stopping: watch::Receiver<bool>) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = router.serve_with_incoming_shutdown(incoming, stopped(stopping));
    if let Err(error) = served.await {
        error!(%error, "serving the conformance adapter");
    }
}

async fn reread_certificates(tls: Arc<ServerSource>, asked: Arc<Notify>) {
    loop {
        asked.notified().await;
        tls.read_again().await;
    }
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the control plane was dropped.
    stopping.wait_for(|stopping| *stopping).await.ok();
}
