//! What calls hold: handles that act on the connection under its lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use crate::Reason;
use crate::core::Core;
use crate::error::{OpenError, StreamError};

/// The connection's state, shared by its task and its calls.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<Core>>);

impl Shared {
    pub(crate) fn new(core: Core) -> Self {
        Self(Arc::new(Mutex::new(core)))
    }

    /// Who waits is woken while this is held, and what is no longer needed is dropped. Neither comes
    /// back here: wakers of tokio, and those that wrap them (`join!`, `FuturesUnordered`), note that
    /// a task is to run and do not run it, and no task ends with the last of its wakers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens streams on a connection. While there is one, the connection stays open.
#[derive(Debug)]
pub struct Client {
    shared: Shared,
}

impl Client {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }

    /// Opens a stream for a request. Its head is sent together with what is sent first of its body, or
    /// by [`SendStream::flush`]; if the request has no body (`is_ended`), at once.
    ///
    /// The URI must have a scheme and an authority. How many streams the server allows is not
    /// regarded here: it tells that in [`Event::Settings`](crate::Event::Settings).
    pub fn open(
        &self,
        request: &Request<()>,
        is_ended: bool,
    ) -> Result<(ResponseFuture, SendStream), OpenError> {
        let mut core = self.shared.lock();
        let id = core.open(request, is_ended)?;
        if is_ended {
            core.flush();
        }
        drop(core);
        let handle = || Handle {
            shared: self.shared.clone(),
            id,
        };
        let response = ResponseFuture {
            receive: Some(ReceiveStream { handle: handle() }),
        };
        Ok((response, SendStream { handle: handle() }))
    }

    /// Something to send PINGs with.
    pub fn pings(&self) -> PingSender {
        PingSender {
            shared: self.shared.clone(),
        }
    }
}

impl Clone for Client {
    fn clone(&self) -> Self {
        self.shared.lock().clients += 1;
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        core.clients -= 1;
        if core.clients == 0 {
            core.flush();
        }
    }
}

#[derive(Debug)]
struct Handle {
    shared: Shared,
    id: u32,
}

/// The request side of a stream.
#[derive(Debug)]
pub struct SendStream {
    handle: Handle,
}

impl SendStream {
    /// Sends DATA, as far as the server lets us at this moment; the rest waits in memory.
    pub fn send_data(&mut self, data: Bytes, is_last: bool) -> Result<(), StreamError> {
        let mut core = self.handle.shared.lock();
        let sent = core.send_data(self.handle.id, data, is_last);
        core.flush();
        sent
    }

    /// Ends the request with trailers.
    pub fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), StreamError> {
        let mut core = self.handle.shared.lock();
        let sent = core.send_trailers(self.handle.id, trailers);
        core.flush();
        sent
    }

    /// Waits until DATA would be sent at once, some of it at least.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        let mut core = self.handle.shared.lock();
        core.poll_room(self.handle.id, cx)
    }

    /// Sends what was not sent yet.
    pub fn flush(&mut self) {
        self.handle.shared.lock().flush();
    }

    /// Cancels the stream.
    pub fn cancel(&mut self) {
        let mut core = self.handle.shared.lock();
        core.reset(self.handle.id, Reason::CANCEL, StreamError::Cancelled);
        core.flush();
    }

    /// Waits for the stream to take no more of the request.
    pub fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut core = self.handle.shared.lock();
        core.poll_stopped(self.handle.id, cx)
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let mut core = self.handle.shared.lock();
        core.drop_sender(self.handle.id);
        core.flush_output();
    }
}

/// The head of a response, and with it the rest.
#[derive(Debug)]
pub struct ResponseFuture {
    receive: Option<ReceiveStream>,
}

impl Future for ResponseFuture {
    type Output = Result<Response<ReceiveStream>, StreamError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(receive) = &mut self.receive else {
            return Poll::Ready(Err(StreamError::Cancelled));
        };
        let head = {
            let Handle { shared, id } = &receive.handle;
            ready!(shared.lock().poll_head(*id, cx))
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
    /// The next of the response's DATA; `None` after the last. Taking it lets the server send more.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        let mut core = self.handle.shared.lock();
        core.poll_data(self.handle.id, cx)
    }

    /// The response's trailers, if it has some. To be asked for after the last DATA.
    pub fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        let mut core = self.handle.shared.lock();
        core.poll_trailers(self.handle.id, cx)
    }
}

impl Drop for ReceiveStream {
    fn drop(&mut self) {
        let mut core = self.handle.shared.lock();
        core.drop_receiver(self.handle.id);
        core.flush_output();
    }
}

/// Asks the server for signs of life.
#[derive(Debug)]
pub struct PingSender {
    shared: Shared,
}

impl PingSender {
    /// Sends a PING, unless one is under way.
    pub fn send(&self) {
        let mut core = self.shared.lock();
        core.ping();
        core.flush();
    }

    /// Waits for the answer to the last PING; `false` if the connection is over.
    pub async fn answer(&self) -> bool {
        std::future::poll_fn(|cx| self.shared.lock().pings.poll(cx)).await
    }
}
