//! The errors of `crowfly inspect`. Each has the server's address and, where it is known, the next
//! step, because a wrong port is a common mistake.

use std::{io, time::Duration};

use super::{Address, Service};

/// The reasons why a client cannot be inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No server listens at the address.
    #[error("cannot connect to {address}: {cause}")]
    Connect {
        /// The address that was asked.
        address: Address,
        /// The innermost reason, because the layers above it only repeat that it failed.
        cause: String,
    },
    /// The server speaks gRPC, but has no such service.
    #[error("{address} speaks gRPC, but has no {service} {}", .service.details())]
    NoService {
        /// The address that was asked.
        address: Address,
        /// The missing service.
        service: Service,
    },
    /// The server speaks HTTP, but is not the admin port of an Envoy.
    #[error("{address} is not the admin port of an Envoy: {found}")]
    NotEnvoy {
        /// The address that was asked.
        address: Address,
        /// The difference between the answer and that of an admin port.
        found: String,
    },
    /// The server does not speak gRPC.
    #[error("{address} does not speak gRPC: {cause}")]
    NotGrpc {
        /// The address that was asked.
        address: Address,
        /// The error that shows it.
        cause: String,
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
    /// The service refused to answer.
    #[error("{service} on {address} answers {}: {}", .status.code(), .status.message())]
    Refused {
        /// The address that was asked.
        address: Address,
        /// The service that was asked.
        service: Service,
        /// The status that the service answered with.
        status: Box<tonic::Status>,
    },
    /// The answer cannot be written in the format asked for.
    #[error("cannot write the answer: {0}")]
    Render(String),
    /// No answer came in time.
    #[error("{address} did not answer within {}", humantime::format_duration(*.after))]
    TimedOut {
        /// The address that was asked.
        address: Address,
        /// The time that the server had.
        after: Duration,
    },
}
