//! The findings about a configuration, each with its place in the file, so that a user can go there.

use std::{fmt, io, path::Path};

use crowfly_control::{Checked, ClientProblem, ConfigError, ConfigErrors, Severity};
use serde::{Serialize, Serializer};

use crate::output;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(serialize_with = "name_of")]
    pub(super) severity: Severity,
    /// The kind of client that refuses it; `None` if the control plane does.
    client: Option<ClientKind>,
    file: String,
    line: Option<u64>,
    column: Option<u64>,
    /// The path of the field from the root of the document.
    path: Option<String>,
    message: String,
}

/// The kinds of clients whose readings are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientKind {
    Grpc,
    Node,
}

impl Finding {
    /// The errors of a configuration that cannot be read.
    pub(super) fn of_files(errors: &ConfigErrors) -> Vec<Self> {
        let errors = errors.iter();
        errors
            .map(|error| Self::new(Severity::Error, None, error))
            .collect()
    }

    /// A configuration without a text.
    pub(super) fn unreadable(name: &Path, error: &io::Error) -> Self {
        let error = ConfigError::of_file(name, format!("cannot be read: {error}"));
        Self::new(Severity::Error, None, &error)
    }

    /// The findings of the control plane, and of gRPC clients. With `force`, resources that gRPC clients refuse are
    /// warnings.
    pub(super) fn of_control_plane(checked: &Checked, force: bool) -> Vec<Self> {
        let refused = checked.refused_by_grpc().into_iter();
        let refused = refused.map(|ClientProblem { problem, severity }| {
            let severity = match severity {
                Severity::Error if force => Severity::Warning,
                other => other,
            };
            Self::new(severity, Some(ClientKind::Grpc), &problem)
        });
        let warnings = checked.warnings().into_iter();
        let warnings = warnings.map(|problem| Self::new(Severity::Warning, None, &problem));
        refused.chain(warnings).collect()
    }

    pub(super) fn new(
        severity: Severity,
        client: Option<ClientKind>,
        problem: &ConfigError,
    ) -> Self {
        Self {
            severity,
            client,
            file: problem.file.display().to_string(),
            line: problem.at.map(|at| at.line),
            column: problem.at.map(|at| at.column),
            path: Some(problem.path.clone()).filter(|path| !path.is_empty()),
            message: problem.message.clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", severity(self.severity))?;
        f.write_str(&output::printable(&self.file))?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        f.write_str(": ")?;
        if let Some(path) = &self.path {
            write!(f, "{}: ", output::printable(path))?;
        }
        f.write_str(&output::printable(&self.message))
    }
}

fn severity(of: Severity) -> &'static str {
    match of {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn name_of<S: Serializer>(of: &Severity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(severity(*of))
}
