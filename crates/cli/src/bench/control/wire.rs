//! A connection with gRPC streams, as cheap as it can be.
//!
//! The benchmark has thousands of clients in one process. They must cost less than the server that
//! is measured, and a general HTTP/2 client costs about as much as a server. This one knows only
//! its server. It sends no headers but those of a call, and skips those that it receives. Its
//! windows are so large that no workload fills them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const MESSAGE_HEAD: usize = 5;

/// The bytes to make room for before each read.
const READ: usize = 16 << 10;

/// The largest window (RFC 9113, 6.9.1). The workloads send less than this to a connection.
const WINDOW: u32 = (1 << 31) - 1;
/// The windows of both sides before they are changed.
const FIRST_WINDOW: i64 = 65_535;
/// The largest frame that we may send, because we never read the server's settings.
const MAX_FRAME: usize = 16_384;

mod frame {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
}
/// The flag of DATA and HEADERS frames that ends a stream.
const END_STREAM: u8 = 1;
/// The flag of SETTINGS and PING frames that makes them an answer.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// One connection.
#[derive(Debug)]
pub(super) struct Wire {
    socket: TcpStream,
    authority: String,
    inbox: BytesMut,
    outbox: BytesMut,
    streams: Vec<Stream>,
    /// Complete messages that were not taken yet, each with the index of its stream.
    ready: VecDeque<(usize, Bytes)>,
    /// Data that waits for room at the server, each with the index of its stream.
    unsent: VecDeque<(usize, Bytes)>,
    /// The bytes that the server takes on the connection.
    window: i64,
    /// The bytes that the server takes on a new stream; `None` before its settings.
    stream_window: Option<i64>,
}

#[derive(Debug, Default)]
struct Stream {
    /// The beginning of a message.
    partial: BytesMut,
    /// The bytes that the server takes.
    window: i64,
}

impl Wire {
    /// Connects, and waits for the settings of the server.
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let mut wire = Self {
            socket,
            authority: address.to_string(),
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            streams: Vec::new(),
            ready: VecDeque::new(),
            unsent: VecDeque::new(),
            window: FIRST_WINDOW,
            stream_window: None,
        };
        wire.outbox.put_slice(PREFACE);
        wire.head(6, frame::SETTINGS, 0, 0);
        wire.outbox.put_u16(INITIAL_WINDOW_SIZE);
        wire.outbox.put_u32(WINDOW);
        wire.head(4, frame::WINDOW_UPDATE, 0, 0);
        wire.outbox.put_u32(WINDOW - 65_535);
        while wire.stream_window.is_none() {
            if !wire.take_frame()? {
                wire.read().await?;
            }
        }
        Ok(wire)
    }

    /// Opens a stream, and returns its index.
    pub(super) fn open(&mut self, path: &str) -> usize {
        let stream = self.streams.len();
        self.streams.push(Stream {
            partial: BytesMut::new(),
            window: self.stream_window.unwrap_or(FIRST_WINDOW),
        });
        let mut block = Vec::new();
        // Fields of the static table (RFC 7541, appendix A): POST, http, :path, :authority, content-type.
        block.extend([0x83, 0x86]);
        put_text(&mut block, &[0x04], path);
        put_text(&mut block, &[0x01], &self.authority);
        put_text(&mut block, &[0x0f, 0x10], "application/grpc");
        put_text(&mut block, &[0x00, 2, b't', b'e'], "trailers");
        self.head(block.len(), frame::HEADERS, END_HEADERS, id_of(stream));
        self.outbox.put_slice(&block);
        stream
    }

    /// Sends a message with the next [`flush`](Self::flush).
    pub(super) fn send(&mut self, stream: usize, message: &impl Message) {
        let len = message.encoded_len();
        let mut data = BytesMut::with_capacity(MESSAGE_HEAD + len);
        data.put_u8(0);
        data.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        // A buffer that grows has room for all of it.
        message.encode(&mut data).ok();
        self.unsent.push_back((stream, data.freeze()));
        self.pump();
    }

    /// Writes as much data as the server takes.
    fn pump(&mut self) {
        while let Some((stream, mut data)) = self.unsent.pop_front() {
            let room = self.streams[stream].window.min(self.window);
            let len = data.len().min(MAX_FRAME);
            let len = len.min(usize::try_from(room).unwrap_or_default());
            if len > 0 {
                let part = data.split_to(len);
                self.head(len, frame::DATA, 0, id_of(stream));
                self.outbox.put_slice(&part);
                self.window -= len as i64;
                self.streams[stream].window -= len as i64;
            }
            if !data.is_empty() {
                self.unsent.push_front((stream, data));
            }
            if len == 0 {
                return;
            }
        }
    }

    /// Writes everything that was sent.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        let written = self.socket.write_all(&self.outbox).await;
        self.outbox.clear();
        written
    }

    /// The next message, and the index of its stream.
    pub(super) async fn next(&mut self) -> io::Result<(usize, Bytes)> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(message);
            }
            if !self.take_frame()? {
                self.read().await?;
            }
        }
    }

    /// Writes everything that was sent, and waits for more bytes.
    async fn read(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.inbox.reserve(READ);
        match self.socket.read_buf(&mut self.inbox).await? {
            0 => Err(io::Error::other("the server closed the connection")),
            _ => Ok(()),
        }
    }

    /// Takes a frame that has arrived; false if there is none.
    fn take_frame(&mut self) -> io::Result<bool> {
        let Some(head) = self.inbox.first_chunk::<FRAME_HEAD>() else {
            return Ok(false);
        };
        let [l0, l1, l2, kind, flags, id @ ..] = *head;
        let len = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        if self.inbox.len() < FRAME_HEAD + len {
            return Ok(false);
        }
        let mut payload = self.inbox.split_to(FRAME_HEAD + len);
        payload.advance(FRAME_HEAD);
        let stream = (u32::from_be_bytes(id) as usize)
            .checked_sub(1)
            .map(|id| id / 2);
        match kind {
            frame::DATA => self.take_data(stream, &payload),
            frame::HEADERS if flags & END_STREAM != 0 => {
                return Err(io::Error::other("the server ended a stream"));
            }
            frame::RST_STREAM => return Err(ended("a stream", &payload)),
            // The number of the last stream comes before the reason.
            frame::GOAWAY => {
                return Err(ended(
                    "the connection",
                    payload.get(4..).unwrap_or_default(),
                ));
            }
            frame::SETTINGS if flags & ACK == 0 => self.take_settings(&payload),
            frame::PING if flags & ACK == 0 => {
                self.head(payload.len(), frame::PING, ACK, 0);
                self.outbox.put_slice(&payload);
            }
            frame::WINDOW_UPDATE => self.take_window(stream, &payload),
            _ => {}
        }
        Ok(true)
    }

    fn take_settings(&mut self, payload: &[u8]) {
        let (settings, _) = payload.as_chunks::<6>();
        let mut window = self.stream_window.unwrap_or(FIRST_WINDOW);
        for &[i0, i1, value @ ..] in settings {
            if u16::from_be_bytes([i0, i1]) == INITIAL_WINDOW_SIZE {
                window = u32::from_be_bytes(value).into();
            }
        }
        let grown = window - self.stream_window.unwrap_or(FIRST_WINDOW);
        for stream in &mut self.streams {
            stream.window += grown;
        }
        self.stream_window = Some(window);
        self.head(0, frame::SETTINGS, ACK, 0);
        self.pump();
    }

    fn take_window(&mut self, stream: Option<usize>, payload: &[u8]) {
        let grown = payload
            .first_chunk::<4>()
            .copied()
            .map_or(0, u32::from_be_bytes);
        match stream {
            None => self.window += i64::from(grown),
            Some(stream) => {
                if let Some(stream) = self.streams.get_mut(stream) {
                    stream.window += i64::from(grown);
                }
            }
        }
        self.pump();
    }

    fn take_data(&mut self, stream: Option<usize>, payload: &[u8]) {
        let Some((index, stream)) = stream.and_then(|at| Some((at, self.streams.get_mut(at)?)))
        else {
            return;
        };
        let partial = &mut stream.partial;
        partial.put_slice(payload);
        while let Some([_, len @ ..]) = partial.first_chunk::<MESSAGE_HEAD>() {
            let len = u32::from_be_bytes(*len) as usize;
            if partial.len() < MESSAGE_HEAD + len {
                partial.reserve(MESSAGE_HEAD + len - partial.len());
                return;
            }
            partial.advance(MESSAGE_HEAD);
            self.ready
                .push_back((index, partial.split_to(len).freeze()));
        }
    }

    fn head(&mut self, len: usize, kind: u8, flags: u8, id: u32) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.outbox.put_uint(len, 3);
        self.outbox.put_u8(kind);
        self.outbox.put_u8(flags);
        self.outbox.put_u32(id);
    }
}

/// The error for a stream or a connection that the server ended, with its reason (RFC 9113, 7).
fn ended(part: &str, reason: &[u8]) -> io::Error {
    let (code, text) = reason.split_at(reason.len().min(4));
    let code = code
        .first_chunk::<4>()
        .copied()
        .map_or(0, u32::from_be_bytes);
    let text = String::from_utf8_lossy(text);
    io::Error::other(format!(
        "the server ended {part}: HTTP/2 error {code} {text}"
    ))
}

/// The identifier of a stream on the wire. Those of clients are odd.
fn id_of(stream: usize) -> u32 {
    u32::try_from(stream).unwrap_or(u32::MAX / 4) * 2 + 1
}

/// A header field that is not indexed (RFC 7541, 6.2.2). Values are shorter than 127 bytes.
fn put_text(block: &mut Vec<u8>, name: &[u8], value: &str) {
    block.extend_from_slice(name);
    block.push(u8::try_from(value.len()).unwrap_or(0));
    block.extend_from_slice(value.as_bytes());
}
