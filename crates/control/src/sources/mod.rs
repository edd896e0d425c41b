//! The control plane's sources of configuration: files, for now.
//!
//! Drivers, which watch the outside world, are in the crate `crowfly-source`. Here is what the control
//! plane makes of their events.

mod configuration;
mod reload;

pub(crate) use configuration::Configuration;
pub(crate) use reload::Reloader;
