//! A proxyless service-mesh channel for tonic.
//!
//! [`Channel::connect`] takes an `xds:///` target; the control plane says which backends that is and
//! how calls are spread over them; calls then go straight to the backends, with nothing in between.
//!
//! ```text
//!  XdsClient ──> resolve() ──> plan() ──> Balancer ──> Picker ──> endpoint ──> subchannel ──> backend
//!  (ADS)         one whole     the tree   events in,   no lock,    address      connection
//!                config        as data    commands out no alloc    set
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
//! # What a caller can rely on
//!
//! - A call sent before the first configuration waits for it; one that cannot be routed fails
//!   UNAVAILABLE, and says which resource is in trouble, why, and for which node.
//! - `grpc-timeout` is enforced from the start; DEADLINE_EXCEEDED says what was waited for.
//! - A call that never left this process, or that a server refused unseen, is tried elsewhere
//!   (gRFC A6). A call whose connection died under it is not: its status has a [`ConnectionLost`]
//!   as its source.
//! - [`WaitForReady`] as a request extension makes a call wait where it would fail.
//! - A call that is dropped, or over the limit of its cluster, fails UNAVAILABLE, whether or not it
//!   waits for ready.
//! - A channel without calls for half an hour lets go of its connections and of the control plane; the
//!   next call brings them back. [`Channel::state`] tells.
//! - Dropping the last clone of a channel lets open calls finish.
//! - What the xDS clients of a program hold can be seen at any time: mount [`csds_service`] on a server
//!   of yours, and look with `crowfly inspect --csds`. What its channels are doing is shown by
//!   [`debug_service`], and `crowfly inspect --tree`.
//!
//! # Environment
//!
//! These variables are read as gRPC of other languages reads them. Switches are on for `1`, `t`, `true`,
//! `y` and `yes`, and off for `0`, `f`, `false`, `n` and `no`.
//!
//! | variable | meaning |
//! |---|---|
//! | `GRPC_XDS_BOOTSTRAP` | the bootstrap file |
//! | `GRPC_XDS_BOOTSTRAP_CONFIG` | the bootstrap itself, if no file is named |
//! | `GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS` | on: `call_creds` of the bootstrap are read (gRFC A97) |
//! | `GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING` | on: data errors as gRFC A88 has them |
//! | `GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE` | on: lists of clusters as resources (gRFC A99) |
//! | `GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT` | on: the leaves of an aggregate are balanced by the aggregate's policy, as before gRFC A75, if it names one |
//! | `GRPC_EXPERIMENTAL_ENABLE_PRIORITY_LB_CHILD_POLICY_CACHE` | on: priorities that left a cluster are kept for a while, as before gRFC A115 |
//! | `GRPC_EXPERIMENTAL_PF_WEIGHTED_SHUFFLING` | off: no shuffling by weight (gRFC A113) |

mod builder;
mod call;
mod channel;
mod clusters;
mod config_watch;
mod deadline;
pub mod debug;
pub mod dns;
mod driver;
mod endpoints;
mod forecast;
mod idle;
mod named;
mod not_grpc;
mod plan;
pub mod policy;
mod published;
mod routing;
mod state;
mod subchannel;
mod target;
#[doc(hidden)] // public for the tests over real sockets only
pub mod transport;

pub use builder::{BuildError, ChannelBuilder};
pub use call::{RequestHash, WaitForReady};
pub use channel::{Channel, ResponseBody, ResponseFuture};
pub use config_watch::ConfigWatch;
pub use crowfly_client::{csds_service, metrics};
pub use crowfly_lb::CallCounters;
pub use crowfly_model::bootstrap::{
    AuthorityConfig, Bootstrap, BootstrapError, ServerConfig, ServerFeature,
};
pub use debug::debug_service;
#[doc(hidden)] // for `crowfly explain`
pub use forecast::{Forecast, forecast};
pub use state::{ConnectivityState, StateWatch};
pub use target::TargetError;
pub use transport::{BackendTls, ConnectionLost, TlsError};
