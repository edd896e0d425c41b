//! The task of a connection: it moves bytes between the protocol and the socket.
//!
//! The task is the only part that does I/O, so it alone knows how many bytes the socket took. From that number follows
//! which streams were never sent (gRFC A6).

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::client::{Client, LockedCore};
use crate::core::{Core, HungUp};
use crate::error::Error;
use crate::input::Input;
use crate::output::Output;
use crate::stream::set;
use crate::{Config, ConnectionEvent, Reason, frame};

/// The most bytes that are handed at once to a socket whose writes are not exact: a record of TLS.
const LAYERED_WRITE: usize = 16 * 1024;
/// The most slices that one write takes.
const SLICES: usize = 32;

/// The future that drives a connection to its end. Dropping it ends the connection at once.
///
/// The future ends without an error when the server closes the connection while no stream is open. It also does when
/// the last [`Client`] and the last stream are gone.
pub struct ConnectionTask<IO, F> {
    io: IO,
    core: LockedCore,
    observe: F,
    probe: fn(&IO) -> bool,
    has_exact_writes: bool,
    input: Input,
    /// The output that is being written.
    writing: Output,
}

impl<IO, F> ConnectionTask<IO, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(ConnectionEvent) + Unpin,
{
    /// A connection over a socket that is connected. `observe` gets the events of the connection as a whole. The
    /// function must not act on the connection, because the lock is held.
    pub fn new(io: IO, config: Config, observe: F) -> (Client, Self) {
        let is_vectored = io.is_write_vectored();
        let core = LockedCore::new(Core::new(config, Output::new(is_vectored)));
        let client = Client::new(core.clone());
        let connection = Self {
            io,
            core,
            observe,
            probe: |_| false,
            has_exact_writes: false,
            input: Input::default(),
            writing: Output::new(is_vectored),
        };
        (client, connection)
    }

    /// Looks at the socket before a stream begins on a connection that has been silent. `probe` is true if
    /// the server is known to have closed it. The runtime may not have told the task yet, and a request
    /// that is written in the meantime would be lost without need.
    #[must_use]
    pub fn probing(mut self, probe: fn(&IO) -> bool) -> Self {
        self.probe = probe;
        self
    }

    /// Declares that a failed write of this socket has taken no byte, as is so of TCP.
    ///
    /// Without this, all bytes of a failed write count as sent, because a layer such as TLS may have passed on a part.
    /// So a call that the server executed never counts as a call that was not sent.
    #[must_use]
    pub fn with_exact_writes(mut self) -> Self {
        self.has_exact_writes = true;
        self
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut was_silent = true;
        if let Poll::Ready(ended) = self.poll_read(&mut was_silent, cx) {
            return Poll::Ready(ended);
        }
        let written = self.poll_write(was_silent, cx)?;
        let mut core = self.core.lock();
        if core.is_done() {
            return Poll::Ready(Ok(()));
        }
        if written.is_pending() {
            // Calls may put too much into the output meanwhile.
            set(&mut core.task, cx);
            if core.is_overflowing() {
                let text = "the server does not read what it is sent";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text).into()));
            }
        }
        Poll::Pending
    }

    /// Reads until nothing comes, or until the server has closed the connection.
    fn poll_read(
        &mut self,
        was_silent: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut broken = None;
        loop {
            let buffer = self.input.buffer();
            let room = buffer.capacity() - buffer.len();
            let Poll::Ready(read) = pin!(self.io.read_buf(buffer)).poll(cx) else {
                self.input.rest(self.core.lock().is_quiet());
                return broken.map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            };
            let read = read?;
            if read == 0 {
                // The server closed its side. The close is no error if no stream waits for the server.
                let is_quiet = self.core.lock().is_quiet();
                return Poll::Ready(is_quiet.then_some(()).ok_or_else(|| HungUp.into()));
            }
            self.input.filled(read, room);
            *was_silent = false;
            (self.observe)(ConnectionEvent::Received);
            let mut core = self.core.lock();
            core.receive(&mut self.input, Instant::now(), &mut self.observe)?;
            let has_output = !core.output.is_empty();
            drop(core);
            // A server that never stops sending must not have to wait for its window. If it is gone, the
            // frames that it sent before that are read first.
            if has_output
                && broken.is_none()
                && let Poll::Ready(Err(error)) = self.poll_write(false, cx)
            {
                broken = Some(error);
            }
        }
    }

    /// Writes until the output is empty.
    fn poll_write(&mut self, was_silent: bool, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            while !self.writing.is_empty() {
                ready!(self.poll_write_some(cx))?;
            }
            let is_gone = || was_silent && (self.probe)(&self.io);
            let mut core = self.core.lock();
            match core.poll_output(&mut self.writing, is_gone, cx) {
                Poll::Ready(output) => output?,
                Poll::Pending => {
                    drop(core);
                    return Pin::new(&mut self.io).poll_flush(cx).map_err(Error::from);
                }
            }
        }
    }

    /// Hands the socket some of the output, and takes away the bytes that may have reached the server.
    fn poll_write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut most = usize::MAX;
        if !self.has_exact_writes {
            // A layer that still holds bytes is given no more, so that few calls are in doubt.
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            most = LAYERED_WRITE;
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (count, offered) = self.writing.slices(most, &mut slices);
        let io = Pin::new(&mut self.io);
        let written = ready!(match &slices[..count] {
            [all] => io.poll_write(cx, all),
            several => io.poll_write_vectored(cx, several),
        });
        match written {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Ok(written) => self.writing.advance(written),
            Err(_) if self.has_exact_writes => {}
            Err(_) => self.writing.advance(offered),
        }
        Poll::Ready(written.map(drop))
    }

    /// Ends the connection: streams fail, and the server is told if it takes the GOAWAY at once.
    fn close(&mut self, ended: &Result<(), Error>, cx: &mut Context<'_>) {
        match ended {
            Ok(()) => {
                let mut core = self.core.lock();
                // A call may have opened a stream meanwhile.
                if core.is_quiet() {
                    frame::put_go_away(core.output.frames(), Reason::NO_ERROR, "");
                    let last = std::mem::replace(&mut core.output, Output::new(false));
                    self.writing.append(last);
                }
                core.close("closed in good order", 0);
                drop(core);
                self.write_last(cx);
            }
            Err(Error::Io(error)) => {
                let mut core = self.core.lock();
                core.close(error.to_string(), self.writing.len());
            }
            Err(error @ Error::Protocol { reason, text }) => {
                // A frame that is half written has to be finished before GOAWAY.
                let before = self.writing.len();
                frame::put_go_away(self.writing.frames(), *reason, text);
                let go_away = self.writing.len() - before;
                self.write_last(cx);
                let unwritten = self.writing.len().saturating_sub(go_away);
                let mut core = self.core.lock();
                core.close(error.to_string(), unwritten);
            }
        }
    }

    /// Writes as much as the socket takes at once. If that is all of it, the socket is shut down.
    fn write_last(&mut self, cx: &mut Context<'_>) {
        while !self.writing.is_empty() {
            match self.poll_write_some(cx) {
                Poll::Ready(Ok(())) => {}
                _ => return,
            }
        }
        let _ = Pin::new(&mut self.io).poll_shutdown(cx);
    }
}

impl<IO, F> Future for ConnectionTask<IO, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(ConnectionEvent) + Unpin,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.poll_open(cx));
        self.close(&ended, cx);
        Poll::Ready(ended)
    }
}

impl<IO, F> Drop for ConnectionTask<IO, F> {
    fn drop(&mut self) {
        let mut core = self.core.lock();
        core.close("the connection was given up", self.writing.len());
    }
}

impl<IO, F> fmt::Debug for ConnectionTask<IO, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionTask").finish_non_exhaustive()
    }
}
