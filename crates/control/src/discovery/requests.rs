//! The requests of a discovery stream.
//!
//! A message that came whole is read where it is. Only the beginning of a message whose rest is missing is copied, and
//! the copy is gone when the message was read. So an idle stream holds no buffer. Its first request, which has the node
//! of the client, may be a thousand times as large as all others.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::Body as _;
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

use super::wire::{self, Fields};
use crate::incoming::Share;

/// The bytes before each message: a byte that says it is not compressed, and its length.
const HEAD: usize = 5;

/// The requests of type `R` that arrive on a stream.
#[derive(Debug)]
pub(super) struct Requests<R> {
    body: Body,
    /// The part of the newest data that was not read.
    data: Bytes,
    /// The beginning of a message, with its head.
    partial: Vec<u8>,
    /// The bytes of `partial`, on the account of the client.
    share: Share,
    of: PhantomData<fn() -> R>,
}

impl<R: Message + Default + Fields> Requests<R> {
    /// The requests in a body, each of which is within the limits of the client.
    pub(super) fn new(body: Body, share: Share) -> Self {
        Self {
            body,
            data: Bytes::new(),
            partial: Vec::new(),
            share,
            of: PhantomData,
        }
    }

    /// The next request; `None` if the client has ended the stream. Nothing is lost if this is not waited for.
    ///
    /// # Errors
    /// The connection is broken, or the client sent something that is no request or is too large.
    pub(super) async fn next(&mut self) -> Result<Option<R>, Status> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<R>, Status>> {
        loop {
            if let Some(request) = self.read()? {
                return Poll::Ready(Ok(Some(request)));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                // The client gave the stream up.
                Some(Err(status)) if status.code() == Code::Cancelled => {
                    return Poll::Ready(Ok(None));
                }
                Some(Err(status)) => return Poll::Ready(Err(status)),
                None if self.partial.is_empty() => return Poll::Ready(Ok(None)),
                None => {
                    let message = "the stream ended in the middle of a request";
                    return Poll::Ready(Err(Status::internal(message)));
                }
            };
            match frame.into_data() {
                Ok(data) => self.data = data,
                Err(_) => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Reads the next request in the data that arrived; `None` if its rest is missing.
    fn read(&mut self) -> Result<Option<R>, Status> {
        if self.partial.is_empty()
            && let Some(length) = self.length(&self.data)?
            && self.data.len() >= length
        {
            let request = self.decode(&self.data[HEAD..length]);
            self.data.advance(length);
            if self.data.is_empty() {
                // An empty part would hold the whole of its buffer.
                self.data = Bytes::new();
            }
            return request.map(Some);
        }
        while !self.data.is_empty() {
            let length = self.length(&self.partial)?;
            let missing = length.unwrap_or(HEAD) - self.partial.len();
            let now = self.data.split_to(missing.min(self.data.len()));
            let held = self.partial.len() + now.len();
            self.share.set(held).map_err(|beyond| beyond.status())?;
            self.partial.extend_from_slice(&now);
            if self.length(&self.partial)? == Some(self.partial.len()) {
                let request = self.decode(&self.partial[HEAD..]);
                self.partial = Vec::new();
                // Less is never too much.
                self.share.set(0).ok();
                return request.map(Some);
            }
        }
        self.data = Bytes::new();
        Ok(None)
    }

    /// The length of the message that begins here, with its head; `None` if not all of the head is here.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let Some([compressed, length @ ..]) = bytes.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        if *compressed != 0 {
            let message = format!("expected a request that is not compressed, got {compressed}");
            return Err(Status::internal(message));
        }
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let most = self.share.limits().request_bytes;
        if length > most {
            let message = format!("expected at most {most} bytes in a request, got {length}");
            return Err(Status::out_of_range(message));
        }
        Ok(Some(HEAD.saturating_add(length)))
    }

    fn decode(&self, bytes: &[u8]) -> Result<R, Status> {
        wire::check::<R>(bytes, self.share.limits().names)?;
        R::decode(bytes).map_err(|error| Status::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
    use http_body::Frame;
    use proptest::prelude::*;

    use super::super::wire::Field;
    use super::*;
    use crate::incoming::test_peer;
    use crate::limits::Limits;

    impl Fields for String {
        fn field(_: u32) -> Field {
            Field::Plain
        }
    }

    /// A body of these frames.
    struct Frames(VecDeque<Bytes>);

    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
        }
    }

    fn encoded(texts: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for text in texts {
            bytes.push(0);
            bytes.extend(u32::try_from(text.encoded_len()).unwrap().to_be_bytes());
            text.encode(&mut bytes).unwrap();
        }
        bytes
    }

    fn requests(bytes: &[u8], cut: usize, limits: Limits) -> Requests<String> {
        let frames = bytes.chunks(cut).map(Bytes::copy_from_slice).collect();
        let body = Body::new(Frames(frames));
        Requests::new(body, test_peer(limits).share())
    }

    async fn all(mut requests: Requests<String>) -> Result<Vec<String>, Status> {
        let mut read = Vec::new();
        while let Some(request) = requests.next().await? {
            read.push(request);
            if requests.data.is_empty() {
                assert_eq!(
                    requests.partial.capacity(),
                    0,
                    "an idle stream has no buffer"
                );
            }
        }
        Ok(read)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.build().unwrap().block_on(future)
    }

    proptest! {
        /// However the bytes are cut, the requests are those that were sent.
        #[test]
        fn requests_are_read_however_they_are_cut(
            texts in prop::collection::vec("[a-z]{0,60}", 0..8),
            cut in 1_usize..200,
        ) {
            let read = run(all(requests(&encoded(&texts), cut, Limits::default())));
            prop_assert_eq!(read.unwrap(), texts);
        }
    }

    /// The end in the middle of a request, a compressed one, one of another form and one that is too large are errors.
    #[test]
    fn what_is_no_request_is_an_error() {
        let code = |bytes: &[u8], cut| {
            let limits = Limits {
                request_bytes: 20,
                ..Limits::default()
            };
            let read = run(all(requests(bytes, cut, limits)));
            read.map_err(|status| status.code())
        };
        let whole = encoded(&["abc".to_owned()]);
        assert_eq!(code(&whole, 100), Ok(vec!["abc".to_owned()]));
        for cut in [1, 100] {
            assert_eq!(code(&whole[..7], cut), Err(Code::Internal), "it is cut off");
            assert_eq!(code(&[1, 0, 0, 0, 0], cut), Err(Code::Internal));
            assert_eq!(code(&[0, 0, 0, 0, 1, 0xff], cut), Err(Code::Internal));
            assert_eq!(code(&[0, 0, 0, 0, 21], cut), Err(Code::OutOfRange));
        }
    }

    /// L-08: 4 MiB of elements of two bytes, of a node or of names, would become hundreds of megabytes.
    #[test]
    fn endless_lists_take_little_memory() {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        // `node.extensions` in a node of nearly 4 MiB, and `resource_names_subscribe`.
        let extensions = b"\x4a\x00".repeat((4 << 20) / 2 - 100);
        let mut node = vec![0x0a];
        prost::encoding::encode_varint(length(&extensions).into(), &mut node);
        node.extend(extensions);
        for request in [node, b"\x1a\x00".repeat(2 << 20)] {
            let head = [&[0][..], &length(&request).to_be_bytes()].concat();
            let body = Body::new(Frames([Bytes::from([head, request].concat())].into()));
            let peer = test_peer(Limits::default());
            let mut requests = Requests::<DeltaDiscoveryRequest>::new(body, peer.share());
            let mut refused = None;
            let measured = allocation_counter::measure(|| {
                refused = Some(run(requests.next()).map(|_| ()).unwrap_err().code());
            });
            assert_eq!(refused, Some(Code::ResourceExhausted));
            assert!(measured.bytes_max < 1 << 20, "{measured:?}");
        }
    }

    /// L-08: the beginning of a request counts for what may be held for the client, until the request was read.
    #[test]
    fn half_a_request_is_on_the_account() {
        let limits = Limits {
            held_bytes: 50,
            ..Limits::default()
        };
        let few = encoded(&["a".repeat(40), "b".repeat(40)]);
        assert_eq!(
            run(all(requests(&few, 10, limits.clone()))).unwrap().len(),
            2
        );
        let long = encoded(&["a".repeat(60)]);
        let status = run(all(requests(&long, 10, limits.clone()))).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);

        let peer = test_peer(limits);
        let frames = few.chunks(10).map(Bytes::copy_from_slice).collect();
        let body = Body::new(Frames(frames));
        let mut requests = Requests::<String>::new(body, peer.share());
        let mut other = peer.share();
        run(requests.next()).unwrap().unwrap();
        assert_eq!(
            other.set(50),
            Ok(()),
            "a request that was read counts no more"
        );
    }
}
