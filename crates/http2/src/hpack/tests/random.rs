//! Tests with random input: nothing panics, and encoded fields are decoded again.
//!
//! A server can send any bytes, and examples cannot cover them all.

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::decode;
use crate::hpack::{Decoded, Decoder, Encoder, ListSize, Pseudo, huffman};

proptest! {
    /// The size of the table changes between blocks. The pseudo headers are for the servers to read, but take part in
    /// the table.
    #[test]
    fn what_is_encoded_is_decoded_again(steps in vec(step(), 1..40)) {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(4096);
        for step in steps {
            let (path, fields) = match step {
                Step::Resize(size) => {
                    encoder.set_max_table_size(size);
                    continue;
                }
                Step::Block(path, fields) => (path, fields),
            };
            let mut block = BytesMut::new();
            encoder.pseudo(Pseudo::Path, path.as_bytes(), &mut block);
            for (name, value) in &fields {
                encoder.field(name, value, &mut block);
            }
            let decoded = decode(&mut decoder, &block).unwrap();
            prop_assert!(matches!(decoded[0], Decoded::Malformed(_)));
            let fields: Vec<_> =
                fields.into_iter().map(|(name, value)| Decoded::Field(name, value)).collect();
            prop_assert_eq!(&decoded[1..], fields);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(blocks in vec(block(), 1..8), limit in 0..2000_usize) {
        let mut decoder = Decoder::new(300);
        for block in blocks {
            let mut size = 0;
            let result = decoder.decode(&block, limit, |decoded, list| {
                size += if list == ListSize::Within { list_size(&decoded) } else { 0 };
            });
            prop_assert!(size <= limit);
            if result.is_err() {
                break;
            }
        }
    }

    #[test]
    fn huffman_codes_are_decoded_again(text in vec(any::<u8>(), 0..200)) {
        let mut decoded = b"kept ".to_vec();
        huffman::decode(&huffman::encode(&text), &mut decoded).unwrap();
        prop_assert_eq!(&decoded[5..], text);
    }

    /// A string has one code only, so the decoder accepts a code only if encoding gives the same code again.
    #[test]
    fn any_other_huffman_code_is_refused(
        start in vec(any::<u8>(), 0..20),
        ones in 0..5_usize,
    ) {
        let code = [start, vec![0xff; ones]].concat();
        let mut decoded = Vec::new();
        if huffman::decode(&code, &mut decoded).is_ok() {
            prop_assert_eq!(huffman::encode(&decoded), code);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Block(&'static str, Vec<(HeaderName, HeaderValue)>),
    Resize(u32),
}

/// Few names and values, so that they repeat.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (select(vec!["/a", "/b", "/c"]), vec(header(), 0..12))
            .prop_map(|(path, fields)| Step::Block(path, fields)),
        1 => prop_oneof![0..300_u32, Just(4096), Just(65_536)].prop_map(Step::Resize),
    ]
}

fn header() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let name = select(vec![
        "x",
        "y",
        "x-longer-than-the-others",
        "content-type",
        "via",
    ]);
    let value = prop_oneof![
        8 => select(vec!["", "a", "b", "ab"]).prop_map(Vec::from),
        1 => (128..=255_u8, 0..1200_usize).prop_map(|(byte, len)| vec![byte; len]),
    ];
    (name, value, 0..6_u8).prop_map(|(name, value, die)| {
        let mut value = HeaderValue::from_bytes(&value).unwrap();
        value.set_sensitive(die == 0);
        (HeaderName::from_static(name), value)
    })
}

/// Bytes that are often nearly right.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let string = (0..20_u8, any::<bool>()).prop_map(|(len, is_huffman)| {
        let text = vec![b'a' + len; len.into()];
        match is_huffman {
            true => prefixed(0x80, &huffman::encode(&text)),
            false => prefixed(0, &text),
        }
    });
    let string = string.boxed();
    let named = (
        prop_oneof![Just(0x40), Just(0x00), Just(0x10)],
        string.clone(),
        string.clone(),
    )
        .prop_map(|(first, name, value)| [vec![first], name, value].concat());
    let indexed = prop_oneof![0x80..0xc2_u8, 0x41..0x44_u8, 0x01..0x0f_u8];
    let name_indexed = (indexed, string).prop_map(|(first, value)| match first {
        0x80.. => vec![first],
        _ => [vec![first], value].concat(),
    });
    let noise = vec(any::<u8>(), 0..10);
    vec(
        prop_oneof![6 => named, 6 => name_indexed, 1 => noise],
        0..20,
    )
    .prop_map(|parts| parts.concat())
}

fn prefixed(flag: u8, string: &[u8]) -> Vec<u8> {
    [&[flag | string.len() as u8], string].concat()
}

fn list_size(decoded: &Decoded) -> usize {
    match decoded {
        Decoded::Field(name, value) => name.as_str().len() + value.len() + 32,
        Decoded::Malformed(_) => 32,
        Decoded::Status(_) => 7 + 3 + 32,
    }
}
