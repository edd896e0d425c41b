//! The state of load reports. A program can show it to its operators, because reports that fail
//! disturb no call and are noticed late.

use std::sync::Arc;

use crowfly_xds::load_report::{AskedReports, LoadReportTotals, LoadReporter};

use crate::registry;

/// The load reports of one client to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReportStatus {
    /// The target of the channel that the client serves.
    pub target: Arc<str>,
    /// The server that gets the reports.
    pub server: Arc<str>,
    /// The state of the stream.
    pub state: LoadReportState,
    /// The reports so far.
    pub totals: LoadReportTotals,
}

/// The state of an LRS stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadReportState {
    /// No cluster wants reports.
    Idle,
    /// The stream is being opened or has ended, or the server has not said yet which clusters it
    /// wants.
    Opening,
    /// The server gets reports.
    Reporting(AskedReports),
    /// The last stream failed for this reason, and the next one is opened after a backoff.
    Waiting(Arc<str>),
}

impl LoadReportStatus {
    pub(super) fn idle(target: &Arc<str>, server: &Arc<str>) -> Self {
        Self {
            target: Arc::clone(target),
            server: Arc::clone(server),
            state: LoadReportState::Idle,
            totals: LoadReportTotals::default(),
        }
    }
}

impl LoadReportState {
    pub(super) fn of(reporter: &LoadReporter) -> Self {
        match (reporter.asked(), reporter.trouble()) {
            (Some(asked), _) => Self::Reporting(asked.clone()),
            (None, Some(reason)) => Self::Waiting(Arc::clone(reason)),
            (None, None) if reporter.is_idle() => Self::Idle,
            (None, None) => Self::Opening,
        }
    }
}

/// The load reports of all clients of the process.
pub fn load_reports() -> Vec<LoadReportStatus> {
    let clients = registry::all();
    let statuses = clients.iter().map(|client| client.load_reports());
    statuses.flatten().collect()
}
