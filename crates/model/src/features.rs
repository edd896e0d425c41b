//! Which experimental parts of xDS are read, and which are still unknown to the reader.

use crate::bootstrap::is_switched_on;

/// The gates of experimental gRFCs. By default all are closed.
///
/// A parser is told of them, rather than asking the environment itself, so that two clients of one
/// process may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// gRFC A99: the children of an aggregate cluster may be a resource of their own.
    pub aggregate_cluster_resource: bool,
}

impl Features {
    /// All gates open.
    pub const ALL: Self = Self {
        aggregate_cluster_resource: true,
    };

    /// What the environment variables of the gRFCs say.
    pub fn from_env() -> Self {
        Self::read(is_switched_on)
    }

    fn read(is_on: impl Fn(&str) -> bool) -> Self {
        Self {
            aggregate_cluster_resource: is_on(AGGREGATE_CLUSTER_RESOURCE),
        }
    }
}

/// Opens the gate of gRFC A99.
const AGGREGATE_CLUSTER_RESOURCE: &str = "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";

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
