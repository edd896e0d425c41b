//! Counts the bytes of messages, without gRPC's framing.
//!
//! gRFC A66 asks for the size of messages as they are sent, but not for the five bytes before each of them.
//! DATA may end anywhere, so the meter follows the framing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The length of the prefix of a message: a flag, and the length of the message in four bytes.
const PREFIX: usize = 5;

/// The messages of one direction of an attempt.
#[derive(Debug, Default)]
pub(super) struct Meter {
    total: u64,
    prefix: [u8; PREFIX],
    /// The number of bytes of the prefix that have come.
    filled: usize,
    /// The number of bytes of the message that are still to come.
    left: usize,
}

impl Meter {
    /// The size of all messages so far.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Counts the messages in some DATA. The work depends on the number of messages, not of bytes.
    pub(super) fn count(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left > 0 {
                let part = self.left.min(data.len());
                self.total += part as u64;
                self.left -= part;
                data = &data[part..];
                continue;
            }
            let part = (PREFIX - self.filled).min(data.len());
            self.prefix[self.filled..self.filled + part].copy_from_slice(&data[..part]);
            self.filled += part;
            data = &data[part..];
            if self.filled == PREFIX {
                let [_, length @ ..] = self.prefix;
                (self.left, self.filled) = (u32::from_be_bytes(length) as usize, 0);
            }
        }
    }
}

/// A request body whose messages are counted as they are read.
pub(in super::super) struct Metered<B> {
    body: B,
    /// `None` if the sizes are not used.
    metering: Option<Box<(Meter, Arc<AtomicU64>)>>,
}

impl<B> Metered<B> {
    pub(super) fn new(body: B, total: Option<&Arc<AtomicU64>>) -> Self {
        let metering = total.map(|total| Box::new((Meter::default(), Arc::clone(total))));
        Self { body, metering }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Metered<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(metering) = &mut self.metering
            && let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let (meter, total) = &mut **metering;
            meter.count(data);
            total.store(meter.total(), Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gRFC A66: sizes are without framing. The place where DATA ends does not matter.
    #[test]
    fn messages_are_counted_without_their_prefix() {
        let messages: [&[u8]; 3] = [b"hello", b"", b"a longer message"];
        let framed: Vec<u8> = messages
            .iter()
            .flat_map(|message| {
                let length = u32::try_from(message.len()).unwrap().to_be_bytes();
                [&[1][..], &length, message].concat()
            })
            .collect();
        for size in 1..=framed.len() {
            let mut meter = Meter::default();
            for data in framed.chunks(size) {
                meter.count(data);
            }
            assert_eq!(meter.total(), 21, "DATA of {size} bytes");
        }
    }
}
