//! The body of a request stream, whose buffer is on the account of its client. Else a client could
//! fill the memory with many streams, each with half a request.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use prost::bytes::Bytes;
use tonic::Status;
use tonic::body::Body;

use super::Share;

/// The bytes before each message: a flag, and the length of the message.
const HEAD: usize = 5;

/// A body of gRPC messages. The largest message so far is on the account of the client until the
/// stream ends. The reason is that the buffer in which a message is put together keeps its size.
#[derive(Debug)]
pub(crate) struct Metered {
    body: Body,
    share: Share,
    message: Message,
}

/// The message that is being read.
#[derive(Debug, Default)]
struct Message {
    head: [u8; HEAD],
    /// The bytes that were read of it, and of its head.
    read: usize,
}

impl Metered {
    pub(crate) fn new(body: Body, share: Share) -> Self {
        Self {
            body,
            share,
            message: Message::default(),
        }
    }
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            let largest = this.message.advance(data);
            if let Err(beyond) = this.share.raise(largest) {
                return Poll::Ready(Some(Err(beyond.status())));
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Message {
    /// Goes on by `data`. Returns the most bytes of one message that were read up to now.
    fn advance(&mut self, mut data: &[u8]) -> usize {
        let mut largest = 0;
        while !data.is_empty() {
            let missing = self.missing().min(data.len());
            let (now, later) = data.split_at(missing);
            if let Some(head) = self.head.get_mut(self.read..self.read + missing) {
                head.copy_from_slice(now);
            }
            self.read += missing;
            largest = largest.max(self.read);
            data = later;
            if self.missing() == 0 {
                self.read = 0;
            }
        }
        largest
    }

    /// The bytes that are missing of the head or, after it, of the message.
    fn missing(&self) -> usize {
        if self.read < HEAD {
            return HEAD - self.read;
        }
        let [_, length @ ..] = self.head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        (HEAD.saturating_add(length)).saturating_sub(self.read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in lengths {
            bytes.push(0);
            bytes.extend(u32::try_from(*length).unwrap().to_be_bytes());
            bytes.resize(bytes.len() + length, 7);
        }
        bytes
    }

    proptest! {
        /// However the bytes are cut, the largest message is found.
        #[test]
        fn largest_message_is_found(
            lengths in prop::collection::vec(0_usize..50, 1..10),
            cut in 1_usize..40,
        ) {
            let mut message = Message::default();
            let pieces = encoded(&lengths);
            let largest = pieces.chunks(cut).map(|piece| message.advance(piece)).max();
            let expected = lengths.iter().max().map(|length| length + HEAD);
            prop_assert_eq!(largest, expected);
            prop_assert_eq!(message.read, 0);
        }
    }

    #[test]
    fn half_a_message_counts() {
        let mut message = Message::default();
        let bytes = encoded(&[1_000]);
        assert_eq!(message.advance(&bytes[..300]), 300);
        assert_eq!(message.advance(&bytes[300..600]), 600);
    }
}
