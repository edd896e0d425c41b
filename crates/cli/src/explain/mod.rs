//! `crowfly explain`: shows where a call would go with the present answers of the control plane and
//! DNS. If the call would go nowhere, the command shows the resource at which it ends, and the
//! reason.
//!
//! ```text
//! ConfigWatch -- View, Resolved --> explain() --> Explanation --> text | JSON
//! ```
//!
//! The verdict comes from the picker that a channel would use if it reached every endpoint, so it
//! cannot differ from the channel's. The tree around the verdict is read from the view, which has
//! parts even while the configuration is incomplete.

mod advice;
mod care;
mod cluster;
mod command;
mod explanation;
mod find;
mod look;
mod route_report;
mod routes;
mod security;
mod stop;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod wishes;

pub use care::{LoadReportsReport, OutlierReport};
pub use command::{ExplainArgs, ExplainError, observe, run};
pub use explanation::{
    ClusterReport, Destination, DropReport, EndpointReport, ExplainedCall, Explanation, Header,
    LocalityReport, Place, PriorityReport, ResourceReport, Stop, StopPart, Uses, VirtualHostReport,
};
pub use find::explain;
pub use route_report::{
    FilterReport, HashPolicyReport, HeaderConditionReport, MismatchPart, MismatchReport,
    RetryReport, RouteReport, SplitReport, TimeoutReport, Verdict,
};
pub use security::SecurityReport;
