//! For pipes, logs and `--plain`: a line per event, and one per second.

use super::Frame;
use crate::{demo::scene::Scene, output};

/// How much of the log has been printed.
#[derive(Debug, Default)]
pub(in crate::demo) struct Plain {
    printed: usize,
}

impl Plain {
    pub(super) fn news(&mut self, scene: &Scene) {
        for entry in &scene.log[self.printed..] {
            output::line(format_args!(
                "{:6.1} s  * {}",
                entry.at.as_secs_f64(),
                entry.text
            ));
        }
        self.printed = scene.log.len();
    }

    pub(super) fn status(&mut self, frame: &Frame<'_>) {
        self.news(frame.scene);
        output::line(status(frame));
    }
}

fn status(frame: &Frame<'_>) -> String {
    let zones: Vec<_> = frame
        .scene
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
