//! The parts of xDS that not every gRPC client supports.
//!
//! They are an argument of gRPC's parsers, because two clients of one process may differ in them.

use crate::{
    bootstrap::{ServerConfig, ServerFeature, is_switched_on},
    grpc::cluster::CustomPolicies,
};

/// The experimental gRFCs that are on, and the policies that the program adds to gRPC. By default all
/// gRFCs here are off, and no policy is added.
///
/// A parser takes them as an argument and does not read the environment, because two clients of one
/// process may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// gRFC A99: the children of an aggregate cluster may be a resource of their own.
    pub aggregate_cluster_resource: bool,
    /// gRFC A52: the balancing policies of the program, which clusters may name.
    pub custom_policies: CustomPolicies,
    /// gRFC A81: routes may make the host name of an endpoint the `:authority` of calls. It counts for
    /// servers that the bootstrap trusts.
    pub authority_rewriting: bool,
}

impl Features {
    /// All experimental gRFCs are on; no policy is added.
    pub const ALL: Self = Self {
        aggregate_cluster_resource: true,
        custom_policies: CustomPolicies::NONE,
        authority_rewriting: true,
    };

    /// The features that the environment variables of the gRFCs switch on; no policy is added.
    pub fn from_env() -> Self {
        Self::read(is_switched_on)
    }

    fn read(is_on: impl Fn(&str) -> bool) -> Self {
        Self {
            aggregate_cluster_resource: is_on(AGGREGATE_CLUSTER_RESOURCE),
            custom_policies: CustomPolicies::NONE,
            authority_rewriting: is_on(AUTHORITY_REWRITE),
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
            ..self.clone()
        }
    }
}

/// The environment variable that switches gRFC A99 on.
pub(crate) const AGGREGATE_CLUSTER_RESOURCE: &str =
    "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";

/// The environment variable that switches gRFC A81 on.
const AUTHORITY_REWRITE: &str = "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE";

#[cfg(test)]
mod tests {
    use super::*;

    /// gRFC A81 is off unless its own variable switches it on.
    #[test]
    fn variable_allows_authority_rewriting() {
        let named = |variable: &str| variable == "GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE";

        assert!(Features::read(named).authority_rewriting);
        assert!(!Features::read(|variable| !named(variable)).authority_rewriting);
    }

    /// S4-29: gRFC A99 is off unless its own variable switches it on.
    #[test]
    fn variable_opens_the_gate() {
        let named = |variable: &str| variable == "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";

        assert!(Features::read(named).aggregate_cluster_resource);
        assert!(!Features::read(|variable| !named(variable)).aggregate_cluster_resource);
        assert_eq!(Features::read(|_| true), Features::ALL);
        assert_eq!(Features::read(|_| false), Features::default());
    }
}
