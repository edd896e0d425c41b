//! A server that keeps to the rules, and checks that the client does. It can answer any script, so
//! random tests run against it.

use std::collections::{BTreeMap, VecDeque};

use crate::frames::{
    self, ACK, CONTINUATION, DATA, Frame, HEADERS, INITIAL_WINDOW_SIZE, OK, PADDED, PING,
    RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

pub(crate) struct Model {
    pub(crate) streams: BTreeMap<u32, Side>,
    /// The bytes that the client may send on all streams.
    window: i64,
    initial_window: u32,
    /// Initial windows that the client has not acknowledged.
    announced: VecDeque<Option<u32>>,
    /// The bytes that the client lets us send.
    credit: i64,
    stream_credit: i64,
}

/// The server's side of a stream.
pub(crate) struct Side {
    window: i64,
    credit: i64,
    /// The part of the request that has come.
    pub(crate) request: Vec<u8>,
    pub(crate) is_ended: bool,
    /// By either side.
    pub(crate) is_reset: bool,
    /// By the client.
    is_cancelled: bool,
    /// The part of the response that is not sent yet.
    response: VecDeque<u8>,
    has_head: bool,
    is_answered: bool,
}

impl Model {
    pub(crate) fn new(stream_window: u32, connection_window: u32) -> Self {
        Self {
            streams: BTreeMap::new(),
            window: 65_535,
            initial_window: 65_535,
            announced: VecDeque::from([None]),
            credit: connection_window.into(),
            stream_credit: stream_window.into(),
        }
    }

    /// The client wrote this.
    pub(crate) fn hear(&mut self, frame: &Frame, response: &dyn Fn(u32) -> Vec<u8>) {
        match frame.kind {
            HEADERS if !self.streams.contains_key(&frame.stream) => {
                assert!(self.streams.keys().all(|id| *id < frame.stream));
                let side = Side {
                    window: self.initial_window.into(),
                    credit: self.stream_credit,
                    request: Vec::new(),
                    is_ended: frame.is_end(),
                    is_reset: false,
                    is_cancelled: false,
                    response: response(frame.stream).into(),
                    has_head: false,
                    is_answered: false,
                };
                self.streams.insert(frame.stream, side);
            }
            DATA => self.hear_data(frame),
            RST_STREAM => {
                let side = self.side(frame);
                assert!(!side.is_cancelled, "two resets");
                (side.is_reset, side.is_cancelled) = (true, true);
            }
            SETTINGS if frame.flags == ACK => self.hear_ack(),
            WINDOW_UPDATE if frame.stream == 0 => self.credit += i64::from(increment(frame)),
            WINDOW_UPDATE => self.side(frame).credit += i64::from(increment(frame)),
            PING | HEADERS | CONTINUATION | SETTINGS => {}
            other => panic!("frame {other}"),
        }
    }

    fn hear_data(&mut self, frame: &Frame) {
        let len = frame.payload.len() as i64;
        self.window -= len;
        assert!(self.window >= 0, "DATA above the connection's window");
        let side = self.side(frame);
        assert!(!side.is_ended && !side.is_cancelled, "DATA after the end");
        assert!(len == 0 || len <= side.window, "DATA above the window");
        assert!(len > 0 || frame.is_end(), "DATA for nothing");
        side.window -= len;
        side.request.extend_from_slice(&frame.payload);
        side.is_ended = frame.is_end();
    }

    fn hear_ack(&mut self) {
        let acknowledged = self.announced.pop_front().expect("an ACK too many");
        let Some(size) = acknowledged else {
            return;
        };
        let change = i64::from(size) - i64::from(self.initial_window);
        self.initial_window = size;
        for side in self.streams.values_mut() {
            side.window += change;
        }
    }

    fn side(&mut self, frame: &Frame) -> &mut Side {
        let side = self.streams.get_mut(&frame.stream);
        side.expect("a stream that was opened")
    }

    pub(crate) fn set_initial_window(&mut self, size: u32) -> Vec<u8> {
        self.announced.push_back(Some(size));
        frames::settings(&[(INITIAL_WINDOW_SIZE, size)])
    }

    pub(crate) fn widen(&mut self, increment: u32) -> Vec<u8> {
        self.window += i64::from(increment);
        frames::window_update(0, increment)
    }

    pub(crate) fn widen_stream(&mut self, id: u32, increment: u32) -> Vec<u8> {
        match self.streams.get_mut(&id) {
            Some(side) => side.window += i64::from(increment),
            None => return Vec::new(),
        }
        frames::window_update(id, increment)
    }

    /// The next of a response: its head, DATA as the windows allow, or its trailers.
    pub(crate) fn answer(&mut self, id: u32, len: usize, padding: Option<u8>) -> Vec<u8> {
        let Some(side) = self.streams.get_mut(&id) else {
            return Vec::new();
        };
        if side.is_reset || side.is_answered {
            return Vec::new();
        }
        if !std::mem::replace(&mut side.has_head, true) {
            return frames::headers(id, OK);
        }
        if side.response.is_empty() {
            side.is_answered = true;
            return frames::last_headers(id, &frames::field("grpc-status", b"0"));
        }
        let overhead = padding.map_or(0, |padding| 1 + i64::from(padding));
        let room = side.credit.min(self.credit).min(16_384) - overhead;
        let Ok(room @ 1..) = usize::try_from(room) else {
            return Vec::new();
        };
        let len = len.min(room).min(side.response.len());
        let data: Vec<u8> = side.response.drain(..len).collect();
        let cost = len as i64 + overhead;
        (side.credit, self.credit) = (side.credit - cost, self.credit - cost);
        match padding {
            None => frames::data(id, &data),
            Some(padding) => {
                let payload = [&[padding][..], &data, &vec![0; padding.into()]].concat();
                frames::frame(DATA, PADDED, id, &payload)
            }
        }
    }

    pub(crate) fn reset(&mut self, id: u32) -> Vec<u8> {
        match self.streams.get_mut(&id) {
            Some(side) if !side.is_reset && !side.is_answered => side.is_reset = true,
            _ => return Vec::new(),
        }
        frames::reset(id, crowfly_http2::Reason::CANCEL)
    }
}

impl Side {
    pub(crate) fn is_over(&self) -> bool {
        self.is_ended && self.is_answered
    }
}

fn increment(frame: &Frame) -> u32 {
    let increment = frame.word(0);
    assert!((1..1 << 31).contains(&increment));
    increment
}
