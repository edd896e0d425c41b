//! The gRPC code of an HTTP status, for answers that have no gRPC status.
//!
//! The client and the channel both get such answers from proxies, and must report the same code.

use http::StatusCode;
use tonic::Code;

/// The gRPC code of a response that has an HTTP status and no gRPC status, because a proxy or a server of
/// something else answered.
///
/// The mapping is that of all gRPC implementations:
/// <https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>.
///
/// ```
/// use crowfly_client::code_of_http;
///
/// assert_eq!(code_of_http(http::StatusCode::BAD_GATEWAY), tonic::Code::Unavailable);
/// assert_eq!(code_of_http(http::StatusCode::OK), tonic::Code::Unknown);
/// ```
pub fn code_of_http(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    }
}
