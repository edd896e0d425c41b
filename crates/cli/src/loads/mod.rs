//! `crowfly loads`: a table of the loads that clients report to a control plane, because only the
//! control plane has the loads of all clients.
//!
//! ```text
//! admin port -- GET /loads --> Loads --> a table, over and over | a table, once | JSON
//! ```

mod command;
mod error;
mod table;
mod view;

pub use command::{LoadsArgs, run};
pub use error::LoadsError;

/// The loads as `crowfly loads --once` prints them.
#[cfg(target_os = "linux")]
pub(crate) fn shown(loads: &crowfly_control::loads::Loads) -> impl std::fmt::Display {
    table::Table::new(loads, &[])
}
