//! The steps common to all resource types: decode, take the name, validate, collect.
//!
//! The steps are in one place, so that a bad resource of any type is reported by name, with every
//! error.

use prost::Message;

use crate::{Decoded, Errors, Validator, wire};

/// Decodes `bytes` as a `P` and reads it with `parse`.
///
/// The result has the name even if the rest is wrong, because an error must reach the watchers of that
/// name (gRFC A46). `parse` returns `None` only after it recorded an error.
pub fn decode<P, T>(
    bytes: &[u8],
    name_field: &str,
    name: impl FnOnce(&P) -> &str,
    parse: impl FnOnce(P, &mut Validator) -> Option<T>,
) -> Decoded<T>
where
    P: Message + Default,
{
    let proto = match wire::decode::<P>(bytes) {
        Ok(proto) => proto,
        Err(error) => return Decoded::undecodable(error),
    };
    let name = name(&proto).to_owned();
    let mut v = Validator::default();
    require_text(&name, name_field, &mut v);
    let value = parse(proto, &mut v);
    let value = v
        .finish(value)
        .and_then(|value| value.ok_or_else(|| Errors::whole("cannot be read")));
    Decoded {
        name: Some(name),
        value,
    }
}

/// Records an error at `field` if `text` is empty.
pub(super) fn require_text(text: &str, field: &str, v: &mut Validator) {
    if text.is_empty() {
        v.error_at(field, "expected a non-empty string, got none");
    }
}
