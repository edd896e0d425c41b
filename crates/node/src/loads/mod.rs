//! Load reports: the connections that the kernel counts, told to an xDS server (LRS).
//!
//! Each pair of a frontend and a backend has a label: the cluster and the locality that its connections
//! are told under. The cluster is the one that the source names (xDS does), or, if all services are to be
//! reported, `namespace/name:port`. A [`Ledger`] remembers what was told, in maps that outlive the agent.

mod label;
mod ledger;
mod report;

pub use label::Label;
pub use ledger::{Ledger, forget_all};
pub use report::{LoadServer, Loads, LoadsError, Registration};
