//! Tests of the messages in the body of a response, which are read here and not by tonic: their
//! limit, their memory and their errors.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::*;

const LIMIT: usize = 100;
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

/// Messages up to the limit pass, in frames of any size. The first message over the limit ends the body
/// with an error that has its type, before the rest of the message has come.
#[tokio::test]
async fn messages_pass_up_to_the_first_over_the_limit() {
    let any = format!("\x12\x7f\x0a\x33type.googleapis.com/{CLUSTER}\x12");
    let good = [&[b'x'; LIMIT][..], b"", b"yes"];
    let bad = message(format!("{any:<200}").as_bytes());
    let all = [&*good.map(message).concat(), &bad].concat();
    for size in 1..all.len() {
        let (passed, error) = read(all.chunks(size)).await;
        assert_eq!(passed, good, "in frames of {size}");
        let error = error.unwrap();
        let too_large = error.source().unwrap().downcast_ref::<TooLarge>();
        assert_eq!(
            too_large.unwrap().to_string(),
            format!("a response of {CLUSTER} over the limit of 100 bytes"),
            "in frames of {size}"
        );
    }
}

#[tokio::test]
async fn body_within_the_limit_passes_whole() {
    let messages = [&[b'x'; LIMIT][..], b"y"];
    let all = messages.map(message).concat();
    for size in 1..=all.len() {
        let (passed, error) = read(all.chunks(size)).await;
        assert_eq!(passed, messages);
        assert!(error.is_none(), "{error:?}");
    }
}

/// A stream stays open for long and is idle most of the time, so a buffer of its own would be
/// wasted memory.
#[tokio::test]
async fn no_buffer_is_kept_between_messages() {
    let mut messages = body([&*message(b"yes")].into_iter());
    next(&mut messages).await.unwrap().unwrap();
    assert_eq!(messages.gathered.capacity(), 0);
}

#[tokio::test]
async fn message_that_is_compressed_is_an_error() {
    let (passed, error) = read([&[1, 0, 0, 0, 1, b'x'][..]].into_iter()).await;
    assert_eq!((passed.len(), error.unwrap().code()), (0, Code::Internal));
}

/// The gRPC status decides if there is one. If there is none, the HTTP status does.
#[test]
fn end_says_how_it_went() {
    let ended = |status: Option<&'static str>| {
        let messages = body([].into_iter());
        let status = status.map(|status| ("grpc-status".parse().unwrap(), status.parse().unwrap()));
        let trailers = status.map(|status| [status].into_iter().collect());
        let end: Result<Option<()>, _> = messages.ended(trailers.as_ref());
        end.map_or_else(|status| status.code(), |_| Code::Ok)
    };
    assert_eq!(ended(Some("0")), Code::Ok);
    assert_eq!(ended(Some("7")), Code::PermissionDenied);
    assert_eq!(ended(None), Code::Unknown);
}

/// A proxy, or a server without gRPC, may answer with an HTTP error. The body of such an answer is
/// not read as messages.
#[test]
fn an_http_error_is_told_by_its_status() {
    let told = |status: u16| {
        let page = Bytes::from_static(b"<html>404 page not found</html>");
        let body = Body::new(http_body_util::Full::new(page));
        let response = Response::builder().status(status).body(body).unwrap();
        Messages::of(response, LIMIT).unwrap_err().code()
    };
    assert_eq!(told(404), Code::Unimplemented);
    assert_eq!(told(503), Code::Unavailable);
}

fn message(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0][..], &length, payload].concat()
}

/// Reads a body that stays open after these frames, until it ends or nothing more comes.
async fn read(frames: impl Iterator<Item = &[u8]>) -> (Vec<Vec<u8>>, Option<Status>) {
    let mut messages = body(frames);
    let mut passed = Vec::new();
    loop {
        match next(&mut messages).await {
            Some(Ok(message)) => passed.push(message),
            Some(Err(status)) => return (passed, Some(status)),
            None => return (passed, None),
        }
    }
}

fn body<'a>(frames: impl Iterator<Item = &'a [u8]>) -> Messages {
    let frames = frames.map(Bytes::copy_from_slice).collect();
    let response = Response::new(Body::new(Frames(frames)));
    Messages::of(response, LIMIT).unwrap().unwrap()
}

/// `None` if nothing more comes.
async fn next(messages: &mut Messages) -> Option<Result<Vec<u8>, Status>> {
    let mut next = Box::pin(messages.next(|message| Ok(message.to_vec())));
    poll_fn(|cx| match next.as_mut().poll(cx) {
        Poll::Ready(message) => Poll::Ready(message.transpose()),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

struct Frames(VecDeque<Bytes>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.pop_front() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}
