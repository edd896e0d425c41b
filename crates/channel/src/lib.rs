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
pub use state::{ConnectivityState, StateWatch};
pub use target::TargetError;
pub use transport::{BackendTls, ConnectionLost, TlsError};
