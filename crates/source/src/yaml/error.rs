//! The problems of a configuration, and their places.
//!
//! An operator reads these while a mesh is waiting. So each names the file, the line, the field and
//! the expected value. All of them are reported at once, not only the first.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A place in a file; both numbers count from 1, and 0 means "unknown".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

/// One problem of a configuration:
/// `control.yaml:12:9: services[0].endpoints[0].address: expected "ip:port", got "foo"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file with the problem.
    pub file: PathBuf,
    /// The place in the file; `None` if the file as a whole is the problem.
    pub at: Option<Position>,
    /// The path of the field from the root of the document. Empty for the whole document.
    pub path: String,
    /// The problem, and what was expected.
    pub message: String,
}

impl ConfigError {
    /// A problem of a file as a whole.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            at: None,
            path: String::new(),
            message: message.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(at) = self.at {
            write!(f, ":{}:{}", at.line, at.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// All problems of a configuration, one line each; never empty.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}", lines(.0))]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The problems, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Returns `value` if there are no errors.
    ///
    /// # Errors
    /// The errors, if there are any.
    pub fn check<T>(errors: Vec<ConfigError>, value: T) -> Result<T, Self> {
        if errors.is_empty() {
            Ok(value)
        } else {
            Err(Self(errors))
        }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

fn lines(errors: &[ConfigError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
