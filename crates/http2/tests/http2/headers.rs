//! Sections 8.2 and 8.3, and RFC 7541: malformed heads and trailers. A malformed response is an
//! error of its stream alone.

use crowfly_http2::{Config, OpenError, Reason, StreamError};
use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::frames::{
    CONTINUATION, END_HEADERS, HEADERS, OK, data, field, frame, headers, last_headers,
};
use crate::raw::{Raw, post, trailers, whole};

/// Sections 8.1.1, 8.2.1, 8.2.2 and 8.3.2: each of these is a malformed response, and an error of its
/// stream alone.
#[test]
fn malformed_heads_reset_the_stream() {
    let ok = |rest: &[u8]| [OK, rest].concat();
    let malformed = [
        vec![],
        field("a", b"b"),
        [&field("a", b"b"), OK].concat(),
        ok(OK),
        ok(&field(":status", b"204")),
        field(":status", b"99"),
        field(":status", b"2000"),
        field(":status", b""),
        field(":status", b"+20"),
        ok(&field(":path", b"/")),
        ok(&field(":unknown", b"")),
        ok(&field("Upper", b"case")),
        ok(&field("", b"nameless")),
        ok(&field("sp ace", b"x")),
        ok(&field("a", b"\0")),
        ok(&field("a", b"line\r\nbreak")),
        ok(&field("connection", b"close")),
        ok(&field("keep-alive", b"1")),
        ok(&field("proxy-connection", b"x")),
        ok(&field("transfer-encoding", b"chunked")),
        ok(&field("upgrade", b"h3")),
    ];
    for block in malformed {
        let mut server = Raw::connected();
        let mut call = server.open(false);
        server.send(headers(1, &block));
        server.assert_reset(1, Reason::PROTOCOL_ERROR);
        assert!(
            matches!(call.error(), StreamError::Malformed(_)),
            "{block:?}"
        );
        server.assert_works();
    }
}

/// Section 8.1: trailers have no pseudo header, and are fields like others.
#[test]
fn malformed_trailers_reset_the_stream() {
    let malformed = [
        OK.to_vec(),
        [&field("a", b"b"), OK].concat(),
        field(":path", b"/"),
        field("Upper", b"case"),
        field("connection", b"close"),
    ];
    for block in malformed {
        let mut server = Raw::connected();
        let mut call = server.open(false);
        server.send(headers(1, OK));
        server.send(data(1, b"data"));
        server.send(last_headers(1, &block));
        server.assert_reset(1, Reason::PROTOCOL_ERROR);
        let mut body = call.body();
        assert!(matches!(whole(&mut body), Err(StreamError::Malformed(_))));
        server.assert_works();
    }
}

/// Section 8.1: any number of informational responses comes before the final one, and none ends the
/// stream.
#[test]
fn informational_responses_are_passed_over() {
    let mut server = Raw::connected();
    let mut call = server.get();
    server.send(headers(1, &field(":status", b"100")));
    server.send(headers(
        1,
        &[field(":status", b"103"), field("link", b"x")].concat(),
    ));
    assert!(call.poll().is_pending());
    server.send(headers(1, OK));
    server.send(last_headers(1, &field("grpc-status", b"0")));
    let mut head = call.head();
    assert!(head.headers().is_empty());
    assert_eq!(whole(head.body_mut()).unwrap(), b"");
    assert_eq!(trailers(head.body_mut())["grpc-status"], "0");

    let mut call = server.get();
    server.frames();
    server.send(last_headers(3, &field(":status", b"100")));
    server.assert_reset(3, Reason::PROTOCOL_ERROR);
    assert!(matches!(call.error(), StreamError::Malformed(_)));
}

/// Section 6.5.2: a head above the limit is lost, but not the connection, and the tables of both
/// sides stay in step.
#[test]
fn heads_above_the_limit_reset_the_stream() {
    let mut server = Raw::with(limit(16_384));
    let mut call = server.get();
    // An entry for the table, before and after the limit is passed.
    let indexed = |name: &str| [&[0x40][..], &field(name, b"value")[1..]].concat();
    let large = field("large", &[b'x'; 16_000]);
    let block = [
        OK,
        &indexed("before"),
        &large,
        &field("a", &[b'x'; 1_000]),
        &indexed("after"),
    ];
    let block = block.concat();
    server.send(frame(HEADERS, 0, 1, &block[..10_000]));
    server.send(frame(CONTINUATION, END_HEADERS, 1, &block[10_000..]));
    server.assert_reset(1, Reason::ENHANCE_YOUR_CALM);
    assert!(matches!(call.error(), StreamError::HeadersTooLarge(16_384)));

    let mut call = server.get();
    server.send(headers(3, &[OK, &[0x80 | 62, 0x80 | 63]].concat()));
    let head = call.head();
    assert_eq!(head.headers()["after"], "value");
    assert_eq!(head.headers()["before"], "value");
}

/// RFC 7541, section 2.3.3 and others: what cannot be decompressed ends the connection, since later
/// blocks depend on it; even on a stream that nobody waits for.
#[test]
fn broken_compression_ends_the_connection() {
    let broken = [
        vec![0x80],
        vec![0x80 | 62],
        vec![0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0x88, 0x20],
        vec![0x00, 0x05, b'a'],
        vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0x3f, 0xe2, 0x1f],
    ];
    for block in broken {
        for is_cancelled in [false, true] {
            let mut server = Raw::connected();
            let call = server.get();
            let _call = (!is_cancelled).then_some(call);
            server.send(headers(1, &block));
            server.assert_ended_with(Reason::COMPRESSION_ERROR);
        }
    }
}

/// RFC 7541, section 4: blocks of streams that nobody waits for still fill the table.
#[test]
fn heads_of_forgotten_streams_keep_the_tables_in_step() {
    let mut server = Raw::connected();
    drop(server.get());
    let indexed = [&[0x40][..], &field("name", b"value")[1..]].concat();
    server.send(headers(1, &[OK, &indexed].concat()));
    let mut call = server.get();
    server.send(headers(3, &[OK, &[0x80 | 62]].concat()));
    assert_eq!(call.head().headers()["name"], "value");
}

/// A bomb: one large field in the table, named again and again.
#[test]
fn a_header_bomb_costs_only_its_stream() {
    let mut server = Raw::connected();
    let mut call = server.get();
    let large = [&[0x40][..], &field("large", &[b'x'; 3_900])[1..]].concat();
    let block = [OK, &large, &[0x80 | 62; 12_000]].concat();
    server.send(headers(1, &block));
    server.assert_reset(1, Reason::ENHANCE_YOUR_CALM);
    assert!(matches!(call.error(), StreamError::HeadersTooLarge(_)));
    server.assert_works();
}

/// Sections 8.2.2 and 8.3.1: what HTTP/2 cannot carry is not sent, and costs no stream id.
#[test]
fn requests_that_cannot_be_are_not_sent() {
    let mut server = Raw::connected();
    let client = server.client.clone().unwrap();
    let with = |name: &str, value: &str| {
        let mut request = post();
        let name: HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    let wrong = [
        Request::post("/path").body(()).unwrap(),
        with("connection", "close"),
        with("keep-alive", "1"),
        with("te", "gzip"),
        with("transfer-encoding", "chunked"),
        with("upgrade", "h3"),
    ];
    for request in wrong {
        let opened = client.open(&request, true);
        assert!(matches!(opened, Err(OpenError::Invalid(_))), "{request:?}");
    }
    assert_eq!(server.frames(), []);
    assert!(client.open(&with("te", "trailers"), true).is_ok());
    assert_eq!(server.last_opened(), 1);
}

/// Trailers that HTTP/2 does not allow are refused. The request can then only be reset.
#[test]
fn trailers_that_cannot_be_reset_the_stream() {
    let mut server = Raw::connected();
    let mut call = server.open(false);
    let trailers = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
    assert!(call.request.send_trailers(trailers).is_err());
    server.assert_reset(1, Reason::CANCEL);
    assert!(matches!(call.error(), StreamError::Cancelled));
}

/// A head over the limit of a response that goes on is an error of its stream, which says the limit.
#[test]
fn a_head_over_the_limit_resets_the_stream_and_names_the_limit() {
    let mut server = Raw::with(limit(1_000));
    let mut call = server.open(false);
    server.send(headers(1, &[OK, &large()].concat()));
    server.assert_reset(1, Reason::ENHANCE_YOUR_CALM);
    let error = call.error();
    assert!(
        matches!(error, StreamError::HeadersTooLarge(1_000)),
        "{error}"
    );
    assert!(error.to_string().contains("1000 bytes"), "{error}");
    server.assert_works();
}

/// How a call ended is told even if what else the server says about it is over the limit, whether it
/// comes before or after that.
#[test]
fn the_status_of_a_call_is_kept_when_its_trailers_are_over_the_limit() {
    let status = field("grpc-status", b"5");
    let message = field("grpc-message", b"no such item");
    let left_out = "trailers over the limit of 1000 bytes left out";
    for (block, expected) in [
        ([status.clone(), large()].concat(), left_out.to_owned()),
        (
            [large(), status.clone(), message.clone()].concat(),
            left_out.to_owned(),
        ),
        (
            [message, status, large()].concat(),
            format!("no such item ({left_out})"),
        ),
    ] {
        // As trailers, and as all there is of a response.
        let mut server = Raw::with(limit(1_000));
        let mut call = server.get();
        server.send(headers(1, OK));
        server.send(last_headers(1, &block));
        let kept = trailers(&mut call.body());
        assert_eq!(
            (&kept["grpc-status"], &kept["grpc-message"]),
            (&"5".parse().unwrap(), &expected.parse().unwrap())
        );
        assert_eq!(kept.len(), 2);

        let mut call = server.get();
        server.send(last_headers(3, &[OK, &block].concat()));
        assert_eq!(call.head().headers(), &kept);
        server.assert_works();
    }
}

/// A call that succeeded has lost trailers that it may need: that is not told as a success.
#[test]
fn a_success_whose_trailers_are_over_the_limit_is_an_error() {
    let mut server = Raw::with(limit(1_000));
    let mut call = server.get();
    server.send(headers(1, OK));
    server.send(last_headers(
        1,
        &[field("grpc-status", b"0"), large()].concat(),
    ));
    let error = whole(&mut call.body()).unwrap_err();
    assert!(
        matches!(error, StreamError::HeadersTooLarge(1_000)),
        "{error}"
    );
    server.assert_works();
}

fn limit(max_header_list_size: u32) -> Config {
    Config {
        max_header_list_size,
        ..Config::default()
    }
}

fn large() -> Vec<u8> {
    field("grpc-status-details-bin", &[b'A'; 2_000])
}
