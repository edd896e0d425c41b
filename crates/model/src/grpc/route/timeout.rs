//! The longest time that a call may take, as routes and listeners set it (gRFC A31).
//!
//! The limit is a type of its own, because zero is not the same as unset: zero removes the limit of the listener.

use std::time::Duration;

use envoy_types::pb::{
    envoy::config::route::v3::route_action::MaxStreamDuration, google::protobuf,
};

use crate::{Validator, grpc::duration};

/// The longest time that a call may take. The limit never lengthens a deadline of the program (gRFC A31).
///
/// ```
/// use std::time::Duration;
/// use crowfly_model::grpc::route::MaxDuration;
///
/// let ten = Duration::from_secs(10);
/// assert_eq!(MaxDuration::from(ten).limit(), Some(ten));
/// assert_eq!(MaxDuration::from(Duration::ZERO), MaxDuration::Unlimited);
/// assert_eq!(MaxDuration::Unlimited.limit(), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxDuration {
    /// A call may take this long.
    Limited(Duration),
    /// The resource sets no limit. A route then has the limit of the listener.
    #[default]
    Unset,
    /// The resource sets zero, which means that there is no limit.
    Unlimited,
}

impl MaxDuration {
    /// The limit; `None` if there is none.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Self::Limited(limit) => Some(limit),
            Self::Unset | Self::Unlimited => None,
        }
    }
}

impl From<Duration> for MaxDuration {
    fn from(limit: Duration) -> Self {
        if limit.is_zero() {
            Self::Unlimited
        } else {
            Self::Limited(limit)
        }
    }
}

/// Reads the limit of a route. If `grpc_timeout_header_max` is set, `max_stream_duration` does not count, not
/// even its errors, as in gRPC C-core.
pub(super) fn parse(proto: Option<&MaxStreamDuration>, v: &mut Validator) -> MaxDuration {
    let Some(proto) = proto else {
        return MaxDuration::Unset;
    };
    let (limit, field) = match &proto.grpc_timeout_header_max {
        Some(limit) => (Some(limit), "grpc_timeout_header_max"),
        None => (proto.max_stream_duration.as_ref(), "max_stream_duration"),
    };
    v.field("max_stream_duration", |v| parse_field(limit, field, v))
}

/// Reads the limit in a field of its own; unset after an error.
pub(in crate::grpc) fn parse_field(
    proto: Option<&protobuf::Duration>,
    field: &str,
    v: &mut Validator,
) -> MaxDuration {
    let limit = proto.and_then(|proto| v.field(field, |v| duration::parse(proto, v)));
    limit.map_or(MaxDuration::Unset, MaxDuration::from)
}
