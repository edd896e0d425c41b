//! Every attempt of a call sends the same body.
//!
//! A random script breaks attempts off at any point, because a retry may begin at any point of the
//! body.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use crowfly::transport::{AttemptBody, ReplayBody};
use http::HeaderMap;
use http_body::{Body, Frame};
use proptest::prelude::*;
use tonic::Status;

use crate::support::ok_trailers;

#[test]
fn an_attempt_can_be_repeated_until_commit() {
    let body = ReplayBody::new(Script::new([Step::Data(3), Step::Data(4)]), 100);
    let expected = vec![Got::Data(3), Got::Data(4), Got::End];
    assert_eq!(drain(&mut body.attempt()), expected);
    assert!(body.can_replay());
    assert_eq!(drain(&mut body.attempt()), expected);
    body.commit();
    assert!(!body.can_replay());
}

/// A request cut short must not look complete.
#[test]
fn a_superseded_attempt_fails_instead_of_ending() {
    let body = ReplayBody::new(Script::new([Step::Data(1), Step::Data(2)]), 100);
    let mut first = body.attempt();
    assert_eq!(poll(&mut first), Got::Data(1));
    let mut second = body.attempt();
    assert_eq!(poll(&mut first), Got::Error);
    assert!(!first.is_end_stream());
    assert_eq!(drain(&mut second), [Got::Data(1), Got::Data(2), Got::End]);
}

#[test]
fn an_attempt_after_commit_fails() {
    let body = ReplayBody::new(Script::new([Step::Data(1)]), 100);
    assert_eq!(poll(&mut body.attempt()), Got::Data(1));
    body.commit();
    assert_eq!(poll(&mut body.attempt()), Got::Error);
}

#[test]
fn a_body_over_the_limit_commits_the_call_and_is_sent_whole() {
    let body = ReplayBody::new(
        Script::new([Step::Data(6), Step::Data(5), Step::Data(1)]),
        10,
    );
    let mut attempt = body.attempt();
    assert_eq!(poll(&mut attempt), Got::Data(6));
    assert!(body.can_replay());
    assert_eq!(poll(&mut attempt), Got::Data(5));
    assert!(!body.can_replay());
    assert_eq!(drain(&mut attempt), [Got::Data(1), Got::End]);
}

#[test]
fn a_body_that_fails_cannot_be_repeated() {
    let body = ReplayBody::new(Script::new([Step::Data(1), Step::Error]), 100);
    assert_eq!(drain(&mut body.attempt()), [Got::Data(1), Got::Error]);
    assert!(!body.can_replay());
}

/// Frames that were kept are freed on commit, so that a long response does not hold its request.
#[test]
fn commit_frees_what_was_kept() {
    let data = Bytes::from(vec![0; 100]);
    let body = ReplayBody::new(http_body_util::Full::new(data.clone()), 1000);
    let mut attempt = body.attempt();
    assert_eq!(poll(&mut attempt), Got::Data(100));
    assert!(!data.is_unique());
    body.commit();
    assert!(data.is_unique());
}

#[test]
fn a_body_without_frames_is_over_at_once() {
    let body = ReplayBody::new(http_body_util::Empty::<Bytes>::new(), 100);
    assert!(body.attempt().is_end_stream());
}

proptest! {
    /// Attempts are broken off at any point, and the last one is committed at any point. Each sees
    /// a prefix of the same frames, and the last sees them all.
    #[test]
    fn every_attempt_sends_the_same_frames(
        steps in prop::collection::vec(any_step(), 0..20),
        trailers in any::<bool>(),
        broken_off in prop::collection::vec(0_usize..30, 0..5),
        commit_after in 0_usize..30,
    ) {
        let mut expected: Vec<Got> = steps.iter().filter_map(Step::frame).collect();
        let mut script = Script::new(steps);
        if trailers {
            script.steps.push_back(Step::Trailers);
            expected.push(Got::Trailers(ok_trailers()));
        }
        expected.push(Got::End);
        let body = ReplayBody::new(script, usize::MAX);

        for polls in broken_off {
            let mut attempt = body.attempt();
            let frames = (0..polls).map(|_| poll(&mut attempt)).filter(|got| *got != Got::Pending);
            prop_assert!(frames.zip(&expected).all(|(got, expected)| got == *expected));
            prop_assert!(body.can_replay());
        }

        let mut last = body.attempt();
        let mut frames = Vec::new();
        for polls in 0.. {
            if polls == commit_after {
                body.commit();
            }
            match poll(&mut last) {
                Got::Pending => {}
                Got::End => break,
                got => frames.push(got),
            }
        }
        frames.push(Got::End);
        prop_assert_eq!(frames, expected);
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => (1_usize..50).prop_map(Step::Data), 1 => Just(Step::Pending)]
}

/// A body that follows a script. DATA frames are told apart by their length.
struct Script {
    steps: VecDeque<Step>,
}

impl Script {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Data(usize),
    Error,
    Pending,
    Trailers,
}

impl Step {
    fn frame(&self) -> Option<Got> {
        match self {
            Self::Data(length) => Some(Got::Data(*length)),
            _ => None,
        }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(match self.steps.pop_front() {
            None => None,
            Some(Step::Data(length)) => Some(Ok(Frame::data(Bytes::from(vec![0; length])))),
            Some(Step::Error) => Some(Err(Status::internal("broken"))),
            Some(Step::Trailers) => Some(Ok(Frame::trailers(ok_trailers()))),
            Some(Step::Pending) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }
}

#[derive(Debug, PartialEq)]
enum Got {
    Data(usize),
    End,
    Error,
    Pending,
    Trailers(HeaderMap),
}

fn drain<B>(body: &mut AttemptBody<B>) -> Vec<Got>
where
    AttemptBody<B>: Body<Data = Bytes> + Unpin,
{
    let mut frames = Vec::new();
    loop {
        let got = poll(body);
        let is_last = matches!(got, Got::End | Got::Error);
        frames.push(got);
        if is_last {
            return frames;
        }
    }
}

fn poll<B>(body: &mut AttemptBody<B>) -> Got
where
    AttemptBody<B>: Body<Data = Bytes> + Unpin,
{
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut cx) {
        Poll::Pending => Got::Pending,
        Poll::Ready(None) => Got::End,
        Poll::Ready(Some(Err(_))) => Got::Error,
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) => Got::Data(data.len()),
            Err(frame) => Got::Trailers(frame.into_trailers().unwrap()),
        },
    }
}
