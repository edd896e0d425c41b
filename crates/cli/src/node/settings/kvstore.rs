//! The section `kvstore`: an etcd with the services of other clusters, as Cilium ClusterMesh writes them. It is off
//! unless one of its settings is given, because an agent needs no etcd.

use std::path::PathBuf;

use clap::Args;
use crowfly_node::kvstore::{KvstoreOptions, KvstoreSource};
use crowfly_source::etcd::{Credentials, Password};
use crowfly_tls::{CertificateFiles, RootSource};
use serde::Deserialize;

use super::{
    super::NodeError,
    value::{Limit, pair},
};

/// An etcd with services of other clusters, as Cilium ClusterMesh writes them.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[command(next_help_heading = "The source kvstore (the etcd of a ClusterMesh)")]
#[serde(default, deny_unknown_fields)]
pub struct KvstoreSettings {
    /// The members of the etcd, as https://HOST:PORT or http://HOST:PORT; this switches the source on
    #[arg(
        id = "kvstore-endpoints",
        long = "kvstore-endpoints",
        value_name = "URL,...",
        value_delimiter = ',',
        env = "CROWFLY_NODE_KVSTORE_ENDPOINTS"
    )]
    pub endpoints: Option<Vec<String>>,

    /// A file with the certificates that sign the members' [default: those of the system]
    #[arg(
        id = "kvstore-ca",
        long = "kvstore-ca",
        value_name = "FILE",
        env = "CROWFLY_NODE_KVSTORE_CA"
    )]
    pub ca: Option<PathBuf>,

    /// A file with the certificate to present
    #[arg(
        id = "kvstore-cert",
        long = "kvstore-cert",
        value_name = "FILE",
        env = "CROWFLY_NODE_KVSTORE_CERT"
    )]
    pub cert: Option<PathBuf>,

    /// The file with its key
    #[arg(
        id = "kvstore-key",
        long = "kvstore-key",
        value_name = "FILE",
        env = "CROWFLY_NODE_KVSTORE_KEY"
    )]
    pub key: Option<PathBuf>,

    /// The name in the members' certificate [default: the host of the endpoint]
    #[arg(
        id = "kvstore-server-name",
        long = "kvstore-server-name",
        value_name = "NAME",
        env = "CROWFLY_NODE_KVSTORE_SERVER_NAME"
    )]
    pub server_name: Option<String>,

    /// The user of etcd's own authentication
    #[arg(
        id = "kvstore-user",
        long = "kvstore-user",
        value_name = "NAME",
        env = "CROWFLY_NODE_KVSTORE_USER"
    )]
    pub user: Option<String>,

    /// A file with the password of the user
    #[arg(
        id = "kvstore-password-file",
        long = "kvstore-password-file",
        value_name = "FILE",
        env = "CROWFLY_NODE_KVSTORE_PASSWORD_FILE"
    )]
    pub password_file: Option<PathBuf>,

    /// The clusters to read [default: all]
    #[arg(
        id = "kvstore-clusters",
        long = "kvstore-clusters",
        value_name = "NAME,...",
        value_delimiter = ',',
        env = "CROWFLY_NODE_KVSTORE_CLUSTERS"
    )]
    pub clusters: Option<Vec<String>>,

    /// The agent's own cluster, which is not read
    #[arg(
        id = "kvstore-own-cluster",
        long = "kvstore-own-cluster",
        value_name = "NAME",
        env = "CROWFLY_NODE_KVSTORE_OWN_CLUSTER"
    )]
    pub own_cluster: Option<String>,

    /// Routes the ClusterIPs of other clusters too; `false` adds backends to global services alone
    /// [default: true]
    #[arg(
        id = "kvstore-frontends", long = "kvstore-frontends",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "CROWFLY_NODE_KVSTORE_FRONTENDS"
    )]
    pub frontends: Option<bool>,

    /// The longest time without a heartbeat, then another member is asked; `off` expects none
    /// [default: 2m]
    #[arg(
        id = "kvstore-heartbeat",
        long = "kvstore-heartbeat",
        value_name = "DURATION",
        env = "CROWFLY_NODE_KVSTORE_HEARTBEAT"
    )]
    pub heartbeat: Option<Limit>,
}

impl KvstoreSettings {
    /// Fills each setting that is absent here with that of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            endpoints: self.endpoints.or(other.endpoints),
            ca: self.ca.or(other.ca),
            cert: self.cert.or(other.cert),
            key: self.key.or(other.key),
            server_name: self.server_name.or(other.server_name),
            user: self.user.or(other.user),
            password_file: self.password_file.or(other.password_file),
            clusters: self.clusters.or(other.clusters),
            own_cluster: self.own_cluster.or(other.own_cluster),
            frontends: self.frontends.or(other.frontends),
            heartbeat: self.heartbeat.or(other.heartbeat),
        }
    }

    /// The source, if one is wanted.
    pub(in super::super) fn source(self) -> Result<Option<KvstoreSource>, NodeError> {
        if self == Self::default() {
            return Ok(None);
        }
        let wrong = |message: String| NodeError::Setting("kvstore", message);
        let identity = pair(self.cert, self.key, "cert", "key").map_err(wrong)?;
        let credentials = pair(self.user, self.password_file, "user", "password_file");
        let credentials = credentials.map_err(wrong)?.map(|(user, file)| Credentials {
            user,
            password: Password::File(file),
        });
        let tls = (self.ca.is_some() || identity.is_some()).then(|| CertificateFiles {
            identity,
            ..CertificateFiles::new(self.ca.map_or(RootSource::System, RootSource::File))
        });
        let mut options = KvstoreOptions::new(self.endpoints.unwrap_or_default());
        options.tls = tls;
        options.server_name = self.server_name;
        options.credentials = credentials;
        options.clusters = self.clusters;
        options.own_cluster = self.own_cluster;
        options.frontends = self.frontends.unwrap_or(options.frontends);
        if let Some(heartbeat) = self.heartbeat {
            options.heartbeat = heartbeat.0;
        }
        let source = KvstoreSource::new(options);
        source.map(Some).map_err(|error| wrong(error.to_string()))
    }
}
