//! Bootstraps made in code.
//!
//! The builder is for programs and tests that have no file. The builder checks by the rules of the JSON form, so that a
//! bootstrap from code is as valid as one from a file.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::Struct;

use super::{
    AuthorityBuilder, AuthorityConfig, Bootstrap, BootstrapError, CertificateProvider,
    DEFAULT_TEMPLATE, Node, Origin, ServerBuilder, ServerConfig, TlsFiles,
    authority::check_template, node,
};
use crate::{
    Validator,
    grpc::endpoints::{LocalityId, locality_proto},
};

/// Makes a [`Bootstrap`] without a file or an environment variable.
#[derive(Clone, Debug)]
#[must_use]
pub struct BootstrapBuilder {
    servers: Vec<ServerConfig>,
    authorities: BTreeMap<String, AuthorityConfig>,
    listener_template: String,
    certificate_providers: BTreeMap<String, CertificateProvider>,
    node: Node,
}

impl BootstrapBuilder {
    pub(super) fn new(server: ServerBuilder) -> Result<Self, BootstrapError> {
        let builder = Self {
            servers: Vec::new(),
            authorities: BTreeMap::new(),
            listener_template: DEFAULT_TEMPLATE.to_owned(),
            certificate_providers: BTreeMap::new(),
            node: Node::default(),
        };
        builder.server(server)
    }

    /// Adds a server. The server is asked if the servers before it cannot be reached.
    pub fn server(mut self, server: impl Into<ServerBuilder>) -> Result<Self, BootstrapError> {
        let server = server.into();
        let server = validate(|v| {
            v.field("xds_servers", |v| {
                v.index(self.servers.len(), |v| server.build(v))
            })
        })?;
        self.servers.extend(server);
        Ok(self)
    }

    /// Adds an authority. The authority's servers are asked for the new-style names that contain its name (gRFC A47).
    ///
    /// ```
    /// # use crowfly_model::bootstrap::{AuthorityConfig, Bootstrap};
    /// let bootstrap = Bootstrap::builder("control:18000")?
    ///     .authority("traffic.example", AuthorityConfig::builder().server("other:18000"))?
    ///     .build();
    /// assert_eq!(
    ///     bootstrap.listener_name(Some("traffic.example"), "payments")?,
    ///     "xdstp://traffic.example/envoy.config.listener.v3.Listener/payments"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn authority(
        mut self,
        name: impl Into<String>,
        authority: AuthorityBuilder,
    ) -> Result<Self, BootstrapError> {
        let name = name.into();
        let authority = validate(|v| {
            v.field(&format!("authorities[{name:?}]"), |v| {
                authority.build(&name, v)
            })
        })?;
        self.authorities.insert(name, authority);
        Ok(self)
    }

    /// Sets the template that makes a listener's name from a target without an authority; `%s` is replaced by the
    /// service. An empty template means `%s`.
    pub fn listener_template(
        mut self,
        template: impl Into<String>,
    ) -> Result<Self, BootstrapError> {
        self.listener_template = template.into();
        if self.listener_template.is_empty() {
            DEFAULT_TEMPLATE.clone_into(&mut self.listener_template);
        }
        validate(|v| {
            v.field("client_default_listener_resource_name_template", |v| {
                check_template(&self.listener_template, v);
            });
        })?;
        Ok(self)
    }

    /// Adds a certificate provider, which clusters may name. It gives certificates from these files, and reads them
    /// again while the client runs (gRFC A29's `file_watcher`).
    ///
    /// ```
    /// # use crowfly_model::bootstrap::{Bootstrap, TlsFiles};
    /// let files = TlsFiles::default()
    ///     .ca_certificate("/etc/mesh/ca.pem")
    ///     .identity("/etc/mesh/web.pem", "/etc/mesh/web.key");
    /// let bootstrap = Bootstrap::builder("control:18000")?.certificate_provider("mesh", files).build();
    /// assert!(bootstrap.certificate_providers.contains_key("mesh"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn certificate_provider(mut self, name: impl Into<String>, files: TlsFiles) -> Self {
        let provider = CertificateProvider::FileWatcher(files);
        self.certificate_providers.insert(name.into(), provider);
        self
    }

    /// Sets the node's id, by which operators tell clients apart.
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.node.id = id.into();
        self
    }

    /// Sets the node's cluster: the service that the client is part of.
    pub fn cluster(mut self, cluster: impl Into<String>) -> Self {
        self.node.cluster = cluster.into();
        self
    }

    /// Sets the locality that the client runs in.
    pub fn locality(mut self, locality: &LocalityId) -> Self {
        self.node.locality = Some(locality_proto(locality));
        self
    }

    /// Sets the node's metadata: other facts about the client for the control plane.
    pub fn metadata(mut self, metadata: Struct) -> Self {
        self.node.metadata = Some(metadata);
        self
    }

    /// The bootstrap.
    pub fn build(self) -> Bootstrap {
        Bootstrap {
            servers: self.servers,
            authorities: self.authorities,
            listener_template: self.listener_template,
            certificate_providers: self.certificate_providers,
            node: node::introduce(self.node).into(),
        }
    }
}

fn validate<T>(build: impl FnOnce(&mut Validator) -> T) -> Result<T, BootstrapError> {
    let mut v = Validator::default();
    let built = build(&mut v);
    v.finish(built).map_err(|errors| BootstrapError::Invalid {
        origin: Origin::Code,
        errors,
    })
}
