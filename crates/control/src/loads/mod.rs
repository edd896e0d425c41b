//! The loads that clients report: calls, errors, drops and utilisation by service and locality.
//!
//! ```text
//! LoadStatsRequest -> Report (checked) -> LoadStore -> Loads (a value) -> JSON, metrics, a table
//! ```
//!
//! Everything here is without I/O, and time is an argument. The module `lrs` is the driver.
//!
//! A count in a report is what happened since the report before it. A gauge, such as the calls in
//! progress, is the state at the time of the report. A report lists every cluster and locality with
//! something to tell. So a gauge that the newest report of a stream leaves out is zero: Envoys and
//! gRPC clients leave out localities in which nothing happens.

mod history;
mod limits;
mod metrics;
mod pace;
mod report;
mod row;
mod store;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use metrics::{LoadLabels, register};
pub(crate) use pace::Pace;
pub(crate) use report::{Report, client_locality};
pub(crate) use store::{LoadStore, Owner, Reporter, ReporterId};
pub use view::{Connections, LoadRow, Loads, Metric, Moment, ReporterView};
