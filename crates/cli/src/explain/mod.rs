//! `crowfly explain`: where a call would go, by what the control plane and DNS say right now, and if
//! it would go nowhere, where that ends and why.
//!
//! ```text
//! ConfigWatch -- View, Resolved --> explain() --> Explanation --> text | JSON
//! ```
//!
//! Whether a call has somewhere to go is asked of the picker that a channel would use if it reached every
//! endpoint, so this cannot come to another answer than the channel. The tree around it is read from the view,
//! which holds pieces even while there is no whole configuration.

mod advice;
mod cluster;
mod command;
mod explanation;
mod find;
mod look;
mod stop;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod wishes;

pub use command::{ExplainArgs, ExplainError, observe, run};
pub use explanation::{
    ClusterReport, Destination, DropReport, EndpointReport, ExplainedCall, Explanation, Header,
    LocalityReport, Place, PriorityReport, ResourceReport, RouteReport, Stop, Uses, Verdict,
    VirtualHostReport,
};
pub use find::explain;
