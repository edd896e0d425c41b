//! Bytes read from the socket, and the buffers for them.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// The size of the first read. Reads grow while they fill their buffer.
const MIN_READ: usize = 4 * 1024;
const MAX_READ: usize = 64 * 1024;
/// Shorter payloads are copied, so that unread ones hold at most four times their length.
const SHARED: usize = MAX_READ / 4 - 1024;
/// The most buffers that are remembered for use again. A reader that is far behind holds them anyway.
const MAX_SPARE: usize = 256;
/// The most buffers that are kept although no call holds a part of them.
const FREE: usize = 4;
/// After how many times that little came large buffers are given back.
const LITTLE: u32 = 100;

/// Payloads of DATA are handed out as parts of the buffer that they were read into. When all of them are
/// gone it is used again: memory that was given back to the system would have to be cleared by it each time.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) bytes: BytesMut,
    /// How much is read at once, if more than at first.
    size: usize,
    /// How much is missing of the frame that came in part: the next buffer has room for it.
    pub(crate) missing: usize,
    /// How much was read since there last was nothing to read.
    read: usize,
    /// The number of small reads in a row.
    little: u32,
    /// Buffers of which calls may still hold parts, the oldest first.
    spare: VecDeque<BytesMut>,
}

impl Input {
    /// A buffer to read into; whatever it holds is not a whole frame.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        let missing = std::mem::take(&mut self.missing);
        let size = self.size.max(MIN_READ).max(missing);
        // Large ones are all of one length, which is room for any frame.
        let len = (size + self.bytes.len()).min(MAX_READ);
        if !self.bytes.try_reclaim((size / 2).max(missing)) {
            let mut next = self.take_spare(len);
            next.extend_from_slice(&self.bytes);
            let mut full = std::mem::replace(&mut self.bytes, next);
            if len == MAX_READ && self.spare.len() < MAX_SPARE {
                full.clear();
                self.spare.push_back(full);
            }
        }
        &mut self.bytes
    }

    /// Calls read in order, as a rule: the oldest buffers are free first.
    fn take_spare(&mut self, len: usize) -> BytesMut {
        let mut oldest = self.spare.iter_mut().take(FREE);
        let free = oldest.position(|one| one.try_reclaim(len));
        let Some(spare) = free.and_then(|at| self.spare.remove(at)) else {
            return BytesMut::with_capacity(len);
        };
        // A reader has caught up: fewer will do.
        if self.spare.len() >= FREE && self.spare[0].try_reclaim(len) {
            self.spare.pop_front();
        }
        spare
    }

    /// So much was read into a buffer that had so much room.
    pub(crate) fn filled(&mut self, len: usize, room: usize) {
        self.read += len;
        if len == room {
            self.size = (self.size.max(MIN_READ) * 2).min(MAX_READ);
        }
    }

    /// There is nothing to read now. Buffers are given back if nothing is expected, and large ones if
    /// little came for a while.
    pub(crate) fn rest(&mut self, is_quiet: bool) {
        let is_little = std::mem::take(&mut self.read) < MIN_READ;
        self.little = u32::from(is_little) * self.little.saturating_add(1);
        let is_too_large = self.size > MIN_READ && self.little >= LITTLE;
        if self.bytes.is_empty() && (is_quiet || is_too_large) {
            *self = Self::default();
        }
    }

    /// Takes a payload out.
    pub(crate) fn take(&mut self, len: usize) -> Bytes {
        if len >= SHARED {
            return self.bytes.split_to(len).freeze();
        }
        let copy = Bytes::copy_from_slice(&self.bytes[..len]);
        self.bytes.advance(len);
        copy
    }
}
