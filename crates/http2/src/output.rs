//! Frames that wait to be written to the socket.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::frame;

/// Payloads that are at least as long are not copied. Below that, a copy costs less than a slice more.
const SHARED: usize = 1024;
/// Buffers that are at most as large are kept while there is nothing to do.
const KEPT: usize = 512;

/// Frames in their order. Payloads of DATA are not among them but beside them, so that they are written
/// from where they are.
#[derive(Debug)]
pub(crate) struct Output {
    bytes: BytesMut,
    /// Payloads, each with its place among all bytes that ever were in `bytes`.
    payloads: VecDeque<(u64, Bytes)>,
    payload_len: usize,
    /// The number of bytes that were taken from the front of `bytes`.
    taken: u64,
    /// From which length on payloads are not copied.
    shared: usize,
}

impl Output {
    /// An empty one, for a socket that can or cannot write several slices at once.
    pub(crate) fn new(is_vectored: bool) -> Self {
        Self {
            bytes: BytesMut::new(),
            payloads: VecDeque::new(),
            payload_len: 0,
            taken: 0,
            shared: if is_vectored { SHARED } else { usize::MAX },
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.payload_len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.payloads.is_empty()
    }

    /// Where to put frames that are not DATA.
    pub(crate) fn frames(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    pub(crate) fn put_data(&mut self, stream: u32, end: bool, payload: Bytes) {
        frame::put_data_head(&mut self.bytes, stream, end, payload.len());
        if payload.len() < self.shared {
            self.bytes.extend_from_slice(&payload);
            return;
        }
        self.payload_len += payload.len();
        let place = self.taken + self.bytes.len() as u64;
        self.payloads.push_back((place, payload));
    }

    /// Adds all of another.
    pub(crate) fn append(&mut self, mut other: Self) {
        let place = self.taken + self.bytes.len() as u64;
        let moved = other.payloads.drain(..);
        self.payloads
            .extend(moved.map(|(at, payload)| (at - other.taken + place, payload)));
        self.payload_len += other.payload_len;
        self.bytes.unsplit(other.bytes);
    }

    /// The first of it, in at most so many bytes and slices; how many of each.
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

    /// Takes away the first of it.
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
        // What was taken from the front of a buffer does not count as its capacity, but is there.
        if self.bytes.is_empty() && self.bytes.try_reclaim(KEPT + 1) {
            self.bytes = BytesMut::new();
        }
        self.payloads.shrink_to_fit();
    }

    /// Where a place is in `bytes`.
    fn offset(&self, place: u64) -> usize {
        (place - self.taken) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of it, taken in steps of so many bytes and slices of two at most.
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
