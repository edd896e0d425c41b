//! Bytes read from the socket, and the buffers for them.
//!
//! An idle connection must hold next to nothing, and a busy one must not ask the system for memory with each read. So
//! buffers grow with the reads, are used again, and are freed when the connection is idle.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// The size of the first read. Reads grow while they fill their buffer.
const MIN_READ: usize = 4 * 1024;
const MAX_READ: usize = 64 * 1024;
/// Shorter payloads are copied, so that unread payloads hold at most four times their length.
const MIN_UNCOPIED: usize = MAX_READ / 4 - 1024;
/// The most buffers that are remembered for use again. A reader that is far behind holds them anyway.
const MAX_SPARE: usize = 256;
/// The most buffers that are kept although no call holds a part of them.
const FREE: usize = 4;
/// The number of small reads in a row after which large buffers are given back.
const LITTLE: u32 = 100;

/// The buffer that is read into, and those that were.
///
/// Payloads of DATA are handed out as parts of the buffer that they were read into. A buffer is used again
/// when all of its parts are gone, because the system clears fresh memory each time.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) bytes: BytesMut,
    /// The size of a read; 0 means the first size.
    size: usize,
    /// The bytes that are missing of the frame that came in part. The next buffer has room for them.
    pub(crate) missing: usize,
    /// The bytes that were read since the socket last had none.
    read: usize,
    /// The number of small reads in a row.
    little: u32,
    /// Buffers of which calls may still hold parts, the oldest first.
    spare: VecDeque<BytesMut>,
}

impl Input {
    /// A buffer to read into. The buffer may hold a part of a frame.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        let missing = std::mem::take(&mut self.missing);
        let size = self.size.max(MIN_READ).max(missing);
        // Large buffers all have one length, which has room for any frame.
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

    /// A free buffer, or a new one. The oldest are tried, because calls mostly read in order.
    fn take_spare(&mut self, len: usize) -> BytesMut {
        let mut oldest = self.spare.iter_mut().take(FREE);
        let free = oldest.position(|one| one.try_reclaim(len));
        let Some(spare) = free.and_then(|at| self.spare.remove(at)) else {
            return BytesMut::with_capacity(len);
        };
        // A reader has caught up, so fewer buffers are enough.
        if self.spare.len() >= FREE && self.spare[0].try_reclaim(len) {
            self.spare.pop_front();
        }
        spare
    }

    /// Records that `len` bytes were read into a buffer that had `room`.
    pub(crate) fn filled(&mut self, len: usize, room: usize) {
        self.read += len;
        if len == room {
            self.size = (self.size.max(MIN_READ) * 2).min(MAX_READ);
        }
    }

    /// Records that the socket has no bytes now. Buffers are given back if no stream waits for the server (`is_quiet`),
    /// and large ones if reads were small for a while.
    pub(crate) fn rest(&mut self, is_quiet: bool) {
        let is_little = std::mem::take(&mut self.read) < MIN_READ;
        self.little = u32::from(is_little) * self.little.saturating_add(1);
        let is_too_large = self.size > MIN_READ && self.little >= LITTLE;
        if self.bytes.is_empty() && (is_quiet || is_too_large) {
            *self = Self::default();
        }
    }

    /// Takes out a payload of this length.
    pub(crate) fn take(&mut self, len: usize) -> Bytes {
        if len >= MIN_UNCOPIED {
            return self.bytes.split_to(len).freeze();
        }
        let copy = Bytes::copy_from_slice(&self.bytes[..len]);
        self.bytes.advance(len);
        copy
    }
}
