//! `crowfly clients`: the clients of a control plane, and what each of them accepted and refused.
//!
//! ```text
//! admin port -- GET /clients[?node=NAME] --> ClientList --> a table | JSON
//! ```

mod command;
mod detail;
mod table;

pub use command::{ClientsArgs, run};
