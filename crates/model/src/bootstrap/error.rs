//! Errors of a bootstrap, each with the file or variable that it came from.
//!
//! The source is part of the error, because several places can hold a bootstrap.

use std::{fmt, io, path::PathBuf, sync::Arc};

use super::{FILE_VARIABLE, INLINE_VARIABLE};
use crate::Errors;

/// The reason why there is no bootstrap.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The environment names no bootstrap.
    #[error(
        "no xDS bootstrap: neither {FILE_VARIABLE} (a file) nor {INLINE_VARIABLE} (JSON) is set"
    )]
    Missing,
    /// The file cannot be read.
    #[error("{origin}: cannot be read: {source}")]
    Read {
        /// The file.
        origin: Origin,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The variable's value is not UTF-8.
    #[error("{origin}: expected UTF-8, got other bytes")]
    NotUtf8 {
        /// The variable.
        origin: Origin,
    },
    /// The text is not JSON.
    #[error("{origin}: not valid JSON: {source}")]
    Syntax {
        /// The place that the text came from.
        origin: Origin,
        /// The error of the JSON parser, with line and column.
        source: Arc<serde_json::Error>,
    },
    /// The JSON is not a valid bootstrap.
    #[error("{origin}: {errors}")]
    Invalid {
        /// The place that the JSON came from.
        origin: Origin,
        /// Every problem, with its field.
        errors: Errors,
    },
}

/// The place that a bootstrap came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program.
    Code,
    /// A file named by a program.
    File(PathBuf),
    /// The file that `GRPC_XDS_BOOTSTRAP` names.
    FileVariable(PathBuf),
    /// `GRPC_XDS_BOOTSTRAP_CONFIG`.
    InlineVariable,
    /// JSON given by a program.
    Json,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("xDS bootstrap")?;
        match self {
            Self::Code => f.write_str(" from code"),
            Self::File(path) => write!(f, " file {}", path.display()),
            Self::FileVariable(path) => write!(f, " file {} ({FILE_VARIABLE})", path.display()),
            Self::InlineVariable => write!(f, " in {INLINE_VARIABLE}"),
            Self::Json => Ok(()),
        }
    }
}
