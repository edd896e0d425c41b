//! Frames as a server writes them, right or wrong, and as it reads them. They are written by hand,
//! because a library would refuse wrong ones.

use crowfly_http2::Reason;

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

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITIZED: u8 = 0x20;

pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
pub(crate) const ENABLE_PUSH: u16 = 0x2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;

/// A header block with `:status: 200` alone.
pub(crate) const OK: &[u8] = &[0x88];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&len[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let one = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let payload: Vec<u8> = settings.iter().flat_map(one).collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub(crate) fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, block)
}

/// HEADERS that end the stream: trailers, or all there is.
pub(crate) fn last_headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

pub(crate) fn data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, payload)
}

pub(crate) fn last_data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, payload)
}

pub(crate) fn reset(stream: u32, reason: Reason) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &u32::from(reason).to_be_bytes())
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub(crate) fn ping(payload: [u8; 8]) -> Vec<u8> {
    frame(PING, 0, 0, &payload)
}

pub(crate) fn go_away(last: u32, reason: Reason) -> Vec<u8> {
    let payload = [last.to_be_bytes(), u32::from(reason).to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &payload)
}

/// A field that is in no table and enters none.
pub(crate) fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let string = |bytes: &[u8]| [&length(bytes.len()), bytes].concat();
    [&[0][..], &string(name.as_bytes()), &string(value)].concat()
}

/// An integer with a prefix of seven bits.
fn length(len: usize) -> Vec<u8> {
    if len < 0x7f {
        return vec![len as u8];
    }
    let (mut bytes, mut rest) = (vec![0x7f], len - 0x7f);
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// A frame that the client wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The first frame of these bytes, and how long it is with its head.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let (head, rest) = bytes.split_at_checked(9)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        let frame = Self {
            kind: head[3],
            flags: head[4],
            stream,
            payload: rest.get(..len)?.to_vec(),
        };
        Some((frame, 9 + len))
    }

    pub(crate) fn is_end(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    /// The number at a place in the payload.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}
