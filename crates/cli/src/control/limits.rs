//! The flags for the limits of what clients may use of a control plane, because one client must not
//! take it from the others.

use std::{num::NonZeroU32, time::Duration};

use clap::Args;
use crowfly_control::Limits;

use crate::args;

/// The limits of `crowfly control`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// The most connections to the address of ADS; more are closed at once
    #[arg(
        long,
        value_name = "N",
        default_value = "20000",
        env = "CROWFLY_CONTROL_MAX_CONNECTIONS"
    )]
    pub max_connections: NonZeroU32,

    /// The most open streams for discovery, load reports, CSDS, health and reflection
    #[arg(
        long,
        value_name = "N",
        default_value = "40000",
        env = "CROWFLY_CONTROL_MAX_STREAMS"
    )]
    pub max_streams: NonZeroU32,

    /// The most open streams of one connection
    #[arg(
        long,
        value_name = "N",
        default_value = "100",
        env = "CROWFLY_CONTROL_MAX_STREAMS_PER_CONNECTION"
    )]
    pub max_streams_per_connection: NonZeroU32,

    /// The connections that are taken in a second; more have to wait, up to five seconds
    #[arg(
        long,
        value_name = "N",
        default_value = "2000",
        env = "CROWFLY_CONTROL_MAX_CONNECTS_PER_SECOND"
    )]
    pub max_connects_per_second: NonZeroU32,

    /// The share of connections, streams and connects per second that one address may take, from 0
    /// to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0.5",
        value_parser = args::fraction,
        env = "CROWFLY_CONTROL_MAX_ADDRESS_SHARE"
    )]
    pub max_address_share: f64,

    /// The most types of resources on one stream
    #[arg(
        long,
        value_name = "N",
        default_value = "100",
        env = "CROWFLY_CONTROL_MAX_TYPES"
    )]
    pub max_types: NonZeroU32,

    /// The most names of one type on one stream
    #[arg(
        long,
        value_name = "N",
        default_value = "100000",
        env = "CROWFLY_CONTROL_MAX_NAMES"
    )]
    pub max_names: NonZeroU32,

    /// The most bytes that are held for the client of one connection: names, its node, the buffers of
    /// its requests, responses without an ACK, reasons for refusals, and answers of CSDS and reflection
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "32MiB",
        value_parser = args::bytes,
        env = "CROWFLY_CONTROL_MAX_HELD"
    )]
    pub max_held: usize,

    /// The most bytes of one discovery request
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "4MiB",
        value_parser = args::bytes,
        env = "CROWFLY_CONTROL_MAX_REQUEST"
    )]
    pub max_request: usize,

    /// The requests in a second that a client makes by itself on one connection, new streams and load
    /// reports included. Each 64 KiB of a request counts as one more, and so do each 4,096 resources
    /// that a wildcard asks for. A faster client is read more slowly
    #[arg(
        long,
        value_name = "N",
        default_value = "100",
        env = "CROWFLY_CONTROL_MAX_REQUESTS_PER_SECOND"
    )]
    pub max_requests_per_second: NonZeroU32,

    /// The time after which a client that does not take a response is named in log, /clients and
    /// /metrics
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = args::positive_duration,
        env = "CROWFLY_CONTROL_SLOW_AFTER"
    )]
    pub slow_after: Duration,

    /// The time after which the connection of such a client is closed
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = args::positive_duration,
        env = "CROWFLY_CONTROL_CLOSE_SLOW_AFTER"
    )]
    pub close_slow_after: Duration,

    /// The time that a client has for the handshakes of TLS and HTTP/2
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = args::positive_duration,
        env = "CROWFLY_CONTROL_HANDSHAKE_TIMEOUT"
    )]
    pub handshake_timeout: Duration,
}

impl LimitArgs {
    /// The limits that the flags set.
    pub fn limits(&self) -> Limits {
        let count = |number: NonZeroU32| usize::try_from(number.get()).unwrap_or(usize::MAX);
        Limits {
            connections: count(self.max_connections),
            streams: count(self.max_streams),
            streams_per_connection: self.max_streams_per_connection.get(),
            connects_per_second: self.max_connects_per_second.get(),
            address_share: self.max_address_share,
            types: count(self.max_types),
            names: count(self.max_names),
            held_bytes: self.max_held,
            request_bytes: self.max_request,
            requests_per_second: self.max_requests_per_second.get(),
            slow_after: self.slow_after,
            close_after: self.close_slow_after,
            handshake_timeout: self.handshake_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let command = Command::parse_from(["control"]);
        assert_eq!(command.limits.limits(), Limits::default());
    }

    #[test]
    fn nothing_is_limited_to_zero() {
        for wrong in [
            ["control", "--max-streams", "0"],
            ["control", "--max-held", "0"],
            ["control", "--slow-after", "0s"],
        ] {
            assert!(Command::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
