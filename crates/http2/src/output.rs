//! Frames that wait to be written to the socket.
//!
//! Large payloads of DATA are written from where they are, because a copy of them costs more than one
//! slice more in a vectored write.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::frame;

/// The length from which on payloads are not copied. A copy of shorter ones costs less than a slice.
const MIN_UNCOPIED: usize = 1024;
/// The largest buffer that is kept while there is no output.
const KEPT: usize = 512;

/// Frames in their order. Large payloads of DATA are kept beside the other bytes, with their places.
#[derive(Debug)]
pub(crate) struct Output {
    bytes: BytesMut,
    /// Payloads, each with its place among all bytes that ever were in `bytes`.
    payloads: VecDeque<(u64, Bytes)>,
    payload_len: usize,
    /// The number of bytes that were taken from the front of `bytes`.
    taken: u64,
    /// The length from which on payloads are not copied.
    min_uncopied: usize,
}

impl Output {
    /// An empty output, for a socket that can (`is_vectored`) or cannot write several slices at once.
    pub(crate) fn new(is_vectored: bool) -> Self {
        Self {
            bytes: BytesMut::new(),
            payloads: VecDeque::new(),
            payload_len: 0,
            taken: 0,
            min_uncopied: if is_vectored {
                MIN_UNCOPIED
            } else {
                usize::MAX
            },
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.payload_len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.payloads.is_empty()
    }

    /// The buffer for frames that are not DATA.
    pub(crate) fn frames(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    pub(crate) fn put_data(&mut self, stream: u32, end: bool, payload: Bytes) {
        frame::put_data_head(&mut self.bytes, stream, end, payload.len());
        if payload.len() < self.min_uncopied {
            self.bytes.extend_from_slice(&payload);
            return;
        }
        self.payload_len += payload.len();
        let place = self.taken + self.bytes.len() as u64;
        self.payloads.push_back((place, payload));
    }

    /// Adds all frames of another output.
    pub(crate) fn append(&mut self, mut other: Self) {
        let place = self.taken + self.bytes.len() as u64;
        let moved = other.payloads.drain(..);
        self.payloads
            .extend(moved.map(|(at, payload)| (at - other.taken + place, payload)));
        self.payload_len += other.payload_len;
        self.bytes.unsplit(other.bytes);
    }

    /// Fills `slices` with the first bytes, `most` at most. Returns the number of slices and of bytes.
    pub(crate) fn slices<'a>(&'a self, most: usize, slices: &mut [IoSlice<'a>]) -> (usize, usize) {
        let (mut count, mut len, mut at) = (0, 0, 0);
        let mut payloads = self.payloads.iter();
        let mut next = payloads.next();
        while count < slices.len() && len < most {
            let until = next.map_or(self.bytes.len(), |(place, _)| self.offset(*place));
            let part = if at < until {
                let part = &self.bytes[at..until];
                at = until;
                part
            } else if let Some((_, payload)) = next {
                next = payloads.next();
                payload
            } else {
                break;
            };
            let part = &part[..part.len().min(most - len)];
            slices[count] = IoSlice::new(part);
            (count, len) = (count + 1, len + part.len());
        }
        (count, len)
    }

    /// Takes away the first `len` bytes.
    pub(crate) fn advance(&mut self, mut len: usize) {
        while len > 0 {
            let until = self.payloads.front();
            let until = until.map_or(self.bytes.len(), |(place, _)| self.offset(*place));
            let part = if until > 0 {
                let part = until.min(len);
                self.bytes.advance(part);
                self.taken += part as u64;
                part
            } else if let Some((_, payload)) = self.payloads.front_mut() {
                let part = payload.len().min(len);
                payload.advance(part);
                self.payload_len -= part;
                if payload.is_empty() {
                    self.payloads.pop_front();
                }
                part
            } else {
                return;
            };
            len -= part;
        }
    }

    /// Gives back room that is not used.
    pub(crate) fn shrink(&mut self) {
        // Bytes that were taken from the front of a buffer do not count as capacity, but are there.
        if self.bytes.is_empty() && self.bytes.try_reclaim(KEPT + 1) {
            self.bytes = BytesMut::new();
        }
        self.payloads.shrink_to_fit();
    }

    /// The offset of a place in `bytes`.
    fn offset(&self, place: u64) -> usize {
        (place - self.taken) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes, taken in steps of at most `step` bytes and two slices.
    fn read(output: &mut Output, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !output.is_empty() {
            let before = output.len();
            let mut slices = [IoSlice::new(&[]); 2];
            let (count, len) = output.slices(step, &mut slices);
            let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            assert!(len > 0 && len <= step && bytes.len() == len);
            all.extend(bytes);
            output.advance(len);
            assert_eq!(output.len(), before - len);
        }
        all
    }

    fn fill(is_vectored: bool) -> Output {
        let mut output = Output::new(is_vectored);
        for len in [0, 10, 2_000, 3_000, 20] {
            let payload: Bytes = (0..len).map(|at| at as u8).collect();
            output.put_data(1, false, payload);
            frame::put_settings_ack(output.frames());
        }
        output
    }

    #[test]
    fn payloads_are_written_in_their_place() {
        let copied = read(&mut fill(false), usize::MAX);
        for step in [1, 7, 1_000, usize::MAX] {
            assert!(read(&mut fill(true), step) == copied, "{step}");
        }
        let mut both = fill(true);
        both.advance(2_500);
        both.append(fill(true));
        assert!(read(&mut both, 999) == [&copied[2_500..], &copied].concat());
    }

    #[test]
    fn large_payloads_are_not_copied() {
        let payload = Bytes::from(vec![7; 5_000]);
        let mut output = Output::new(true);
        output.put_data(1, true, payload.clone());
        let mut slices = [IoSlice::new(&[]); 4];
        let (count, _) = output.slices(usize::MAX, &mut slices);
        assert_eq!(count, 2);
        assert_eq!(slices[1].as_ptr(), payload.as_ptr());
    }
}
