//! Header compression (RFC 7541), for a client: requests are encoded, responses are decoded.
//!
//! An idle connection should hold almost nothing, so neither half allocates before its first use, and
//! neither keeps a buffer between blocks. Only the dynamic tables stay, with 4 kB at most by the
//! accounting of RFC 7541 4.1.
//!
//! - [`Encoder`] writes one field at a time into the caller's buffer. A change of the table size must come between two
//!   blocks, because the first field after it announces the new size.
//! - [`Decoder::decode`] reads one whole block (HEADERS and its CONTINUATIONs joined) and emits the fields as typed
//!   values. The decoder also counts the list's size (name + value + 32 per field, RFC 9113 6.5.2). Fields past the
//!   limit come with [`ListSize::Exceeded`]. The block is read to its end in any case, because the tables of both sides
//!   must stay in step.
//!
//! There are two kinds of errors. After [`HpackError`] the connection is lost, because the tables are out of
//! step (COMPRESSION_ERROR). After [`Decoded::Malformed`] only the stream is lost. The compression is sound
//! then, but the field is not allowed in a response (RFC 9113 8.1.1).

mod decoder;
mod encoder;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

use http::{HeaderName, HeaderValue, StatusCode};

pub(crate) use decoder::Decoder;
pub(crate) use encoder::{Encoder, Pseudo};

/// A field of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A header or a trailer.
    Field(HeaderName, HeaderValue),
    /// A field that makes the whole response malformed, with the reason.
    Malformed(&'static str),
    /// The `:status` pseudo header. The caller checks that it comes first and once.
    Status(StatusCode),
}

/// The size of a list up to and including a field, compared with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListSize {
    /// The list is larger than its limit. Neither the field nor any after it should be kept.
    Exceeded,
    /// The list is within its limit.
    Within,
}

/// A block that cannot be read. No later block can be read either, because the tables are out of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HpackError(pub(crate) &'static str);

impl HpackError {
    const HUFFMAN_EOS: Self = Self("a header block with an end of string inside a string");
    const HUFFMAN_PADDING: Self = Self("a header block with wrong padding of a string");
    const INTEGER_TOO_LARGE: Self = Self("a header block with an integer that is too large");
    const LATE_TABLE_SIZE: Self = Self("a header block with a table size after its first field");
    const NO_SUCH_FIELD: Self = Self("a header block with an index that is in no table");
    const TABLE_TOO_LARGE: Self = Self("a header block with a table size over the limit");
    const TRUNCATED: Self = Self("a header block that ends inside a field");
}
