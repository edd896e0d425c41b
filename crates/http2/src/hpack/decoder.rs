//! The responses' half: a block of bytes becomes typed fields.
//!
//! A block is read to its end even if its response is of no use, because the tables of both sides must stay
//! in step.

use super::table::{self, DynamicTable, Field, Name, TableEntry, Value};
use super::{Decoded, HpackError, ListSize, huffman};

/// Decodes the header blocks of one connection, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: DynamicTable<Field>,
    /// The largest size that the peer may set for the table.
    size_limit: usize,
}

impl Decoder {
    /// A decoder whose table may have the size that our SETTINGS allow. A table larger than the default has
    /// to be set by the peer. A smaller one holds from the start, because the peer has our SETTINGS before
    /// any request.
    pub(crate) fn new(max_table_size: usize) -> Self {
        Self {
            table: DynamicTable::new(max_table_size.min(table::DEFAULT_SIZE)),
            size_limit: max_table_size,
        }
    }

    /// Decodes a whole header block.
    ///
    /// Every field is emitted in order, together with the size of the list up to it, compared with
    /// `max_list_size`. The table stays in step with the peer's even if a list is too large or a field is
    /// malformed.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        max_list_size: usize,
        mut emit: impl FnMut(Decoded, ListSize),
    ) -> Result<(), HpackError> {
        let mut input = Reader {
            rest: block,
            scratch: Vec::new(),
        };
        let mut room = Room {
            left: Some(max_list_size),
        };
        let mut at_start = true;
        while let Some(&first) = input.rest.first() {
            match first {
                INDEXED.. => {
                    let field = self.field(input.integer(7)?)?;
                    emit(field.clone().into(), room.take(field));
                }
                INDEXING.. => {
                    let field = self.literal(&mut input, 6)?;
                    emit(field.clone().into(), room.take(&field));
                    self.table.insert(field);
                }
                TABLE_SIZE.. if at_start => {
                    self.resize(input.integer(5)?)?;
                    continue;
                }
                TABLE_SIZE.. => return Err(HpackError::LATE_TABLE_SIZE),
                _ => {
                    let field = self.literal(&mut input, 4)?;
                    let size = room.take(&field);
                    emit(field.into(), size);
                }
            }
            at_start = false;
        }
        Ok(())
    }

    /// The entry at an index of both tables (RFC 7541 2.3.3).
    fn field(&self, index: usize) -> Result<&Field, HpackError> {
        let recent = || self.table.get(index.checked_sub(table::FIRST_DYNAMIC)?);
        table::static_field(index)
            .or_else(recent)
            .ok_or(HpackError::NO_SUCH_FIELD)
    }

    /// A field with a value of its own, and a name of its own or of a table (RFC 7541 6.2).
    fn literal(&self, input: &mut Reader<'_>, prefix: u32) -> Result<Field, HpackError> {
        let name = match input.integer(prefix)? {
            0 => Name::parse(input.string()?),
            index => self.field(index)?.name.clone(),
        };
        let value = Value::parse(input.string()?);
        Ok(Field { name, value })
    }

    fn resize(&mut self, size: usize) -> Result<(), HpackError> {
        if size > self.size_limit {
            return Err(HpackError::TABLE_TOO_LARGE);
        }
        self.table.set_max_size(size);
        Ok(())
    }
}

/// The lowest first bytes of the representations (RFC 7541 6). All lower bytes begin literals that are not
/// indexed. Some of them must never be indexed, which concerns only a proxy that encodes them again.
const INDEXED: u8 = 0x80;
const INDEXING: u8 = 0x40;
const TABLE_SIZE: u8 = 0x20;

/// The room that is left in a list; `None` once a field did not fit.
struct Room {
    left: Option<usize>,
}

impl Room {
    fn take(&mut self, field: &Field) -> ListSize {
        self.left = self.left.and_then(|left| left.checked_sub(field.size()));
        match self.left {
            None => ListSize::Exceeded,
            Some(_) => ListSize::Within,
        }
    }
}

/// The primitive types (RFC 7541 5).
struct Reader<'a> {
    rest: &'a [u8],
    /// Holds the string that was decoded last. Blocks with nothing to decode never allocate it.
    scratch: Vec<u8>,
}

impl Reader<'_> {
    /// An integer whose first `prefix` bits end the next byte. All counts and indexes fit into 32 bits, so
    /// a larger integer is an error (RFC 7541 5.1), as are more than five bytes.
    fn integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let mask = (1 << prefix) - 1;
        let mut value = u64::from(self.byte()? & mask);
        if value < u64::from(mask) {
            return Ok(value as usize);
        }
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let value = u32::try_from(value).map_err(|_| HpackError::INTEGER_TOO_LARGE)?;
                return Ok(value as usize);
            }
        }
        Err(HpackError::INTEGER_TOO_LARGE)
    }

    /// A string, which is valid until the next one is read.
    fn string(&mut self) -> Result<&[u8], HpackError> {
        let first = self.rest.first().ok_or(HpackError::TRUNCATED)?;
        let is_huffman = first & 0x80 != 0;
        let len = self.integer(7)?;
        let (string, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(HpackError::TRUNCATED)?;
        self.rest = rest;
        if !is_huffman {
            return Ok(string);
        }
        self.scratch.clear();
        huffman::decode(string, &mut self.scratch)?;
        Ok(&self.scratch)
    }

    fn byte(&mut self) -> Result<u8, HpackError> {
        let (&first, rest) = self.rest.split_first().ok_or(HpackError::TRUNCATED)?;
        self.rest = rest;
        Ok(first)
    }
}
