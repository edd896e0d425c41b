//! TLS whose certificates may change on disk (gRFC A65).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crowfly_model::bootstrap::{IdentityFiles, TlsFiles};
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tracing::warn;

use super::connector::ALPN_H2;
use super::roots;

/// Reading more often than this is of no use to anybody.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// TLS settings as the files have them.
#[derive(Debug)]
pub(super) struct TlsSource {
    files: Arc<Files>,
    refresher: Option<JoinHandle<()>>,
}

impl TlsSource {
    pub(super) fn start(files: TlsFiles) -> Arc<Self> {
        let interval = files.refresh_interval.max(MIN_REFRESH_INTERVAL);
        let has_files = files.ca_certificate.is_some() || files.identity.is_some();
        let files = Arc::new(Files {
            paths: files,
            last_good: Mutex::new(None),
        });
        let refresher = has_files.then(|| tokio::spawn(refresh(files.clone(), interval)));
        Arc::new(Self { files, refresher })
    }

    /// The settings for a connection made now.
    ///
    /// Connections are few, so each is worth a look at the files: whoever has just replaced a CA
    /// need not wait for the refresh interval.
    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, Arc<TlsError>> {
        self.files.read().await
    }
}

impl Drop for TlsSource {
    fn drop(&mut self) {
        if let Some(refresher) = &self.refresher {
            refresher.abort();
        }
    }
}

/// Reads now and then, so that there is something good to go on with should the files be in a bad
/// state when a connection is made, and so that the bad state is told before that.
async fn refresh(files: Arc<Files>, interval: Duration) {
    loop {
        sleep(interval).await;
        // What is wrong has been logged.
        let _ = files.read().await;
    }
}

#[derive(Debug)]
struct Files {
    paths: TlsFiles,
    last_good: Mutex<Option<Arc<ClientConfig>>>,
}

impl Files {
    /// What the files hold, or held when they were last in order.
    async fn read(self: &Arc<Self>) -> Result<Arc<ClientConfig>, Arc<TlsError>> {
        let this = self.clone();
        let read = spawn_blocking(move || load(&this.paths)).await;
        let error = match read.unwrap_or_else(|_| Err(TlsError::Aborted)) {
            Ok(config) => {
                let config = Arc::new(config);
                *self.last_good() = Some(config.clone());
                return Ok(config);
            }
            Err(error) => error,
        };
        let last_good = self.last_good().clone();
        let still = match last_good {
            Some(_) => "the certificates read before are used on",
            None => "there are none to use instead",
        };
        warn!(%error, "cannot read certificates for xDS servers: {still}");
        last_good.ok_or_else(|| Arc::new(error))
    }

    fn last_good(&self) -> std::sync::MutexGuard<'_, Option<Arc<ClientConfig>>> {
        self.last_good
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files that TLS cannot be set up from.
#[derive(Debug, Error)]
pub(super) enum TlsError {
    #[error("reading the certificates was aborted")]
    Aborted,
    #[error("CA certificate {}: {source}", path.display())]
    Ca {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("client certificate {}: {source}", path.display())]
    Identity {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("{}: {source}", path.display())]
    Pem { path: PathBuf, source: PemError },
    #[error("no system roots: {0}")]
    SystemRoots(String),
    #[error("TLS settings: {0}")]
    Versions(rustls::Error),
}

fn load(paths: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let roots = match &paths.ca_certificate {
        Some(path) => Arc::new(read_roots(path)?),
        None => roots::system().map_err(TlsError::SystemRoots)?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Versions)?
        .with_root_certificates(roots);
    let mut config = match &paths.identity {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = read_identity(files)?;
            // Fails if only one of the two files has been replaced yet.
            let with_identity = builder.with_client_auth_cert(chain, key);
            with_identity.map_err(|source| TlsError::Identity {
                path: files.certificate.clone(),
                source,
            })?
        }
    };
    config.alpn_protocols = vec![ALPN_H2.to_vec()];
    Ok(config)
}

fn read_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|source| TlsError::Ca {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(roots)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_identity(files: &IdentityFiles) -> Result<Identity, TlsError> {
    let chain = read_certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.private_key);
    let key = key.map_err(|source| TlsError::Pem {
        path: files.private_key.clone(),
        source,
    })?;
    Ok((chain, key))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem {
        path: path.to_owned(),
        source,
    };
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(pem)?
        .collect::<Result<_, _>>()
        .map_err(pem)?;
    if found.is_empty() {
        return Err(pem(PemError::NoItemsFound));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
