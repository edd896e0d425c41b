//! The section `xds`: an xDS server as a source of services. The server is given either by its
//! address and settings, or by a bootstrap file of gRPC that has all of them.

use std::{fs, path::PathBuf};

use clap::Args;
use crowfly_model::bootstrap::{Bootstrap, ServerConfig, ServerFeature, TlsFiles};
use crowfly_names::LocalityId;
use crowfly_node::{
    cidr::Cidr,
    model::Place,
    xds::{METADATA_NAMESPACE, Mapping, Pods, XdsOptions, XdsSource},
};
use serde::Deserialize;

use super::{super::NodeError, value::pair};

/// An xDS server with services.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[command(next_help_heading = "The source xds")]
#[serde(default, deny_unknown_fields)]
pub struct XdsSettings {
    /// The xDS server, as HOST:PORT; this switches the source on
    #[arg(
        id = "xds-server",
        long = "xds-server",
        value_name = "HOST:PORT",
        env = "CROWFLY_NODE_XDS_SERVER"
    )]
    pub server: Option<String>,

    /// A bootstrap file of gRPC with the servers and the node, instead of --xds-server
    #[arg(
        id = "xds-bootstrap",
        long = "xds-bootstrap",
        value_name = "FILE",
        env = "CROWFLY_NODE_XDS_BOOTSTRAP"
    )]
    pub bootstrap: Option<PathBuf>,

    /// The id of the node, as servers see it [default: the name of the node, or of the machine]
    #[arg(
        id = "xds-node-id",
        long = "xds-node-id",
        value_name = "ID",
        env = "CROWFLY_NODE_XDS_NODE_ID"
    )]
    pub node_id: Option<String>,

    /// Speaks TLS: `true` trusts the CAs of the system unless --xds-ca is given [default: false]
    #[arg(
        id = "xds-tls", long = "xds-tls",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "CROWFLY_NODE_XDS_TLS"
    )]
    pub tls: Option<bool>,

    /// A file with the certificates that sign the server's
    #[arg(
        id = "xds-ca",
        long = "xds-ca",
        value_name = "FILE",
        env = "CROWFLY_NODE_XDS_CA"
    )]
    pub ca: Option<PathBuf>,

    /// A file with the certificate to present
    #[arg(
        id = "xds-cert",
        long = "xds-cert",
        value_name = "FILE",
        env = "CROWFLY_NODE_XDS_CERT"
    )]
    pub cert: Option<PathBuf>,

    /// The file with its key
    #[arg(
        id = "xds-key",
        long = "xds-key",
        value_name = "FILE",
        env = "CROWFLY_NODE_XDS_KEY"
    )]
    pub key: Option<PathBuf>,

    /// Speaks the incremental protocol [default: false, the state of the world]
    #[arg(
        id = "xds-delta", long = "xds-delta",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "CROWFLY_NODE_XDS_DELTA"
    )]
    pub delta: Option<bool>,

    /// The namespace of the metadata that says names, ports and protocols
    /// [default: io.cilium.service]
    #[arg(
        id = "xds-metadata-namespace",
        long = "xds-metadata-namespace",
        value_name = "NAME",
        env = "CROWFLY_NODE_XDS_METADATA_NAMESPACE"
    )]
    pub metadata_namespace: Option<String>,
}

impl XdsSettings {
    /// Fills each setting that is absent here with that of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            server: self.server.or(other.server),
            bootstrap: self.bootstrap.or(other.bootstrap),
            node_id: self.node_id.or(other.node_id),
            tls: self.tls.or(other.tls),
            ca: self.ca.or(other.ca),
            cert: self.cert.or(other.cert),
            key: self.key.or(other.key),
            delta: self.delta.or(other.delta),
            metadata_namespace: self.metadata_namespace.or(other.metadata_namespace),
        }
    }

    /// True if the source is wanted.
    pub(in super::super) fn is_on(&self) -> bool {
        *self != Self::default()
    }

    /// The source, if one is wanted.
    pub(in super::super) fn source(
        self,
        place: &Place,
        pod_cidrs: &[Cidr],
    ) -> Result<Option<XdsSource>, NodeError> {
        if !self.is_on() {
            return Ok(None);
        }
        let wrong = |message: String| NodeError::Setting("xds", message);
        let namespace = self.metadata_namespace.as_deref();
        let mapping = Mapping::in_namespace(namespace.unwrap_or(METADATA_NAMESPACE));
        let pods = Pods {
            node: place.node.clone(),
            cidrs: pod_cidrs.to_vec(),
        };
        let bootstrap = self.into_bootstrap(place).map_err(wrong)?;
        let source = XdsSource::new(XdsOptions::new(bootstrap).mapping(mapping).pods(pods));
        source.map(Some).map_err(|error| wrong(error.to_string()))
    }

    fn into_bootstrap(self, place: &Place) -> Result<Bootstrap, String> {
        let server = match (self.server, self.bootstrap) {
            (Some(server), None) => server,
            (None, Some(file)) => {
                let others = (&self.node_id, &self.tls, &self.ca, &self.cert, &self.key);
                if others != (&None, &None, &None, &None, &None) || self.delta.is_some() {
                    return Err(
                        "the bootstrap says the node, TLS and delta; expected them there alone"
                            .to_owned(),
                    );
                }
                let bootstrap = Bootstrap::from_file(&file);
                return bootstrap
                    .map_err(|error| format!("bootstrap: {}: {error}", file.display()));
            }
            (None, None) => return Err("expected `server` or `bootstrap`".to_owned()),
            (Some(_), Some(_)) => {
                return Err("expected `server` or `bootstrap`, got both".to_owned());
            }
        };
        let mut server = ServerConfig::builder(server);
        let identity = pair(self.cert, self.key, "cert", "key")?;
        if self
            .tls
            .unwrap_or_else(|| self.ca.is_some() || identity.is_some())
        {
            let mut files = TlsFiles::default();
            if let Some(ca) = self.ca {
                files = files.ca_certificate(ca);
            }
            if let Some((cert, key)) = identity {
                files = files.identity(cert, key);
            }
            server = server.tls(files);
        } else if self.ca.is_some() || identity.is_some() {
            return Err("tls: it is false, and certificates are given".to_owned());
        }
        if self.delta == Some(true) {
            server = server.feature(ServerFeature::Delta);
        }
        let id = self.node_id.unwrap_or_else(|| node_id(place));
        let zone = place.zone.as_deref().unwrap_or_default();
        let bootstrap = Bootstrap::builder(server).map_err(|error| error.to_string())?;
        Ok(bootstrap
            .node_id(id)
            .locality(&LocalityId::new("", zone, ""))
            .build())
    }
}

/// The name of the node, or of the machine.
fn node_id(place: &Place) -> String {
    let machine = || {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        Some(name.trim().to_owned())
    };
    let node = place.node.as_deref().map(str::to_owned);
    node.or_else(machine)
        .unwrap_or_else(|| "crowfly-node".to_owned())
}
