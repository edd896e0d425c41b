//! Balancing policies of your own: what [`ChannelBuilder::endpoint_policy`] takes.
//!
//! A policy is asked what it needs to know about a list of endpoints, which of them to connect, and
//! where a call goes. Connections, states, localities, priorities and counters are taken care of.
//!
//! ```
//! use std::sync::Arc;
//!
//! use crowfly::policy::{CallContext, CustomPolicy, Endpoint, ReadySet, Selection, Selector};
//!
//! /// Sends every call to the first backend that is ready.
//! #[derive(Debug)]
//! struct First;
//!
//! impl CustomPolicy for First {
//!     fn name(&self) -> &str {
//!         "first"
//!     }
//!
//!     fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
//!         Arc::new(Self)
//!     }
//! }
//!
//! impl Selector for First {
//!     fn pick<'a>(&self, _: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
//!         ready.get(0).map_or(Selection::Queue, Selection::Send)
//!     }
//! }
//!
//! let channel = crowfly::Channel::builder("xds:///payments").endpoint_policy(Arc::new(First));
//! ```
//!
//! [`ChannelBuilder::endpoint_policy`]: crate::ChannelBuilder::endpoint_policy

pub use crowfly_lb::{
    CallContext, CallOutcome, Connectivity, CustomPolicy, Endpoint, ReadyRef, ReadySet, Selection,
    Selector,
};
