//! Decoding of messages by the rule of protobuf for a field with an unexpected wire type: it is an unknown
//! field, and is ignored.
//!
//! prost breaks this rule and refuses the whole message, even if no code reads the field. This module then decodes each
//! field alone, and leaves out the fields that prost refuses for their wire type. The module needs no schema for that,
//! because an encoded message is the sequence of its fields.

use prost::{
    DecodeError, Message,
    encoding::{
        DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
    },
};

/// The budget for each byte of a message that prost refused: bytes that may be copied and decoded. After
/// that, the message stays refused, because a field is decoded again for each message around it.
const LOOKS: usize = 64;

/// The budget, in bytes, that every message has on top, because a small message can be deep.
const ALLOWANCE: usize = 1 << 20;

/// Decodes a `P` without the fields that have an unexpected wire type.
///
/// ```
/// use envoy_types::pb::envoy::config::core::v3::Locality;
///
/// // Field 1, the region, is a text and no number; field 2 is the zone.
/// let bytes = [0x08, 0x01, 0x12, 0x01, b'a'];
/// let locality: Locality = crowfly_model::wire::decode(&bytes).unwrap();
/// assert_eq!((&*locality.region, &*locality.zone), ("", "a"));
/// ```
///
/// # Errors
/// The bytes are not a `P`, for another reason than a wire type.
pub fn decode<P: Message + Default>(bytes: &[u8]) -> Result<P, DecodeError> {
    match P::decode(bytes) {
        Err(error) if is_mismatch(&error) => {
            let mut sieve = Sieve {
                decode: &|bytes| P::decode(bytes).map(drop),
                budget: bytes.len().saturating_mul(LOOKS).saturating_add(ALLOWANCE),
                path: Vec::new(),
            };
            match sieve.strip(bytes) {
                Some(stripped) => P::decode(stripped.as_slice()),
                None => Err(error),
            }
        }
        other => other,
    }
}

/// True if prost refused a wire type. Only the text says so, because a `DecodeError` has no kind.
fn is_mismatch(error: &DecodeError) -> bool {
    error.to_string().contains("invalid wire type: ")
}

struct Sieve<'a> {
    /// Decodes the whole message, for the error alone.
    decode: &'a dyn Fn(&[u8]) -> Result<(), DecodeError>,
    /// The number of bytes that may still be copied and decoded.
    budget: usize,
    /// The numbers of the fields from the whole message to the one that is being read.
    path: Vec<u32>,
}

impl Sieve<'_> {
    /// The message at the current path without the fields that do not fit. `None` if the bytes are not a
    /// message, or the budget is spent.
    fn strip(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut kept = Vec::with_capacity(message.len());
        let mut rest = message;
        while !rest.is_empty() {
            let field = Field::split_off(&mut rest)?;
            if self.fits(field.bytes)? {
                kept.extend_from_slice(field.bytes);
                continue;
            }
            // If the field would fit when empty, one of the fields inside it does not fit.
            let Some(content) = field.content else {
                continue;
            };
            if self.fits(&with_content(field.number, &[]))? {
                self.path.push(field.number);
                let content = self.strip(content);
                self.path.pop();
                kept.extend(with_content(field.number, &content?));
            }
        }
        Some(kept)
    }

    /// False if prost refuses the field at the current path for its wire type. `None` if the budget is spent.
    fn fits(&mut self, field: &[u8]) -> Option<bool> {
        let mut message = field.to_vec();
        for number in self.path.iter().rev() {
            self.budget = self.budget.checked_sub(message.len())?;
            message = with_content(*number, &message);
        }
        self.budget = self.budget.checked_sub(message.len())?;
        Some(!(self.decode)(&message).is_err_and(|error| is_mismatch(&error)))
    }
}

/// One field as it is in a message.
struct Field<'a> {
    number: u32,
    /// The whole field: key, length and content.
    bytes: &'a [u8],
    /// The bytes after its length, if it has one.
    content: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    /// Takes the first field off `rest`; `None` if `rest` does not begin with a whole field.
    fn split_off(rest: &mut &'a [u8]) -> Option<Self> {
        let start = *rest;
        let (number, wire_type) = decode_key(rest).ok()?;
        let content = if wire_type == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
            let (content, after) = rest.split_at_checked(length)?;
            *rest = after;
            Some(content)
        } else {
            skip_field(wire_type, number, rest, DecodeContext::default()).ok()?;
            None
        };
        Some(Self {
            number,
            bytes: &start[..start.len() - rest.len()],
            content,
        })
    }
}

/// Encodes a length-delimited field, such as a message or a string.
fn with_content(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(content.len() + 16);
    encode_key(number, WireType::LengthDelimited, &mut field);
    encode_varint(content.len() as u64, &mut field);
    field.extend_from_slice(content);
    field
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use envoy_types::pb::{
        envoy::config::{
            core::v3::{Locality, Metadata},
            endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints},
        },
        google::protobuf::{Struct, Value},
    };
    use proptest::prelude::*;

    use super::*;

    fn message() -> ClusterLoadAssignment {
        let locality = LocalityLbEndpoints {
            locality: Some(Locality {
                region: "eu".to_owned(),
                ..Locality::default()
            }),
            priority: 7,
            metadata: Some(Metadata {
                filter_metadata: [("x".to_owned(), Struct::default())].into(),
                ..Metadata::default()
            }),
            ..LocalityLbEndpoints::default()
        };
        ClusterLoadAssignment {
            cluster_name: "a".to_owned(),
            endpoints: vec![locality.clone(), locality],
            ..ClusterLoadAssignment::default()
        }
    }

    fn varint(number: u32) -> Vec<u8> {
        let mut field = Vec::new();
        encode_key(number, WireType::Varint, &mut field);
        field.push(1);
        field
    }

    /// Each case has a field of another wire type than its number has in the message, at some depth.
    #[test]
    fn fields_of_another_type_are_passed_over_at_any_depth() {
        let cases = [
            // policy, a message
            varint(4),
            // endpoints, a list of messages
            [varint(2), varint(2)].concat(),
            // cluster_name, a text, as a group
            vec![0x0b, 0x08, 0x01, 0x0c],
            // endpoints.priority, a number
            with_content(2, &with_content(5, b"text")),
        ];
        for extra in cases {
            let bytes = [message().encode_to_vec(), extra.clone()].concat();
            assert!(ClusterLoadAssignment::decode(bytes.as_slice()).is_err());
            let read: ClusterLoadAssignment = decode(&bytes).unwrap();
            let mut expected = message();
            if extra.len() > 6 {
                expected.endpoints.push(LocalityLbEndpoints::default());
            }
            assert_eq!(read, expected, "{extra:?}");
        }
        // In the locality of a locality, where the rest of both is kept.
        let inner = [
            Locality {
                zone: "b".to_owned(),
                ..Locality::default()
            }
            .encode_to_vec(),
            varint(1),
        ]
        .concat();
        let outer = [with_content(1, &inner), varint(3), vec![0x28, 9]].concat();
        let read: ClusterLoadAssignment = decode(&with_content(2, &outer)).unwrap();
        let locality = read.endpoints[0].clone();
        assert_eq!(
            (&*locality.locality.unwrap().zone, locality.priority),
            ("b", 9)
        );
    }

    /// An error of any other kind is still an error.
    #[test]
    fn other_faults_are_not_mended() {
        let cases = [
            // No UTF-8.
            [varint(4), with_content(1, &[0xff])].concat(),
            // A length that is too long.
            [varint(4), vec![0x0a, 0x7f]].concat(),
            // No wire type.
            [varint(4), vec![0x0f]].concat(),
        ];
        for bytes in cases {
            assert!(
                decode::<ClusterLoadAssignment>(&bytes).is_err(),
                "{bytes:?}"
            );
        }
    }

    /// A message that is deep and wrong all over is given up when the budget is spent.
    #[test]
    fn effort_is_bounded() {
        let mut bytes = varint(3);
        for _ in 0..25 {
            // A list in a list: each has something in it that does not fit.
            bytes = [with_content(6, &with_content(1, &bytes)), varint(3)].concat();
        }
        let spent = Cell::new(0);
        let decode = |bytes: &[u8]| {
            spent.set(spent.get() + bytes.len());
            Value::decode(bytes).map(drop)
        };
        for (budget, expected) in [(1_000, false), (1_000_000, true)] {
            spent.set(0);
            let mut sieve = Sieve {
                decode: &decode,
                budget,
                path: Vec::new(),
            };
            assert_eq!(sieve.strip(&bytes).is_some(), expected);
            assert!(spent.get() <= budget, "{} of {budget}", spent.get());
        }
    }

    proptest! {
        /// Any bytes that prost decodes are decoded to the same message.
        #[test]
        fn bytes_that_prost_takes_are_read_alike(
            bytes in proptest::collection::vec(any::<u8>(), 0..64)
        ) {
            let read = decode::<ClusterLoadAssignment>(&bytes);
            if let Ok(expected) = ClusterLoadAssignment::decode(bytes.as_slice()) {
                prop_assert_eq!(read.unwrap(), expected);
            }
        }
    }
}
