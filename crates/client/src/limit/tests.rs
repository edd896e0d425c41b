use std::collections::VecDeque;
use std::future::poll_fn;

use super::*;

const LIMIT: usize = 100;
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

/// However the bytes are cut into frames, messages up to the limit pass, and the one over it ends the
/// body, with its type, as soon as it shows: nothing more need come.
#[tokio::test]
async fn messages_pass_up_to_the_first_over_the_limit() {
    let any = format!("\x12\x7f\x0a\x33type.googleapis.com/{CLUSTER}\x12");
    let good = [message(&[b'x'; LIMIT]), message(b""), message(b"yes")].concat();
    let bad = message(format!("{any:<200}").as_bytes());
    let all = [&*good, &bad].concat();
    for size in 1..all.len() {
        let (passed, error) = read(all.chunks(size)).await;
        // Of the header of the last, what came in frames of its own.
        let passed = passed.get(..good.len()).unwrap();
        assert_eq!(passed, good, "in frames of {size}");
        let error = error.unwrap().to_string();
        assert_eq!(
            error,
            format!("a response of {CLUSTER} over the limit of 100 bytes"),
            "in frames of {size}"
        );
    }
}

#[tokio::test]
async fn body_within_the_limit_passes_whole() {
    let all = [message(&[b'x'; LIMIT]), message(b"y")].concat();
    for size in 1..=all.len() {
        let (passed, error) = read(all.chunks(size)).await;
        assert_eq!(passed, all);
        assert!(error.is_none(), "{error:?}");
    }
}

fn message(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0][..], &length, payload].concat()
}

/// Reads a body that stays open after these frames, until it ends or nothing more comes.
async fn read(
    frames: impl Iterator<Item = &[u8]>,
) -> (Vec<u8>, Option<Box<dyn Error + Send + Sync>>) {
    let frames = frames.map(Bytes::copy_from_slice).collect();
    let mut body = LimitedBody::new(tonic::body::Body::new(Frames(frames)), LIMIT);
    let mut passed = Vec::new();
    loop {
        let next = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => Poll::Ready(None),
        });
        match next.await {
            Some(Ok(frame)) => passed.extend(frame.into_data().unwrap()),
            Some(Err(error)) => return (passed, Some(error)),
            None => return (passed, None),
        }
    }
}

struct Frames(VecDeque<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = tonic::Status;

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
