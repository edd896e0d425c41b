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
        Self {
            aggregate_cluster_resource: is_switched_on(AGGREGATE_CLUSTER_RESOURCE),
        }
    }
}

/// Opens the gate of gRFC A99.
const AGGREGATE_CLUSTER_RESOURCE: &str = "GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE";
