//! The xDS protocol without I/O.
//!
//! [`Session`] is the client half of an ADS stream and [`Subscription`] the server half. Both are
//! state machines: the caller hands them events and asks what to do next. Neither touches a socket,
//! a clock or a runtime, so that tests can simulate all three. [`Discovery`] is the client half
//! across servers, [`Cache`] holds the resources that it received, and [`resolve`] turns them into
//! one complete configuration.

// No clock, no sleep, no randomness of the process, no runtime: clippy.toml says why.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod backoff;
mod cache;
mod data_errors;
pub mod discovery;
mod error;
mod kind;
pub mod load_report;
mod readings;
mod resolve;
pub mod session;
mod snapshot;
mod sorted;
mod subscription;

pub use backoff::Backoff;
pub use cache::{Cache, CacheEntry, Changed, LastFailure, Received, ResourceStatus};
pub use data_errors::DataErrors;
pub use discovery::{Authorities, Discovery, ServerId};
pub use error::{ResourceError, TroubleReason};
pub use kind::{Erased, Key, Kind, Traits};
pub use readings::{ReadingError, Readings};
pub use resolve::{
    ClusterError, ClusterResult, ClusterState, MAX_DEPTH, Members, Missing, Resolution,
    ResolveError, ResolveRoots, Resolved, Resolver, Seen, Step, View, Watches, XdsConfig, resolve,
};
pub use session::{Ending, EndingKind, Input, Protocol, Request, Session, SessionConfig, Want};
pub use snapshot::{
    DuplicateName, NamedResources, Snapshot, SnapshotBuilder, SnapshotResource, TypeSnapshot,
    spelled,
};
pub use subscription::{
    ClientNode, Delivery, DeltaSubscription, Held, RequestOutcome, Response, ServerHalf,
    StreamSettings, Subscription, Wanted, Wish, Written, shared_type_url,
};

/// The type URL of the wrapper that names a resource whose message does not.
pub const WRAPPER_TYPE_URL: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
