//! `crowfly clients`: the clients of a control plane, and the resources that each of them accepted
//! and refused. Only the control plane sees all clients in one place.
//!
//! ```text
//! admin port -- GET /clients[?node=NAME] --> ClientList --> a table | JSON
//! ```

mod command;
mod detail;
mod table;

pub use command::{ClientsArgs, run};
