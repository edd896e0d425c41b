//! The control plane's sources of configuration: files, for now.
//!
//! Drivers, which watch files and other systems, are in the crate `crowfly-source`. This module
//! turns their events into snapshots of the control plane.

mod configuration;
mod reload;
mod warnings;

pub(crate) use configuration::Configuration;
pub(crate) use reload::Reloader;
