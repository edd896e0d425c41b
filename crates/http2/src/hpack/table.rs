//! The two tables that indexes refer to (RFC 7541 2.3): fields known to all, and recent ones.
//!
//! Both halves of HPACK use the same tables. The tables differ in the type of their entries, because a decoder needs
//! typed fields and an encoder compares bytes.

use std::collections::VecDeque;

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::Decoded;

/// The size of a dynamic table until SETTINGS change it (RFC 9113 6.5.2).
pub(super) const DEFAULT_SIZE: usize = 4096;

/// The index of the newest entry of the dynamic table.
pub(super) const FIRST_DYNAMIC: usize = STATIC.len() + 1;

/// The entry at an index of the static table.
pub(super) fn static_field(index: usize) -> Option<&'static Field> {
    STATIC.get(index.checked_sub(1)?)
}

/// The first index of the static table with this name.
pub(super) fn static_name(name: &HeaderName) -> Option<usize> {
    let same = |field: &Field| matches!(&field.name, Name::Header(known) if known == name);
    STATIC.iter().position(same).map(|place| place + 1)
}

/// The size of a field in a dynamic table or a header list (RFC 7541 4.1, RFC 9113 6.5.2).
pub(super) const fn field_size(name: usize, value: usize) -> usize {
    name + value + 32
}

/// A dynamic table (RFC 7541 2.3.2): the newest entries that fit.
#[derive(Debug)]
pub(super) struct DynamicTable<E> {
    entries: VecDeque<E>, // the newest first
    size: usize,
    max_size: usize,
}

impl<E: TableEntry> DynamicTable<E> {
    pub(super) const fn new(max_size: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max_size,
        }
    }

    pub(super) const fn max_size(&self) -> usize {
        self.max_size
    }

    /// The entry at a place, counted from the newest.
    pub(super) fn get(&self, place: usize) -> Option<&E> {
        self.entries.get(place)
    }

    /// The place of the newest entry that `is_it` is true of.
    pub(super) fn position(&self, is_it: impl FnMut(&E) -> bool) -> Option<usize> {
        self.entries.iter().position(is_it)
    }

    /// Adds an entry. One larger than the table empties it and is not added (RFC 7541 4.4).
    pub(super) fn insert(&mut self, entry: E) {
        let size = entry.size();
        self.evict_to(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            // From one to two, to four and so on: `push_front` begins with four, and a connection of few
            // calls has fewer.
            if self.entries.len() == self.entries.capacity() {
                self.entries.reserve_exact(self.entries.len().max(1));
            }
            self.entries.push_front(entry);
        }
    }

    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
        self.entries.shrink_to_fit();
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size();
        }
    }
}

/// An entry of a dynamic table.
pub(super) trait TableEntry {
    /// See [`field_size`].
    fn size(&self) -> usize;
}

/// A field of a response as the tables hold it: cheap to clone, and typed if HTTP allows it.
///
/// A malformed half leaves the other in use: later fields may refer to the name alone.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: Name,
    pub(super) value: Value,
}

impl Field {
    const fn header(name: HeaderName, value: &'static str) -> Self {
        Self {
            name: Name::Header(name),
            value: Value::known(value),
        }
    }

    const fn status(value: &'static str) -> Self {
        Self {
            name: Name::Status,
            value: Value::known(value),
        }
    }

    /// A pseudo header of requests.
    const fn request(name: &'static str, value: &'static str) -> Self {
        let name = Name::Malformed {
            why: NOT_OF_RESPONSES,
            len: name.len(),
        };
        Self {
            name,
            value: Value::known(value),
        }
    }
}

impl TableEntry for Field {
    fn size(&self) -> usize {
        field_size(self.name.len(), self.value.len())
    }
}

impl From<Field> for Decoded {
    fn from(field: Field) -> Self {
        match (field.name, field.value) {
            (Name::Malformed { why, .. }, _) | (_, Value::Malformed { why, .. }) => {
                Self::Malformed(why)
            }
            (Name::Status, Value::Valid(value)) => StatusCode::from_bytes(value.as_bytes()).map_or(
                Self::Malformed("a :status that is no status code"),
                Self::Status,
            ),
            (Name::Header(name), Value::Valid(value)) => Self::Field(name, value),
        }
    }
}

/// The name of a [`Field`].
#[derive(Clone, Debug)]
pub(super) enum Name {
    Header(HeaderName),
    Malformed { why: &'static str, len: usize },
    Status,
}

impl Name {
    pub(super) fn parse(name: &[u8]) -> Self {
        if name == b":status" {
            return Self::Status;
        }
        let malformed = |why| Self::Malformed {
            why,
            len: name.len(),
        };
        if name.starts_with(b":") {
            return malformed(NOT_OF_RESPONSES);
        }
        match HeaderName::from_lowercase(name) {
            Ok(name) => Self::Header(name),
            Err(_) => malformed("a header name with a character that none may have"),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Header(name) => name.as_str().len(),
            Self::Malformed { len, .. } => *len,
            Self::Status => ":status".len(),
        }
    }
}

/// The value of a [`Field`].
#[derive(Clone, Debug)]
pub(super) enum Value {
    Malformed { why: &'static str, len: usize },
    Valid(HeaderValue),
}

impl Value {
    const fn known(value: &'static str) -> Self {
        Self::Valid(HeaderValue::from_static(value))
    }

    /// Reads a value. Spaces at the ends are accepted, although they are malformed by RFC 9113 8.2.1. A
    /// `grpc-message` may end in one, and its status must not be lost.
    pub(super) fn parse(value: &[u8]) -> Self {
        HeaderValue::from_bytes(value).map_or(
            Self::Malformed {
                why: "a header value with a byte that none may have",
                len: value.len(),
            },
            Self::Valid,
        )
    }

    fn len(&self) -> usize {
        match self {
            Self::Malformed { len, .. } => *len,
            Self::Valid(value) => value.len(),
        }
    }
}

const NOT_OF_RESPONSES: &str = "a pseudo header other than :status";

/// RFC 7541 Appendix A, as responses see it.
static STATIC: [Field; 61] = [
    Field::request(":authority", ""),
    Field::request(":method", "GET"),
    Field::request(":method", "POST"),
    Field::request(":path", "/"),
    Field::request(":path", "/index.html"),
    Field::request(":scheme", "http"),
    Field::request(":scheme", "https"),
    Field::status("200"),
    Field::status("204"),
    Field::status("206"),
    Field::status("304"),
    Field::status("400"),
    Field::status("404"),
    Field::status("500"),
    Field::header(header::ACCEPT_CHARSET, ""),
    Field::header(header::ACCEPT_ENCODING, "gzip, deflate"),
    Field::header(header::ACCEPT_LANGUAGE, ""),
    Field::header(header::ACCEPT_RANGES, ""),
    Field::header(header::ACCEPT, ""),
    Field::header(header::ACCESS_CONTROL_ALLOW_ORIGIN, ""),
    Field::header(header::AGE, ""),
    Field::header(header::ALLOW, ""),
    Field::header(header::AUTHORIZATION, ""),
    Field::header(header::CACHE_CONTROL, ""),
    Field::header(header::CONTENT_DISPOSITION, ""),
    Field::header(header::CONTENT_ENCODING, ""),
    Field::header(header::CONTENT_LANGUAGE, ""),
    Field::header(header::CONTENT_LENGTH, ""),
    Field::header(header::CONTENT_LOCATION, ""),
    Field::header(header::CONTENT_RANGE, ""),
    Field::header(header::CONTENT_TYPE, ""),
    Field::header(header::COOKIE, ""),
    Field::header(header::DATE, ""),
    Field::header(header::ETAG, ""),
    Field::header(header::EXPECT, ""),
    Field::header(header::EXPIRES, ""),
    Field::header(header::FROM, ""),
    Field::header(header::HOST, ""),
    Field::header(header::IF_MATCH, ""),
    Field::header(header::IF_MODIFIED_SINCE, ""),
    Field::header(header::IF_NONE_MATCH, ""),
    Field::header(header::IF_RANGE, ""),
    Field::header(header::IF_UNMODIFIED_SINCE, ""),
    Field::header(header::LAST_MODIFIED, ""),
    Field::header(header::LINK, ""),
    Field::header(header::LOCATION, ""),
    Field::header(header::MAX_FORWARDS, ""),
    Field::header(header::PROXY_AUTHENTICATE, ""),
    Field::header(header::PROXY_AUTHORIZATION, ""),
    Field::header(header::RANGE, ""),
    Field::header(header::REFERER, ""),
    Field::header(header::REFRESH, ""),
    Field::header(header::RETRY_AFTER, ""),
    Field::header(header::SERVER, ""),
    Field::header(header::SET_COOKIE, ""),
    Field::header(header::STRICT_TRANSPORT_SECURITY, ""),
    Field::header(header::TRANSFER_ENCODING, ""),
    Field::header(header::USER_AGENT, ""),
    Field::header(header::VARY, ""),
    Field::header(header::VIA, ""),
    Field::header(header::WWW_AUTHENTICATE, ""),
];
