//! Calls, frames, chunks and back-pressure in any order: what was sent arrives, whole and in order,
//! within the windows, and nothing is left behind.
//!
//! Calls and the connection are polled only when they were woken, so a wake-up that is missing
//! shows as a call that never ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use crowfly_http2::{Config, HeadFuture, SendStream, StreamError};
use http::HeaderMap;
use proptest::prelude::*;

use crate::model::Model;
use crate::raw::{Raw, post};
use crate::wire::Flag;

const CONFIG: Config = Config {
    stream_window: 500,
    connection_window: 65_535,
    is_adaptive: true,
    max_unread: 65_535,
    max_header_list_size: 16_384,
    first_stream_id: 1,
};
/// The most calls that a script opens.
const CALLS: u32 = 8;

#[derive(Clone, Debug)]
enum Step {
    /// The server goes on with a response.
    Answer(u32, usize, Option<u8>),
    Cancel(u32),
    /// The number of bytes that are read from the socket at once.
    Chunk(usize),
    InitialWindow(u32),
    Open {
        request: usize,
        piece: usize,
    },
    Ping,
    /// Lets the calls go on that were woken.
    Poll,
    Reset(u32),
    /// The number of bytes that can be written to the socket.
    Room(usize),
    Widen(u32),
    WidenStream(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || (0..CALLS).prop_map(|call| 2 * call + 1);
    let padding = || prop_oneof![3 => Just(None), 1 => any::<u8>().prop_map(Some)];
    prop_oneof![
        6 => (id(), 1..400_usize, padding()).prop_map(|(id, len, pad)| Step::Answer(id, len, pad)),
        1 => id().prop_map(Step::Cancel),
        1 => (1..40_usize).prop_map(Step::Chunk),
        2 => prop_oneof![Just(0), 0..3_000_u32, Just(65_535)].prop_map(Step::InitialWindow),
        3 => (0..40_000_usize, 1..9_000_usize)
            .prop_map(|(request, piece)| Step::Open { request, piece }),
        1 => Just(Step::Ping),
        4 => Just(Step::Poll),
        1 => id().prop_map(Step::Reset),
        3 => (0..2_000_usize).prop_map(Step::Room),
        1 => Just(Step::Room(usize::MAX)),
        2 => (1..5_000_u32).prop_map(Step::Widen),
        3 => (id(), 1..5_000_u32).prop_map(|(id, by)| Step::WidenStream(id, by)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_all_arrives(steps in prop::collection::vec(step(), 0..120)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        world.finish();
    }
}

struct World {
    server: Raw,
    model: Model,
    calls: Vec<Call>,
}

struct Call {
    request: Bytes,
    flag: Flag,
    /// Gone when it was cancelled.
    exchange: Option<Pin<Box<dyn Future<Output = Outcome>>>>,
    outcome: Option<Outcome>,
}

type Outcome = Result<(Vec<u8>, HeaderMap), StreamError>;

impl World {
    fn new() -> Self {
        Self {
            server: Raw::silent(CONFIG),
            model: Model::new(CONFIG.stream_window, CONFIG.connection_window),
            calls: Vec::new(),
        }
        .started()
    }

    fn started(mut self) -> Self {
        self.say(crate::frames::settings(&[]));
        self
    }

    fn take(&mut self, step: &Step) {
        let said = match *step {
            Step::Answer(id, len, padding) => self.model.answer(id, len, padding),
            Step::InitialWindow(size) => self.model.set_initial_window(size),
            Step::Ping => {
                self.server.client.as_ref().unwrap().pings().send();
                crate::frames::frame(crate::frames::PING, 0, 0, &[7; 8])
            }
            Step::Reset(id) => self.model.reset(id),
            Step::Widen(by) => self.model.widen(by),
            Step::WidenStream(id, by) => self.model.widen_stream(id, by),
            Step::Cancel(id) => {
                if let Some(call) = self.calls.get_mut(id as usize / 2) {
                    call.exchange = None;
                }
                Vec::new()
            }
            Step::Chunk(chunk) => {
                self.server.wire.lock().chunk = chunk;
                Vec::new()
            }
            Step::Open { request, piece } => {
                self.open(request, piece);
                Vec::new()
            }
            Step::Poll => {
                self.calls.iter_mut().for_each(Call::poll);
                Vec::new()
            }
            Step::Room(room) => {
                self.server.wire.change(|ends| ends.room = room);
                Vec::new()
            }
        };
        self.say(said);
    }

    fn say(&mut self, bytes: Vec<u8>) {
        self.server.send(bytes);
        for frame in self.server.frames() {
            self.model.hear(&frame, &response);
        }
        assert!(self.server.ended.is_none(), "{:?}", self.server.ended);
    }

    fn open(&mut self, len: usize, piece: usize) {
        if self.calls.len() >= CALLS as usize {
            return;
        }
        let client = self.server.client.as_ref().unwrap();
        let (response, request) = client.open(&post(), false).unwrap();
        let body: Bytes = (0..len).map(|at| (at % 251) as u8).collect();
        let mut call = Call {
            request: body.clone(),
            flag: Flag::new(),
            exchange: Some(Box::pin(exchange(response, request, body, piece))),
            outcome: None,
        };
        call.poll();
        self.calls.push(call);
    }

    /// The server gives all it can, until everything is over.
    fn finish(mut self) {
        self.take(&Step::Room(usize::MAX));
        self.take(&Step::InitialWindow(65_535));
        for _ in 0..10_000 {
            self.take(&Step::Poll);
            self.take(&Step::Widen(5_000));
            let ids: Vec<u32> = self.model.streams.keys().copied().collect();
            for id in ids {
                self.take(&Step::WidenStream(id, 5_000));
                self.take(&Step::Answer(id, 10_000, None));
            }
            if self.calls.iter().all(|call| call.exchange.is_none()) {
                break;
            }
        }
        for (call, (id, side)) in self.calls.iter().zip(&self.model.streams) {
            assert!(call.exchange.is_none(), "stream {id} hangs");
            assert!(call.request.starts_with(&side.request));
            let (answer, trailers) = match &call.outcome {
                Some(Ok(answer)) => answer,
                Some(Err(error)) => {
                    assert!(side.is_reset, "{error:?}");
                    continue;
                }
                None => {
                    assert!(side.is_reset || side.is_over(), "cancelled, and not reset");
                    continue;
                }
            };
            assert!(*answer == response(*id));
            assert_eq!(trailers["grpc-status"], "0");
            assert!(side.is_reset || side.is_ended && side.request == call.request);
        }
        assert_nothing_left(self.server);
    }
}

fn assert_nothing_left(mut server: Raw) {
    let core = format!("{:?}", server.client);
    for empty in [
        "streams: {}",
        "queued: []",
        "output: Output { bytes: b\"\", payloads: []",
        "block: None",
    ] {
        assert!(core.contains(empty), "not {empty}: {core}");
    }
    server.client = None;
    server.run();
    assert!(matches!(server.ended, Some(Ok(()))));
}

impl Call {
    fn poll(&mut self) {
        let waker = self.flag.waker();
        while let Some(exchange) = &mut self.exchange
            && self.flag.take()
        {
            if let Poll::Ready(outcome) = exchange.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.outcome = Some(outcome);
                self.exchange = None;
            }
        }
    }
}

/// The response body of the server on a stream.
fn response(id: u32) -> Vec<u8> {
    let len = 700 * (id as usize - 1);
    (0..len).map(|at| (at % 241) as u8).collect()
}

/// Sends and reads at once, as a call does that streams in both directions.
async fn exchange(
    response: HeadFuture,
    mut request: SendStream,
    body: Bytes,
    piece: usize,
) -> Outcome {
    let sent = crate::interop::send(&mut request, &body, piece);
    let (_, answer) = tokio::join!(sent, crate::interop::answer(response));
    answer
}
