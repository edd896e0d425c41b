//! `crowfly clients`: the clients of a control plane, and the resources that each of them accepted and refused. The
//! command asks the control plane, because only that sees all clients in one place.
//!
//! ```text
//! admin port -- GET /clients[?node=NAME] --> ClientList --> a table | JSON
//! ```

mod command;
mod detail;
mod table;

pub use command::{ClientsArgs, run};
