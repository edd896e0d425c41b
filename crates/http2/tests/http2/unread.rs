//! Tests of windows that follow the path and the readers. Two limits apply: one for bytes on their
//! way, and one for bytes that no call has read.

use bytes::Bytes;
use crowfly_http2::{Config, Reason, ReceiveStream};

use crate::frames::{ACK, Frame, OK, PING, WINDOW_UPDATE, data, frame, headers, last_data};
use crate::raw::{Call, Raw, next, whole};

const MIB: usize = 1 << 20;
const FRAME: [u8; 16_384] = [7; 16_384];

/// A server that keeps to the windows and otherwise sends all it can.
struct Sender {
    server: Raw,
    /// The bytes that it may send on the connection, and on each stream.
    connection: usize,
    streams: Vec<usize>,
    calls: Vec<(Call, ReceiveStream)>,
    sent: usize,
    pings: Vec<Frame>,
}

impl Sender {
    fn new(config: Config, streams: usize) -> Self {
        let mut server = Raw::with(config);
        let mut calls = Vec::new();
        for number in 0..streams {
            let mut call = server.get();
            server.send(headers(id(number), OK));
            let body = call.body();
            calls.push((call, body));
        }
        server.frames();
        Self {
            server,
            connection: config.connection_window as usize,
            streams: vec![config.stream_window as usize; streams],
            calls,
            sent: 0,
            pings: Vec::new(),
        }
    }

    /// Sends until windows forbid it, on one stream after the other.
    fn send_all(&mut self) {
        for number in 0..self.streams.len() {
            while self.send(number, FRAME.len()) > 0 {}
        }
    }

    /// Sends a frame of at most so many bytes, if windows allow; how many.
    fn send(&mut self, number: usize, most: usize) -> usize {
        let len = most.min(self.connection).min(self.streams[number]);
        if len > 0 {
            self.connection -= len;
            self.streams[number] -= len;
            self.sent += len;
            self.server.send(data(id(number), &FRAME[..len]));
        }
        self.hear();
        len
    }

    fn hear(&mut self) {
        for frame in self.server.frames() {
            match (frame.kind, frame.stream) {
                (WINDOW_UPDATE, 0) => self.connection += frame.word(0) as usize,
                (WINDOW_UPDATE, stream) => {
                    self.streams[stream as usize / 2] += frame.word(0) as usize;
                }
                (PING, _) => self.pings.push(frame),
                _ => {}
            }
        }
    }

    /// Reads all that came on a stream.
    fn read(&mut self, number: usize) -> usize {
        let body = &mut self.calls[number].1;
        let mut len = 0;
        while let std::task::Poll::Ready(Some(Ok(data))) = next(body) {
            len += data.len();
        }
        self.hear();
        len
    }

    fn answer_pings(&mut self) {
        for ping in std::mem::take(&mut self.pings) {
            self.server.send(frame(PING, ACK, 0, &ping.payload));
        }
    }
}

fn id(number: usize) -> u32 {
    2 * number as u32 + 1
}

/// Six streams that nobody reads do not keep a seventh from being answered, with default windows and
/// with the smallest window of a connection.
#[test]
fn streams_that_nobody_reads_do_not_hold_up_others() {
    let small = Config {
        connection_window: 65_535,
        ..Config::default()
    };
    for config in [Config::default(), small] {
        let mut sender = Sender::new(config, 6);
        sender.send_all();
        assert_eq!(sender.sent, 6 * config.stream_window as usize);
        assert!(sender.connection >= 32_768, "{}", sender.connection);
        sender.server.assert_works();
    }
}

/// A server that sends all it may to readers that do not read: it may not send more than the limit.
#[test]
fn no_more_is_unread_than_the_limit() {
    for limit in [65_535, 100_000, 2 * MIB] {
        let config = Config {
            max_unread: limit as u32,
            connection_window: 65_535,
            stream_window: 100_000,
            ..Config::default()
        };
        let mut sender = Sender::new(config, 40);
        sender.send_all();
        assert!(sender.sent <= limit, "{} of {limit}", sender.sent);
        assert!(sender.sent + 65_535 >= limit, "{} of {limit}", sender.sent);
        assert!(sender.server.ended.is_none());
        // Who reads lets the others go on.
        let before = sender.sent;
        let read = sender.read(0);
        sender.send_all();
        assert!(sender.sent + 32_768 >= before + read);
    }
}

/// As in gRPC: what comes within a round trip is near the window, so that the window is doubled; but
/// only for a stream that is read.
#[test]
fn the_window_of_a_stream_that_is_read_grows_with_the_path() {
    let mut sender = Sender::new(Config::default(), 2);
    sender.send_all();
    assert_eq!(sender.sent, 2 * MIB);
    assert_eq!(sender.pings.len(), 1, "one at a time, and only for much");
    sender.answer_pings();
    assert_eq!(sender.streams, [0, 0]);
    assert_eq!(sender.read(0), MIB);
    // What is not worth a frame is not given yet.
    assert!((MIB + MIB / 2..=2 * MIB).contains(&sender.streams[0]));
    assert_eq!(sender.streams[1], 0);
}

/// A stream whose reader stops leaves room for others, however wide its window has become.
#[test]
fn a_wide_window_leaves_room_for_other_streams() {
    let config = Config {
        stream_window: 65_535,
        connection_window: MIB as u32,
        max_unread: MIB as u32,
        ..Config::default()
    };
    let mut sender = Sender::new(config, 1);
    for _ in 0..20 {
        while sender.send(0, FRAME.len()) > 0 {}
        sender.answer_pings();
        sender.read(0);
    }
    while sender.send(0, FRAME.len()) > 0 {}
    assert!(sender.connection >= MIB / 16, "{}", sender.connection);
    sender.server.assert_works();
}

/// Windows that were set are kept, and nothing is measured.
#[test]
fn fixed_windows_stay_and_cost_no_ping() {
    let config = Config {
        is_adaptive: false,
        ..Config::default()
    };
    let mut sender = Sender::new(config, 1);
    for _ in 0..10 {
        sender.send_all();
        assert_eq!(sender.read(0), MIB);
    }
    assert_eq!(sender.pings, []);
}

/// Small calls are no reason to measure.
#[test]
fn small_calls_cost_no_ping() {
    let mut server = Raw::connected();
    (0..500).for_each(|_| server.assert_works());
    assert!(server.frames().iter().all(|frame| frame.kind != PING));
}

/// Empty DATA costs no window, and DATA of a byte little: a server that sends too many is told so.
#[test]
fn too_many_scraps_of_data_end_the_connection() {
    for scrap in [&b""[..], b"x"] {
        let mut sender = Sender::new(Config::default(), 1);
        for _ in 0..10_000 {
            sender.server.send(data(1, scrap));
        }
        assert!(sender.server.ended.is_none());
        sender.server.send(data(1, scrap));
        sender.server.assert_ended_with(Reason::ENHANCE_YOUR_CALM);
    }
}

/// Scraps among other DATA are in order: a message whose head comes alone, or whose end does; so is an
/// empty end.
#[test]
fn scraps_among_other_data_are_taken() {
    let mut sender = Sender::new(Config::default(), 1);
    for _ in 0..20_000 {
        sender.server.send(data(1, &[0, 0, 0, 0, 1]));
        sender.server.send(data(1, b"x"));
    }
    sender.server.send(last_data(1, b""));
    assert_eq!(whole(&mut sender.calls[0].1).unwrap().len(), 120_000);
    for number in 0..11_000 {
        let mut call = sender.server.get();
        sender.server.send(headers(id(number + 1), OK));
        sender.server.send(last_data(id(number + 1), b""));
        assert_eq!(whole(&mut call.body()).unwrap(), b"");
    }
}

/// DATA that is sent is not copied: it is written from where it is.
#[test]
fn a_large_request_is_sent_whole_through_a_socket_that_takes_little() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    server.frames();
    let body: Bytes = (0..60_000).map(|at| (at % 251) as u8).collect();
    server.wire.lock().room = 0;
    call.request.send_data(body.clone(), true).unwrap();
    let mut received = Vec::new();
    for room in (1..).step_by(37) {
        server.wire.change(|ends| ends.room = room);
        for frame in server.frames() {
            received.extend(frame.payload.clone());
            if frame.is_end() {
                assert!(received == body);
                return;
            }
        }
    }
}
