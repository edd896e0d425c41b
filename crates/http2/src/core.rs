//! The protocol without I/O: the state of a connection, and the sending half.
//!
//! The core has no I/O, so that every order of frames can be tested. Calls act on it from their own tasks, under a lock
//! that is held for a few frames at most. The task of the connection moves bytes between it and the socket.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request};

use crate::bdp::Bdp;
use crate::error::{Error, OpenError, StreamError};
use crate::frame::{
    self, DEFAULT_WINDOW, MAX_FRAME_SIZE, MAX_WINDOW, STREAM_ID_MASK, put_header_block, setting,
};
use crate::hpack::{Decoder, Encoder};
use crate::output::Output;
use crate::ping::Pings;
use crate::receive::HeaderBlock;
use crate::stream::{End, ReceiveSide, SendSide, Stream, set};
use crate::window::ReceiveWindow;
use crate::{Config, GoAway, Reason, head};

/// Streams wait while this many bytes wait to be written to the socket.
const OUTPUT_LIMIT: usize = 256 * 1024;
/// The most bytes that may wait for a server that does not read. Calls that were cancelled leave HEADERS and RST_STREAM
/// in the output, and these must not grow without bound.
const OVERFLOW: usize = 1024 * 1024;
/// The bytes that each open stream adds to [`OVERFLOW`].
const STREAM_OVERFLOW: usize = 32 * 1024;
/// The largest estimate of the bytes under way on a path, as in gRPC.
const MAX_BDP: u32 = 16 * 1024 * 1024;
/// The size of the table for the server's headers. The size is the default of HPACK, and our SETTINGS do not change it.
const HEADER_TABLE_SIZE: usize = 4096;
/// The room for a header block, so that that of a usual request is allocated once.
const USUAL_BLOCK: usize = 256;

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) streams: HashMap<u32, Stream, BuildHasherDefault<IdHasher>>,
    pub(crate) next_id: u32,
    /// The number of handles that can still open streams.
    pub(crate) clients: usize,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
    pub(crate) server: ServerSettings,
    /// The bytes of DATA that the server lets us send on all streams together.
    pub(crate) send_window: i64,
    pub(crate) receive_window: ReceiveWindow,
    /// The estimate that the windows of streams follow; `None` if windows are fixed.
    pub(crate) bdp: Option<Bdp>,
    /// The number of DATA frames with a few bytes, less those with more.
    pub(crate) scraps: u32,
    /// Streams that wait for the connection: for its window, or for room in the output.
    queued: VecDeque<u32>,
    /// A header block that goes on in CONTINUATION.
    pub(crate) block: Option<HeaderBlock>,
    pub(crate) pings: Pings,
    pub(crate) go_away: Option<GoAway>,
    /// The reason for the end of the connection, once it is over.
    closed: Option<Arc<str>>,
    pub(crate) output: Output,
    /// The bytes of output that the connection's task has taken.
    taken: u64,
    /// True if a stream begins in the output.
    begins_stream: bool,
    /// The number of answers (to PING and SETTINGS) in the output since it was last taken.
    pub(crate) replies: usize,
    /// The connection's task, which [`flush`](Self::flush) wakes.
    pub(crate) task: Option<Waker>,
}

/// The server's SETTINGS, as far as they are about the sending half.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    pub(crate) are_known: bool,
    pub(crate) initial_window: u32,
}

impl Core {
    /// A connection whose preface is put into `output`, which must be empty.
    pub(crate) fn new(mut config: Config, mut output: Output) -> Self {
        config.stream_window = config.stream_window.min(MAX_WINDOW as u32);
        config.connection_window = config.connection_window.min(MAX_WINDOW as u32);
        let preface = output.frames();
        preface.reserve(128);
        preface.extend_from_slice(frame::PREFACE);
        frame::put_settings(
            preface,
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, config.stream_window),
                (setting::MAX_HEADER_LIST_SIZE, config.max_header_list_size),
            ],
        );
        let more = config.connection_window.saturating_sub(DEFAULT_WINDOW);
        if more > 0 {
            frame::put_window_update(preface, 0, more);
        }
        let connection_window = config.connection_window.max(DEFAULT_WINDOW);
        let bdp = Bdp::new(config.stream_window, MAX_BDP);
        Self {
            streams: HashMap::default(),
            next_id: config.first_stream_id,
            clients: 1,
            encoder: Encoder::new(),
            decoder: Decoder::new(HEADER_TABLE_SIZE),
            server: ServerSettings {
                are_known: false,
                initial_window: DEFAULT_WINDOW,
            },
            send_window: DEFAULT_WINDOW.into(),
            receive_window: ReceiveWindow::new(connection_window, config.max_unread),
            bdp: config.is_adaptive.then_some(bdp),
            scraps: 0,
            queued: VecDeque::new(),
            block: None,
            pings: Pings::default(),
            go_away: None,
            closed: None,
            output,
            taken: 0,
            begins_stream: false,
            replies: 0,
            task: None,
            config,
        }
    }

    /// Opens a stream. The HEADERS of the stream are written with the next [`flush`](Self::flush).
    pub(crate) fn open(&mut self, request: &Request<()>, is_ended: bool) -> Result<u32, OpenError> {
        head::check(request).map_err(OpenError::Invalid)?;
        if self.closed.is_some() || self.go_away.is_some() {
            return Err(OpenError::Closed);
        }
        let id = self.next_id;
        if id > STREAM_ID_MASK {
            return Err(OpenError::IdsExhausted);
        }
        self.next_id += 2;
        let stream = Stream {
            send: SendSide::new(self.server.initial_window.into(), is_ended),
            receive: ReceiveSide::new(self.config.stream_window),
            failed: None,
            begins_at: self.taken + self.output.len() as u64,
            has_sender: true,
            has_receiver: true,
        };
        let mut block = BytesMut::with_capacity(USUAL_BLOCK);
        head::encode_request(request, &mut self.encoder, &mut block);
        put_header_block(self.output.frames(), id, is_ended, &block);
        self.begins_stream = true;
        self.streams.insert(id, stream);
        Ok(id)
    }

    /// Sends DATA as far as windows allow. The rest is queued, and follows as windows open.
    pub(crate) fn send_data(
        &mut self,
        id: u32,
        data: Bytes,
        is_last: bool,
    ) -> Result<(), StreamError> {
        let stream = open_stream(&mut self.streams, id)?;
        if data.is_empty() && is_last && stream.send.is_empty() {
            stream.send.end = End::Sent;
            self.output.put_data(id, true, Bytes::new());
            return Ok(());
        }
        if !data.is_empty() {
            stream.send.queue.push_back(data);
        }
        if is_last {
            stream.send.end = End::AfterQueue;
        }
        self.go_on_with(id);
        Ok(())
    }

    pub(crate) fn send_trailers(
        &mut self,
        id: u32,
        trailers: HeaderMap,
    ) -> Result<(), StreamError> {
        let stream = open_stream(&mut self.streams, id)?;
        if head::check_fields(&trailers).is_err() {
            self.reset(id, Reason::CANCEL, StreamError::Cancelled);
            return Err(StreamError::Cancelled);
        }
        stream.send.end = End::Trailers(trailers);
        self.end_with_trailers(id);
        Ok(())
    }

    /// Ends a request whose queue is empty with its trailers, if it has some.
    fn end_with_trailers(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !stream.send.is_empty() || !matches!(stream.send.end, End::Trailers(_)) {
            return;
        }
        if let End::Trailers(trailers) = std::mem::replace(&mut stream.send.end, End::Sent) {
            let mut block = BytesMut::new();
            head::encode_fields(&trailers, &mut self.encoder, &mut block);
            put_header_block(self.output.frames(), id, true, &block);
        }
    }

    /// Waits until DATA of the stream would be sent at once.
    pub(crate) fn poll_room(&mut self, id: u32, cx: &Context<'_>) -> Poll<Result<(), StreamError>> {
        let has_room = self.send_window > 0 && self.output.len() < OUTPUT_LIMIT;
        let stream = open_stream(&mut self.streams, id)?;
        if has_room && stream.send.is_empty() && stream.send.window > 0 {
            return Poll::Ready(Ok(()));
        }
        stream.send.wait(cx);
        self.go_on_with(id);
        Poll::Pending
    }

    /// Queues a stream that could send, and lets queued streams send.
    pub(crate) fn go_on_with(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.send.can_go_on()
            && !stream.send.is_queued
        {
            stream.send.is_queued = true;
            self.queued.push_back(id);
        }
        self.go_on();
    }

    /// Moves DATA of waiting streams into the output, a frame of each in turn.
    pub(crate) fn go_on(&mut self) {
        while self.output.len() < OUTPUT_LIMIT
            && self.send_window > 0
            && let Some(id) = self.queued.pop_front()
        {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            let window = usize::try_from(self.send_window).unwrap_or(0);
            let limit = MAX_FRAME_SIZE.min(window);
            let sent = stream.send.put_frame(id, limit, &mut self.output);
            self.send_window -= sent as i64;
            stream.send.is_queued = !stream.send.is_empty() && stream.send.window > 0;
            if stream.send.is_queued {
                self.queued.push_back(id);
            } else if stream.send.is_empty() {
                stream.send.wake();
                self.end_with_trailers(id);
            }
        }
    }

    /// Ends a stream with an error and sends RST_STREAM, unless both sides are done with it.
    pub(crate) fn reset(&mut self, id: u32, reason: Reason, error: StreamError) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.is_over()
        {
            stream.fail(error);
            if self.closed.is_none() {
                frame::put_reset(self.output.frames(), id, reason);
            }
        }
    }

    /// Gives window back for bytes that were read or thrown away.
    pub(crate) fn release(&mut self, id: u32, len: usize) {
        if self.closed.is_some() {
            return;
        }
        self.receive_window.read(len);
        self.widen_connection();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let window = &mut stream.receive.window;
        window.read(len);
        if stream.failed.is_some() || stream.receive.is_ended {
            return;
        }
        if let Some(bdp) = &self.bdp {
            // The window grows to the bytes that the path carries. It never takes all the room for unread bytes,
            // because all streams share that room.
            let room = self.receive_window.room();
            window.grow(bdp.estimate.min(room - room / 8));
        }
        if let Some(increment) = window.increment() {
            frame::put_window_update(self.output.frames(), id, increment);
        }
    }

    /// Gives the connection's window back, as far as unread bytes leave room.
    pub(crate) fn widen_connection(&mut self) {
        if let Some(increment) = self.receive_window.increment() {
            frame::put_window_update(self.output.frames(), 0, increment);
        }
    }

    /// Records that the receiving handle is gone. The stream is cancelled, because no call waits for its response.
    pub(crate) fn drop_receiver(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.has_receiver = false;
        let unread = stream.receive.discard();
        self.reset(id, Reason::CANCEL, StreamError::Cancelled);
        self.release(id, unread);
        self.forget_if_dropped(id);
    }

    /// Records that the sending handle is gone. A request that has not ended is cancelled, because no call can end it.
    pub(crate) fn drop_sender(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.has_sender = false;
        if matches!(stream.send.end, End::Open) {
            self.reset(id, Reason::CANCEL, StreamError::Cancelled);
        }
        self.forget_if_dropped(id);
    }

    fn forget_if_dropped(&mut self, id: u32) {
        if let Some(stream) = self.streams.get(&id)
            && !stream.has_sender
            && !stream.has_receiver
        {
            if stream.send.is_queued {
                self.queued.retain(|queued| *queued != id);
            }
            self.streams.remove(&id);
            if self.streams.is_empty() {
                // The room for one stream is more than all else that an idle connection keeps.
                self.streams = HashMap::default();
                self.queued = VecDeque::new();
            }
        }
    }

    /// Wakes the task of the connection.
    pub(crate) fn flush(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Wakes the task of the connection if there is output.
    pub(crate) fn flush_output(&mut self) {
        if !self.output.is_empty() {
            self.flush();
        }
    }

    /// Gives the output, in exchange for a buffer that is empty. Without output, the task is woken when there
    /// is some.
    ///
    /// Output in which a stream begins is not given if `is_gone` says that the server is gone.
    pub(crate) fn poll_output(
        &mut self,
        buffer: &mut Output,
        is_gone: impl FnOnce() -> bool,
        cx: &Context<'_>,
    ) -> Poll<Result<(), HungUp>> {
        self.go_on();
        if self.output.is_empty() {
            if self.is_quiet() {
                self.output.shrink();
                buffer.shrink();
            }
            set(&mut self.task, cx);
            return Poll::Pending;
        }
        if std::mem::take(&mut self.begins_stream) && is_gone() {
            return Poll::Ready(Err(HungUp));
        }
        self.replies = 0;
        self.taken += self.output.len() as u64;
        std::mem::swap(&mut self.output, buffer);
        Poll::Ready(Ok(()))
    }

    /// True if more output waits for a server that does not read than open streams account for.
    pub(crate) fn is_overflowing(&self) -> bool {
        self.output.len() > OVERFLOW + self.streams.len() * STREAM_OVERFLOW
    }

    /// True if no stream waits for the server.
    pub(crate) fn is_quiet(&self) -> bool {
        self.streams.values().all(Stream::is_over)
    }

    /// True if all streams are over and no more can be opened.
    pub(crate) fn is_done(&self) -> bool {
        (self.clients == 0 || self.go_away.is_some()) && self.is_quiet()
    }

    pub(crate) fn ping(&mut self) {
        if self.closed.is_none() {
            self.pings.send(self.output.frames());
        }
    }

    /// Ends all streams, because the connection is over. `unwritten` is the number of bytes of the taken
    /// output that the socket did not take.
    pub(crate) fn close(&mut self, reason: impl Into<Arc<str>>, unwritten: usize) {
        if self.closed.is_some() {
            return;
        }
        let reason: Arc<str> = reason.into();
        let written = self.taken - unwritten as u64;
        for stream in self.streams.values_mut() {
            let is_unsent = stream.begins_at >= written;
            if !stream.is_over() {
                stream.fail(match is_unsent {
                    true => StreamError::NeverSent(Arc::clone(&reason)),
                    false => StreamError::Lost(Arc::clone(&reason)),
                });
            }
        }
        self.closed = Some(reason);
        self.pings.close();
        self.queued = VecDeque::new();
        self.output = Output::new(false);
    }
}

/// The server has closed the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HungUp;

impl From<HungUp> for Error {
    fn from(_: HungUp) -> Self {
        let text = "the server closed the connection";
        io::Error::new(io::ErrorKind::UnexpectedEof, text).into()
    }
}

/// The stream with this id, if more of its request can be sent.
fn open_stream<S: std::hash::BuildHasher>(
    streams: &mut HashMap<u32, Stream, S>,
    id: u32,
) -> Result<&mut Stream, StreamError> {
    let stream = streams.get_mut(&id).ok_or(StreamError::Cancelled)?;
    match &stream.failed {
        Some(error) => Err(error.clone()),
        None if matches!(stream.send.end, End::Open) => Ok(stream),
        None => Err(StreamError::Cancelled),
    }
}

/// A hash for stream ids. Stream ids are odd numbers in order and chosen by us, so a multiplication is enough to spread
/// them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    /// The table uses the low bits for the place and the high ones to tell entries apart.
    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id >> 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
