//! The report about one configuration: text for people, and JSON for scripts.

use std::{fmt::Write, path::Path};

use crowfly_control::{Checked, Counts, Severity};
use serde::Serialize;
use serde_json::json;

use super::{agents, findings::Finding};
use crate::output;

/// The result of checking one configuration.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    config: String,
    valid: bool,
    findings: Vec<Finding>,
    #[serde(flatten)]
    size: Option<Size>,
}

/// The size of a configuration that could be read.
#[derive(Debug, Serialize)]
struct Size {
    services: usize,
    views: usize,
    /// The number of resources of each type.
    resources: std::collections::BTreeMap<String, usize>,
    checked: ReadBy,
}

/// The number of resources that were read as each kind of client reads them.
#[derive(Debug, Serialize)]
struct ReadBy {
    grpc: usize,
    node: usize,
}

impl Report {
    /// The report about a configuration that can be read.
    pub(super) fn of(config: &Path, checked: &Checked, force: bool) -> Self {
        let (of_agents, read_by_agents) = agents::check(checked);
        let mut findings = Finding::of_control_plane(checked, force);
        findings.extend(of_agents);
        findings.sort_by_key(|finding| finding.severity);
        let Counts {
            services,
            views,
            resources,
            for_grpc,
        } = checked.counts();
        Self {
            size: Some(Size {
                services,
                views,
                resources,
                checked: ReadBy {
                    grpc: for_grpc,
                    node: read_by_agents,
                },
            }),
            ..Self::bad(config, findings)
        }
    }

    /// The report about a configuration that cannot be read, so its size is not known.
    pub(super) fn bad(config: &Path, findings: Vec<Finding>) -> Self {
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        Self {
            config: config.display().to_string(),
            valid: !findings.iter().any(is_error),
            findings,
            size: None,
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.valid
    }

    /// Prints the findings and a summary.
    pub(super) fn print(&self, with_notes: bool) {
        let shown = |finding: &&Finding| with_notes || finding.severity != Severity::Note;
        for finding in self.findings.iter().filter(shown) {
            output::line(finding);
        }
        output::line(self.summary(with_notes));
    }

    fn summary(&self, with_notes: bool) -> String {
        let count = |severity| {
            let of = self.findings.iter();
            of.filter(|finding| finding.severity == severity).count()
        };
        let mut text = format!("{}: ", output::printable(&self.config));
        if self.valid {
            text.push_str("ok");
        } else {
            text.push_str(&counted(count(Severity::Error), "error"));
        }
        let resources = |size: &Size| size.resources.values().sum();
        if let Some(size) = &self.size {
            let _ = write!(text, ", {}", counted(resources(size), "resource"));
        }
        for (severity, noun) in [(Severity::Warning, "warning"), (Severity::Note, "note")] {
            let count = count(severity);
            if count > 0 {
                let _ = write!(text, ", {}", counted(count, noun));
                if severity == Severity::Note && !with_notes {
                    text.push_str(" (--notes lists them)");
                }
            }
        }
        if let Some(size) = &self.size {
            text.push_str(&size.lines());
        }
        text
    }
}

impl Size {
    fn lines(&self) -> String {
        let types = self.resources.iter().map(|(url, count)| {
            let name = url.rsplit('.').next().unwrap_or(url);
            format!("{count} {}", output::printable(name))
        });
        let types: Vec<String> = types.collect();
        let size = [
            counted(self.services, "service"),
            counted(self.views, "view"),
        ];
        let ReadBy { grpc, node } = self.checked;
        format!(
            "\n  {}: {}\n  \
             read as gRPC clients do: {}; as node agents do: {}; Envoy's own rules are not checked",
            size.join(", "),
            types.join(", "),
            counted(grpc, "resource"),
            counted(node, "resource"),
        )
    }
}

/// The number with the noun: `1 error`, `2 errors`.
fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// All reports as one JSON document.
pub(super) fn json(reports: &[Report]) -> String {
    let valid = reports.iter().all(Report::is_valid);
    let document = json!({ "valid": valid, "configurations": reports });
    format!("{document:#}")
}
