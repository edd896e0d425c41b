//! The view for pipes, logs and `--plain`: a line per event, and one per second.
//!
//! A line is never overwritten, because the output may be a file.

use super::Frame;
use crate::{demo::state::DemoState, output};

/// The number of events that have been printed.
#[derive(Debug, Default)]
pub(in crate::demo) struct Plain {
    printed: usize,
}

impl Plain {
    pub(super) fn news(&mut self, state: &DemoState) {
        for entry in &state.log[self.printed..] {
            output::line(format_args!(
                "{:6.1} s  * {}",
                entry.at.as_secs_f64(),
                entry.text
            ));
        }
        self.printed = state.log.len();
    }

    pub(super) fn status(&mut self, frame: &Frame<'_>) {
        self.news(frame.state);
        output::line(status(frame));
    }
}

fn status(frame: &Frame<'_>) -> String {
    let zones: Vec<_> = frame
        .state
        .zones
        .iter()
        .map(|zone| {
            let backends: Vec<_> = zone
                .backends
                .iter()
                .map(|backend| format!("{} {:>3.0}/s", backend.name, frame.rates.of(backend.name)))
                .collect();
            backends.join("  ")
        })
        .collect();
    let report = frame.report;
    format!(
        "{:6.1} s    {}   ok {}  errors {}  lost in flight {}",
        frame.elapsed.as_secs_f64(),
        zones.join(" | "),
        report.ok,
        report.failed(),
        report.lost_in_flight,
    )
}
