//! The TLS of a server: its certificate, and the CA of its clients, from files that may change.
//!
//! A server reads its files at an interval, because it may get a thousand connections in a second.
//! A client reads its files for each connection. Open connections keep the settings they began
//! with.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use crate::files::read;
use crate::handshake::ALPN_H2;
use crate::reason::client_reason;
use crate::{Identity, Roots, TlsError, pem, provider, sans_of};

/// The PEM files of a server.
///
/// ```
/// use crowfly_tls::ServerFiles;
///
/// let files = ServerFiles::new("server.pem", "server.key").client_ca("ca.pem");
/// assert_eq!(files.refresh_interval.as_secs(), 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate of the server, with its chain.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The CAs that issue the certificates of clients. Without it, clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The time between two readings.
    pub refresh_interval: Duration,
}

impl ServerFiles {
    /// Settings with these files, which are read again every ten seconds. Clients need no
    /// certificate.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: None,
            refresh_interval: Duration::from_secs(10),
        }
    }

    /// Refuses clients without a certificate of these CAs.
    pub fn client_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(file.into());
        self
    }

    /// Reads the files at this interval.
    pub fn refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = interval;
        self
    }

    fn read(&self) -> Result<ServerMaterial, TlsError> {
        let identity = self.read_identity()?;
        let client_roots = match &self.client_ca {
            None => None,
            Some(path) => {
                let what = format!("CA certificate {}", path.display());
                Some(Roots::default().add_pem(&what, &read(path)?)?)
            }
        };
        Ok(ServerMaterial {
            identity,
            client_roots,
        })
    }

    /// Reads the certificate and its key. Each is looked at alone first, so that an error names the
    /// one that is bad.
    fn read_identity(&self) -> Result<Identity, TlsError> {
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        let [of_certificate, of_key] = [&self.certificate, &self.key].map(|path| path.display());
        pem::certificates(&format!("certificate {of_certificate}"), &certificate)?;
        pem::private_key(&format!("private key {of_key}"), &key)?;
        let both = format!("certificate {of_certificate} with the key {of_key}");
        Identity::from_pem(&both, &certificate, &key)
    }
}

/// The content of the files. Two are equal if connections with them are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerMaterial {
    identity: Identity,
    client_roots: Option<Roots>,
}

impl ServerMaterial {
    fn config(&self) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?;
        let builder = match &self.client_roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.store()?, provider());
                let verifier = verifier.build().map_err(TlsError::ClientVerifier)?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = SingleCertAndKey::from(Arc::clone(self.identity.certified_key()));
        let mut config = builder.with_cert_resolver(Arc::new(key));
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        if self.client_roots.is_some() {
            // A resumed session would skip the check of the client's certificate.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }
}

/// The settings of a server from files: their present content or, if that is broken, the last
/// content that was valid.
///
/// ```no_run
/// use crowfly_tls::{ServerFiles, ServerSource, accept};
///
/// # async fn example(socket: tokio::net::TcpStream) -> Result<(), Box<dyn std::error::Error>> {
/// let source = ServerSource::start(ServerFiles::new("server.pem", "server.key")).await?;
/// let stream = accept(source.current(), socket).await?;
/// # let _ = stream;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServerSource {
    state: Arc<State>,
    refresher: JoinHandle<()>,
}

impl ServerSource {
    /// Reads the files, and again at their interval.
    ///
    /// # Errors
    /// If a file is missing or bad, or if the key does not belong to the certificate.
    pub async fn start(files: ServerFiles) -> Result<Self, TlsError> {
        let interval = files.refresh_interval;
        let reader = files.clone();
        let material = spawn_blocking(move || reader.read()).await;
        let material = material.unwrap_or(Err(TlsError::Aborted))?;
        let state = Arc::new(State {
            files,
            config: watch::Sender::new(Arc::new(material.config()?)),
            last: Mutex::new(Last {
                material,
                problem: None,
            }),
        });
        let refresher = tokio::spawn(refresh(Arc::clone(&state), interval));
        Ok(Self { state, refresher })
    }

    /// The settings for a new connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.state.config.borrow().clone()
    }

    /// Reads the files now.
    pub async fn read_again(&self) {
        self.state.read_again().await;
    }
}

impl Drop for ServerSource {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

async fn refresh(state: Arc<State>, interval: Duration) {
    loop {
        sleep(interval).await;
        state.read_again().await;
    }
}

#[derive(Debug)]
struct State {
    files: ServerFiles,
    config: watch::Sender<Arc<ServerConfig>>,
    /// Locked while files are read, so that an older reading cannot overwrite a newer one.
    last: Mutex<Last>,
}

/// The last reading.
#[derive(Debug)]
struct Last {
    /// The last content that was valid.
    material: ServerMaterial,
    /// The problem of the present content, which is logged once.
    problem: Option<String>,
}

impl State {
    async fn read_again(&self) {
        let mut last = self.last.lock().await;
        let files = self.files.clone();
        let made = spawn_blocking(move || {
            let material = files.read()?;
            let config = material.config()?;
            Ok((material, config))
        });
        match made.await.unwrap_or(Err(TlsError::Aborted)) {
            Ok((material, config)) => {
                let was_broken = last.problem.take().is_some();
                if material != last.material {
                    last.material = material;
                    self.config.send_replace(Arc::new(config));
                    info!("certificates on disk have changed: new connections use the new ones");
                } else if was_broken {
                    info!("the certificates on disk can be used again");
                }
            }
            Err(error) => {
                let problem = Some(error.to_string());
                if problem != last.problem {
                    warn!(%error, "cannot use the certificates: the ones read before stay in use");
                    last.problem = problem;
                }
            }
        }
    }
}

/// Makes a TLS connection with a client that connected over `socket`.
///
/// A client that names protocols by ALPN must name HTTP/2. A client that names none is taken to
/// speak HTTP/2, because Envoys name none unless told to.
///
/// # Errors
/// If the handshake fails; the text is for the operator of the server.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    config: Arc<ServerConfig>,
    socket: S,
) -> io::Result<TlsStream<S>> {
    let accepted = TlsAcceptor::from(config).accept(socket).await;
    accepted.map_err(|error| io::Error::new(error.kind(), client_reason(&error)))
}

/// The subject alternative names in the certificate that the client presented; none without one.
pub fn client_names<S>(stream: &TlsStream<S>) -> Vec<String> {
    let certificates = stream.get_ref().1.peer_certificates();
    let first = certificates.and_then(|certificates| certificates.first());
    first
        .and_then(|certificate| sans_of(certificate))
        .unwrap_or_default()
}
