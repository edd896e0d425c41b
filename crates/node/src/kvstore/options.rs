//! The settings of a ClusterMesh as a source.
//!
//! The settings are checked before the source connects, because a mistake is then an error at the start of the
//! agent.

use std::time::Duration;

use crowfly_source::etcd::{Credentials, EtcdError, EtcdOptions, Heartbeat};
use crowfly_tls::CertificateFiles;
use thiserror::Error;

use super::keys::{HEARTBEAT, check_cluster_name};
use super::mesh::Layout;

/// The longest time without a heartbeat, unless another one is set. It is Cilium's.
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(120);

/// The etcd of a ClusterMesh, and which of its clusters and addresses are used.
///
/// ```
/// use crowfly_node::kvstore::KvstoreOptions;
///
/// let options = KvstoreOptions {
///     clusters: Some(vec!["east".to_owned(), "west".to_owned()]),
///     ..KvstoreOptions::new(["https://clustermesh.example:2379"])
/// };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct KvstoreOptions {
    /// The members of the etcd, as `http://host:port`, `https://host:port` or `host:port`.
    pub endpoints: Vec<String>,
    /// The files of TLS: CA, and the certificate and key to present. They are read again when they change.
    pub tls: Option<CertificateFiles>,
    /// The name that the members' certificate must have, instead of the host in the endpoint.
    pub server_name: Option<String>,
    /// The user of etcd's own authentication. The password is not shown by `Debug`.
    pub credentials: Option<Credentials>,
    /// The clusters that are read. Without a list, all that have a configuration in the etcd.
    pub clusters: Option<Vec<String>>,
    /// The name of the agent's own cluster, which is not read, because its services come from Kubernetes.
    pub own_cluster: Option<String>,
    /// True if the virtual addresses that services have in other clusters are ClusterIPs on this node
    /// too. Cilium ignores them; here the etcd is a source of its own (CFP-30235). Without them, only
    /// global services of other sources get the backends.
    pub frontends: bool,
    /// The longest time without an update of `cilium/.heartbeat`. After it another member is asked.
    /// `None` expects no heartbeat.
    pub heartbeat: Option<Duration>,
}

impl KvstoreOptions {
    /// All clusters of this etcd, with their virtual addresses, and Cilium's heartbeat.
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            server_name: None,
            credentials: None,
            clusters: None,
            own_cluster: None,
            frontends: true,
            heartbeat: Some(DEFAULT_HEARTBEAT),
        }
    }

    /// Tells whether the settings can work.
    ///
    /// # Errors
    /// The first setting that cannot.
    pub fn validate(&self) -> Result<(), KvstoreError> {
        self.etcd().validate()?;
        let wrong = |setting, reason| KvstoreError::Cluster { setting, reason };
        for name in self.clusters.iter().flatten() {
            check_cluster_name(name).map_err(|reason| wrong("clusters", reason))?;
        }
        if self.clusters.as_ref().is_some_and(Vec::is_empty) {
            let reason = "expected a name, or no list at all to read all clusters";
            return Err(wrong("clusters", reason.to_owned()));
        }
        if let Some(name) = &self.own_cluster {
            check_cluster_name(name).map_err(|reason| wrong("own cluster", reason))?;
        }
        Ok(())
    }

    pub(super) fn etcd(&self) -> EtcdOptions {
        let heartbeat = self.heartbeat.map(|patience| Heartbeat {
            key: HEARTBEAT.into(),
            patience,
        });
        EtcdOptions {
            tls: self.tls.clone(),
            server_name: self.server_name.clone(),
            credentials: self.credentials.clone(),
            heartbeat,
            ..EtcdOptions::new(self.endpoints.iter().cloned())
        }
    }

    pub(super) fn layout(&self) -> Layout {
        Layout {
            clusters: self.clusters.clone(),
            own_cluster: self.own_cluster.clone(),
            frontends: self.frontends,
        }
    }
}

/// Settings that cannot work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KvstoreError {
    /// A name that no cluster has.
    #[error("{setting}: {reason}")]
    Cluster {
        /// The setting.
        setting: &'static str,
        /// The mistake.
        reason: String,
    },
    /// A setting of the connection to the etcd.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}
