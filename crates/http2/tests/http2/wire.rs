//! A socket in memory whose other end is the test. The test decides how much is read and written at
//! once, so it can stop at any byte.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<Ends>>);

pub(crate) struct Ends {
    /// The bytes that the server sent and the client has not read.
    pub(crate) input: VecDeque<u8>,
    /// The number of bytes that the client reads at once.
    pub(crate) chunk: usize,
    /// The server sends no more.
    pub(crate) is_ended: bool,
    /// The server is gone, which the client finds out only if it looks.
    pub(crate) is_gone: bool,
    /// The bytes that the client wrote.
    pub(crate) output: Vec<u8>,
    /// The number of bytes that it can still write.
    pub(crate) room: usize,
    /// Writing more than that fails, and does not wait.
    pub(crate) is_broken: bool,
    pub(crate) is_shut_down: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            input: VecDeque::new(),
            chunk: usize::MAX,
            is_ended: false,
            is_gone: false,
            output: Vec::new(),
            room: usize::MAX,
            is_broken: false,
            is_shut_down: false,
            reader: None,
            writer: None,
        }
    }
}

impl Wire {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap()
    }

    /// Changes something, and wakes those who may have waited for it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Ends)) {
        let mut ends = self.lock();
        change(&mut ends);
        let wakers = [ends.reader.take(), ends.writer.take()];
        drop(ends);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ends = self.lock();
        if ends.input.is_empty() && !ends.is_ended {
            ends.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let len = ends.input.len().min(ends.chunk).min(buf.remaining());
        let bytes: Vec<u8> = ends.input.drain(..len).collect();
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let mut ends = self.lock();
        let len = bytes.len().min(ends.room);
        if len == 0 && ends.is_broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if len == 0 {
            ends.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        ends.room -= len;
        ends.output.extend_from_slice(&bytes[..len]);
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().is_shut_down = true;
        Poll::Ready(Ok(()))
    }
}

/// A waker that only notes that it was woken. A test that polls only then finds every wake-up that
/// is missing.
#[derive(Clone)]
pub(crate) struct Flag(Arc<Woken>);

struct Woken(AtomicBool);

impl Flag {
    /// Set at first, because a task that was never polled must be.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Woken(AtomicBool::new(true))))
    }

    /// True if it was woken since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.0.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn waker(&self) -> Waker {
        self.0.clone().into()
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
