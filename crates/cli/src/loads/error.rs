//! The errors of `crowfly loads`. Only the first read of the control plane can fail the command,
//! because a table stays useful when a later read fails.

use std::io;

use crate::admin_page::AdminError;

/// The reasons why loads cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadsError {
    /// The control plane cannot be read.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// The terminal cannot be drawn on.
    #[error("cannot draw on the terminal; --once does without")]
    Terminal(#[source] io::Error),
}
