//! The parts of xDS that not every gRPC client supports.
//!
//! The features are an argument of gRPC's parsers, because two clients of one process may differ in them.

use std::sync::Arc;

use crate::{
    bootstrap::{Node, ServerConfig, ServerFeature, is_switched_off, is_switched_on},
    grpc::{
        cluster::{CustomPolicies, ProviderNames},
        filter::CustomFilters,
    },
};

/// The experimental gRFCs that are on, and the policies and filters that the program adds to gRPC. By default
/// all gRFCs here are off, and nothing is added.
///
/// A parser takes the features as an argument and does not read the environment, because two clients of one process may
/// differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// gRFC A99: the children of an aggregate cluster may be a resource of their own.
    pub aggregate_cluster_resource: bool,
    /// gRFC A52: the balancing policies of the program, which clusters may name.
    pub custom_policies: CustomPolicies,
    /// gRFC A81: routes may make the host name of an endpoint the `:authority` of calls. The feature applies to servers
    /// that the bootstrap trusts.
    pub authority_rewriting: bool,
    /// gRFC A29: the certificate providers of the bootstrap, which clusters may name.
    pub certificate_providers: ProviderNames,
    /// gRFC A82: clusters may trust the system's roots.
    pub system_root_certs: bool,
    /// gRFC A101: clusters name the host that servers are asked for by SNI and must prove.
    pub sni: bool,
    /// gRFC A39: the HTTP filters of the program, which listeners and routes may configure.
    pub custom_filters: CustomFilters,
    /// gRFC A85: clusters name the metrics of backends that load reports propagate. If this is off, reports have all
    /// named metrics, as gRFC A64 says.
    pub orca_lrs_propagation: bool,
    /// The server that sends the resources, which load reports go back to (gRFC A27). `None` if it is not
    /// known.
    pub server: Option<Arc<ServerConfig>>,
}

impl Features {
    /// All gRFCs are on; no policy and no filter is added. A cluster may name any certificate provider, because
    /// the bootstrap of the client is not known.
    pub const ALL: Self = Self {
        aggregate_cluster_resource: true,
        custom_policies: CustomPolicies::NONE,
        authority_rewriting: true,
        certificate_providers: ProviderNames::ANY,
        system_root_certs: true,
        sni: true,
        custom_filters: CustomFilters::NONE,
        orca_lrs_propagation: true,
        server: None,
    };

    /// The client feature by which a node says that it reads the lists of aggregates as resources (gRFC A99). No gRFC
    /// defines such a feature, and clients that do not know such lists refuse the cluster.
    pub const AGGREGATE_CLUSTER_RESOURCE: &str = "crowfly.aggregate_cluster_resource";

    /// The node that a client with these features sends to its servers.
    ///
    /// ```
    /// # use crowfly_model::{Bootstrap, Features};
    /// let node = Bootstrap::builder("127.0.0.1:80")?.build().node;
    /// let announced = Features::ALL.announced_by(&node);
    /// assert!(announced.client_features.iter().any(|of| of == Features::AGGREGATE_CLUSTER_RESOURCE));
    /// assert_eq!(Features::default().announced_by(&node), node);
    /// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
    /// ```
    #[must_use]
    pub fn announced_by(&self, node: &Arc<Node>) -> Arc<Node> {
        if !self.aggregate_cluster_resource {
            return Arc::clone(node);
        }
        let mut node = Node::clone(node);
        let feature = Self::AGGREGATE_CLUSTER_RESOURCE.to_owned();
        node.client_features.push(feature);
        Arc::new(node)
    }

    /// The features that the environment variables of the gRFCs leave on. No policy, no filter and no certificate
    /// provider is added.
    pub fn from_env() -> Self {
        Self::read(is_switched_on, is_switched_off)
    }

    /// gRFC A82, A85 and A101 are on unless they are switched off, as in gRPC C-core. A99 is off unless it is
    /// switched on.
    fn read(is_on: impl Fn(&str) -> bool, is_off: impl Fn(&str) -> bool) -> Self {
        Self {
            aggregate_cluster_resource: is_on(AGGREGATE_CLUSTER_RESOURCE),
            custom_policies: CustomPolicies::NONE,
            authority_rewriting: is_on(AUTHORITY_REWRITE),
            certificate_providers: ProviderNames::default(),
            system_root_certs: !is_off(SYSTEM_ROOT_CERTS),
            sni: !is_off(SNI),
            custom_filters: CustomFilters::NONE,
            orca_lrs_propagation: !is_off(ORCA_LRS_PROPAGATION),
            server: None,
        }
    }

    /// The features for the resources of one server.
    ///
    /// ```
    /// # use crowfly_model::{Features, bootstrap::{Bootstrap, ServerConfig, ServerFeature}};
    /// let trusted = ServerConfig::builder("127.0.0.1:80").feature(ServerFeature::TrustedXdsServer);
    /// let bootstrap = Bootstrap::builder("127.0.0.1:81")?.server(trusted)?.build();
    /// let rewriting = bootstrap.servers.iter().map(|server| Features::ALL.for_server(server));
    /// let rewriting: Vec<bool> = rewriting.map(|features| features.authority_rewriting).collect();
    /// assert_eq!(rewriting, [false, true]);
    /// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
    /// ```
    #[must_use]
    pub fn for_server(&self, server: &ServerConfig) -> Self {
        let is_trusted = server.has_feature(ServerFeature::TrustedXdsServer);
        Self {
            authority_rewriting: self.authority_rewriting && is_trusted,
            server: Some(Arc::new(server.clone())),
            ..self.clone()
        }
    }
}

/// The environment variable that switches gRFC A99 on.
pub(crate) const AGGREGATE_CLUSTER_RESOURCE: &str =
    "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";

/// The environment variable that switches gRFC A81 on.
const AUTHORITY_REWRITE: &str = "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE";

/// The environment variable that switches gRFC A82 off.
pub(crate) const SYSTEM_ROOT_CERTS: &str = "GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS";

/// The environment variable that switches gRFC A85 off.
const ORCA_LRS_PROPAGATION: &str = "GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION";

/// The environment variable that switches gRFC A101 off.
pub(crate) const SNI: &str = "GRPC_EXPERIMENTAL_XDS_SNI";

#[cfg(test)]
mod tests {
    use super::*;

    /// gRFC A81 is off unless its own variable switches it on.
    #[test]
    fn variable_allows_authority_rewriting() {
        let named = |variable: &str| variable == "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE";

        let read = |is_on: &dyn Fn(&str) -> bool| Features::read(is_on, |_| false);
        assert!(read(&named).authority_rewriting);
        assert!(!read(&|variable| !named(variable)).authority_rewriting);
    }

    /// S4-29: gRFC A99 is off unless its own variable switches it on.
    #[test]
    fn variable_opens_the_gate() {
        let named = |variable: &str| variable == "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";

        let read = |is_on: &dyn Fn(&str) -> bool| Features::read(is_on, |_| false);
        assert!(read(&named).aggregate_cluster_resource);
        assert!(!read(&|variable| !named(variable)).aggregate_cluster_resource);
        let all = Features {
            certificate_providers: ProviderNames::default(),
            ..Features::ALL
        };
        assert_eq!(read(&|_| true), all);
        assert_eq!(Features::read(|_| false, |_| true), Features::default());
    }

    /// gRFC A82, A85, A101: each is on unless its own variable switches it off.
    #[test]
    fn variables_close_gates() {
        let without = |name: &str| Features::read(|_| false, |variable| variable == name);

        let no_roots = without("GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS");
        assert!(!no_roots.system_root_certs && no_roots.sni);
        let no_sni = without("GRPC_EXPERIMENTAL_XDS_SNI");
        assert!(no_sni.system_root_certs && !no_sni.sni);
        let no_propagation = without("GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION");
        assert!(no_propagation.sni && !no_propagation.orca_lrs_propagation);
    }
}
