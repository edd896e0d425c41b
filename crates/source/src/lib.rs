//! Sources of configuration: each has keyed values, and one table is made of all of them.
//!
//! The node agent reads its configuration from several places at once: files, etcd, Kubernetes, an
//! xDS server. The control plane reads files. This crate has the events that those places share,
//! because then no reader has to know which of them are in use (CFP-30235, phase 1).
//!
//! - A source emits [`Event`]s. It lists what it has (`Init`, an `Upsert` each, `InitDone`), then
//!   tells changes, and says `Failed` when it is cut off.
//! - [`Table`] is the state of one source. A source that failed keeps its last state, because a
//!   broken connection is no reason to take away what works.
//! - [`Merged`] settles claims between sources. A value claims keys, such as an address or the name
//!   of a service. The first source in a declared order wins each claim. The others are shadowed, not
//!   lost: they take over when the winner goes.
//!
//! The state machines here do no I/O and need no other crate. The drivers that watch the outside world
//! each have a feature: `etcd`, `files`, `kubernetes`. The feature `yaml` reads documents whose errors
//! name line and field.
//!
//! Two values of one claim are never added up here. Only the reader knows what they are, and
//! whether the endpoints of two sources belong together. It can ask for all claimants.
//!
//! ```
//! use crowfly_source::{Event, Merged};
//!
//! // A value is the name of a backend, and claims one address.
//! const KUBERNETES: usize = 0;
//! const ETCD: usize = 1;
//! let mut merged = Merged::new(2, |value: &(&str, u16)| vec![value.1]);
//!
//! merged.handle(ETCD, Event::Upsert("b", ("from etcd", 80)));
//! assert_eq!(merged.winner(&80).unwrap().value.0, "from etcd");
//!
//! // Kubernetes comes first. The claim that changed hands is returned.
//! assert_eq!(merged.handle(KUBERNETES, Event::Upsert("a", ("from Kubernetes", 80))), [80]);
//! assert_eq!(merged.winner(&80).unwrap().value.0, "from Kubernetes");
//!
//! // What was shadowed takes over.
//! assert_eq!(merged.handle(KUBERNETES, Event::Delete("a")), [80]);
//! assert_eq!(merged.winner(&80).unwrap().value.0, "from etcd");
//! ```

// No clock, no sleep, no randomness of the process, no runtime. The drivers are excepted one by one
// below.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[cfg(feature = "etcd")]
pub mod etcd;
mod event;
#[cfg(feature = "files")]
#[cfg_attr(
    not(test),
    expect(
        clippy::disallowed_methods,
        reason = "the driver: it has the file system and the clock"
    )
)]
pub mod files;
#[cfg(feature = "kubernetes")]
#[cfg_attr(
    not(test),
    expect(
        clippy::disallowed_methods,
        reason = "the driver: it has the network and the clock"
    )
)]
pub mod kubernetes;
mod merged;
mod table;
#[cfg(feature = "yaml")]
pub mod yaml;

pub use event::Event;
pub use merged::{Claimant, Effect, Merged};
pub use table::{Replaced, Status, Table};
