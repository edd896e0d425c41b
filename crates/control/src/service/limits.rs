//! The limits of a service: circuit breakers (gRFC A32). gRPC obeys the limit of open calls alone,
//! and the others are for Envoys.

use std::num::NonZeroU32;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The limits of a service. Each is for one client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// The largest number of calls that are open to the endpoints of the service.
    pub(crate) max_requests: Option<NonZeroU32>,
    /// The largest number of connections of an Envoy. gRPC has no such limit.
    pub(crate) max_connections: Option<NonZeroU32>,
    /// The largest number of calls that wait for a connection in an Envoy. gRPC has no such limit.
    pub(crate) max_pending: Option<NonZeroU32>,
    /// The largest number of open retries in an Envoy. gRPC has no such limit.
    pub(crate) max_retries: Option<NonZeroU32>,
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            deny_unknown_fields,
            expecting = "limits, such as {max_requests: 1024}"
        )]
        struct Raw {
            #[serde(default)]
            max_requests: Option<NonZeroU32>,
            #[serde(default)]
            max_connections: Option<NonZeroU32>,
            #[serde(default)]
            max_pending: Option<NonZeroU32>,
            #[serde(default)]
            max_retries: Option<NonZeroU32>,
        }

        let Raw {
            max_requests,
            max_connections,
            max_pending,
            max_retries,
        } = Raw::deserialize(deserializer)?;
        let limits = [max_requests, max_connections, max_pending, max_retries];
        if limits.iter().all(Option::is_none) {
            return Err(D::Error::custom("expected at least one limit, got none"));
        }
        Ok(Self {
            max_requests,
            max_connections,
            max_pending,
            max_retries,
        })
    }
}
