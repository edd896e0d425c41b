//! Fields of routes that can be set and have no effect.
//!
//! Such fields are recorded, because users expect a field to have an effect if it was accepted
//! without a message.

use envoy_types::pb::{
    envoy::config::route::v3::{self as pb, RouteMatch, route::Action},
    google::protobuf::Duration,
};

use super::retry_policy;
use crate::Validator;

/// Records the fields of the virtual host that have no effect, apart from its routes.
pub(super) fn in_host(proto: &pb::VirtualHost, v: &mut Validator) {
    retry_policy::ignored(
        proto.retry_policy.as_ref(),
        proto.retry_policy_typed_config.as_ref(),
        proto.hedge_policy.as_ref(),
        v,
    );
}

/// Records the fields of a route that have no effect. The function is called only for routes that
/// are used.
pub(super) fn in_route(proto: &pb::Route, v: &mut Validator) {
    if let Some(matcher) = &proto.r#match {
        v.field("match", |v| in_match(matcher, v));
    }
    if let Some(Action::Route(action)) = &proto.action {
        v.field("route", |v| in_action(action, v));
    }
}

/// gRFC A28 has no such matchers, and a route is valid without them.
fn in_match(proto: &RouteMatch, v: &mut Validator) {
    let ignored = [
        (!proto.cookies.is_empty(), "cookies"),
        (!proto.dynamic_metadata.is_empty(), "dynamic_metadata"),
        (!proto.filter_state.is_empty(), "filter_state"),
        (proto.tls_context.is_some(), "tls_context"),
    ];
    for (_, name) in ignored.into_iter().filter(|(is_set, _)| *is_set) {
        v.unsupported_at(name, "ignored: the route matches without it (gRFC A28)");
    }
}

fn in_action(proto: &pb::RouteAction, v: &mut Validator) {
    // A timeout of zero is not recorded, because Envoy needs it to have no limit.
    if proto
        .timeout
        .is_some_and(|time| time != Duration::default())
    {
        let message = "ignored: max_stream_duration limits the calls of gRPC (gRFC A31)";
        v.unsupported_at("timeout", message);
    }
    let limits = proto.max_stream_duration.as_ref();
    if limits.is_some_and(|limits| limits.grpc_timeout_header_offset.is_some()) {
        let field = "max_stream_duration.grpc_timeout_header_offset";
        v.unsupported_at(field, "ignored: it is for proxies (gRFC A31)");
    }
    retry_policy::ignored(
        proto.retry_policy.as_ref(),
        proto.retry_policy_typed_config.as_ref(),
        proto.hedge_policy.as_ref(),
        v,
    );
}
