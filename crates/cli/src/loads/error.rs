//! The errors of `crowfly loads`, each with the address of the control plane.

use std::{io, time::Duration};

use crate::{address::Address, http::PageError};

/// The reasons why loads cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadsError {
    /// No server listens at the address.
    #[error("cannot connect to {address}")]
    Connect {
        /// The address that was asked.
        address: Address,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
    /// The server is no admin port of a control plane.
    #[error("{address} is not the admin port of crowfly control: {found}")]
    NotControl {
        /// The address that was asked.
        address: Address,
        /// The difference to an admin port.
        found: String,
    },
    /// The connection broke.
    #[error("cannot read from {address}")]
    Read {
        /// The address that was asked.
        address: Address,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    /// The terminal cannot be drawn on.
    #[error("cannot draw on the terminal; --once does without")]
    Terminal(#[source] io::Error),
    /// No answer came in time.
    #[error("{address} did not answer within {}", humantime::format_duration(*.after))]
    TimedOut {
        /// The address that was asked.
        address: Address,
        /// The time that the server had.
        after: Duration,
    },
}

impl LoadsError {
    pub(super) fn of_page(error: PageError, address: &Address) -> Self {
        let address = address.clone();
        match error {
            PageError::Connect(cause) => Self::Connect { address, cause },
            PageError::Read(cause) => Self::Read { address, cause },
            PageError::Answer(found) => Self::NotControl { address, found },
        }
    }
}
