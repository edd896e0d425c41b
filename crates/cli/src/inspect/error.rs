//! Why there is nothing to show.

use std::{io, time::Duration};

use super::{Address, Service};

/// Why a client cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// Nobody is there.
    #[error("cannot connect to {address}: {cause}")]
    Connect {
        /// Where.
        address: Address,
        /// The innermost reason; the layers above it only repeat that it failed.
        cause: String,
    },
    /// It is a gRPC server, without the service.
    #[error("{address} speaks gRPC, but has no {service} {}", .service.details())]
    NoService {
        /// Where.
        address: Address,
        /// Which.
        service: Service,
    },
    /// It is HTTP, but no Envoy's admin port.
    #[error("{address} is not the admin port of an Envoy: {found}")]
    NotEnvoy {
        /// Where.
        address: Address,
        /// What it is instead.
        found: String,
    },
    /// It is no gRPC server at all.
    #[error("{address} does not speak gRPC: {cause}")]
    NotGrpc {
        /// Where.
        address: Address,
        /// How that shows.
        cause: String,
    },
    /// The connection broke.
    #[error("cannot read from {address}")]
    Read {
        /// Where.
        address: Address,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The service refused to answer.
    #[error("{service} on {address} answers {}: {}", .status.code(), .status.message())]
    Refused {
        /// Where.
        address: Address,
        /// Which.
        service: Service,
        /// Its answer.
        status: Box<tonic::Status>,
    },
    /// The answer cannot be written in the format asked for.
    #[error("cannot write the answer: {0}")]
    Render(String),
    /// No answer came.
    #[error("{address} did not answer within {}", humantime::format_duration(*.after))]
    TimedOut {
        /// Where.
        address: Address,
        /// How long it had.
        after: Duration,
    },
}
