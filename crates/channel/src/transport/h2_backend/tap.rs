//! Reads SETTINGS and GOAWAY frames as they arrive.
//!
//! The channel needs both, but the `h2` crate reports neither.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::http2::{ConnectionEvent, GoAway};

// RFC 9113, sections 4.1, 6.5 and 6.8.
const HEADER_LEN: usize = 9;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const ACK: u8 = 0x1;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;

/// A socket whose read side is watched. No byte is changed or checked, and `h2` gets all of them.
pub(super) struct Tap<IO, F> {
    io: IO,
    observe: F,
    /// The frame that is being read: its header, and its payload if that is looked at.
    frame: Vec<u8>,
    /// Bytes to pass over before the next frame.
    skipped: usize,
}

impl<IO, F: FnMut(ConnectionEvent)> Tap<IO, F> {
    pub(super) fn new(io: IO, observe: F) -> Self {
        Self {
            io,
            observe,
            frame: Vec::new(),
            skipped: 0,
        }
    }

    fn look(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.skipped > 0 {
                let skipped = self.skipped.min(bytes.len());
                self.skipped -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let wanted = HEADER_LEN
                + if self.is_watched() {
                    self.payload_len()
                } else {
                    0
                };
            let taken = (wanted - self.frame.len()).min(bytes.len());
            self.frame.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.finish();
        }
    }

    /// Ends a frame that is whole, or whose payload does not matter.
    fn finish(&mut self) {
        if self.frame.len() < HEADER_LEN {
            return;
        }
        if !self.is_watched() {
            self.skipped = self.payload_len();
        } else if self.frame.len() < HEADER_LEN + self.payload_len() {
            return;
        } else if let Some(event) = event(self.frame[3], &self.frame[HEADER_LEN..]) {
            (self.observe)(event);
        }
        self.frame.clear();
    }

    /// True if the frame is about the connection as a whole. False for a header that came in part.
    fn is_watched(&self) -> bool {
        let Some(&[a, b, c, kind, flags, ref stream @ ..]) = self.frame.get(..HEADER_LEN) else {
            return false;
        };
        // A frame that is larger than allowed is not kept, because `h2` ends the connection for it.
        let is_allowed = [a, b, c] <= [0, 0x40, 0] && stream.iter().all(|byte| *byte == 0);
        is_allowed && (kind == GOAWAY || kind == SETTINGS && flags & ACK == 0)
    }

    fn payload_len(&self) -> usize {
        match self.frame[..] {
            [a, b, c, ..] => u32::from_be_bytes([0, a, b, c]) as usize,
            _ => 0,
        }
    }
}

fn event(kind: u8, payload: &[u8]) -> Option<ConnectionEvent> {
    if kind == SETTINGS {
        let (settings, _) = payload.as_chunks::<6>();
        let is_limit = |setting: &&[u8; 6]| setting[..2] == MAX_CONCURRENT_STREAMS.to_be_bytes();
        let limit = settings.iter().rfind(is_limit);
        return Some(ConnectionEvent::Settings {
            max_concurrent_streams: limit.map(|[_, _, value @ ..]| u32::from_be_bytes(*value)),
        });
    }
    GoAway::parse(payload).map(ConnectionEvent::GoAway)
}

impl<IO: AsyncRead + Unpin, F: FnMut(ConnectionEvent) + Unpin> AsyncRead for Tap<IO, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        if !read.is_empty() {
            (this.observe)(ConnectionEvent::Received);
            this.look(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin, F: Unpin> AsyncWrite for Tap<IO, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
