//! Tests of the encoder and the decoder, and the helpers that they share.

mod encode;
mod limits;
mod malformed;
mod random;
mod rfc;
mod stories;

use bytes::BytesMut;
use http::{HeaderName, HeaderValue, StatusCode};

use super::{Decoded, Decoder, Encoder, HpackError, ListSize};

/// The bytes of a hex dump.
fn hex(dump: &str) -> Vec<u8> {
    let digits: Vec<u32> = dump.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect()
}

fn field(name: &str, value: &str) -> Decoded {
    Decoded::Field(
        HeaderName::try_from(name).unwrap(),
        HeaderValue::try_from(value).unwrap(),
    )
}

fn status(code: u16) -> Decoded {
    Decoded::Status(StatusCode::from_u16(code).unwrap())
}

/// The fields of a block that is within all limits.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Decoded>, HpackError> {
    let (fields, size) = decode_within(decoder, block, usize::MAX)?;
    assert_eq!(size, ListSize::Within);
    Ok(fields)
}

/// The fields of a block that are within a limit, and whether all are.
fn decode_within(
    decoder: &mut Decoder,
    block: &[u8],
    limit: usize,
) -> Result<(Vec<Decoded>, ListSize), HpackError> {
    let (mut fields, mut list) = (Vec::new(), ListSize::Within);
    decoder.decode(block, limit, |field, size| match size {
        ListSize::Within => fields.push(field),
        ListSize::Exceeded => list = size,
    })?;
    Ok((fields, list))
}

/// The block of one field.
fn encode(encoder: &mut Encoder, name: &str, value: &str) -> BytesMut {
    let mut out = BytesMut::new();
    let (name, value) = (
        HeaderName::try_from(name).unwrap(),
        HeaderValue::try_from(value).unwrap(),
    );
    encoder.field(&name, &value, &mut out);
    out
}
