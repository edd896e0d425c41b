//! A gRPC server on tonic, over TLS.
//!
//! The server records client certificates, SNI and schemes, because only it sees what a client
//! sent.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crowfly_testkit::{Ca, Issued};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{Request, Response};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic_prost::ProstCodec;
use tower_service::Service;

/// A server on tonic that answers every call with its own name.
pub(crate) struct TlsBackend {
    pub(crate) address: SocketAddr,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    seen: Arc<Mutex<Seen>>,
}

/// The way in which clients spoke to a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The names in the certificate of each connection's client; empty if it had none.
    pub(crate) clients: Vec<Vec<String>>,
    /// The SNI of each connection.
    pub(crate) server_names: Vec<Option<String>>,
    /// The `:scheme` of each call.
    pub(crate) schemes: Vec<String>,
}

impl TlsBackend {
    pub(crate) async fn start(name: &str, config: ServerConfig) -> Self {
        Self::with_age(name, config, Duration::from_secs(3600)).await
    }

    /// A server that sends its clients away when a connection is of this age, counted from its first call.
    ///
    /// tonic's own `max_connection_age` counts from the handshake. On a busy machine it closes connections
    /// before they have sent SETTINGS, and those are failed attempts.
    pub(crate) async fn with_age(name: &str, config: ServerConfig, age: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Self {
            address: listener.local_addr().unwrap(),
            config: Arc::new(Mutex::new(Arc::new(config))),
            seen: Arc::default(),
        };
        let (config, seen) = (Arc::clone(&backend.config), Arc::clone(&backend.seen));
        let name = name.to_owned();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(Arc::clone(&config.lock().unwrap()));
                let service = Echo {
                    name: name.clone(),
                    seen: Arc::clone(&seen),
                    called: Arc::default(),
                };
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(tcp).await {
                        service.seen.lock().unwrap().connected(&stream);
                        serve(stream, service, age).await;
                    }
                });
            }
        });
        backend
    }

    /// New connections have these settings.
    pub(crate) fn set(&self, config: ServerConfig) {
        *self.config.lock().unwrap() = Arc::new(config);
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

/// Serves one connection until it is of this age, counted from its first call.
async fn serve(stream: TlsStream<TcpStream>, service: Echo, age: Duration) {
    let called = Arc::clone(&service.called);
    let leave = async move {
        called.notified().await;
        sleep(age).await;
    };
    // A server whose connections have all come would send them away at once.
    let only = stream::iter([Ok::<_, io::Error>(Socket(stream))]).chain(stream::pending());
    let server = Server::builder().add_service(service);
    // It ends with an error if the client went away before.
    let _ = server.serve_with_incoming_shutdown(only, leave).await;
}

impl Seen {
    fn connected(&mut self, stream: &TlsStream<TcpStream>) {
        let (_, connection) = stream.get_ref();
        let chain = connection.peer_certificates().unwrap_or_default();
        let names = chain.first().and_then(|leaf| crowfly_tls::sans_of(leaf));
        self.clients.push(names.unwrap_or_default());
        let asked = connection.server_name().map(str::to_owned);
        self.server_names.push(asked);
    }
}

/// A server with this certificate. With CAs it requires a client certificate of one of them.
pub(crate) fn server_config(own: &Issued, clients_of: &[&Ca]) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(crowfly_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if clients_of.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for ca in clients_of {
            roots.add(certificate(&ca.pem)).unwrap();
        }
        let provider = crowfly_tls::provider();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    };
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let chain = vec![certificate(&own.certificate)];
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[derive(Clone)]
struct Echo {
    name: String,
    seen: Arc<Mutex<Seen>>,
    /// Told of each call on the connection.
    called: Arc<Notify>,
}

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let scheme = request.uri().scheme_str().unwrap_or_default().to_owned();
        self.seen.lock().unwrap().schemes.push(scheme);
        self.called.notify_one();
        let answer = Answer(self.name.clone());
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<String, String>::default());
            Ok(grpc.unary(answer, request).await)
        })
    }
}

struct Answer(String);

impl UnaryService<String> for Answer {
    type Response = String;
    type Future = Ready<Result<tonic::Response<String>, Status>>;

    fn call(&mut self, _: tonic::Request<String>) -> Self::Future {
        ready(Ok(tonic::Response::new(self.0.clone())))
    }
}

/// A TLS connection as tonic takes it.
struct Socket(TlsStream<TcpStream>);

impl Connected for Socket {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
