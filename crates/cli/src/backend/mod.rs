//! A gRPC server to send traffic to: `grpc.testing.TestService`, `grpc.health.v1` and reflection.
//!
//! A backend shuts down in the order that gRFC A27 expects. The backend reports NOT_SERVING, sends
//! GOAWAY on each connection, lets open calls finish, and then ends. A client that honours GOAWAY
//! loses no call.

mod command;
mod service;

use std::{io, net::SocketAddr, time::Duration};

pub use command::{BackendArgs, run};
use service::Service;
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::{JoinError, JoinHandle},
};
use tonic::transport::{Server, server::TcpIncoming};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::testing::{self, test_service_server::TestServiceServer};

/// The service whose health the backend reports, next to that of the whole server (`""`).
const SERVICE_NAME: &str = "grpc.testing.TestService";

type Served = Result<(), tonic::transport::Error>;

/// The settings of a backend.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// The address to listen on; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// The backend's name, in the `hostname` of each response.
    pub name: String,
    /// The time that each answer takes.
    pub delay: Duration,
    /// The part of calls, from 0 to 1, that fail with UNAVAILABLE.
    pub fail_rate: f64,
}

impl BackendOptions {
    /// A backend called `name` on a loopback port of the kernel's choice, which answers at once.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            name: name.into(),
            delay: Duration::ZERO,
            fail_rate: 0.0,
        }
    }
}

/// A running backend.
///
/// Dropping the value begins a shutdown and does not wait for it.
#[derive(Debug)]
pub struct BackendServer {
    addr: SocketAddr,
    health: HealthReporter,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Served>,
}

impl BackendServer {
    /// Binds the address and serves in the background.
    ///
    /// # Errors
    /// The address cannot be bound.
    ///
    /// # Example
    /// ```
    /// use crowfly_cli::backend::{BackendServer, BackendOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = BackendServer::start(BackendOptions::new("b1")).await?;
    /// println!("listening on {}", backend.addr());
    /// backend.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start(options: BackendOptions) -> Result<Self, BackendError> {
        let listen = options.listen;
        let bind = |source| BackendError::Bind { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(bind)?;
        let addr = listener.local_addr().map_err(bind)?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));

        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", ServingStatus::Serving).await;
        health
            .set_service_status(SERVICE_NAME, ServingStatus::Serving)
            .await;

        let (stop, stopped) = oneshot::channel();
        let server = Server::builder()
            .add_service(health_service)
            .add_service(TestServiceServer::new(Service::new(options)))
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .serve_with_incoming_shutdown(incoming, async {
                // A sender that is gone is the order to stop, too.
                let _ = stopped.await;
            });
        Ok(Self {
            addr,
            health,
            stop,
            server: tokio::spawn(server),
        })
    }

    /// The address on which the backend listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns only if the server ends by itself.
    async fn failed(&mut self) -> Result<(), BackendError> {
        ended((&mut self.server).await)
    }

    /// Takes no more connections and calls, and returns when the open ones have ended.
    ///
    /// # Errors
    /// The server had failed before.
    pub async fn shutdown(self) -> Result<(), BackendError> {
        // Health comes first, because its watchers must see it before the connection ends.
        self.health
            .set_service_status(SERVICE_NAME, ServingStatus::NotServing)
            .await;
        self.health
            .set_service_status("", ServingStatus::NotServing)
            .await;
        let _ = self.stop.send(());
        ended(self.server.await)
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(testing::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn ended(result: Result<Served, JoinError>) -> Result<(), BackendError> {
    match result {
        Ok(served) => served.map_err(BackendError::Serve),
        Err(error) => Err(BackendError::Task(error)),
    }
}

/// The reasons why a backend does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The address is taken, not local, or not allowed.
    #[error("cannot listen on {listen}")]
    Bind {
        /// The address asked for.
        listen: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// The server ended by itself.
    #[error("the server failed")]
    Serve(#[source] tonic::transport::Error),
    /// The reflection service cannot be built.
    #[error("cannot serve reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server's task panicked or was cancelled.
    #[error("the server's task ended")]
    Task(#[source] JoinError),
}
