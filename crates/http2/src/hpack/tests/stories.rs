//! Header blocks of a foreign encoder: `tests/hpack`, made by its `make.py`.
//!
//! Our encoder and decoder could share a mistake, so the decoder needs input that is not ours.

use std::fs;
use std::path::Path;

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};

use super::{decode, hex};
use crate::hpack::{Decoded, Decoder, Encoder, Pseudo};

/// RFC 7541: requests and responses of gRPC and of the web, in Huffman code and without, with tables of
/// any size and of changing sizes. Each field is decoded to the value that was encoded.
#[test]
fn header_blocks_of_another_encoder_are_decoded() {
    let mut blocks = 0;
    for story in stories() {
        for (encoding, label) in story.encodings.iter().enumerate() {
            let mut decoder = Decoder::new(4096);
            for block in &story.blocks {
                let decoded = decode(&mut decoder, &block.wires[encoding]);
                assert_eq!(decoded, Ok(block.decoded()), "{}, {label}", story.name);
                blocks += 1;
            }
        }
    }
    assert!(blocks >= 400, "only {blocks} blocks");
}

/// The lists of the stories go through our encoder, and back.
#[test]
fn the_stories_go_there_and_back() {
    for story in stories() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for block in &story.blocks {
            let mut wire = BytesMut::new();
            for (name, value) in &block.fields {
                match pseudo(name) {
                    Some(name) => encoder.pseudo(name, value, &mut wire),
                    // Ours is a client: it has no status to send.
                    None if name == ":status" => {}
                    None => encoder.field(&header(name), &bytes(value), &mut wire),
                }
            }
            let mut expected = block.decoded();
            expected.retain(|field| !matches!(field, Decoded::Status(_)));
            assert_eq!(decode(&mut decoder, &wire), Ok(expected), "{}", story.name);
        }
    }
}

struct Story {
    name: String,
    encodings: Vec<String>,
    blocks: Vec<Block>,
}

#[derive(Default)]
struct Block {
    fields: Vec<(String, Vec<u8>)>,
    /// One block for each encoding.
    wires: Vec<Vec<u8>>,
}

impl Block {
    /// The field as the decoder of a client reads it, which has no place for a request's pseudo headers.
    fn decoded(&self) -> Vec<Decoded> {
        let decoded = |(name, value): &(String, Vec<u8>)| match name.as_str() {
            ":status" => Decoded::Status(value.as_slice().try_into().unwrap()),
            name if name.starts_with(':') => {
                Decoded::Malformed("a pseudo header other than :status")
            }
            name => Decoded::Field(header(name), bytes(value)),
        };
        self.fields.iter().map(decoded).collect()
    }
}

fn stories() -> Vec<Story> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hpack");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let texts = files.filter(|file| file.extension().is_some_and(|ending| ending == "txt"));
    texts
        .map(|file| parse(&fs::read_to_string(file).unwrap()))
        .collect()
}

/// Reads the format that `make.py` describes.
fn parse(text: &str) -> Story {
    let mut story = Story {
        name: String::new(),
        encodings: Vec::new(),
        blocks: Vec::new(),
    };
    for line in text.lines() {
        match (line.split_once(['\t', ' ']), story.blocks.last_mut()) {
            (Some(("story", name)), None) => story.name = name.to_owned(),
            (Some(("encoding", label)), None) => story.encodings.push(label.to_owned()),
            (Some(("=", wire)), Some(block)) => block.wires.push(hex(wire)),
            (Some((name, value)), Some(block)) => {
                block.fields.push((name.to_owned(), unescape(value)));
            }
            _ => story.blocks.push(Block::default()),
        }
    }
    let count = story.encodings.len();
    let is_whole = |block: &Block| block.wires.len() == count;
    assert!(story.blocks.iter().all(is_whole), "{}", story.name);
    story
}

/// `\xNN` is a byte.
fn unescape(value: &str) -> Vec<u8> {
    let mut parts = value.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.extend(hex(&part[..2]));
        bytes.extend(&part.as_bytes()[2..]);
    }
    bytes
}

fn pseudo(name: &str) -> Option<Pseudo> {
    match name {
        ":authority" => Some(Pseudo::Authority),
        ":method" => Some(Pseudo::Method),
        ":path" => Some(Pseudo::Path),
        ":scheme" => Some(Pseudo::Scheme),
        _ => None,
    }
}

fn header(name: &str) -> HeaderName {
    name.try_into().unwrap()
}

fn bytes(value: &[u8]) -> HeaderValue {
    value.try_into().unwrap()
}
