//! Certificates that change on disk while connections use them (gRFC A65, A29's `file_watcher`).
//!
//! A rotation of certificates replaces files, and must need no restart and break no connection. So files are
//! read again at an interval and for each new connection. Open connections keep the old certificates.
//!
//! A rotation is not atomic, so files may be broken or not belong together for a while. Broken files are logged, and
//! the last files that were valid stay in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::{Identity, Material, Roots, TlsError};

/// The least refresh interval. A shorter one would only cost time, because a new connection reads the files
/// anyway.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// PEM files that TLS settings come from.
///
/// ```
/// use crowfly_tls::{CertificateFiles, RootSource};
///
/// let files = CertificateFiles::new(RootSource::File("ca.pem".into()))
///     .identity("client.pem", "client.key");
/// assert_eq!(files.refresh_interval.as_secs(), 600);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// The source of the CAs to trust.
    pub roots: RootSource,
    /// The files of the certificate to present, and of its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The time between two readings.
    pub refresh_interval: Duration,
}

/// The source of the CAs to trust.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RootSource {
    /// A PEM file.
    File(PathBuf),
    /// The system's roots.
    System,
}

impl CertificateFiles {
    /// Trusts `roots`, presents no certificate, and reads again at gRFC A65's interval of ten minutes.
    pub fn new(roots: RootSource) -> Self {
        Self {
            roots,
            identity: None,
            refresh_interval: Duration::from_secs(600),
        }
    }

    /// Presents the certificate in one file, whose key is in the other.
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Reads the files at this interval.
    pub fn refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = interval;
        self
    }

    /// Reads all files now.
    fn read(&self) -> Result<Material, TlsError> {
        let roots = match &self.roots {
            RootSource::File(path) => {
                let what = format!("CA certificate {}", path.display());
                Roots::default().add_pem(&what, &read(path)?)?
            }
            RootSource::System => Roots::system()?,
        };
        let material = Material::new(roots);
        let Some((certificate, key)) = &self.identity else {
            return Ok(material);
        };
        let what = format!("certificate {}", certificate.display());
        let identity = Identity::from_pem(&what, &read(certificate)?, &read(key)?)?;
        Ok(material.with_identity(identity))
    }

    /// False if there are no files to read again. The system's roots alone are read once.
    fn can_change(&self) -> bool {
        self.roots != RootSource::System || self.identity.is_some()
    }
}

/// The certificates from files: their present content or, if that is broken, the last content that was valid.
///
/// ```no_run
/// use crowfly_tls::{CertificateFiles, FileSource, RootSource, ServerCheck};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let source = FileSource::start(CertificateFiles::new(RootSource::File("ca.pem".into())));
/// let config = source.current().await?.client_config(&ServerCheck::HostName)?;
/// # let _ = config;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileSource {
    state: Arc<State>,
    refresher: Option<JoinHandle<()>>,
}

impl FileSource {
    /// Begins to read the files at their interval. The first reading is left to [`Self::current`]. Must be
    /// called in a tokio runtime.
    pub fn start(files: CertificateFiles) -> Self {
        let interval = files.refresh_interval.max(MIN_REFRESH_INTERVAL);
        let can_change = files.can_change();
        let state = Arc::new(State {
            files,
            last_good: Mutex::new(None),
        });
        let refresher = can_change.then(|| tokio::spawn(refresh(Arc::clone(&state), interval)));
        Self { state, refresher }
    }

    /// The material for a new connection. The result is the same object while the files do not change. An error means
    /// that the files were never valid.
    ///
    /// Each call reads the files, because connections are few. A CA that was replaced should be in use before the
    /// interval ends.
    pub async fn current(&self) -> Result<Arc<Material>, TlsError> {
        self.state.read().await
    }
}

impl Drop for FileSource {
    fn drop(&mut self) {
        if let Some(refresher) = &self.refresher {
            refresher.abort();
        }
    }
}

/// Reads the files at the interval for two reasons. First, the last valid material is recent if the files are broken
/// when a connection is made. Second, broken files are logged before a connection needs them.
async fn refresh(state: Arc<State>, interval: Duration) {
    loop {
        sleep(interval).await;
        // The reading has logged its error.
        let _ = state.read().await;
    }
}

#[derive(Debug)]
struct State {
    files: CertificateFiles,
    /// Locked while files are read, so that an older reading cannot overwrite a newer one.
    last_good: Mutex<Option<Arc<Material>>>,
}

impl State {
    async fn read(self: &Arc<Self>) -> Result<Arc<Material>, TlsError> {
        let mut last_good = self.last_good.lock().await;
        let this = Arc::clone(self);
        let read = spawn_blocking(move || this.files.read()).await;
        match (read.unwrap_or(Err(TlsError::Aborted)), &*last_good) {
            (Ok(material), Some(last)) if material == **last => Ok(Arc::clone(last)),
            (Ok(material), last) => {
                if last.is_some() {
                    info!("certificates on disk have changed: new connections use the new ones");
                }
                Ok(Arc::clone(last_good.insert(Arc::new(material))))
            }
            (Err(error), Some(last)) => {
                warn!(%error, "cannot read certificates: the ones read before stay in use");
                Ok(Arc::clone(last))
            }
            (Err(error), None) => {
                warn!(%error, "cannot read certificates, and none were read before");
                Err(error)
            }
        }
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
