//! A gRPC channel for tonic that finds its backends by xDS and calls them without a proxy.
//!
//! [`Channel::connect`] takes an `xds:///` target. The control plane names the backends and the policy that spreads
//! calls over them. Calls go straight to the backends.
//!
//! ```text
//!  xDS client ──> resolver ──> planner ──> balancer ──> picker ──> endpoint ──> connection ──> backend
//!  (ADS)          one whole    the tree    events in,   no lock,   a set of
//!                 config       as data     commands out no alloc   addresses
//! ```
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // GRPC_XDS_BOOTSTRAP names the bootstrap file, as for gRPC in other languages.
//! let channel = crowfly::Channel::connect("xds:///payments")?;
//! // let mut client = PaymentsClient::new(channel);
//! # Ok(())
//! # }
//! ```
//!
//! A program can also make the bootstrap itself. [`bootstrap`] has all of its parts:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use crowfly::bootstrap::{Bootstrap, ServerConfig, ServerFeature, TlsFiles};
//! use crowfly::{Channel, LocalityId};
//!
//! let server = ServerConfig::builder("control.example.com:443")
//!     .tls(TlsFiles::default().ca_certificate("/etc/xds/ca.pem"))
//!     .feature(ServerFeature::Delta);
//! let bootstrap = Bootstrap::builder(server)?
//!     .node_id("web-1")
//!     .locality(&LocalityId::new("eu", "a", ""))
//!     .build();
//! let channel = Channel::builder("xds:///payments").bootstrap(bootstrap).build()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What a caller can rely on
//!
//! - A call sent before the first configuration waits for it. A call that cannot be routed fails
//!   UNAVAILABLE, and its message says which resource is in trouble, why, and for which node.
//! - `grpc-timeout` is enforced from the start. DEADLINE_EXCEEDED names the thing that the call waited for.
//! - A call that never left this process, or that a server refused unseen, is tried elsewhere (gRFC A6). A call whose
//!   connection broke after it was sent is not repeated, because the server may have begun it. The status of that call
//!   has a [`ConnectionLost`] as its source.
//! - The retry policy of a route repeats calls that failed with one of its status codes (gRFC A44), streams included. A
//!   call is repeated until its response begins or its request outgrows the
//!   [buffer](ChannelBuilder::retry_buffer_size). The failure of a call says how many attempts there were.
//! - [`WaitForReady`] as a request extension makes a call wait where it would fail.
//! - A cluster has at most 1,024 open calls in a process, unless its `circuit_breakers` say otherwise (gRFC A32). One
//!   more call fails UNAVAILABLE, whether or not it waits for ready. A call that is dropped because the control plane
//!   asks for it fails in the same way.
//! - A channel without calls for half an hour closes its connections and leaves the control plane.
//!   The next call brings them back. [`Channel::state`] is IDLE in between.
//! - Dropping the last clone of a channel lets open calls finish.
//! - [`csds_service`], mounted on a server of the program, shows the resources of its xDS clients.
//!   `crowfly inspect --csds` reads it. [`debug_service`] shows the state and the connections of its channels.
//!   `crowfly inspect --tree` reads it.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `google-default` | the channel credentials `google_default` for xDS servers: tokens of Google's application default credentials |
//! | `opentelemetry` | `metrics::OpenTelemetry`, which reports [`metrics`] of calls and of the xDS client to OpenTelemetry |
//!
//! # Environment
//!
//! The variables are read as gRPC of other languages reads them. Switches are on for `1`, `t`, `true`, `y` and `yes`,
//! and off for `0`, `f`, `false`, `n` and `no`.
//!
//! | variable | meaning |
//! |---|---|
//! | `GRPC_XDS_BOOTSTRAP` | the bootstrap file |
//! | `GRPC_XDS_BOOTSTRAP_CONFIG` | the bootstrap itself, if no file is named |
//! | `GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS` | on: `call_creds` of the bootstrap are read (gRFC A97) |
//! | `GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING` | on: data errors as gRFC A88 has them |
//! | `GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE` | on: lists of clusters as resources (gRFC A99) |
//! | `GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE` | on: servers that the bootstrap trusts may rewrite the authority of calls (gRFC A81) |
//! | `GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS` | off: clusters may not trust the system's roots (gRFC A82) |
//! | `GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION` | off: load reports have all named metrics of backends (gRFC A64), and not only those that clusters ask for (gRFC A85) |
//! | `GRPC_EXPERIMENTAL_XDS_SNI` | off: clusters do not set or check SNI (gRFC A101) |
//! | `GRPC_USE_CHANNEL_AUTHORITY_IF_NO_SNI_APPLICABLE` | on: the channel's authority is the SNI of clusters that set none (gRFC A101) |
//! | `GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT` | on: the leaves of an aggregate are balanced by the aggregate's policy, as before gRFC A75, if it names one |
//! | `GRPC_EXPERIMENTAL_ENABLE_PRIORITY_LB_CHILD_POLICY_CACHE` | on: priorities that left a cluster are kept for a while, as before gRFC A115 |
//! | `GRPC_EXPERIMENTAL_PF_WEIGHTED_SHUFFLING` | off: no shuffling by weight (gRFC A113) |

mod authority;
mod builder;
mod call;
mod channel;
mod clusters;
mod code;
mod config_watch;
mod configs;
mod deadline;
pub mod debug;
pub mod dns;
mod driver;
mod endpoints;
pub mod filter;
mod forecast;
mod health;
mod hostnames;
mod idle;
mod load_reports;
pub mod metrics;
mod named;
mod not_grpc;
mod outliers;
mod plan;
pub mod policy;
mod published;
mod request_headers;
mod routing;
mod security;
mod state;
mod subchannel;
mod subchannels;
mod target;
#[doc(hidden)] // public for the tests over real sockets only
pub mod transport;

pub use builder::{BuildError, ChannelBuilder};
pub use call::{RequestHash, WaitForReady};
pub use channel::{Channel, ResponseBody, ResponseFuture};
#[doc(hidden)] // for `crowfly load`
pub use code::code_name;
pub use config_watch::ConfigWatch;
#[doc(inline)]
pub use crowfly_client::{LoadReportState, LoadReportStatus, csds_service, load_reports};
#[doc(inline)]
pub use crowfly_lb::CallCounters;
#[doc(inline)]
pub use crowfly_model::bootstrap::{
    self, AuthorityConfig, Bootstrap, BootstrapError, ServerConfig, ServerFeature,
};
#[doc(inline)]
pub use crowfly_model::grpc::endpoints::LocalityId;
pub use debug::debug_service;
#[doc(hidden)] // for `crowfly explain`
pub use forecast::{Forecast, forecast};
pub use state::{ConnectivityState, StateWatch};
pub use target::TargetError;
pub use transport::{BackendTls, ConnectionLost, TlsError};

/// The values that a [`ConfigWatch`] returns: whole configurations, and the resources in them.
pub mod config {
    #[doc(inline)]
    pub use crowfly_model::grpc as resources;
    #[doc(inline)]
    pub use crowfly_xds::{
        ClusterError, ClusterResult, ClusterState, Members, Missing, ResolveError, ResolveRoots,
        Resolved, Seen, View, XdsConfig,
    };
}
