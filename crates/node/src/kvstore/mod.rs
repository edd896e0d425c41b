//! The etcd of a Cilium ClusterMesh as a source: services of other clusters.
//!
//! Every cluster of a mesh writes its global services to an etcd, each under a key of its own with a
//! lease. This source reads them. It knows the layout of the keys; the etcd itself is followed by
//! [`crowfly_source::etcd`].
//!
//! ```text
//! cilium/cluster-config/CLUSTER                      the cluster's id, and how it writes
//! cilium/synced/CLUSTER/cilium/state/services/v1     "all services are written": read nothing before
//! cilium/state/services/v1/CLUSTER/NAMESPACE/NAME    a service with its backends, as JSON
//! cilium/.heartbeat                                  rewritten every minute
//! ```
//!
//! A cluster whose keys are a copy (`cached`) has `cilium/cache` in place of `cilium/state`.
//!
//! - A value that is wrong is refused by its key, with the reason. The last good one stays.
//! - A cluster that cannot be reached keeps its last state, and so does one whose configuration is gone. One that
//!   has another id is drained.
//! - Services of several clusters with one name are one service, with the backends of all.
//!
//! [`Mesh`] has these rules, without I/O. [`KvstoreSource`] is the driver.

mod cluster;
mod keys;
mod merge;
mod mesh;
mod options;
mod source;
mod step;
mod value;

pub use mesh::{Layout, Mesh};
pub use options::{DEFAULT_HEARTBEAT, KvstoreError, KvstoreOptions};
pub use source::{KvstoreCounts, KvstoreSource};
pub use step::{LogLine, Step};
