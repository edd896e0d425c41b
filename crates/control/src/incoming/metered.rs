//! The body of a request stream, whose buffer is on the account of its client. Otherwise a client could fill the
//! memory with many streams, each with half a request.

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
    messages: Messages,
}

/// The messages of a body, of which the last may be incomplete.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    head: [u8; HEAD],
    /// The bytes that were read of the last message, and of its head.
    read: usize,
}

/// The part of a body that was read in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The number of messages that came to their end.
    pub(crate) ended: u32,
    /// The most bytes of one message that were read up to now, with its head.
    pub(crate) largest: usize,
    /// The most bytes that a message has by its head, without the head.
    pub(crate) announced: usize,
}

impl Metered {
    pub(crate) fn new(body: Body, share: Share) -> Self {
        Self {
            body,
            share,
            messages: Messages::default(),
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
            let seen = this.messages.advance(data);
            if let Err(beyond) = this.share.raise(seen.largest) {
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

impl Messages {
    /// Goes on by `data`.
    pub(crate) fn advance(&mut self, mut data: &[u8]) -> Seen {
        let mut seen = Seen::default();
        while !data.is_empty() {
            let missing = self.missing().min(data.len());
            let (now, later) = data.split_at(missing);
            if let Some(head) = self.head.get_mut(self.read..self.read + missing) {
                head.copy_from_slice(now);
            }
            self.read += missing;
            seen.largest = seen.largest.max(self.read);
            if self.read >= HEAD {
                seen.announced = seen.announced.max(self.announced());
            }
            data = later;
            if self.missing() == 0 {
                self.read = 0;
                seen.ended += 1;
            }
        }
        seen
    }

    /// The bytes that are missing of the head or, after it, of the message.
    fn missing(&self) -> usize {
        if self.read < HEAD {
            return HEAD - self.read;
        }
        (HEAD.saturating_add(self.announced())).saturating_sub(self.read)
    }

    /// The bytes of the message by its head.
    fn announced(&self) -> usize {
        let [_, length @ ..] = self.head;
        usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX)
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
        /// However the bytes are cut, the largest message is found, and all are counted.
        #[test]
        fn largest_message_is_found(
            lengths in prop::collection::vec(0_usize..50, 1..10),
            cut in 1_usize..40,
        ) {
            let mut messages = Messages::default();
            let bytes = encoded(&lengths);
            let seen: Vec<Seen> = bytes.chunks(cut).map(|piece| messages.advance(piece)).collect();
            let expected = lengths.iter().max().copied();
            let largest = seen.iter().map(|seen| seen.largest).max();
            prop_assert_eq!(largest, expected.map(|length| length + HEAD));
            prop_assert_eq!(seen.iter().map(|seen| seen.announced).max(), expected);
            let ended: u32 = seen.iter().map(|seen| seen.ended).sum();
            prop_assert_eq!(ended as usize, lengths.len());
            prop_assert_eq!(messages.read, 0);
        }
    }

    #[test]
    fn half_a_message_counts() {
        let mut messages = Messages::default();
        let bytes = encoded(&[1_000]);
        let mut seen = Seen {
            ended: 0,
            largest: 300,
            announced: 1_000,
        };
        assert_eq!(messages.advance(&bytes[..300]), seen);
        seen.largest = 600;
        assert_eq!(messages.advance(&bytes[300..600]), seen);
    }
}
