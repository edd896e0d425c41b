//! Reads pages of the admin port of a control plane. `crowfly clients` and `crowfly loads` share
//! this, so that both report the same errors.

use std::{io, time::Duration};

use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::{
    address::Address,
    http::{self, PageError},
};

/// The reasons why a page of a control plane cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The control plane does not have the thing that was asked for.
    #[error("{0}")]
    Absent(String),
    /// No server listens at the address.
    #[error("cannot connect to {address}")]
    Connect {
        /// The address that was asked.
        address: Address,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
    /// The server is not the admin port of a control plane.
    #[error("{address} is not the admin port of crowfly control: {found}")]
    NotControl {
        /// The address that was asked.
        address: Address,
        /// The difference between the answer and that of an admin port.
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
    /// No answer came in time.
    #[error("{address} did not answer within {}", humantime::format_duration(*.after))]
    TimedOut {
        /// The address that was asked.
        address: Address,
        /// The time that the server had.
        after: Duration,
    },
}

/// Reads the value of a page. Errors name the page by `path`, which may go on with a query.
pub(crate) async fn read<T: DeserializeOwned>(
    admin: &Address,
    path: &str,
    limit: Duration,
) -> Result<T, AdminError> {
    let address = admin.clone();
    let page = timeout(limit, http::get(admin, path)).await;
    let page = page.map_err(|_| AdminError::TimedOut {
        address: address.clone(),
        after: limit,
    })?;
    let page = page.map_err(|error| AdminError::of_page(error, admin))?;
    serde_json::from_slice(&page).map_err(|error| {
        let page = path.split('?').next().unwrap_or(path);
        let found = format!("{page} is another page: {error}");
        AdminError::NotControl { address, found }
    })
}

impl AdminError {
    fn of_page(error: PageError, address: &Address) -> Self {
        let address = address.clone();
        match error {
            PageError::Connect(cause) => Self::Connect { address, cause },
            PageError::Read(cause) => Self::Read { address, cause },
            PageError::Absent { told, .. } if told.starts_with("no client ") => Self::Absent(told),
            PageError::Absent { status, .. } => {
                let found = format!("it answers {status}");
                Self::NotControl { address, found }
            }
            PageError::Answer(found) => Self::NotControl { address, found },
        }
    }
}
