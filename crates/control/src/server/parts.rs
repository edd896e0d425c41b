//! The parts that the ports of a control plane share, and the tasks that serve the ports. They are
//! made together, because every port shows the same store, clients and loads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_tls::ServerSource;
use crowfly_xds::StreamSettings;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Router;
use tonic_health::server::HealthReporter;
use tracing::error;

use super::{bind, stopped};
use crate::admin::Admin;
use crate::admission::Admission;
use crate::clients::Clients;
use crate::csds::Csds;
use crate::discovery::Streams;
use crate::guarded::Guard;
use crate::incoming::{Connection, Incoming};
use crate::limits::Limits;
use crate::lrs::{LoadBooks, Lrs};
use crate::metrics::Metrics;
use crate::options::{DEFAULT_LOAD_REPORT_INTERVAL, StartError};
use crate::ports::Ports;
use crate::services;
use crate::store::{Desired, Store};

/// The parts that all ports share.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) store: Arc<Store>,
    pub(super) loads: LoadBooks,
    clients: Clients,
    metrics: Metrics,
    limits: Arc<Limits>,
    has_csds: bool,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) closed: watch::Sender<bool>,
    pub(super) load_report_interval: watch::Sender<Duration>,
}

impl Parts {
    pub(super) fn new(desired: Desired, ports: &Ports) -> Self {
        let metrics = Metrics::default();
        let store = Arc::new(Store::new(desired, metrics.clone()));
        let limits = Arc::new(ports.limits.clone());
        let load_report_interval = watch::Sender::new(DEFAULT_LOAD_REPORT_INTERVAL);
        Self {
            loads: LoadBooks::new(store.clone(), load_report_interval.subscribe(), &limits),
            clients: Clients::new(metrics.clone()),
            store,
            metrics,
            limits,
            has_csds: ports.csds,
            stopping: watch::Sender::new(false),
            closed: watch::Sender::new(false),
            load_report_interval,
        }
    }

    /// Serves the port of ADS.
    pub(super) async fn serve_ads(
        &self,
        listener: TcpListener,
        tls: Option<Arc<ServerSource>>,
        settings: StreamSettings,
        tasks: &mut JoinSet<()>,
    ) -> Result<HealthReporter, StartError> {
        let (router, health) = self.services(settings).await?;
        let incoming = Incoming::new(
            listener,
            tls,
            Arc::clone(&self.limits),
            self.metrics.limits().clone(),
            self.closed.subscribe(),
        );
        let (accepted, connections) = mpsc::channel(16);
        tasks.spawn(incoming.run(accepted, self.stopping.subscribe()));
        tasks.spawn(serve_grpc(router, connections, self.stopping.subscribe()));
        Ok(health)
    }

    async fn services(
        &self,
        settings: StreamSettings,
    ) -> Result<(Router, HealthReporter), StartError> {
        let admission = Admission::new(&self.limits);
        let streams = Streams::new(
            self.store.clone(),
            self.clients.clone(),
            settings,
            Arc::clone(&admission),
            self.stopping.subscribe(),
        );
        let lrs = Lrs::new(
            self.store.clone(),
            self.loads.clone(),
            Arc::clone(&admission),
            self.stopping.subscribe(),
        );
        let guard = Guard::new(Arc::clone(&admission), self.stopping.subscribe());
        let csds = Csds::new(self.clients.clone(), admission, self.stopping.subscribe());
        let csds = self.has_csds.then_some(csds);
        services::router(streams, lrs, csds, &guard, &self.limits).await
    }

    /// Serves the admin pages, and returns their address; `None` if there is to be none.
    pub(super) async fn serve_admin(
        &self,
        address: Option<SocketAddr>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Option<SocketAddr>, StartError> {
        let Some(address) = address else {
            return Ok(None);
        };
        let (listener, address) = bind(address).await?;
        let pages = Admin {
            store: self.store.clone(),
            clients: self.clients.clone(),
            loads: self.loads.clone(),
            metrics: self.metrics.clone(),
        };
        tasks.spawn(serve_pages(pages, listener, self.stopping.subscribe()));
        Ok(Some(address))
    }
}

async fn serve_grpc(
    router: Router,
    connections: mpsc::Receiver<io::Result<Connection>>,
    stopping: watch::Receiver<bool>,
) {
    let incoming = ReceiverStream::new(connections);
    let served = router.serve_with_incoming_shutdown(incoming, stopped(stopping));
    if let Err(error) = served.await {
        error!(%error, "serving gRPC");
    }
}

async fn serve_pages(admin: Admin, listener: TcpListener, stopping: watch::Receiver<bool>) {
    let served = axum::serve(listener, admin.router()).with_graceful_shutdown(stopped(stopping));
    if let Err(error) = served.await {
        error!(%error, "serving the admin pages");
    }
}
