//! A node agent (CFP-30235): connections to ClusterIPs go straight to a backend.
//!
//! An eBPF program at `connect()` and `sendmsg()` replaces the address of a service by that of a
//! backend. So no packet is ever rewritten, and no proxy runs. This crate holds the program, and
//! the agent that keeps its maps as the services are:
//!
//! ```text
//! sources -> Services (merged by precedence, select()) -> Reconciler -> Maps -> eBPF
//! ```
//!
//! - [`model`]: services and backends, as every source tells them.
//! - [`mod@file`]: the configuration file, which is a source of services as well.
//! - [`kubernetes`]: Services and EndpointSlices as a source.
//! - [`kvstore`]: the etcd of a ClusterMesh as a source.
//! - [`cidr`]: ranges of addresses.
//! - [`mod@select`]: which backends get connections from this node.
//! - [`services`]: all sources as one table of frontends.
//! - [`xds`]: an xDS server as a source.
//! - [`reconcile`]: brings the maps to what the table says, and never shows half of a service.
//! - [`maps`]: the maps in the kernel, in memory, and faulty ones for tests.
//! - [`loads`]: connections in load reports, each once, over restarts too.
//! - [`sockets`]: the end of those whose backend is gone.
//! - [`metrics`]: all of it for Prometheus.
//! - [`agent`]: all of them together; [`serve`] connects them with sources, timers and a socket.
//!
//! Everything but [`serve`], the drivers of sources and the kernel's maps is free of I/O, and takes no clock.

pub mod agent;
#[cfg(target_os = "linux")]
pub mod check;
pub mod cidr;
pub mod file;
pub mod kubernetes;
pub mod kvstore;
pub mod loads;
pub mod maps;
pub mod metrics;
pub mod model;
pub mod reconcile;
pub mod select;
pub mod serve;
pub mod services;
pub mod sockets;
pub mod view;
pub mod xds;

pub use crowfly_source::yaml::ConfigErrors;
