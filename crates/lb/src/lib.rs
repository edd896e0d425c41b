//! Load balancing without I/O: a plan, a balancer, and flat lock-free pickers.
//!
//! gRPC's balancing policies form a tree of objects that call each other up and down. Here the same
//! semantics are values that flow one way:
//!
//! ```text
//! Plan ──> Balancer ──> compile ──> Picker ──> Call
//!             ^                                 │
//!  endpoint states (events)        counters (atomics)
//! ```
//!
//! - [`Plan`] is the tree of one cluster as data; it prints as an operator reads it.
//! - [`Balancer`] is the only mutable state. It takes [`BalancerEvent`]s, and hands out [`Command`]s
//!   to the driver that owns the connections. It touches no socket, no clock and no global random
//!   source: two balancers with the same seed and the same events do the same.
//! - [`Picker`] is what the tree compiles to. A pick takes no lock, allocates nothing and does the
//!   same work at one endpoint and at ten thousand.
//! - [`Call`] is the token of one attempt: dropping it settles the endpoint's counters, and its
//!   [`CallOutcome`] says how the attempt ended.
//!
//! ```
//! use std::{num::NonZeroU32, sync::Arc, time::Instant};
//! use crowfly_lb::{
//!     Balancer, BalancerEvent, CallContext, CallCounters, Command, Endpoint, EndpointState, Locality,
//!     LocalityId, Node, Pick, Plan,
//! };
//!
//! let endpoint = Endpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 50051)));
//! let plan = Plan {
//!     cluster: "payments".into(),
//!     root: Node::Localities(Arc::from([Locality {
//!         id: LocalityId::new("us", "a", ""),
//!         weight: NonZeroU32::MIN,
//!         child: Node::round_robin(vec![endpoint]),
//!     }])),
//!     note: None,
//! };
//!
//! let now = Instant::now();
//! let mut balancer = Balancer::new(7, Arc::new(CallCounters::new()));
//! balancer.handle(BalancerEvent::Plan(Arc::new(plan)), now);
//! balancer.flush(now);
//! while let Some(command) = balancer.poll_command() {
//!     match command {
//!         Command::Connect { id, addresses, .. } => {
//!             // a driver dials here, and reports what happens
//!             let state = EndpointState::Ready { transport: "h2", address: addresses[0] };
//!             balancer.handle(BalancerEvent::Endpoint { id, state }, now);
//!             balancer.flush(now);
//!         }
//!         Command::Publish { picker, .. } => match picker.pick(&CallContext::new(1)) {
//!             Pick::Ready(call) => assert_eq!(*call.transport(), "h2"),
//!             Pick::Queue | Pick::Wake(_) => println!("no connection yet: wait for the next picker"),
//!             Pick::Fail(failure) => println!("UNAVAILABLE: {failure}"),
//!             Pick::Drop(dropped) => println!("UNAVAILABLE: {dropped}"),
//!         },
//!         Command::Outlier(_) | Command::Release(_) | Command::Reresolve(_) => {}
//!     }
//! }
//! ```

// No clock, no sleep, no randomness of the process, no runtime: clippy.toml says why.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod balancer;
mod call;
mod compile;
mod counters;
mod custom;
mod endpoint;
mod leaf;
mod load;
mod math;
mod name;
mod node;
mod outcome;
mod override_host;
mod picker;
mod plan;
mod race;
mod slots;
mod sync;
pub mod timing;
mod tree;

pub use balancer::{Balancer, BalancerEvent, Command};
pub use call::{Call, CallContext, CallSession, HashHeader, hash_values};
pub use counters::CallCounters;
pub use custom::{CustomPolicy, ReadyRef, ReadySet, Selection, Selector};
pub use endpoint::{
    Connectivity, Demand, Ejection, EjectionCause, EndpointId, EndpointState, EndpointView,
    OutlierChange, OutlierEvent, OutlierRule, RosterView, SessionsId, SpareReason,
};
pub use load::{
    BackendMetrics, ClusterLoad, LoadStore, LocalityLoad, MetricFilter, MetricSum, MetricTotals,
    NamedMetrics,
};
pub use math::AliasTable;
pub use name::{ClusterName, LocalityId};
pub use outcome::{CallOutcome, Counted};
pub use picker::{DropCause, Dropped, Pick, PickFailure, Picker, Share};
pub use plan::{
    ChoiceCount, ClusterPlan, DropCategory, Endpoint, FailurePercentageEjection, Health, HealthSet,
    Leaf, LoadPlan, Locality, Node, OutlierDetection, OverrideHost, Plan, Policy, Priority,
    PriorityChild, RingSize, SuccessRateEjection,
};
pub use race::{Race, RaceAction, RaceEvent};
pub use tree::{Tree, TreeEjection, TreeKind, TreeRole};
