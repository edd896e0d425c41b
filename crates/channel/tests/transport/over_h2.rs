//! The transport tests again, over the `h2` crate.
//!
//! This test is left out, because `h2` cannot tell whether a byte of a stream was written:
//!
//! - `a_call_that_begins_after_the_server_has_closed_is_never_sent`
//!
//! These tests are left out, because `h2` treats headers over the limit as malformed ones:
//!
//! - `a_head_over_the_limit_is_resource_exhausted`
//! - `a_status_is_kept_when_its_trailers_are_over_the_limit`
//!
//! The memory of a connection is tested over our HTTP/2 alone, because `h2` has no bound for it.
//! Those tests are in `benches/memory.rs` and in `crowfly-http2`. `replay.rs` and `seam.rs` need no
//! connection.

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

/// The HTTP/2 of these tests.
const BACKEND: Backend = Backend::H2;
