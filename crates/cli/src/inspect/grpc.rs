//! Connects to a gRPC server and turns its failures into errors that name the next step. CSDS and
//! the debug service share it.

use std::{
    error::Error,
    fmt::{self, Display, Formatter},
};

use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use super::{Address, InspectError};

/// The limit on an answer. The limit is large, because an answer holds every resource of every
/// client of a process.
pub(super) const MAX_RESPONSE_BYTES: usize = 1 << 30;

/// A service that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// CSDS, which shows the resources of a process's clients.
    Csds,
    /// The debug service, which shows the balancing trees of a process's channels.
    Debug,
}

impl Service {
    /// The name of the service on the wire, and the advice if a server does not have it.
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

/// Turns the status of a failed call into an error.
pub(super) fn refused(address: &Address, service: Service, status: Status) -> InspectError {
    let address = address.clone();
    if status.code() == Code::Unimplemented {
        return InspectError::NoService { address, service };
    }
    // A status that was made locally has a cause; one that a server sent has none.
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
