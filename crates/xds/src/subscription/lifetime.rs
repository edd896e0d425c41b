//! The time to live of resources, and the heartbeats that renew it.
//!
//! A client removes a resource with a time to live when the server has been silent for that long
//! (xDS protocol: TTL). So each stream repeats such resources after half of their time. A heartbeat
//! is the wrapper of the resource without its body.

use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::Node;

use super::response::{Form, Sent};

/// The feature by which a client announces that it understands the time to live.
const FEATURE: &str = "xds.config.supports-resource-ttl";

/// True if a client understands the time to live. Envoys do, and announce nothing.
pub(super) fn is_understood(node: &Node) -> bool {
    node.user_agent_name == "envoy" || node.client_features.iter().any(|of| of == FEATURE)
}

/// The time of the next heartbeat of one type on one stream. All resources of the type beat
/// together, as often as the shortest-lived one needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pulse {
    /// Nothing that was sent has a time to live.
    #[default]
    None,
    /// The next heartbeat is due now, because the client has resources from a stream before.
    Now,
    At(Instant),
}

impl Pulse {
    /// Makes the next heartbeat due.
    pub(super) fn beat_at_once(&mut self) {
        *self = Self::Now;
    }

    /// Notes that these resources were sent, so that their time begins.
    pub(super) fn started(&mut self, sent: &[Sent], now: Option<Instant>) {
        let Some(next) = next_beat(sent, now) else {
            return;
        };
        match *self {
            Self::At(before) if before <= next => {}
            Self::Now => {}
            Self::None | Self::At(_) => *self = Self::At(next),
        }
    }

    /// Notes that these resources, and no others, were renewed.
    pub(super) fn beaten(&mut self, sent: &[Sent], now: Instant) {
        *self = next_beat(sent, Some(now)).map_or(Self::None, Self::At);
    }

    /// True if a heartbeat is due. Without a clock there is none.
    pub(super) fn is_due(self, now: Option<Instant>) -> bool {
        match (self, now) {
            (Self::None, _) | (_, None) => false,
            (Self::Now, Some(_)) => true,
            (Self::At(time), Some(now)) => time <= now,
        }
    }

    /// The time of the next heartbeat, if it is known.
    pub(super) fn time(self) -> Option<Instant> {
        match self {
            Self::None | Self::Now => None,
            Self::At(time) => Some(time),
        }
    }
}

fn next_beat(sent: &[Sent], now: Option<Instant>) -> Option<Instant> {
    let ttl = sent.iter().filter_map(|sent| match sent.form {
        Form::Wrapped { ttl } => ttl,
        Form::Heartbeat { ttl, .. } => Some(ttl),
        Form::Bare => None,
    });
    Some(now? + half(ttl.min()?))
}

/// Half of a time to live, so that one lost heartbeat does no harm.
fn half(ttl: Duration) -> Duration {
    (ttl / 2).max(Duration::from_millis(1))
}
