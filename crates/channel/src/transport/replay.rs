//! A request body that can be sent again, until its call is committed.
//!
//! A retry, transparent or by a policy (gRFC A6), repeats a call whose body may already have been read in part. So the
//! frames that an attempt reads are kept until the call is committed. A call is committed when its response begins, or
//! when its body would take too much memory. Keeping a frame clones its [`Bytes`] and does not copy the data.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;

/// The number of bytes of a body that are kept for another attempt by default: 256 KiB, as in gRPC C-core
/// (`grpc.per_rpc_retry_buffer_size`). The buffer holds nearly every unary request and the start of a stream, and a
/// thousand waiting calls still fit into 256 MiB.
pub const DEFAULT_REPLAY_LIMIT: usize = 256 * 1024;

/// The body of a call, over all its attempts.
///
/// There is one current attempt at a time. Starting the next makes the previous one fail when it is
/// polled. The lock is therefore free, except while the task of a cancelled attempt ends.
///
/// ```
/// use bytes::Bytes;
/// use crowfly::transport::{DEFAULT_REPLAY_LIMIT, ReplayBody};
/// use http_body_util::{BodyExt, Full};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let body = ReplayBody::new(Full::new(Bytes::from("hello")), DEFAULT_REPLAY_LIMIT);
/// let first = body.attempt().collect().await?.to_bytes();
/// assert!(body.can_replay());
/// let second = body.attempt().collect().await?.to_bytes();
/// assert_eq!(first, second);
/// # Ok(())
/// # }
/// ```
pub struct ReplayBody<B> {
    state: Arc<Mutex<State<B>>>,
}

impl<B: Body<Data = Bytes> + Unpin> ReplayBody<B> {
    /// Wraps a body, of which at most `limit` bytes are kept.
    pub fn new(body: B, limit: usize) -> Self {
        let state = State {
            body,
            kept: Kept::default(),
            budget: limit,
            next: 0,
            attempt: 0,
            ended: false,
            committed: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Starts an attempt, whose body begins at the beginning.
    ///
    /// Once the call is committed the beginning is gone, and the body of a new attempt fails when it is
    /// polled.
    pub fn attempt(&self) -> AttemptBody<B> {
        let mut state = lock(&self.state);
        state.attempt += 1;
        let is_lost = state.committed && state.attempt > 1;
        state.next = 0;
        AttemptBody {
            state: self.state.clone(),
            attempt: if is_lost { LOST } else { state.attempt },
        }
    }

    /// True while another attempt would send the whole body.
    pub fn can_replay(&self) -> bool {
        !lock(&self.state).committed
    }

    /// Gives up further attempts and frees the frames kept for them. The current attempt goes on.
    pub fn commit(&self) {
        lock(&self.state).commit();
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody").finish_non_exhaustive()
    }
}

/// The body of one attempt.
pub struct AttemptBody<B> {
    state: Arc<Mutex<State<B>>>,
    attempt: u32,
}

impl<B> Body for AttemptBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut state = lock(&self.state);
        if state.attempt != self.attempt {
            return Poll::Ready(Some(Err(Superseded.into())));
        }
        state
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.state);
        state.attempt == self.attempt
            && state.kept.is_exhausted(state.next)
            && (state.ended || state.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

impl<B> fmt::Debug for AttemptBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptBody")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// An attempt was polled after the next one had begun, or after the start of the body was freed.
///
/// The error is not the end of the body, because a request that is cut off must not look complete.
#[derive(Debug, Error)]
#[error("this attempt has been superseded")]
struct Superseded;

struct State<B> {
    body: B,
    kept: Kept,
    /// The number of bytes that may still be kept.
    budget: usize,
    /// The kept frame that the current attempt sends next. The number after the last kept frame means the body.
    next: usize,
    /// The current attempt, from 1.
    attempt: u32,
    ended: bool,
    committed: bool,
}

impl<B: Body<Data = Bytes> + Unpin> State<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(frame) = self.replay() {
            return Poll::Ready(Some(Ok(frame.into_frame())));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => self.keep(frame),
            Some(Err(_)) => {
                self.ended = true;
                self.commit();
            }
            None => self.ended = true,
        }
        Poll::Ready(frame)
    }

    /// The next kept frame; `None` if the attempt is past them all.
    fn replay(&mut self) -> Option<Kind> {
        if self.committed {
            return self.kept.pop_front();
        }
        let frame = self.kept.get(self.next)?.clone();
        self.next += 1;
        Some(frame)
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        if self.committed {
            return;
        }
        let Some(kept) = Kind::of(frame) else {
            return;
        };
        match self.budget.checked_sub(kept.len()) {
            Some(budget) => {
                self.budget = budget;
                self.kept.push_back(kept);
                self.next += 1;
            }
            None => self.commit(),
        }
    }

    fn commit(&mut self) {
        if self.committed {
            return;
        }
        self.committed = true;
        for _ in 0..self.next {
            self.kept.pop_front();
        }
        self.next = 0;
    }
}

/// Frames kept in order. The first has its own place, because a unary call has no other and then needs
/// no allocation.
#[derive(Default)]
struct Kept {
    first: Option<Kind>,
    rest: VecDeque<Kind>,
}

impl Kept {
    fn get(&self, index: usize) -> Option<&Kind> {
        match index.checked_sub(1) {
            None => self.first.as_ref(),
            Some(index) => self.rest.get(index),
        }
    }

    fn push_back(&mut self, frame: Kind) {
        match self.first {
            None => self.first = Some(frame),
            Some(_) => self.rest.push_back(frame),
        }
    }

    fn pop_front(&mut self) -> Option<Kind> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }

    fn is_exhausted(&self, next: usize) -> bool {
        self.get(next).is_none()
    }
}

#[derive(Clone)]
enum Kind {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
}

impl Kind {
    fn of(frame: &Frame<Bytes>) -> Option<Self> {
        if let Some(data) = frame.data_ref() {
            return Some(Self::Data(data.clone()));
        }
        frame
            .trailers_ref()
            .map(|trailers| Self::Trailers(Box::new(trailers.clone())))
    }

    /// The bytes of the frame that count towards the limit.
    fn len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(map) => map.iter().map(|(k, v)| k.as_str().len() + v.len()).sum(),
        }
    }

    fn into_frame(self) -> Frame<Bytes> {
        match self {
            Self::Data(data) => Frame::data(data),
            Self::Trailers(trailers) => Frame::trailers(*trailers),
        }
    }
}

/// An attempt number that is never current.
const LOST: u32 = 0;

/// Takes the lock even if it is poisoned. Then the caller's body panicked, and the state is whole
/// between polls.
fn lock<B>(state: &Mutex<State<B>>) -> MutexGuard<'_, State<B>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
