//! The requests' half: fields become bytes.
//!
//! The calls of a channel are alike: one authority, few paths, one `te`, `content-type` and `user-agent`. These fields
//! should be one byte each. Fields that differ per call (`grpc-timeout`, `traceparent`, request ids) should not push
//! the others out of the table. So a field is added to the table when it is sent for the *second* time within a short
//! time. Then no list of names is needed, and a value that never repeats never enters.
//!
//! Strings are not Huffman coded. On a busy connection nearly all fields are indexed, and the others are
//! not worth the time and the code.

use bytes::{BufMut, BytesMut};
use http::{HeaderName, HeaderValue};

use super::table::{self, DynamicTable};

/// Encodes the header blocks of one connection, in the order in which they are sent.
#[derive(Debug)]
pub(crate) struct Encoder {
    table: DynamicTable<SentField>,
    /// The smallest size of the table since the last block, if it changed.
    resized: Option<usize>,
    seen: Seen,
}

impl Encoder {
    pub(crate) const fn new() -> Self {
        Self {
            table: DynamicTable::new(table::DEFAULT_SIZE),
            resized: None,
            seen: Seen::new(),
        }
    }

    /// Obeys the peer's SETTINGS_HEADER_TABLE_SIZE. A size above the default is not used.
    ///
    /// The method must be called between blocks, because the next block starts with the new size (RFC 7541 4.2).
    pub(crate) fn set_max_table_size(&mut self, size: u32) {
        let size = (size as usize).min(table::DEFAULT_SIZE);
        if size == self.table.max_size() {
            return;
        }
        self.table.set_max_size(size);
        self.resized = Some(self.resized.map_or(size, |smallest| smallest.min(size)));
    }

    /// Adds a pseudo header to the block. All pseudo headers must be added before the first field.
    pub(crate) fn pseudo(&mut self, name: Pseudo, value: &[u8], out: &mut BytesMut) {
        self.announce_size(out);
        match name.static_field(value) {
            Some(index) => integer(INDEXED, index, out),
            None => self.put(name.as_str(), value, || Some(name.static_name()), out),
        }
    }

    /// Adds a field to the block. A sensitive value enters no table, here or on the way
    /// (RFC 7541 6.2.3).
    pub(crate) fn field(&mut self, name: &HeaderName, value: &HeaderValue, out: &mut BytesMut) {
        self.announce_size(out);
        let static_name = || table::static_name(name);
        let (name, bytes) = (name.as_str(), value.as_bytes());
        if value.is_sensitive() {
            let index = self.name_index(name, static_name);
            return literal(NEVER_INDEXED, index, name, bytes, out);
        }
        self.put(name, bytes, static_name, out);
    }

    fn put(
        &mut self,
        name: &str,
        value: &[u8],
        static_name: impl FnOnce() -> Option<usize>,
        out: &mut BytesMut,
    ) {
        let hash = hash(name.as_bytes(), value);
        if let Some(place) = self.table.position(|entry| entry.is(hash, name, value)) {
            return integer(INDEXED, table::FIRST_DYNAMIC + place, out);
        }
        let index = self.name_index(name, static_name);
        if self.is_worth_a_place(name, value, hash) {
            literal(INDEXING, index, name, value, out);
            self.table.insert(SentField::new(hash, name, value));
        } else {
            literal(NOT_INDEXED, index, name, value, out);
        }
    }

    /// The index of an entry with this name, or 0.
    fn name_index(&self, name: &str, static_name: impl FnOnce() -> Option<usize>) -> usize {
        let recent =
            || Some(table::FIRST_DYNAMIC + self.table.position(|e| e.name() == name.as_bytes())?);
        static_name().or_else(recent).unwrap_or(0)
    }

    /// True if a field should enter the table. One that takes over a quarter of it would push out too many
    /// others.
    fn is_worth_a_place(&mut self, name: &str, value: &[u8], hash: u32) -> bool {
        table::field_size(name.len(), value.len()) <= self.table.max_size() / 4
            && self.seen.again(hash)
    }

    /// Starts a block with the new size of the table, if it changed. A smaller size in between is announced
    /// too, because the peer must evict the fields that were evicted here (RFC 7541 4.2).
    fn announce_size(&mut self, out: &mut BytesMut) {
        let Some(smallest) = self.resized.take() else {
            return;
        };
        let size = self.table.max_size();
        if smallest < size {
            integer(TABLE_SIZE, smallest, out);
        }
        integer(TABLE_SIZE, size, out);
    }
}

/// The pseudo headers of requests (RFC 9113 8.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pseudo {
    Authority,
    Method,
    Path,
    Scheme,
}

impl Pseudo {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Authority => ":authority",
            Self::Method => ":method",
            Self::Path => ":path",
            Self::Scheme => ":scheme",
        }
    }

    /// The index of the static table with this name.
    const fn static_name(self) -> usize {
        match self {
            Self::Authority => 1,
            Self::Method => 2,
            Self::Path => 4,
            Self::Scheme => 6,
        }
    }

    /// The index of the static table with this name and value.
    fn static_field(self, value: &[u8]) -> Option<usize> {
        match (self, value) {
            (Self::Method, b"GET") => Some(2),
            (Self::Method, b"POST") => Some(3),
            (Self::Path, b"/") => Some(4),
            (Self::Scheme, b"http") => Some(6),
            (Self::Scheme, b"https") => Some(7),
            _ => None,
        }
    }
}

/// A field that was sent, in the dynamic table.
#[derive(Debug)]
struct SentField {
    hash: u32,
    name_len: u32,
    /// Name and value. The text is a copy, because a value may be a slice of a large buffer.
    text: Box<[u8]>,
}

impl SentField {
    fn new(hash: u32, name: &str, value: &[u8]) -> Self {
        let text = [name.as_bytes(), value].concat().into_boxed_slice();
        Self {
            hash,
            name_len: name.len() as u32,
            text,
        }
    }

    fn name(&self) -> &[u8] {
        &self.text[..self.name_len as usize]
    }

    fn value(&self) -> &[u8] {
        &self.text[self.name_len as usize..]
    }

    fn is(&self, hash: u32, name: &str, value: &[u8]) -> bool {
        self.hash == hash && self.name() == name.as_bytes() && self.value() == value
    }
}

impl table::TableEntry for SentField {
    fn size(&self) -> usize {
        table::field_size(self.text.len(), 0)
    }
}

/// The last fields that were sent but are not in the table, by half of their hashes. Two fields of one hash
/// cost a place in the table and do no other harm.
#[derive(Debug)]
struct Seen {
    hashes: [u16; 32],
    next: u8,
}

impl Seen {
    const fn new() -> Self {
        Self {
            hashes: [0; 32],
            next: 0,
        }
    }

    /// True if the field was seen before. The field counts as seen from now on.
    fn again(&mut self, hash: u32) -> bool {
        let hash = hash as u16;
        if self.hashes.contains(&hash) {
            return true;
        }
        self.hashes[usize::from(self.next)] = hash;
        self.next = (self.next + 1) % 32;
        false
    }
}

/// A hash of eight bytes at a time. The hash need not withstand an attack, because fields that collide are still told
/// apart.
fn hash(name: &[u8], value: &[u8]) -> u32 {
    let add =
        |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut hash = 0;
    for text in [name, value] {
        let (words, rest) = text.as_chunks();
        for &word in words {
            hash = add(hash, u64::from_le_bytes(word));
        }
        let rest = rest
            .iter()
            .fold(text.len() as u64, |word, &byte| word << 8 | u64::from(byte));
        hash = add(hash, rest);
    }
    (hash >> 32) as u32
}

/// The kinds of representation (RFC 7541 6): the first bits, and how many bits follow in the byte.
type Kind = (u8, u32);

const INDEXED: Kind = (0x80, 7);
const INDEXING: Kind = (0x40, 6);
const NEVER_INDEXED: Kind = (0x10, 4);
const NOT_INDEXED: Kind = (0x00, 4);
const TABLE_SIZE: Kind = (0x20, 5);

/// The string that follows is not Huffman coded (RFC 7541 5.2).
const PLAIN_STRING: Kind = (0x00, 7);

fn literal(kind: Kind, name_index: usize, name: &str, value: &[u8], out: &mut BytesMut) {
    integer(kind, name_index, out);
    if name_index == 0 {
        string(name.as_bytes(), out);
    }
    string(value, out);
}

fn string(string: &[u8], out: &mut BytesMut) {
    integer(PLAIN_STRING, string.len(), out);
    out.put_slice(string);
}

/// An integer with the first bits of its kind before it (RFC 7541 5.1).
fn integer((first_bits, prefix): Kind, mut value: usize, out: &mut BytesMut) {
    let mask = (1 << prefix) - 1;
    if value < mask {
        return out.put_u8(first_bits | value as u8);
    }
    out.put_u8(first_bits | mask as u8);
    value -= mask;
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_the_same_hash_are_told_apart() {
        let entry = SentField::new(7, "x", b"yz");
        assert!(entry.is(7, "x", b"yz"));
        for (hash, name, value) in [
            (8, "x", "yz"),
            (7, "x", "ya"),
            (7, "a", "yz"),
            (7, "xy", "z"),
        ] {
            assert!(
                !entry.is(hash, name, value.as_bytes()),
                "{hash} {name} {value}"
            );
        }
    }
}
