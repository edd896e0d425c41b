//! A small HTTP/2 client for gRPC.
//!
//! ```text
//!  call ─ Client::open ─┐                        ┌─ ConnectionTask ─ socket
//!  call ─ SendStream ───┼─> Core, under a lock <─┤
//!  call ─ ReceiveStream ┘   (no I/O in it)       └─ ConnectionEvent: SETTINGS, GOAWAY
//! ```
//!
//! # Why not the `h2` crate
//!
//! A channel has many connections that are idle most of the time, and it must know exactly how a call ended. So a
//! connection of this crate:
//!
//! - holds next to nothing while it is idle, because buffers exist only while they are in use;
//! - knows for every stream if a byte of it was given to the socket. Only a call without such a byte may be repeated
//!   without limit (gRFC A6);
//! - reports SETTINGS and GOAWAY as they come, because a connection is ready from the first until the
//!   second.
//!
//! The crate has the parts of RFC 9113 and RFC 7541 that gRPC needs: no server side, no push, no priorities, no
//! CONNECT.

// No clock, no sleep, no randomness of the process, no runtime, but in `connection`: clippy.toml says why.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod bdp;
mod client;
#[expect(
    clippy::disallowed_methods,
    reason = "the driver: it has the socket and the clock"
)]
mod connection;
mod core;
mod error;
mod frame;
mod head;
mod hpack;
mod input;
mod output;
mod ping;
mod read;
mod reason;
mod receive;
mod stream;
mod window;

use std::fmt;
use std::sync::Arc;

pub use client::{Client, HeadFuture, PingSender, ReceiveStream, SendStream};
pub use connection::ConnectionTask;
pub use error::{Error, OpenError, StreamError};
pub use head::AuthorityField;
pub use reason::Reason;

/// The limits that a connection sets for the server.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The bytes that the server may send on a stream before they are read. With adaptive windows this is the first
    /// size.
    pub stream_window: u32,
    /// The bytes that the server may have under way on all streams together; 65,535 at least.
    pub connection_window: u32,
    /// True if the windows of streams that are read follow the bandwidth and the delay of the path. Windows grow to 16
    /// MiB at most.
    pub is_adaptive: bool,
    /// The bytes that may be under way or unread on all streams together. Below that, the connection's window
    /// is given back as bytes come, so that a stream without a reader does not stop the others.
    pub max_unread: u32,
    /// The largest size of the head of a response, and of its trailers, as HPACK counts. Of larger ones only
    /// the gRPC status is kept.
    pub max_header_list_size: u32,
    /// The id of the first stream. Tests set it, because they must reach the last id soon.
    pub first_stream_id: u32,
}

impl Default for Config {
    /// Windows hold most responses whole, and adapt to larger ones. Headers may be larger than gRPC's usual
    /// 8 or 16 kB, because `grpc-status-details-bin` often is.
    fn default() -> Self {
        Self {
            stream_window: 1024 * 1024,
            connection_window: 16 * 1024 * 1024,
            is_adaptive: true,
            max_unread: 16 * 1024 * 1024,
            max_header_list_size: 64 * 1024,
            first_stream_id: 1,
        }
    }
}

/// An event of the connection as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// GOAWAY came: the server takes no more streams.
    GoAway(GoAway),
    /// Bytes came. The events of the frames in them follow.
    Received,
    /// SETTINGS came. The first ones make the connection ready.
    Settings {
        /// SETTINGS_MAX_CONCURRENT_STREAMS, if this frame sets it.
        max_concurrent_streams: Option<u32>,
    },
}

/// A GOAWAY frame: the server takes no stream above `last_stream_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The highest stream the server may have acted on. A graceful shutdown first sends 2^31-1.
    pub last_stream_id: u32,
    /// The HTTP/2 error code, `NO_ERROR` for a graceful shutdown.
    pub error_code: u32,
    /// The beginning of the server's debug data; empty if there is none.
    pub debug_text: Arc<str>,
}

impl GoAway {
    /// The number of bytes of a server's debug data that are kept.
    const MAX_DEBUG_TEXT: usize = 256;

    /// Reads the payload of a GOAWAY frame; `None` if it is too short for one.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (last_stream_id, rest) = payload.split_first_chunk()?;
        let (error_code, debug) = rest.split_first_chunk()?;
        let debug = &debug[..debug.len().min(Self::MAX_DEBUG_TEXT)];
        Some(Self {
            last_stream_id: u32::from_be_bytes(*last_stream_id) & frame::STREAM_ID_MASK,
            error_code: u32::from_be_bytes(*error_code),
            debug_text: String::from_utf8_lossy(debug).into(),
        })
    }
}

impl fmt::Display for GoAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = Reason::from(self.error_code);
        match &*self.debug_text {
            "" => write!(f, "the server is going away ({reason:?})"),
            // Quoted and escaped: it is the server's, and may hold anything.
            text => write!(f, "the server is going away ({reason:?}: {text:?})"),
        }
    }
}
