//! The parts of xDS that not every gRPC client reads.
//!
//! They are an argument of gRPC's parsers, because two clients of one process may differ in them.

use crate::{bootstrap::is_switched_on, grpc::cluster::CustomPolicies};

/// The gates of experimental gRFCs, and what the program adds to gRPC. By default all gates are
/// closed, and nothing is added.
///
/// A parser is told of them, rather than asking the environment or a registry of the process itself,
/// so that two clients of one process may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// gRFC A99: the children of an aggregate cluster may be a resource of their own.
    pub aggregate_cluster_resource: bool,
    /// gRFC A52: the balancing policies of the program, which clusters may name.
    pub custom_policies: CustomPolicies,
}

impl Features {
    /// All gates open; nothing is added.
    pub const ALL: Self = Self {
        aggregate_cluster_resource: true,
        custom_policies: CustomPolicies::NONE,
    };

    /// What the environment variables of the gRFCs say.
    pub fn from_env() -> Self {
        Self::read(is_switched_on)
    }

    fn read(is_on: impl Fn(&str) -> bool) -> Self {
        Self {
            aggregate_cluster_resource: is_on(AGGREGATE_CLUSTER_RESOURCE),
            custom_policies: CustomPolicies::NONE,
        }
    }
}

/// Opens the gate of gRFC A99.
pub(crate) const AGGREGATE_CLUSTER_RESOURCE: &str =
    "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";

#[cfg(test)]
mod tests {
    use super::*;

    /// S4-29: the gate of gRFC A99 is closed unless its own variable opens it.
    #[test]
    fn variable_opens_the_gate() {
        let named = |variable: &str| variable == "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";

        assert!(Features::read(named).aggregate_cluster_resource);
        assert!(!Features::read(|variable| !named(variable)).aggregate_cluster_resource);
        assert_eq!(Features::read(|_| true), Features::ALL);
        assert_eq!(Features::read(|_| false), Features::default());
    }
}
