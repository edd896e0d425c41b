//! Asking a gRPC server.

use std::{
    error::Error,
    fmt::{self, Display, Formatter},
};

use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use super::{Address, InspectError};

/// An answer holds all that all clients of a process were ever sent, or all that they are connected to.
pub(super) const MAX_RESPONSE_BYTES: usize = 1 << 30;

/// A service that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// What the clients of a process were told.
    Csds,
    /// What the channels of a process are doing.
    Debug,
}

impl Service {
    /// Its name on the wire, and what to do if it is not there.
    pub(super) fn details(self) -> &'static str {
        match self {
            Self::Csds => "(envoy.service.status.v3.ClientStatusDiscoveryService)",
            Self::Debug => {
                "(crowfly.debug.v1.Debug): a program mounts crowfly::debug_service() beside CSDS"
            }
        }
    }
}

impl Display for Service {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csds => "CSDS",
            Self::Debug => "debug service",
        })
    }
}

pub(super) async fn connect(address: &Address) -> Result<Channel, InspectError> {
    let cannot_connect = |error: tonic::transport::Error| InspectError::Connect {
        address: address.clone(),
        cause: innermost(&error),
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(cannot_connect)?;
    endpoint.connect().await.map_err(cannot_connect)
}

/// Why there is a status and no answer.
pub(super) fn refused(address: &Address, service: Service, status: Status) -> InspectError {
    let address = address.clone();
    if status.code() == Code::Unimplemented {
        return InspectError::NoService { address, service };
    }
    // Only a status that no server sent has a cause.
    match status.source() {
        Some(cause) => InspectError::NotGrpc {
            address,
            cause: innermost(cause),
        },
        None => InspectError::Refused {
            address,
            service,
            status: Box::new(status),
        },
    }
}

fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}
