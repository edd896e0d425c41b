//! The transport tests again, over the `h2` crate.
//!
//! These are left out, because `h2` cannot tell whether a byte of a stream was written:
//!
//! - `a_call_that_begins_after_the_server_has_closed_is_never_sent`
//!
//! And these, because `h2` makes of headers over the limit what it makes of any malformed ones:
//!
//! - `a_head_over_the_limit_is_resource_exhausted`
//! - `a_status_is_kept_when_its_trailers_are_over_the_limit`
//!
//! What a connection holds in memory is tested in `benches/memory.rs` and in `crowfly-http2`, over
//! ours alone: nothing bounds what `h2` holds. `replay.rs` and `seam.rs` need no connection.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod calls;
mod connect;
mod endings;
mod headers;
mod support;
mod tls;

use crowfly::transport::Backend;

/// What speaks HTTP/2 here.
const BACKEND: Backend = Backend::H2;
