//! Frames on the wire (RFC 9113, sections 4 and 6).
//!
//! Only the layout of bytes is here, so that a parser can be tested without a connection. The rules of the protocol
//! are in `core` and `receive`.

use bytes::{BufMut, BytesMut};

use crate::Reason;

/// The nine bytes that every frame begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    pub(crate) const LEN: usize = 9;

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Some(Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_ID_MASK,
        })
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Writes the head. The length fits into 24 bits, because no frame is made larger than
    /// [`MAX_FRAME_SIZE`].
    pub(crate) fn put(self, out: &mut BytesMut) {
        let [_, len @ ..] = (self.len as u32).to_be_bytes();
        out.put_slice(&len);
        out.put_u8(self.kind);
        out.put_u8(self.flags);
        out.put_u32(self.stream);
    }
}

/// Frame types.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
}

/// Flags, each of which only some types have.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Settings.
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(crate) const ENABLE_PUSH: u16 = 0x2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub(crate) const LEN: usize = 6;
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const STREAM_ID_MASK: u32 = 0x7fff_ffff;
/// The largest payload of a frame, in both directions. The size is the default, and our SETTINGS do not change it.
pub(crate) const MAX_FRAME_SIZE: usize = 16_384;
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;
pub(crate) const MAX_WINDOW: i64 = (1 << 31) - 1;

pub(crate) fn put_settings(out: &mut BytesMut, settings: &[(u16, u32)]) {
    head(kind::SETTINGS, 0, 0, settings.len() * setting::LEN).put(out);
    for (id, value) in settings {
        out.put_u16(*id);
        out.put_u32(*value);
    }
}

pub(crate) fn put_settings_ack(out: &mut BytesMut) {
    head(kind::SETTINGS, flag::ACK, 0, 0).put(out);
}

pub(crate) fn put_ping(out: &mut BytesMut, flags: u8, payload: [u8; 8]) {
    head(kind::PING, flags, 0, payload.len()).put(out);
    out.put_slice(&payload);
}

pub(crate) fn put_window_update(out: &mut BytesMut, stream: u32, increment: u32) {
    head(kind::WINDOW_UPDATE, 0, stream, 4).put(out);
    out.put_u32(increment);
}

pub(crate) fn put_reset(out: &mut BytesMut, stream: u32, reason: Reason) {
    head(kind::RST_STREAM, 0, stream, 4).put(out);
    out.put_u32(reason.into());
}

/// Puts GOAWAY. The last stream id is 0, because a client takes no streams.
pub(crate) fn put_go_away(out: &mut BytesMut, reason: Reason, text: &str) {
    head(kind::GOAWAY, 0, 0, 8 + text.len()).put(out);
    out.put_u32(0);
    out.put_u32(reason.into());
    out.put_slice(text.as_bytes());
}

/// Puts the head of DATA. The caller writes the payload after it.
pub(crate) fn put_data_head(out: &mut BytesMut, stream: u32, end: bool, len: usize) {
    let flags = if end { flag::END_STREAM } else { 0 };
    head(kind::DATA, flags, stream, len).put(out);
}

/// Puts a header block, in as many frames as it needs.
pub(crate) fn put_header_block(out: &mut BytesMut, stream: u32, end: bool, block: &[u8]) {
    let mut kind = kind::HEADERS;
    let mut flags = if end { flag::END_STREAM } else { 0 };
    let mut rest = block;
    loop {
        let (part, more) = rest.split_at(rest.len().min(MAX_FRAME_SIZE));
        if more.is_empty() {
            flags |= flag::END_HEADERS;
        }
        head(kind, flags, stream, part.len()).put(out);
        out.put_slice(part);
        if more.is_empty() {
            return;
        }
        (kind, flags, rest) = (kind::CONTINUATION, 0, more);
    }
}

fn head(kind: u8, flags: u8, stream: u32, len: usize) -> Head {
    Head {
        len,
        kind,
        flags,
        stream,
    }
}
