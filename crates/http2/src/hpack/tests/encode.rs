//! Tests of the encoder with the calls of a channel, because its table is made for those.

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};

use super::{encode, hex};
use crate::hpack::{Encoder, Pseudo};

#[test]
fn the_static_table_knows_most_pseudo_headers() {
    use Pseudo::{Authority, Method, Path, Scheme};
    for (name, value, expected) in [
        (Method, "GET", "82"),
        (Method, "POST", "83"),
        (Method, "PUT", "02 03 505554"),
        (Scheme, "http", "86"),
        (Scheme, "https", "87"),
        (Scheme, "x", "06 01 78"),
        (Path, "/", "84"),
        (Path, "/a", "04 02 2f61"),
        (Authority, "a", "01 01 61"),
    ] {
        let mut out = BytesMut::new();
        Encoder::new().pseudo(name, value.as_bytes(), &mut out);
        assert_eq!(out[..], hex(expected), "{name:?} {value}");
    }
}

#[test]
fn fields_that_repeat_shrink_to_a_byte() {
    let mut encoder = Encoder::new();
    let mut next = |name, value| encode(&mut encoder, name, value);
    assert_eq!(
        next("te", "trailers")[..],
        hex("00 02 7465 08 747261696c657273")
    );
    assert_eq!(
        next("te", "trailers")[..],
        hex("40 02 7465 08 747261696c657273")
    );
    assert_eq!(next("te", "trailers")[..], hex("be"));
    // the name is in a table
    assert_eq!(next("te", "a")[..], hex("0f2f 01 61"));
    assert_eq!(next("via", "a")[..], hex("0f2d 01 61"));
}

#[test]
fn the_third_call_is_a_byte_per_field() {
    let mut encoder = Encoder::new();
    let sizes = [0; 4].map(|_| call(&mut encoder).len());
    assert!(sizes[1] > 80, "{sizes:?}");
    assert_eq!(sizes[2..], [7; 2]);
}

/// Deadlines and trace ids come with each call, and never repeat.
#[test]
fn what_differs_per_call_pushes_nothing_out() {
    let mut encoder = Encoder::new();
    for i in 0..10_000 {
        let len = call(&mut encoder).len();
        assert!(i < 2 || len == 7, "call {i} takes {len} bytes");
        encode(&mut encoder, "grpc-timeout", &format!("{i}u"));
        encode(
            &mut encoder,
            "traceparent",
            &format!("00-{:032x}-{i:016x}-01", i * 7),
        );
        encode(&mut encoder, "x-request-id", &format!("{:x}", i * 31));
    }
}

#[test]
fn what_takes_over_a_quarter_of_the_table_stays_out() {
    let mut encoder = Encoder::new();
    for (len, is_indexed) in [(1024 - 32 - 1, true), (1024 - 32, false)] {
        let value = "a".repeat(len);
        let blocks = [0; 3].map(|_| encode(&mut encoder, "x", &value).len());
        assert_eq!(blocks[2] == 1, is_indexed, "{len}: {blocks:?}");
    }
}

#[test]
fn sensitive_values_are_never_indexed() {
    let mut encoder = Encoder::new();
    let mut secret = HeaderValue::from_static("s");
    let name = HeaderName::from_static("authorization");
    let mut next = |value: &HeaderValue| {
        let mut out = BytesMut::new();
        encoder.field(&name, value, &mut out);
        out.to_vec()
    };
    for _ in 0..3 {
        next(&secret);
    }
    assert_eq!(next(&secret), hex("be"));
    secret.set_sensitive(true);
    for _ in 0..3 {
        assert_eq!(next(&secret), hex("1f08 01 73"));
    }
}

#[test]
fn a_change_of_the_table_size_is_announced_once() {
    for (sizes, expected) in [
        (&[4096][..], ""),
        (&[8192], ""),
        (&[u32::MAX], ""),
        (&[100], "3f45"),
        (&[0], "20"),
        (&[0, 4096], "20 3fe11f"),
        (&[100, 0, 200, 100], "20 3f45"),
        (&[200, 100], "3f45"),
    ] {
        let mut encoder = Encoder::new();
        for &size in sizes {
            encoder.set_max_table_size(size);
        }
        let field = hex("0f2d 01 61");
        let block = encode(&mut encoder, "via", "a");
        assert_eq!(block[..], [hex(expected), field].concat(), "{sizes:?}");
        let next = encode(&mut encoder, "via", "b");
        assert_eq!(next[..], hex("0f2d 01 62"), "{sizes:?}");
    }
}

#[test]
fn a_larger_table_is_announced_too() {
    let mut encoder = Encoder::new();
    encoder.set_max_table_size(100);
    encode(&mut encoder, "via", "a");
    encoder.set_max_table_size(200);
    let mut out = BytesMut::new();
    encoder.pseudo(Pseudo::Method, b"POST", &mut out);
    assert_eq!(out[..], hex("3fa901 83"));
}

#[test]
fn a_smaller_table_forgets() {
    let mut encoder = Encoder::new();
    for _ in 0..3 {
        encode(&mut encoder, "via", "a");
    }
    assert_eq!(encode(&mut encoder, "via", "a")[..], hex("be"));
    encoder.set_max_table_size(35);
    encoder.set_max_table_size(4096);
    assert_eq!(
        encode(&mut encoder, "via", "a")[..],
        hex("3f04 3fe11f 7c 01 61")
    );
    assert_eq!(encode(&mut encoder, "via", "a")[..], hex("be"));
}

#[test]
fn nothing_is_indexed_without_a_table() {
    let mut encoder = Encoder::new();
    encoder.set_max_table_size(0);
    encode(&mut encoder, "via", "");
    for _ in 0..3 {
        assert_eq!(encode(&mut encoder, "via", "")[..], hex("0f2d 00"));
    }
}

/// A call of gRPC: seven fields.
fn call(encoder: &mut Encoder) -> BytesMut {
    let mut out = BytesMut::new();
    encoder.pseudo(Pseudo::Method, b"POST", &mut out);
    encoder.pseudo(Pseudo::Scheme, b"http", &mut out);
    encoder.pseudo(Pseudo::Authority, b"greeter.example.com", &mut out);
    encoder.pseudo(Pseudo::Path, b"/helloworld.Greeter/SayHello", &mut out);
    for (name, value) in [
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "crowfly"),
    ] {
        out.extend_from_slice(&encode(encoder, name, value));
    }
    out
}
