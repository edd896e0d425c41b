//! The task of a connection: it moves bytes between the protocol and the socket.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::client::{Client, Shared};
use crate::core::{Core, HungUp};
use crate::error::Error;
use crate::input::Input;
use crate::output::Output;
use crate::stream::set;
use crate::{Config, Event, Reason, frame};

/// The most that is handed at once to a socket whose writes are not exact. It is a record of TLS.
const LAYERED_WRITE: usize = 16 * 1024;
/// The most slices that one write takes.
const SLICES: usize = 32;

/// The future that drives a connection to its end. Dropping it ends the connection at once.
///
/// It ends in good order when the server does so with no stream open, or when the last [`Client`]
/// and the last stream are gone.
pub struct Connection<IO, F> {
    io: IO,
    shared: Shared,
    observe: F,
    probe: fn(&IO) -> bool,
    has_exact_writes: bool,
    input: Input,
    /// Output that is being written.
    writing: Output,
}

impl<IO, F> Connection<IO, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Event) + Unpin,
{
    /// A connection over a socket that is connected. `observe` hears what concerns it as a whole; it
    /// must not act on the connection from within.
    pub fn new(io: IO, config: Config, observe: F) -> (Client, Self) {
        let is_vectored = io.is_write_vectored();
        let shared = Shared::new(Core::new(config, Output::new(is_vectored)));
        let client = Client::new(shared.clone());
        let connection = Self {
            io,
            shared,
            observe,
            probe: |_| false,
            has_exact_writes: false,
            input: Input::default(),
            writing: Output::new(is_vectored),
        };
        (client, connection)
    }

    /// Has a look at the socket before a stream is begun on a connection that has been silent:
    /// `probe` says whether the server is known to have closed it. The runtime may not have told us
    /// yet, and what is written in the meantime is lost without need.
    #[must_use]
    pub fn probing(mut self, probe: fn(&IO) -> bool) -> Self {
        self.probe = probe;
        self
    }

    /// Says that a write of this socket that fails has taken nothing, as is so of TCP.
    ///
    /// Without it, all that was handed to a write that failed counts as sent, because layers such as
    /// TLS may have passed on a part. Calls that the server executed never count as never sent.
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
        let mut core = self.shared.lock();
        if core.is_done() {
            return Poll::Ready(Ok(()));
        }
        if written.is_pending() {
            // What is put into the output meanwhile may be too much.
            set(&mut core.task, cx);
            if core.is_overflowing() {
                let text = "the server does not read what it is sent";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text).into()));
            }
        }
        Poll::Pending
    }

    /// Reads until nothing comes, or until the server has closed.
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
                self.input.rest(self.shared.lock().is_quiet());
                return broken.map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            };
            let read = read?;
            if read == 0 {
                // The server closed its side. That is in order if nobody waits for it.
                let is_quiet = self.shared.lock().is_quiet();
                return Poll::Ready(is_quiet.then_some(()).ok_or_else(|| HungUp.into()));
            }
            self.input.filled(read, room);
            *was_silent = false;
            (self.observe)(Event::Received);
            let mut core = self.shared.lock();
            core.receive(&mut self.input, Instant::now(), &mut self.observe)?;
            let has_output = !core.output.is_empty();
            drop(core);
            // A server that never stops sending must not have to wait for its window. If it is gone, what
            // it said before that is heard first.
            if has_output
                && broken.is_none()
                && let Poll::Ready(Err(error)) = self.poll_write(false, cx)
            {
                broken = Some(error);
            }
        }
    }

    /// Writes until there is nothing to write.
    fn poll_write(&mut self, was_silent: bool, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            while !self.writing.is_empty() {
                ready!(self.poll_write_some(cx))?;
            }
            let is_gone = || was_silent && (self.probe)(&self.io);
            let mut core = self.shared.lock();
            match core.poll_output(&mut self.writing, is_gone, cx) {
                Poll::Ready(output) => output?,
                Poll::Pending => {
                    drop(core);
                    return Pin::new(&mut self.io).poll_flush(cx).map_err(Error::from);
                }
            }
        }
    }

    /// Hands the socket some of the output, and takes away what may have reached the server.
    fn poll_write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut most = usize::MAX;
        if !self.has_exact_writes {
            // A layer that still holds something takes no more, so that little is lost with it.
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

    /// The end has come: streams fail, and the server is told, if it takes it: it is not waited for.
    fn close(&mut self, ended: &Result<(), Error>, cx: &mut Context<'_>) {
        match ended {
            Ok(()) => {
                let mut core = self.shared.lock();
                // A stream may have been opened meanwhile, by someone who does not know.
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
                let mut core = self.shared.lock();
                core.close(error.to_string(), self.writing.len());
            }
            Err(error @ Error::Protocol { reason, text }) => {
                // A frame that is half written has to be ended before another.
                let before = self.writing.len();
                frame::put_go_away(self.writing.frames(), *reason, text);
                let go_away = self.writing.len() - before;
                self.write_last(cx);
                let unwritten = self.writing.len().saturating_sub(go_away);
                let mut core = self.shared.lock();
                core.close(error.to_string(), unwritten);
            }
        }
    }

    /// Writes as much as the socket takes at once. If that is all, the server hears that it is.
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

impl<IO, F> Future for Connection<IO, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Event) + Unpin,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.poll_open(cx));
        self.close(&ended, cx);
        Poll::Ready(ended)
    }
}

impl<IO, F> Drop for Connection<IO, F> {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        core.close("the connection was given up", self.writing.len());
    }
}

impl<IO, F> fmt::Debug for Connection<IO, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
