//! Reads SETTINGS and GOAWAY off the wire as they pass.
//!
//! `h2` handles both frames inside and reports neither: its handshake returns before the server
//! has said a word, and a GOAWAY shows only in the next request's failure. The tap sits between
//! the socket (or TLS) and `h2` and looks at the 9-byte header of each frame the server sends. It
//! changes no byte, and it skips payloads without copying: its cost is one branch per read plus
//! a 9-byte copy per frame.
//!
//! It judges nothing either. A malformed frame ends the connection in `h2`, which sees the same
//! bytes a moment later.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the server said about the connection as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A SETTINGS frame that is not an acknowledgement.
    Settings {
        /// SETTINGS_MAX_CONCURRENT_STREAMS, if this frame sets it.
        max_concurrent_streams: Option<u32>,
    },
    GoAway(GoAway),
    /// Bytes, whatever they mean. What they mean comes after.
    Something,
}

/// A GOAWAY frame: the server takes no stream above `last_stream_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The highest stream the server may have acted on. A graceful shutdown first sends 2^31-1.
    pub last_stream_id: u32,
    /// The HTTP/2 error code, `NO_ERROR` for a graceful shutdown.
    pub error_code: u32,
}

/// An I/O object whose read side is watched for SETTINGS and GOAWAY.
pub(super) struct Tap<IO, F> {
    io: IO,
    scanner: Scanner,
    report: F,
}

impl<IO, F: FnMut(Seen)> Tap<IO, F> {
    pub(super) fn new(io: IO, report: F) -> Self {
        Self {
            io,
            scanner: Scanner::default(),
            report,
        }
    }
}

impl<IO: AsyncRead + Unpin, F: FnMut(Seen) + Unpin> AsyncRead for Tap<IO, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            (this.report)(Seen::Something);
        }
        this.scanner.scan(&buf.filled()[before..], &mut this.report);
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

/// Finds frames in a byte stream that arrives in pieces of any size.
///
/// It collects one fixed-size field at a time (a frame header, a setting, the head of a GOAWAY)
/// and passes over everything else.
#[derive(Debug, Default)]
struct Scanner {
    expect: Expect,
    field: [u8; HEADER_LEN],
    filled: usize,
    /// Payload bytes of the current frame that were neither collected nor skipped yet.
    remaining: usize,
    max_concurrent_streams: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expect {
    #[default]
    Header,
    Setting,
    GoAway,
    /// The rest of a payload nobody looks at.
    Rest,
}

impl Scanner {
    fn scan(&mut self, mut bytes: &[u8], mut report: impl FnMut(Seen)) {
        loop {
            if self.expect == Expect::Rest {
                let skipped = self.remaining.min(bytes.len());
                self.remaining -= skipped;
                bytes = &bytes[skipped..];
                if self.remaining > 0 {
                    return;
                }
                self.expect = Expect::Header;
            }

            let wanted = self.expect.len();
            let taken = (wanted - self.filled).min(bytes.len());
            let (head, tail) = bytes.split_at(taken);
            self.field[self.filled..self.filled + taken].copy_from_slice(head);
            self.filled += taken;
            bytes = tail;
            if self.filled < wanted {
                return;
            }
            self.filled = 0;
            if let Some(seen) = self.finish_field() {
                report(seen);
            }
        }
    }

    /// Takes a complete field and decides what follows it.
    fn finish_field(&mut self) -> Option<Seen> {
        let word = |at: usize| {
            let field = &self.field[at..at + 4];
            field
                .iter()
                .fold(0, |word, byte| (word << 8) | u32::from(*byte))
        };
        match self.expect {
            Expect::Header => return self.finish_header(word(5) & STREAM_ID_MASK),
            Expect::Setting => {
                let id = u16::from_be_bytes([self.field[0], self.field[1]]);
                if id == MAX_CONCURRENT_STREAMS {
                    self.max_concurrent_streams = Some(word(2));
                }
                self.remaining -= SETTING_LEN;
                return self.next_setting();
            }
            Expect::GoAway => {
                let seen = GoAway {
                    last_stream_id: word(0) & STREAM_ID_MASK,
                    error_code: word(4),
                };
                self.remaining -= GOAWAY_LEN;
                self.expect = Expect::Rest;
                return Some(Seen::GoAway(seen));
            }
            Expect::Rest => {}
        }
        None
    }

    fn finish_header(&mut self, stream_id: u32) -> Option<Seen> {
        let [a, b, c, kind, flags, ..] = self.field;
        self.remaining = u32::from_be_bytes([0, a, b, c]) as usize;
        match (kind, stream_id) {
            (SETTINGS, 0) if flags & ACK == 0 => {
                self.max_concurrent_streams = None;
                self.next_setting()
            }
            (GOAWAY, 0) if self.remaining >= GOAWAY_LEN => {
                self.expect = Expect::GoAway;
                None
            }
            _ => {
                self.expect = Expect::Rest;
                None
            }
        }
    }

    /// Goes on to the next setting of the frame, or reports the frame after its last one.
    fn next_setting(&mut self) -> Option<Seen> {
        if self.remaining >= SETTING_LEN {
            self.expect = Expect::Setting;
            return None;
        }
        self.expect = Expect::Rest;
        Some(Seen::Settings {
            max_concurrent_streams: self.max_concurrent_streams,
        })
    }
}

impl Expect {
    fn len(self) -> usize {
        match self {
            Self::Header => HEADER_LEN,
            Self::Setting => SETTING_LEN,
            Self::GoAway => GOAWAY_LEN,
            Self::Rest => 0,
        }
    }
}

// RFC 9113, sections 4.1, 6.5 and 6.8.
const HEADER_LEN: usize = 9;
const SETTING_LEN: usize = 6;
const GOAWAY_LEN: usize = 8;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const ACK: u8 = 0x1;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const STREAM_ID_MASK: u32 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn settings_with_a_stream_limit_are_reported_once_complete() {
        let bytes = frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0, 0, 3, 0, 0, 0, 100]);
        assert_eq!(scan(&[&bytes[..bytes.len() - 1]]), []);
        assert_eq!(scan(&[&bytes]), [settings(Some(100))]);
    }

    #[test]
    fn an_empty_settings_frame_is_reported_and_an_acknowledgement_is_not() {
        let ack = frame(SETTINGS, ACK, 0, &[]);
        let empty = frame(SETTINGS, 0, 0, &[]);
        assert_eq!(scan(&[&ack, &empty]), [settings(None)]);
    }

    #[test]
    fn a_limit_is_not_carried_into_the_next_settings_frame() {
        let first = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]);
        let second = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
        assert_eq!(
            scan(&[&first, &second]),
            [settings(Some(1)), settings(None)]
        );
    }

    #[test]
    fn goaway_masks_the_reserved_bit_and_skips_debug_data() {
        let bytes = frame(GOAWAY, 0, 0, b"\xff\xff\xff\xff\0\0\0\x0bgo away");
        let seen = Seen::GoAway(GoAway {
            last_stream_id: 0x7fff_ffff,
            error_code: 0xb,
        });
        assert_eq!(
            scan(&[&bytes, &frame(SETTINGS, 0, 0, &[])]),
            [seen, settings(None)]
        );
    }

    #[test]
    fn malformed_frames_are_left_to_h2() {
        let short_goaway = frame(GOAWAY, 0, 0, &[0; 7]);
        let odd_settings = frame(SETTINGS, 0, 0, &[0; 7]);
        let on_a_stream = frame(SETTINGS, 0, 1, &[0; 6]);
        let end = frame(SETTINGS, 0, 0, &[]);
        assert_eq!(
            scan(&[&short_goaway, &odd_settings, &on_a_stream, &end]),
            [settings(None), settings(None)]
        );
    }

    proptest! {
        /// The same frames are seen wherever the reads happen to cut the stream.
        #[test]
        fn chunk_boundaries_do_not_matter(
            frames in prop::collection::vec(any_frame(), 0..12),
            cuts in prop::collection::vec(1_usize..40, 1..20),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            let expected: Vec<Seen> = frames.iter().filter_map(|(_, seen)| *seen).collect();
            let mut rest = bytes.as_slice();
            let mut chunks = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, tail) = rest.split_at((*cut).min(rest.len()));
                chunks.push(chunk);
                rest = tail;
            }
            prop_assert_eq!(scan(&chunks), expected);
        }

        /// Whatever a server sends, looking at it does not panic.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            scan(&[&bytes]);
        }
    }

    fn any_frame() -> impl Strategy<Value = (Vec<u8>, Option<Seen>)> {
        let settings_frame =
            prop::collection::vec((0_u16..7, any::<u32>()), 0..5).prop_map(|list| {
                let mut payload = Vec::new();
                let mut limit = None;
                for (id, value) in list {
                    payload.extend(id.to_be_bytes());
                    payload.extend(value.to_be_bytes());
                    if id == MAX_CONCURRENT_STREAMS {
                        limit = Some(value);
                    }
                }
                (frame(SETTINGS, 0, 0, &payload), Some(settings(limit)))
            });
        let goaway = (
            0..1_u32 << 31,
            any::<u32>(),
            prop::collection::vec(any::<u8>(), 0..30),
        )
            .prop_map(|(last_stream_id, error_code, debug)| {
                let mut payload = last_stream_id.to_be_bytes().to_vec();
                payload.extend(error_code.to_be_bytes());
                payload.extend(debug);
                let seen = Seen::GoAway(GoAway {
                    last_stream_id,
                    error_code,
                });
                (frame(GOAWAY, 0, 0, &payload), Some(seen))
            });
        let data = prop::collection::vec(any::<u8>(), 0..100)
            .prop_map(|payload| (frame(0, 0, 1, &payload), None));
        prop_oneof![settings_frame, goaway, data]
    }

    fn frame(kind: u8, flags: u8, stream_id: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream_id.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn settings(max_concurrent_streams: Option<u32>) -> Seen {
        Seen::Settings {
            max_concurrent_streams,
        }
    }

    fn scan(chunks: &[&[u8]]) -> Vec<Seen> {
        let mut scanner = Scanner::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            scanner.scan(chunk, |frame| seen.push(frame));
        }
        seen
    }
}
