//! An xDS control plane: configuration files become a snapshot, served over ADS.
//!
//! ```text
//! files -> source -> Catalog -> translate() -> Snapshot -> Subscription -> ADS
//! ```
//!
//! [`ControlPlane`] runs all of it; [`Catalog`] and [`translate`] are the pure middle, for programs
//! that have their own source. Clients are gRPC channels and Envoys alike, served from one
//! snapshot; ADS is the state-of-the-world variant.

mod admin;
mod ads;
mod canonical;
mod catalog;
mod clients;
mod descriptors;
mod error;
mod metrics;
mod raw;
mod reader;
mod references;
mod server;
mod service;
mod source;
mod store;
mod translate;
mod tree;

pub use catalog::{Catalog, ConfigFile};
pub use error::{ConfigError, ConfigErrors, Position};
pub use server::{ControlPlane, Options, StartError};
pub use store::Reload;
pub use translate::translate;
