//! The frames that the server sends: the receiving half of the protocol.
//!
//! A server that violates the protocol ends the connection. A response that is malformed ends its stream
//! alone, because other streams are sound. The memory and the answers that a server can cost are bounded,
//! because a server may be hostile.

use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};

use crate::bdp;
use crate::core::Core;
use crate::error::{Error, StreamError};
use crate::frame::{self, Head, MAX_FRAME_SIZE, MAX_WINDOW, STREAM_ID_MASK, flag, kind, setting};
use crate::head::Block;
use crate::input::Input;
use crate::stream;
use crate::{ConnectionEvent, GoAway, Reason};

/// DATA with fewer bytes is a scrap, because every message of gRPC has five bytes before its first.
const SCRAP: usize = 5;
/// The most scraps that a server may send beyond its other DATA. Each costs more than it carries, and
/// empty ones take no window.
const MAX_SCRAPS: u32 = 10_000;
/// The most answers (to PING and SETTINGS) that may wait for a server that does not read them.
const MAX_REPLIES: usize = 1_000;
/// The most CONTINUATION frames that a header block may have beyond those that its size needs.
const MAX_CONTINUATIONS: usize = 16;

/// A header block that has not come to its end.
#[derive(Debug)]
pub(crate) struct HeaderBlock {
    stream: u32,
    is_end: bool,
    bytes: BytesMut,
    continuations: usize,
}

impl Core {
    /// Takes whole frames out of `input`, and leaves the frame that came in part.
    pub(crate) fn receive(
        &mut self,
        input: &mut Input,
        now: Instant,
        observe: &mut impl FnMut(ConnectionEvent),
    ) -> Result<(), Error> {
        while let Some(head) = Head::parse(&input.bytes) {
            self.check(head)?;
            input.missing = (Head::LEN + head.len).saturating_sub(input.bytes.len());
            if input.missing > 0 {
                return Ok(());
            }
            input.bytes.advance(Head::LEN);
            if head.kind == kind::DATA {
                let payload = input.take(head.len);
                self.handle_data(head, payload, now)?;
            } else {
                self.handle(head, &input.bytes[..head.len], now, observe)?;
                input.bytes.advance(head.len);
            }
        }
        Ok(())
    }

    /// Checks that a frame may come now.
    fn check(&self, head: Head) -> Result<(), Error> {
        if !self.server.are_known && head.kind != kind::SETTINGS {
            return Err(Error::protocol("the first frame is not SETTINGS"));
        }
        if head.len > MAX_FRAME_SIZE {
            return Err(Error::frame_size("a frame is larger than was allowed"));
        }
        match &self.block {
            Some(block) if head.kind != kind::CONTINUATION || head.stream != block.stream => Err(
                Error::protocol("another frame in the middle of a header block"),
            ),
            None if head.kind == kind::CONTINUATION => {
                Err(Error::protocol("CONTINUATION without HEADERS"))
            }
            _ => Ok(()),
        }
    }

    fn handle(
        &mut self,
        head: Head,
        payload: &[u8],
        now: Instant,
        observe: &mut impl FnMut(ConnectionEvent),
    ) -> Result<(), Error> {
        match head.kind {
            kind::CONTINUATION => self.handle_continuation(head, payload),
            kind::GOAWAY => self.handle_go_away(head, payload, observe),
            kind::HEADERS => self.handle_headers(head, payload),
            kind::PING => self.handle_ping(head, payload, now),
            kind::PRIORITY => self.handle_priority(head),
            kind::PUSH_PROMISE => Err(Error::protocol("PUSH_PROMISE, which was not allowed")),
            kind::RST_STREAM => self.handle_reset(head, payload),
            kind::SETTINGS => self.handle_settings(head, payload, observe),
            kind::WINDOW_UPDATE => self.handle_window_update(head, payload),
            // Section 5.5: unknown frames must be ignored.
            _ => Ok(()),
        }
    }

    fn handle_data(&mut self, head: Head, mut payload: Bytes, now: Instant) -> Result<(), Error> {
        self.check_stream(head)?;
        let len = payload.len();
        if !self.receive_window.receive(len) {
            return Err(Error::flow_control("DATA above the connection's window"));
        }
        if let Some(bdp) = &mut self.bdp
            && bdp.receive(len, now)
        {
            frame::put_ping(self.output.frames(), 0, bdp::PAYLOAD);
        }
        let unpadded = unpad(head, &payload)?;
        let (start, end) = (unpadded.start, unpadded.end);
        payload.truncate(end);
        payload.advance(start);
        self.count_scraps(head, payload.len())?;
        let stream = self.streams.get_mut(&head.stream);
        let Some(stream) = stream.filter(|one| one.failed.is_none() && one.has_receiver) else {
            self.release(head.stream, len);
            return Ok(());
        };
        if stream.receive.is_ended {
            self.release(head.stream, len);
            self.late(head.stream, "DATA after the end");
            return Ok(());
        }
        if matches!(stream.receive.head, stream::ResponseHead::Awaited) {
            self.release(head.stream, len);
            self.malformed(head.stream, "DATA before the head");
            return Ok(());
        }
        if !stream.receive.window.receive(len) {
            return Err(Error::flow_control("DATA above the stream's window"));
        }
        let padding = len - payload.len();
        if !payload.is_empty() {
            stream.receive.push(payload);
        }
        if head.has(flag::END_STREAM) {
            stream.receive.end(None);
        }
        if padding > 0 {
            self.release(head.stream, padding);
        }
        self.widen_connection();
        Ok(())
    }

    /// Counts DATA with few bytes, except for the end of a stream, which may well be empty.
    fn count_scraps(&mut self, head: Head, len: usize) -> Result<(), Error> {
        if len >= SCRAP {
            self.scraps = self.scraps.saturating_sub(1);
        } else if !head.has(flag::END_STREAM) {
            self.scraps += 1;
        }
        match self.scraps > MAX_SCRAPS {
            true => Err(Error::calm("DATA frames with next to nothing in them")),
            false => Ok(()),
        }
    }

    fn handle_headers(&mut self, head: Head, payload: &[u8]) -> Result<(), Error> {
        self.check_stream(head)?;
        let mut range = unpad(head, payload)?;
        if head.has(flag::PRIORITY) {
            range.start += 5;
        }
        let block = payload
            .get(range)
            .ok_or_else(|| Error::frame_size("HEADERS without its priority"))?;
        let is_end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.handle_block(head.stream, is_end, block);
        }
        self.block = Some(HeaderBlock {
            stream: head.stream,
            is_end,
            bytes: block.into(),
            continuations: 0,
        });
        Ok(())
    }

    fn handle_continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), Error> {
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        block.bytes.extend_from_slice(payload);
        block.continuations += 1;
        // Compressed headers that are longer than headers may be can only be an attack.
        let max_len = (self.config.max_header_list_size as usize).max(MAX_FRAME_SIZE) * 2;
        let max_continuations = MAX_CONTINUATIONS + max_len / MAX_FRAME_SIZE;
        if block.continuations > max_continuations || block.bytes.len() > max_len {
            return Err(Error::calm("a header block without an end"));
        }
        if head.has(flag::END_HEADERS)
            && let Some(block) = self.block.take()
        {
            return self.handle_block(block.stream, block.is_end, &block.bytes);
        }
        Ok(())
    }

    /// Handles a whole header block: the head of a response, or its trailers. The block is decoded in any case, because
    /// the compression of later blocks depends on it.
    fn handle_block(&mut self, id: u32, is_end: bool, bytes: &[u8]) -> Result<(), Error> {
        let limit = self.config.max_header_list_size;
        let mut block = Block::new(limit);
        self.decoder
            .decode(bytes, limit as usize, |decoded, size| {
                block.add(decoded, size);
            })
            .map_err(|error| Error::new(Reason::COMPRESSION_ERROR, error.to_string()))?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if stream.failed.is_some() {
            return Ok(());
        }
        if stream.receive.is_ended {
            self.late(id, "HEADERS after the end");
            return Ok(());
        }
        let taken = match &stream.receive.head {
            stream::ResponseHead::Awaited => match block.into_response(is_end) {
                // Section 8.1: a final response follows.
                Ok(response) if response.status().is_informational() => match is_end {
                    true => Err(StreamError::Malformed(
                        "an informational response that ends the stream",
                    )),
                    false => return Ok(()),
                },
                Ok(response) => {
                    stream.receive.set_head(response);
                    if is_end {
                        stream.receive.end(None);
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            },
            _ if !is_end => Err(StreamError::Malformed(
                "trailers that do not end the stream",
            )),
            _ => block
                .into_trailers()
                .map(|trailers| stream.receive.end(Some(trailers))),
        };
        if let Err(error) = taken {
            let reason = match error {
                StreamError::HeadersTooLarge(_) => Reason::ENHANCE_YOUR_CALM,
                _ => Reason::PROTOCOL_ERROR,
            };
            self.reset(id, reason, error);
        }
        Ok(())
    }

    /// Section 8.1.1: a malformed response is a stream error.
    fn malformed(&mut self, id: u32, why: &'static str) {
        self.reset(id, Reason::PROTOCOL_ERROR, StreamError::Malformed(why));
    }

    /// Section 5.1: a frame that comes after the end is a stream error, as long as the stream is not closed.
    fn late(&mut self, id: u32, why: &'static str) {
        self.reset(id, Reason::STREAM_CLOSED, StreamError::Malformed(why));
    }

    /// Section 6.3: priorities are deprecated and ignored; their frames must still be well formed.
    fn handle_priority(&mut self, head: Head) -> Result<(), Error> {
        if head.stream == 0 {
            return Err(Error::protocol("PRIORITY on no stream"));
        }
        if head.len != 5 {
            let error = StreamError::Malformed("PRIORITY of a wrong size");
            self.reset(head.stream, Reason::FRAME_SIZE_ERROR, error);
        }
        Ok(())
    }

    fn handle_reset(&mut self, head: Head, payload: &[u8]) -> Result<(), Error> {
        self.check_stream(head)?;
        let reason = Reason::from(word(payload, "RST_STREAM of a wrong size")?);
        let Some(stream) = self.streams.get_mut(&head.stream) else {
            return Ok(());
        };
        if stream.receive.is_ended {
            // Section 8.1: the answer is whole; the rest of the request is not wanted.
            stream.send.stop();
        } else {
            stream.fail(match reason {
                Reason::REFUSED_STREAM => StreamError::Refused(reason),
                _ => StreamError::Reset(reason),
            });
        }
        Ok(())
    }

    fn handle_settings(
        &mut self,
        head: Head,
        payload: &[u8],
        observe: &mut impl FnMut(ConnectionEvent),
    ) -> Result<(), Error> {
        if head.stream != 0 {
            return Err(Error::protocol("SETTINGS on a stream"));
        }
        let (settings, rest) = payload.as_chunks::<{ setting::LEN }>();
        if !rest.is_empty() || head.has(flag::ACK) && !payload.is_empty() {
            return Err(Error::frame_size("SETTINGS of a wrong size"));
        }
        if head.has(flag::ACK) {
            return Ok(());
        }
        let mut max_concurrent_streams = None;
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                setting::MAX_CONCURRENT_STREAMS => max_concurrent_streams = Some(value),
                id => self.handle_setting(id, value)?,
            }
        }
        self.server.are_known = true;
        self.reply(frame::put_settings_ack)?;
        observe(ConnectionEvent::Settings {
            max_concurrent_streams,
        });
        // Not before the acknowledgement, because the server counts by its old windows until then.
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            self.go_on_with(id);
        }
        Ok(())
    }

    fn handle_setting(&mut self, id: u16, value: u32) -> Result<(), Error> {
        match id {
            setting::ENABLE_PUSH if value != 0 => {
                return Err(Error::protocol("a server that wants pushes"));
            }
            setting::HEADER_TABLE_SIZE => self.encoder.set_max_table_size(value),
            setting::INITIAL_WINDOW_SIZE => {
                if i64::from(value) > MAX_WINDOW {
                    return Err(Error::flow_control("an initial window that is too large"));
                }
                let change = i64::from(value) - i64::from(self.server.initial_window);
                self.server.initial_window = value;
                if !self.streams.values_mut().all(|stream| stream.widen(change)) {
                    return Err(Error::flow_control("settings that make a window too large"));
                }
            }
            // Frames larger than the default are not used, because other streams would wait longer for
            // their turn.
            setting::MAX_FRAME_SIZE if !(MAX_FRAME_SIZE..1 << 24).contains(&(value as usize)) => {
                return Err(Error::protocol("a maximum frame size out of range"));
            }
            _ => {}
        }
        Ok(())
    }

    fn handle_window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Error> {
        let increment = word(payload, "WINDOW_UPDATE of a wrong size")? & STREAM_ID_MASK;
        if head.stream != 0 {
            self.check_stream(head)?;
            if increment == 0 {
                self.malformed(head.stream, "WINDOW_UPDATE of nothing");
                return Ok(());
            }
            let stream = self.streams.get_mut(&head.stream);
            if stream.is_some_and(|stream| !stream.widen(increment.into())) {
                let error = StreamError::Malformed("a window that is too large");
                self.reset(head.stream, Reason::FLOW_CONTROL_ERROR, error);
            }
            self.go_on_with(head.stream);
            return Ok(());
        }
        if increment == 0 {
            return Err(Error::protocol("WINDOW_UPDATE of nothing"));
        }
        self.send_window += i64::from(increment);
        if self.send_window > MAX_WINDOW {
            return Err(Error::flow_control("a connection window that is too large"));
        }
        self.go_on();
        Ok(())
    }

    fn handle_ping(&mut self, head: Head, payload: &[u8], now: Instant) -> Result<(), Error> {
        if head.stream != 0 {
            return Err(Error::protocol("PING on a stream"));
        }
        let payload: [u8; 8] = payload
            .try_into()
            .map_err(|_| Error::frame_size("PING of a wrong size"))?;
        if head.has(flag::ACK) {
            match &mut self.bdp {
                Some(bdp) if payload == bdp::PAYLOAD => bdp.answered(now),
                _ => self.pings.answered(payload),
            }
            return Ok(());
        }
        self.reply(|output| frame::put_ping(output, flag::ACK, payload))
    }

    /// Puts an answer that the protocol demands into the output. The number of answers is bounded.
    fn reply(&mut self, put: impl FnOnce(&mut BytesMut)) -> Result<(), Error> {
        self.replies += 1;
        if self.replies > MAX_REPLIES {
            return Err(Error::calm("answers are demanded and not read"));
        }
        put(self.output.frames());
        Ok(())
    }

    fn handle_go_away(
        &mut self,
        head: Head,
        payload: &[u8],
        observe: &mut impl FnMut(ConnectionEvent),
    ) -> Result<(), Error> {
        if head.stream != 0 {
            return Err(Error::protocol("GOAWAY on a stream"));
        }
        let go_away =
            GoAway::parse(payload).ok_or_else(|| Error::frame_size("GOAWAY of a wrong size"))?;
        observe(ConnectionEvent::GoAway(go_away.clone()));
        for (id, stream) in &mut self.streams {
            if *id > go_away.last_stream_id && !stream.is_over() {
                stream.fail(StreamError::Refused(go_away.error_code.into()));
            }
        }
        self.go_away = Some(go_away);
        Ok(())
    }

    /// Checks that a frame is on a stream that was opened. The stream may be over.
    fn check_stream(&self, head: Head) -> Result<(), Error> {
        match head.stream % 2 == 1 && head.stream < self.next_id {
            true => Ok(()),
            false => Err(Error::protocol("a frame on a stream that nobody opened")),
        }
    }
}

/// The range of a payload without its padding.
fn unpad(head: Head, payload: &[u8]) -> Result<std::ops::Range<usize>, Error> {
    if !head.has(flag::PADDED) {
        return Ok(0..payload.len());
    }
    let padding = payload.first().map(|padding| usize::from(*padding));
    let end = padding.and_then(|padding| payload.len().checked_sub(padding));
    match end {
        Some(end) if end > 0 => Ok(1..end),
        _ => Err(Error::protocol("more padding than payload")),
    }
}

fn word(payload: &[u8], wrong: &'static str) -> Result<u32, Error> {
    let bytes = payload.try_into().map_err(|_| Error::frame_size(wrong))?;
    Ok(u32::from_be_bytes(bytes))
}
