//! The `tracing` span of a call, with OpenTelemetry's names for its fields.
//!
//! The span is at DEBUG, because a log of every call at INFO would be too long. While that level is off, a call costs
//! one look at `tracing`'s filter. The span is not entered, because its events name it.

use std::net::SocketAddr;

use crowfly_lb::{CallOutcome, LocalityId};
use tonic::Code;
use tracing::field::Empty;
use tracing::{Span, debug, debug_span};

/// The span of a call that begins. The span is disabled if its level is off.
pub(super) fn of_call(target: &str, path: &str) -> Span {
    debug_span!(
        target: "crowfly::call",
        "grpc.call",
        otel.kind = "client",
        otel.name = path.trim_start_matches('/'),
        otel.status_code = Empty,
        rpc.system = "grpc",
        rpc.service = service_and_method(path).0,
        rpc.method = service_and_method(path).1,
        rpc.grpc.status_code = Empty,
        grpc.target = target,
        cluster = Empty,
    )
}

/// An attempt has an endpoint.
pub(super) fn picked(span: &Span, address: SocketAddr, locality: &LocalityId) {
    if !span.is_disabled() {
        debug!(target: "crowfly::call", parent: span, %address, %locality, "attempt");
    }
}

pub(super) fn attempt_ended(span: &Span, outcome: CallOutcome) {
    if !span.is_disabled() {
        let status = outcome.code();
        debug!(target: "crowfly::call", parent: span, status, ?outcome, "attempt ended");
    }
}

pub(super) fn ended(span: &Span, status: Code) {
    span.record("rpc.grpc.status_code", status as i32);
    if status != Code::Ok {
        span.record("otel.status_code", "ERROR");
    }
}

/// The parts of a path such as `/package.Service/Method`.
fn service_and_method(path: &str) -> (&str, &str) {
    let path = path.trim_start_matches('/');
    path.rsplit_once('/').unwrap_or((path, ""))
}
