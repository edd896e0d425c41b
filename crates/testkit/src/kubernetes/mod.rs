//! A small API server of Kubernetes, over HTTP/1.1.
//!
//! The server lists (with pages), watches (with bookmarks and streaming lists), and fails as a test tells it to. The
//! server shares no code with a client. It reads requests and writes answers by hand, so that a test can cut a
//! connection in the middle of an object.

mod http;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Ca, Reserved};
use state::State;

/// Something that goes wrong with the next request for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any request is answered with this status. 429 comes with `Retry-After`, in seconds.
    Status(u16, Option<u64>),
    /// The second page of a listing, or a further one, is answered with this status.
    PageStatus(u16),
    /// A watch begins, sends this status as an event, and ends.
    ErrorEvent(u16),
    /// A watch sends this status as an event, and goes on.
    ErrorAndOn(u16),
    /// The connection ends in the middle of the next event of a watch.
    Cut,
    /// The next event of a watch is this line.
    Line(String),
    /// A watch ends at once, as a watch does after its time limit.
    End,
}

/// A running API server. The server stops when this value is dropped.
pub struct KubeApi {
    /// The port stays reserved while the server is stopped.
    port: Reserved,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for KubeApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeApi")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notifies watches of every change of the state.
    changed: watch::Sender<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_modify(|changes| *changes += 1);
        result
    }
}

impl KubeApi {
    /// Starts a server without objects.
    pub async fn start() -> Self {
        Self::serve(None).await
    }

    /// Starts a server that proves `127.0.0.1` with a certificate of this CA.
    pub async fn start_tls(ca: &Ca) -> Self {
        let issued = ca.issue(&["127.0.0.1"]);
        let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(crowfly_tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self::serve(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(tls: Option<TlsAcceptor>) -> Self {
        let port = Reserved::new();
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            changed: watch::Sender::new(0),
        });
        let task = accept(port.listen(), Arc::clone(&shared), tls.clone());
        Self {
            port,
            tls,
            shared,
            task,
        }
    }

    /// Ends the server and all its connections, as a crash would. The objects stay, and can be changed.
    pub async fn stop(&mut self) {
        self.task.abort();
        // The task was aborted, so its error is no failure.
        let _ = (&mut self.task).await;
    }

    /// Starts the server again, at the same address.
    pub fn resume(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.task = accept(self.port.listen(), shared, self.tls.clone());
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.port.address)
    }

    /// Creates an object, or replaces it.
    pub fn apply(&self, object: &Value) {
        self.shared.change(|state| state.apply(object.clone()));
    }

    /// Deletes an object of a resource, such as `services`.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        let key = format!("{namespace}/{name}");
        self.shared.change(|state| state.delete(resource, &key));
    }

    /// Deletes an object without an event, and forgets all earlier versions.
    pub fn lose(&self, resource: &str, namespace: &str, name: &str) {
        let key = format!("{namespace}/{name}");
        self.shared.change(|state| state.lose(resource, &key));
    }

    /// Lets the next request for a resource go wrong. Several faults happen one after the other.
    pub fn fail(&self, resource: &str, fault: Fault) {
        let resource = resource.to_owned();
        let change = |state: &mut State| state.faults.push_back((resource, fault));
        self.shared.change(change);
    }

    /// Ends all watches. Clients may open new watches.
    pub fn disconnect(&self) {
        self.shared.change(|state| state.generation += 1);
    }

    /// Holds back the events of a resource, or sends them again.
    pub fn hold(&self, resource: &str, is_held: bool) {
        let change = |state: &mut State| match is_held {
            true => state.held.insert(resource.to_owned()),
            false => state.held.remove(resource),
        };
        self.shared.change(change);
    }

    /// Answers 401 to requests without this token.
    pub fn require_token(&self, token: &str) {
        let change = |state: &mut State| state.token = Some(token.to_owned());
        self.shared.change(change);
    }

    /// Answers a watch from a forgotten version with the HTTP status 410, and not with an event.
    pub fn say_gone_as_status(&self) {
        self.shared.change(|state| state.says_gone_as_status = true);
    }

    /// Refuses streaming lists, as old servers do.
    pub fn refuse_streams(&self) {
        self.shared.change(|state| state.refuses_streams = true);
    }

    /// The requests so far: path and query.
    pub fn requests(&self) -> Vec<String> {
        self.shared.state().requests.clone()
    }

    /// Waits until the requests are as a test needs them.
    pub async fn until(&self, what: &str, enough: impl Fn(&[String]) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let waiting = async {
            while !enough(&self.requests()) {
                changed.changed().await.unwrap();
            }
        };
        let result = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(result.is_ok(), "{what}: {:?}", self.requests());
    }
}

impl Drop for KubeApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers connections. The connections end with the task.
fn accept(listener: TcpListener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let (shared, tls) = (Arc::clone(&shared), tls.clone());
            connections.spawn(async move {
                socket.set_nodelay(true).unwrap();
                match tls {
                    None => http::answer(socket, &shared).await,
                    Some(tls) => match tls.accept(socket).await {
                        Ok(socket) => http::answer(socket, &shared).await,
                        Err(_) => Ok(()),
                    },
                }
            });
        }
    })
}
