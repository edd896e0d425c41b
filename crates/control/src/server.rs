//! The control plane as a whole: its ports, its tasks, and how they stop.
//!
//! It is the only module that knows all parts, and starts and stops them in order.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crowfly_source::yaml::ConfigErrors;
use crowfly_xds::{Snapshot, StreamSettings};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::{Router, TcpIncoming};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{error, info};

use crate::admin::Admin;
use crate::clients::Clients;
use crate::conformance::{Conformance, ConformanceServer};
use crate::csds::{Csds, CsdsServer};
use crate::descriptors;
use crate::discovery::{Aggregated, Cds, Discovery, DiscoveryServer, Eds, Lds, Rds, Streams};
use crate::loads::Loads;
use crate::lrs::{LoadBooks, Lrs, LrsServer};
use crate::metrics::Metrics;
use crate::sources::{Configuration, Reloader};
use crate::store::{Desired, Reload, Store};

/// The services of xDS. Their health is that of the control plane.
const SERVICES: [&str; 7] = [
    Aggregated::SERVICE,
    Lds::SERVICE,
    Rds::SERVICE,
    Cds::SERVICE,
    Eds::SERVICE,
    <LrsServer as NamedService>::NAME,
    <CsdsServer as NamedService>::NAME,
];

/// The time that clients have to close their streams when the control plane stops.
const GRACE: Duration = Duration::from_secs(2);

/// The interval of HTTP/2 keepalive pings. A connection that is lost without an error is noticed
/// within twice this time.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The time between two load reports of a client, if nothing else is set.
pub const DEFAULT_LOAD_REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The shortest time between two load reports: gRPC clients report no more often.
const MIN_LOAD_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// A file, or a directory of `*.yaml`, `*.yml` and `*.json` files.
    pub config: PathBuf,
    /// True if files without content are accepted. They are refused otherwise, because a file is
    /// empty for a moment while it is rewritten.
    pub allow_empty: bool,
    /// True if resources that gRPC clients refuse are served. They are refused otherwise, because clients would go on
    /// with what they have, or fail.
    pub force: bool,
    /// The address for ADS, load reports (LRS), the status of clients (CSDS), health and reflection. With port 0 the kernel chooses one.
    pub listen: SocketAddr,
    /// The address for the admin pages; `None` for no admin pages.
    pub admin: Option<SocketAddr>,
    /// The time between two load reports of a client, at least a second;
    /// [`DEFAULT_LOAD_REPORT_INTERVAL`] if there is no reason for another.
    pub load_report_interval: Duration,
    /// The type URLs for which a first request without names asks for nothing. For other types it
    /// asks for all resources, as Envoys do. gRPC clients never mean that.
    pub named_only: BTreeSet<String>,
}

/// The reason why a control plane could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The reflection service cannot be built.
    #[error("cannot serve reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A running control plane. Dropping it stops it at once; [`shutdown`](Self::shutdown) ends the
/// streams of its clients first.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use crowfly_control::{ControlPlane, DEFAULT_LOAD_REPORT_INTERVAL, Options};
///
/// let plane = ControlPlane::start(Options {
///     config: "control.yaml".into(),
///     allow_empty: false,
///     force: false,
///     listen: "127.0.0.1:0".parse()?,
///     admin: None,
///     load_report_interval: DEFAULT_LOAD_REPORT_INTERVAL,
///     named_only: Default::default(),
/// })
/// .await?;
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
    stopping: watch::Sender<bool>,
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
        let mut plane = Self::serve(desired, options.listen, options.admin, settings).await?;
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
        Self::serve(snapshot.into(), listen, admin, StreamSettings::default()).await
    }

    async fn serve(
        desired: Desired,
        listen: SocketAddr,
        admin: Option<SocketAddr>,
        settings: StreamSettings,
    ) -> Result<Self, StartError> {
        let metrics = Metrics::default();
        let store = Arc::new(Store::new(desired, metrics.clone()));
        let clients = Clients::new(metrics.clone());
        let (listener, listen) = bind(listen).await?;
        let stopping = watch::Sender::new(false);
        let mut tasks = JoinSet::new();

        let load_report_interval = watch::Sender::new(DEFAULT_LOAD_REPORT_INTERVAL);
        let loads = LoadBooks::new(store.clone(), load_report_interval.subscribe());

        let streams = Streams::new(
            store.clone(),
            clients.clone(),
            settings,
            stopping.subscribe(),
        );
        let lrs = Lrs::new(store.clone(), loads.clone(), stopping.subscribe());
        let csds = Csds::new(clients.clone());
        let (router, health) = router(streams, lrs, csds).await?;
        tasks.spawn(serve_grpc(router, listener, stopping.subscribe()));
        let mut admin_addr = None;
        if let Some(address) = admin {
            let (listener, address) = bind(address).await?;
            admin_addr = Some(address);
            let pages = Admin {
                store: store.clone(),
                clients,
                loads: loads.clone(),
                metrics,
            };
            tasks.spawn(serve_admin(pages, listener, stopping.subscribe()));
        }
        let admin = admin_addr.map(tracing::field::display);
        info!(ads = %listen, admin, "control plane is up");
        Ok(Self {
            listen,
            admin: admin_addr,
            store,
            loads,
            health,
            stopping,
            load_report_interval,
            tasks,
            reloads: JoinSet::new(),
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

    /// Reads the configuration again, even if no change was seen. The outcome is logged, and sent
    /// to [`reloads`](Self::reloads).
    pub fn reload(&self) {
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
        let (listener, address) = bind(address).await?;
        let adapter = Conformance::new(Arc::clone(&self.store));
        let router = Server::builder().add_service(ConformanceServer::new(adapter));
        let stopping = self.stopping.subscribe();
        self.tasks.spawn(serve_grpc(router, listener, stopping));
        info!(%address, "conformance adapter is up");
        Ok(address)
    }

    /// Ends every stream with UNAVAILABLE, so that clients connect to another server, and closes
    /// the ports.
    pub async fn shutdown(mut self) {
        self.reloads.abort_all();
        for service in SERVICES {
            let status = ServingStatus::NotServing;
            self.health.set_service_status(service, status).await;
        }
        self.stopping.send_replace(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            info!("some clients did not let go in {GRACE:?}");
        }
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

async fn router(
    streams: Streams,
    lrs: Lrs,
    csds: Csds,
) -> Result<(Router, HealthReporter), StartError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    for service in SERVICES {
        let status = ServingStatus::Serving;
        reporter.set_service_status(service, status).await;
    }
    let streams = Arc::new(streams);
    let router = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(DiscoveryServer::<Aggregated>::new(&streams))
        .add_service(DiscoveryServer::<Lds>::new(&streams))
        .add_service(DiscoveryServer::<Rds>::new(&streams))
        .add_service(DiscoveryServer::<Cds>::new(&streams))
        .add_service(DiscoveryServer::<Eds>::new(&streams))
        .add_service(LrsServer::new(lrs))
        .add_service(CsdsServer::new(csds))
        .add_service(health)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok((router, reporter))
}

/// The reflection service. It has all messages, so that a tool can show the contents of an `Any`.
/// It lists only the services that are served.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    let mut builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(descriptors::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .with_service_name("grpc.reflection.v1alpha.ServerReflection");
    for service in SERVICES {
        builder = builder.with_service_name(service);
    }
    builder
}

async fn serve_grpc(router: Router, listener: TcpListener, stopping: watch::Receiver<bool>) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = router.serve_with_incoming_shutdown(incoming, stopped(stopping));
    if let Err(error) = served.await {
        error!(%error, "serving gRPC");
    }
}

async fn serve_admin(admin: Admin, listener: TcpListener, stopping: watch::Receiver<bool>) {
    let served = axum::serve(listener, admin.router()).with_graceful_shutdown(stopped(stopping));
    if let Err(error) = served.await {
        error!(%error, "serving the admin pages");
    }
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the control plane was dropped.
    stopping.wait_for(|stopping| *stopping).await.ok();
}
