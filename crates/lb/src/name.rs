//! The names that give balancing state its identity across plans.
//!
//! They are those of the configuration, because a locality that moves is found again by its name.

pub use crowfly_names::{ClusterName, LocalityId};
