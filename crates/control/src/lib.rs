//! An xDS control plane: configuration files become a snapshot, served over ADS.
//!
//! ```text
//! files -> source -> Catalog -> Translator -> Snapshot -> Subscription -> ADS
//! load reports -> LRS -> loads -> admin pages
//! ```
//!
//! [`ControlPlane`] runs all of it. [`Catalog`] and [`Translator`] are the part without I/O, for
//! programs that have their own source. The work is in proportion to the change: only a changed
//! file is read, and only its changed definitions are translated, hashed and sent. Clients are gRPC
//! channels and Envoys, served from one snapshot over both variants of ADS: state of the world and
//! incremental.
//!
//! # Configuration files
//!
//! A file is YAML (or JSON), and has three kinds of content: `services`, `resources` and `views`. These are the first two:
//!
//! ```yaml
//! services:                            # the short form
//! - name: payments                     # reached as xds:///payments
//!   localities:
//!   - region: eu                       # region, zone and sub_zone: any text, default empty
//!     zone: a
//!     weight: 3                        # share of its priority's load; default 1; 0: left out
//!     priority: 0                      # default 0; the lowest is used first
//!     endpoints:
//!     - address: "10.0.0.1:50051"      # ip:port
//!       weight: 1                      # default 1
//!       health: healthy                # healthy, unhealthy, draining or (default) unknown
//!   - { region: eu, zone: b, endpoints: [{ address: "10.0.1.1:50051" }] }
//! - name: accounts
//!   endpoints:                         # where locality does not matter
//!   - { address: "10.0.2.1:50051" }
//!   fallback:                          # what serves when these cannot, the preferred one first
//!   - payments                         # another service, and then what that falls back to
//!   - dns: "accounts.example.com:443"  # host:port
//!   fallback_as: inline                # or `resource`; see below
//!
//! - name: shop
//!   policy: least_request              # round_robin, least_request, ring_hash or pick_first
//!   limits: { max_requests: 5000 }     # open calls of a client
//!   tls: { ca: mesh, san: ["spiffe://prod/shop"] } # `mesh` is in the bootstrap of the clients
//!   timeout: 2s                        # for all routes without one of their own
//!   retry: { attempts: 3 }
//!   routes:                            # the first that matches; docs/routes.md has all keys
//!   - { match: { path: /shop.Cart/Add }, split: { shop: 90%, payments: 10% } }
//!   - { match: { prefix: /shop.Pay/ }, to: payments, timeout: 10s, retry: none }
//!
//! resources:                           # raw xDS, in proto JSON form
//! - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
//!   name: legacy
//!   type: EDS
//!   eds_cluster_config: { eds_config: { ads: {} } }
//! - name: shared                       # for a message without a name: sent in a `Resource` wrapper
//!   resource: { "@type": type.googleapis.com/envoy.config.core.v3.RuntimeUInt32, default_value: 7 }
//! ```
//!
//! With `views`, clients that match conditions are served other services: docs/config.md has all keys.
//!
//! A service becomes a Listener, a RouteConfiguration, a Cluster and a ClusterLoadAssignment, all
//! four with its name. A raw resource must not use one of these names again. All files of a
//! directory count as one.
//!
//! A configuration that looks truncated is refused, because it would delete everything. That is an
//! empty file, a file with none of `services`, `resources` and `views`, files with `views` alone, or a
//! directory without files. To serve nothing, write `services: []`, or set [`Options::allow_empty`].
//!
//! A changed file is read once it has been unchanged for 100 ms. Programs should still replace it
//! by a rename, because a writer that pauses for longer shows half of its file.
//!
//! # Fallbacks
//!
//! With `fallback`, the cluster `NAME` of a service is an aggregate (gRFC A37) of
//!
//! - `NAME/endpoints`, the service's own endpoints, which it tries first,
//! - the cluster of each service in the list, which may be an aggregate itself, and
//! - `dns:HOST:PORT` for each DNS name, one logical DNS cluster for all services that list it. A service with `tls` or
//!   `load_reports` has the cluster `NAME/dns:HOST:PORT` of its own. Its TLS and its loads are not those of other
//!   services.
//!
//! `xds:///NAME` leads there as before. Three things are errors: a service that lists itself, a
//! circle of services, and more than 16 levels, which gRPC refuses.
//!
//! With `fallback_as: resource` the list is a resource of its own, a `ClusterConfig` named `NAME`
//! (gRFC A99). The cluster then stays the same when the list changes, even if the list is empty at
//! first. Clients that announce the feature `crowfly.aggregate_cluster_resource` are sent it. Crowfly's do if
//! `GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE` is `true`. All others are sent the list inside the cluster.
//!
//! Envoys are sent aggregates in the only form that they accept: with CLUSTER_PROVIDED as the
//! policy, and all clusters in one inline list. An Envoy falls back when there are no healthy
//! endpoints. It learns of health from health checks, outlier detection or `health`. It does not
//! fall back because it cannot connect.

mod admin;
mod admission;
mod agents;
mod aggregate;
mod canonical;
mod catalog;
mod changes;
mod check;
mod client_kind;
pub mod clients;
mod conduct;
mod conformance;
mod csds;
mod descriptors;
mod discovery;
mod door;
mod dump;
mod ending;
mod envoy;
mod fallback;
mod forms;
mod guarded;
mod incoming;
mod inline;
mod limits;
pub mod loads;
mod lrs;
mod metrics;
mod options;
mod ports;
mod raw;
mod redact;
mod references;
mod seat;
mod server;
mod service;
mod services;
mod sources;
mod store;
mod targets;
mod translate;
mod translator;
mod views;
mod writing;

pub use catalog::{Catalog, ConfigFile, DefinitionKey, DefinitionKind};
pub use changes::Changes;
pub use check::{Checked, ClientProblem, Counts, ForAgents, Severity, check, check_text};
pub use descriptors::to_json;
pub use limits::Limits;
pub use options::{DEFAULT_LOAD_REPORT_INTERVAL, Options, StartError};
pub use ports::Ports;
pub use server::ControlPlane;
pub use store::Reload;
pub use translate::translate;
pub use translator::{Translator, Work};

pub use crowfly_source::yaml::{ConfigError, ConfigErrors, Position};

/// The certificates of [`Ports`].
pub use crowfly_tls as tls;

/// The types of sources that [`Catalog`] and [`Translator`] take.
pub use crowfly_source as source;
