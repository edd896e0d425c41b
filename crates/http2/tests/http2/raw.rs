//! A server written by hand, with its client. There is no runtime, no clock and no randomness, so a
//! test that fails does so each time.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use crowfly_http2::{
    Client, Config, ConnectionEvent, ConnectionTask, Error, HeadFuture, Reason, ReceiveStream,
    SendStream, StreamError,
};
use http::{HeaderMap, Request, Response};

use crate::frames::{self, Frame, GOAWAY, OK, RST_STREAM, WINDOW_UPDATE};
use crate::wire::{Flag, Wire};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

type Driver = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

pub(crate) struct Raw {
    pub(crate) wire: Wire,
    pub(crate) client: Option<Client>,
    pub(crate) events: Arc<Mutex<Vec<ConnectionEvent>>>,
    /// The result of the connection, once it has ended.
    pub(crate) ended: Option<Result<(), Error>>,
    driver: Option<Driver>,
    task: Flag,
    /// The number of bytes of the client that were looked at.
    seen: usize,
}

impl Raw {
    /// A server that has the client's preface and has said nothing.
    pub(crate) fn silent(config: Config) -> Self {
        let wire = Wire::default();
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        let observe = move |event| heard.lock().unwrap().push(event);
        let (client, connection) = ConnectionTask::new(wire.clone(), config, observe);
        let connection = connection
            .probing(|wire| wire.lock().is_gone)
            .with_exact_writes();
        let mut raw = Self {
            wire,
            client: Some(client),
            events,
            ended: None,
            driver: Some(Box::pin(connection)),
            task: Flag::new(),
            seen: 0,
        };
        raw.run();
        assert_eq!(&raw.wire.lock().output[..PREFACE.len()], PREFACE);
        raw.seen = PREFACE.len();
        raw
    }

    pub(crate) fn with(config: Config) -> Self {
        let mut raw = Self::silent(config);
        raw.send(frames::settings(&[]));
        raw.frames();
        raw
    }

    /// A server that has exchanged SETTINGS with the client.
    pub(crate) fn connected() -> Self {
        Self::with(Config::default())
    }

    /// Lets the client hear this.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.change(|ends| ends.input.extend(bytes.as_ref()));
        self.run();
    }

    /// Says what is not HTTP/2.
    pub(crate) fn babble(&mut self) {
        self.send([0xff; 100]);
    }

    /// Says no more.
    pub(crate) fn hang_up(&mut self) {
        self.wire.change(|ends| ends.is_ended = true);
        self.run();
    }

    /// Polls the connection for as long as something wakes it.
    pub(crate) fn run(&mut self) {
        let waker = self.task.waker();
        for _ in 0..100_000 {
            let Some(driver) = &mut self.driver else {
                return;
            };
            if !self.task.take() {
                return;
            }
            if let Poll::Ready(ended) = driver.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.ended = Some(ended);
                self.driver = None;
            }
        }
        panic!("the connection wakes itself for ever");
    }

    /// Gives the connection up.
    pub(crate) fn abandon(&mut self) {
        self.driver = None;
    }

    /// Gives back what the test itself holds.
    #[allow(dead_code, reason = "for the tests of memory")]
    pub(crate) fn forget(&mut self) {
        let mut ends = self.wire.lock();
        (ends.input, ends.output) = Default::default();
        *self.events.lock().unwrap() = Vec::new();
        self.seen = 0;
    }

    /// The frames that the client has written since the last call.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        self.run();
        let ends = self.wire.lock();
        let mut all = Vec::new();
        while let Some((frame, len)) = Frame::parse(&ends.output[self.seen..]) {
            self.seen += len;
            all.push(frame);
        }
        all
    }

    /// Opens a stream for a request without a body.
    pub(crate) fn get(&mut self) -> Call {
        self.open(true)
    }

    /// Opens a stream for a request with one.
    pub(crate) fn open(&mut self, is_ended: bool) -> Call {
        let client = self.client.as_ref().expect("a client");
        let (response, mut request) = client.open(&post(), is_ended).unwrap();
        request.flush();
        self.run();
        Call { response, request }
    }

    /// The connection ended with an error, and the server was told which.
    pub(crate) fn assert_ended_with(&mut self, reason: Reason) {
        let last = self.frames().pop().expect("a last frame");
        self.assert_ended_for(reason);
        assert_eq!((last.kind, last.word(4)), (GOAWAY, reason.into()));
        assert!(self.wire.lock().is_shut_down);
    }

    /// The connection ended with an error.
    pub(crate) fn assert_ended_for(&self, reason: Reason) {
        match &self.ended {
            Some(Err(Error::Protocol { reason: why, .. })) => assert_eq!(*why, reason),
            other => panic!("not over with {reason:?}: {other:?}"),
        }
    }

    /// The client reset just this stream, just now.
    pub(crate) fn assert_reset(&mut self, stream: u32, reason: Reason) {
        let frames = self.frames();
        let mut resets = frames.iter().filter(|frame| frame.kind == RST_STREAM);
        let reset = resets.next().expect("a reset");
        assert_eq!((reset.stream, reset.word(0)), (stream, reason.into()));
        assert_eq!(resets.next(), None);
    }

    /// A call on a new stream succeeds.
    pub(crate) fn assert_works(&mut self) {
        let mut call = self.get();
        let id = self.last_opened();
        self.send(frames::headers(id, OK));
        self.send(frames::last_data(id, b"works"));
        let mut body = call.body();
        assert_eq!(whole(&mut body).unwrap(), b"works");
        assert!(self.ended.is_none());
    }

    /// The bytes of window that the client gave back since frames were last looked at.
    pub(crate) fn given_back(&mut self, stream: u32) -> u32 {
        let is_update = |frame: &Frame| frame.kind == WINDOW_UPDATE && frame.stream == stream;
        let frames = self.frames();
        let updates = frames.iter().filter(|frame| is_update(frame));
        updates.map(|frame| frame.word(0)).sum()
    }

    /// The id of the last stream that the client wrote HEADERS for.
    pub(crate) fn last_opened(&mut self) -> u32 {
        let mut opened = self.frames();
        opened.retain(|frame| frame.kind == frames::HEADERS);
        opened.last().expect("a stream").stream
    }
}

/// Both sides of a stream.
pub(crate) struct Call {
    pub(crate) response: HeadFuture,
    pub(crate) request: SendStream,
}

impl Call {
    pub(crate) fn poll(&mut self) -> Poll<Result<Response<ReceiveStream>, StreamError>> {
        now(|cx| Pin::new(&mut self.response).poll(cx))
    }

    pub(crate) fn head(&mut self) -> Response<ReceiveStream> {
        match self.poll() {
            Poll::Ready(Ok(head)) => head,
            other => panic!("no head: {other:?}"),
        }
    }

    pub(crate) fn body(&mut self) -> ReceiveStream {
        self.head().into_body()
    }

    pub(crate) fn error(&mut self) -> StreamError {
        match self.poll() {
            Poll::Ready(Err(error)) => error,
            other => panic!("no error: {other:?}"),
        }
    }
}

pub(crate) fn post() -> Request<()> {
    Request::post("http://host/service/method")
        .body(())
        .unwrap()
}

pub(crate) fn now<T>(poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
    poll(&mut Context::from_waker(Waker::noop()))
}

pub(crate) fn next(body: &mut ReceiveStream) -> Poll<Option<Result<Bytes, StreamError>>> {
    now(|cx| body.poll_data(cx))
}

/// All DATA of a response that has come to its end.
pub(crate) fn whole(body: &mut ReceiveStream) -> Result<Vec<u8>, StreamError> {
    let mut all = Vec::new();
    loop {
        match next(body) {
            Poll::Ready(Some(data)) => all.extend_from_slice(&data?),
            Poll::Ready(None) => return Ok(all),
            Poll::Pending => panic!("not at its end"),
        }
    }
}

pub(crate) fn trailers(body: &mut ReceiveStream) -> HeaderMap {
    match now(|cx| body.poll_trailers(cx)) {
        Poll::Ready(Ok(Some(trailers))) => trailers,
        other => panic!("no trailers: {other:?}"),
    }
}
