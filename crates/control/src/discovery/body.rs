//! The body of a discovery stream: responses, of which each is written when the client has room for it.
//!
//! HTTP/2 takes parts before the client has room for them. So a response counts as written when HTTP/2 drops its last
//! part, which it does once the part is on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use crowfly_xds::{Response, Written};
use http_body::{Body, Frame};
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use super::slot::{Giver, Taker, Unwritten, slot};

/// The size of a part of a response. It is that of the largest frame that clients take by default (RFC 9113, 6.5.2).
const PART: usize = 16_384;

/// The room for the last resource of a part, beyond its size. A larger one makes the buffer grow.
const SLACK: usize = 1_024;

/// The bytes before each message: a byte that says it is not compressed, and its length.
const MESSAGE_HEAD: usize = 5;

/// The next thing to write: a response, or the status that ends the stream.
type Next = Result<Box<Response>, Status>;

/// The end of the channel on which a stream sends its responses.
pub(super) type Sender = Giver<Next>;

/// The responses that a client is sent on a stream.
#[derive(Debug)]
pub(super) struct Responses {
    responses: Taker<Next>,
    /// The response that is being written.
    current: Option<Current>,
    has_ended: bool,
}

#[derive(Debug)]
struct Current {
    response: Box<Response>,
    written: Written,
    /// The number of bytes that are still to be written.
    remaining: usize,
    unwritten: Unwritten<Next>,
}

/// The last part of a response.
struct Last {
    part: Bytes,
    _unwritten: Unwritten<Next>,
}

impl AsRef<[u8]> for Last {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

impl Responses {
    /// A body, and the channel that feeds it. The channel holds one response. So a response for a slow client is made
    /// late, from the newest snapshot.
    pub(super) fn channel() -> (Sender, Self) {
        let (sender, responses) = slot();
        let body = Self {
            responses,
            current: None,
            has_ended: false,
        };
        (sender, body)
    }

    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.has_ended = true;
        let mut trailers = HeaderMap::new();
        if let Err(error) = status.add_header(&mut trailers) {
            // The message of a status that cannot be told is left out.
            Status::new(error.code(), "").add_header(&mut trailers).ok();
        }
        Frame::trailers(trailers)
    }
}

impl Body for Responses {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Some(current) = self.current.take() {
            let (current, part) = current.next_part(BytesMut::new());
            self.current = current;
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let frame = match std::task::ready!(self.responses.poll_take(cx)) {
            Some((Ok(response), unwritten)) => {
                let (current, part) = Current::begin(response, unwritten)?;
                self.current = current;
                Frame::data(part)
            }
            Some((Err(status), _)) => self.end(&status),
            None => self.end(&Status::new(Code::Ok, "")),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

impl Current {
    /// Writes the first part. There is nothing left of a small response.
    fn begin(
        response: Box<Response>,
        unwritten: Unwritten<Next>,
    ) -> Result<(Option<Self>, Bytes), Status> {
        let len = response.encoded_len();
        let told = u32::try_from(len).map_err(|_| {
            Status::internal(format!(
                "a response of {len} bytes is more than gRPC can carry"
            ))
        })?;
        let current = Self {
            response,
            written: Written::default(),
            remaining: len,
            unwritten,
        };
        let mut buffer = BytesMut::with_capacity(MESSAGE_HEAD + len.min(PART + SLACK));
        buffer.put_u8(0);
        buffer.put_u32(told);
        Ok(current.next_part(buffer))
    }

    /// Writes the next part; with the rest of the response, unless this part was the last.
    fn next_part(mut self, mut buffer: BytesMut) -> (Option<Self>, Bytes) {
        buffer.reserve(self.remaining.min(PART + SLACK));
        let before = buffer.len();
        self.response
            .encode_part(&mut self.written, PART, &mut buffer);
        self.remaining = self.remaining.saturating_sub(buffer.len() - before);
        let part = buffer.freeze();
        if !self.response.is_written(&self.written) {
            return (Some(self), part);
        }
        let last = Last {
            part,
            _unwritten: self.unwritten,
        };
        (None, Bytes::from_owner(last))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crowfly_xds::{DeltaSubscription, Snapshot};
    use envoy_types::pb::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse,
    };
    use envoy_types::pb::google::protobuf::Any;
    use prost::Message;

    use super::*;

    const URL: &str = "type.googleapis.com/x.Y";

    /// A response with one resource of each of these sizes.
    fn response(sizes: &[usize]) -> Box<Response> {
        let mut builder = Snapshot::builder();
        for (index, size) in sizes.iter().enumerate() {
            let any = Any {
                type_url: URL.to_owned(),
                value: vec![7; *size],
            };
            builder.set(format!("r{index}"), any);
        }
        let mut stream = DeltaSubscription::new(Arc::new(builder.build()));
        stream.handle_request(DeltaDiscoveryRequest {
            type_url: URL.to_owned(),
            ..DeltaDiscoveryRequest::default()
        });
        Box::new(stream.poll_response().unwrap())
    }

    async fn next(body: &mut Responses) -> Option<Frame<Bytes>> {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        frame.map(Result::unwrap)
    }

    #[tokio::test]
    async fn a_small_response_is_one_part_and_the_end_has_a_status() {
        let (sender, mut body) = Responses::channel();
        let sent = response(&[10]);
        sender.give(Ok(sent.clone())).await.unwrap();
        let data = next(&mut body).await.unwrap().into_data().unwrap();
        let (head, message) = data.split_at(MESSAGE_HEAD);
        assert_eq!(head[0], 0);
        assert_eq!(
            head[1..],
            u32::try_from(message.len()).unwrap().to_be_bytes()
        );
        let message = DeltaDiscoveryResponse::decode(message).unwrap();
        assert_eq!(message, sent.to_message().unwrap());

        sender.give(Err(Status::unavailable("bye"))).await.unwrap();
        let trailers = next(&mut body).await.unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "14");
        assert_eq!(trailers["grpc-message"], "bye");
        assert!(body.is_end_stream());
        assert!(next(&mut body).await.is_none());
    }

    /// L-07: a response is written when its last part is, and not when HTTP/2 takes that part.
    #[tokio::test]
    async fn a_response_is_written_when_its_last_part_is_gone() {
        for sizes in [&[10][..], &[9_000, 9_000, 40_000]] {
            let (sender, mut body) = Responses::channel();
            sender.give(Ok(response(sizes))).await.unwrap();
            let mut parts = vec![next(&mut body).await.unwrap()];
            while body.current.is_some() {
                parts.push(next(&mut body).await.unwrap());
            }
            let last = parts.pop();
            drop(parts);
            assert!(!sender.is_written(), "HTTP/2 holds the last part");
            drop(last);
            assert!(sender.is_written());
        }
    }

    /// A client that does not read holds no more than a part of each response.
    #[tokio::test]
    async fn a_large_response_comes_in_parts_that_are_the_message() {
        let (sender, mut body) = Responses::channel();
        let sizes = [10, 9_000, 9_000, 40_000, 1, 15_000, 15_000];
        let sent = response(&sizes);
        sender.give(Ok(sent.clone())).await.unwrap();
        drop(sender);
        let (mut all, mut parts) = (Vec::new(), 0);
        while let Some(frame) = next(&mut body).await {
            let Ok(data) = frame.into_data() else { break };
            let most = PART + sizes.iter().max().unwrap() + 200;
            assert!(!data.is_empty() && data.len() < most, "{}", data.len());
            parts += 1;
            all.extend_from_slice(&data);
        }
        assert!(parts >= 4, "{parts}");
        let message = DeltaDiscoveryResponse::decode(&all[MESSAGE_HEAD..]).unwrap();
        assert_eq!(message, sent.to_message().unwrap());
        assert!(body.is_end_stream());
    }
}
