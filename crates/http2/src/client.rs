//! The handles that calls hold.
//!
//! A handle takes the lock of the connection and acts in the task of its call. So a unary call needs no queue and no
//! message to another task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use crate::Reason;
use crate::core::Core;
use crate::error::{OpenError, StreamError};

/// The protocol's state behind its lock. The connection's task and its calls hold it together.
#[derive(Clone, Debug)]
pub(crate) struct LockedCore(Arc<Mutex<Core>>);

impl LockedCore {
    pub(crate) fn new(core: Core) -> Self {
        Self(Arc::new(Mutex::new(core)))
    }

    /// Takes the lock.
    ///
    /// Tasks are woken and values are dropped while the lock is held. Neither takes the lock again. Wakers of tokio,
    /// and those that wrap them (`join!`, `FuturesUnordered`), only note that a task is to run. No task ends with the
    /// last of its wakers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens streams on a connection. While there is one, the connection stays open.
#[derive(Debug)]
pub struct Client {
    core: LockedCore,
}

impl Client {
    pub(crate) fn new(core: LockedCore) -> Self {
        Self { core }
    }

    /// Opens a stream for a request. The head of a request without a body (`is_ended`) is sent at once.
    /// Any other head is sent together with the first DATA, or by [`SendStream::flush`].
    ///
    /// The URI must have a scheme and an authority. The caller must not open more streams than the server allows. The
    /// number is in [`ConnectionEvent::Settings`](crate::ConnectionEvent::Settings).
    pub fn open(
        &self,
        request: &Request<()>,
        is_ended: bool,
    ) -> Result<(HeadFuture, SendStream), OpenError> {
        let mut core = self.core.lock();
        let id = core.open(request, is_ended)?;
        if is_ended {
            core.flush();
        }
        drop(core);
        let handle = || Handle {
            core: self.core.clone(),
            id,
        };
        let response = HeadFuture {
            receive: Some(ReceiveStream { handle: handle() }),
        };
        Ok((response, SendStream { handle: handle() }))
    }

    /// A handle to send PINGs with.
    pub fn pings(&self) -> PingSender {
        PingSender {
            core: self.core.clone(),
        }
    }
}

impl Clone for Client {
    fn clone(&self) -> Self {
        self.core.lock().clients += 1;
        Self {
            core: self.core.clone(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut core = self.core.lock();
        core.clients -= 1;
        if core.clients == 0 {
            core.flush();
        }
    }
}

/// A stream of a connection.
#[derive(Debug)]
struct Handle {
    core: LockedCore,
    id: u32,
}

/// The request side of a stream.
#[derive(Debug)]
pub struct SendStream {
    handle: Handle,
}

impl SendStream {
    /// Sends DATA as far as flow control allows at this moment. The rest waits in memory.
    pub fn send_data(&mut self, data: Bytes, is_last: bool) -> Result<(), StreamError> {
        let mut core = self.handle.core.lock();
        let sent = core.send_data(self.handle.id, data, is_last);
        core.flush();
        sent
    }

    /// Ends the request with trailers.
    pub fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), StreamError> {
        let mut core = self.handle.core.lock();
        let sent = core.send_trailers(self.handle.id, trailers);
        core.flush();
        sent
    }

    /// Waits until at least some DATA would be sent at once.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        let mut core = self.handle.core.lock();
        core.poll_room(self.handle.id, cx)
    }

    /// Sends the head of the request, if it was not sent yet.
    pub fn flush(&mut self) {
        self.handle.core.lock().flush();
    }

    /// Cancels the stream.
    pub fn cancel(&mut self) {
        let mut core = self.handle.core.lock();
        core.reset(self.handle.id, Reason::CANCEL, StreamError::Cancelled);
        core.flush();
    }

    /// Waits until the stream takes no more of the request.
    pub fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut core = self.handle.core.lock();
        core.poll_stopped(self.handle.id, cx)
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let mut core = self.handle.core.lock();
        core.drop_sender(self.handle.id);
        core.flush_output();
    }
}

/// The head of a response, which comes with the handle for the rest of it.
#[derive(Debug)]
pub struct HeadFuture {
    receive: Option<ReceiveStream>,
}

impl Future for HeadFuture {
    type Output = Result<Response<ReceiveStream>, StreamError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(receive) = &mut self.receive else {
            return Poll::Ready(Err(StreamError::Cancelled));
        };
        let head = {
            let Handle { core, id } = &receive.handle;
            ready!(core.lock().poll_head(*id, cx))
        };
        Poll::Ready(match (head, self.receive.take()) {
            (Ok(head), Some(receive)) => Ok(head.map(|()| receive)),
            (Ok(_), None) => Err(StreamError::Cancelled),
            (Err(error), _) => Err(error),
        })
    }
}

/// The response side of a stream. Dropped before its end, it cancels the stream.
#[derive(Debug)]
pub struct ReceiveStream {
    handle: Handle,
}

impl ReceiveStream {
    /// The next DATA of the response; `None` after the last. Taking it gives window back to the server.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        let mut core = self.handle.core.lock();
        core.poll_data(self.handle.id, cx)
    }

    /// The trailers of the response, if it has some. The trailers come after the last DATA.
    pub fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        let mut core = self.handle.core.lock();
        core.poll_trailers(self.handle.id, cx)
    }
}

impl Drop for ReceiveStream {
    fn drop(&mut self) {
        let mut core = self.handle.core.lock();
        core.drop_receiver(self.handle.id);
        core.flush_output();
    }
}

/// Sends PINGs, because a server that is gone may never close the connection.
#[derive(Debug)]
pub struct PingSender {
    core: LockedCore,
}

impl PingSender {
    /// Sends a PING, unless one is under way.
    pub fn send(&self) {
        let mut core = self.core.lock();
        core.ping();
        core.flush();
    }

    /// Waits for the answer to the last PING; `false` if the connection is over.
    pub async fn answer(&self) -> bool {
        std::future::poll_fn(|cx| self.core.lock().pings.poll(cx)).await
    }
}
