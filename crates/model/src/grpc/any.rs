//! Extensions, which xDS carries in an `Any`.
//!
//! Some are wrapped in a `TypedStruct`, so the URL of the `Any` is not always the extension's type.

use envoy_types::pb::google::protobuf::{Any, Struct};
use prost::{Message, Name};

use crate::{Validator, wire};

/// The full names under which a `TypedStruct` travels; both have the same wire form.
const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

/// An `Any` whose type is known: the one inside a `TypedStruct`, if it was wrapped in one.
#[derive(Debug, PartialEq)]
pub(super) struct Extension {
    /// Full message name, such as `envoy.extensions.filters.http.router.v3.Router`.
    pub(super) type_name: String,
    pub(super) form: Form,
}

/// The form in which the configuration of an extension is written.
#[derive(Debug, PartialEq)]
pub(super) enum Form {
    /// The message itself.
    Proto(Vec<u8>),
    /// A `TypedStruct`: the message in JSON form.
    Struct(Struct),
}

impl Extension {
    /// Names the type of `any`, unwrapping a `TypedStruct` before any lookup (gRFC A39).
    pub(super) fn unwrap(any: Any) -> Result<Self, String> {
        if let Some(inner) = typed_struct(&any) {
            let (type_name, value) = inner?;
            let form = Form::Struct(value);
            return Ok(Self { type_name, form });
        }
        Ok(Self {
            type_name: type_name(&any.type_url)?.to_owned(),
            form: Form::Proto(any.value),
        })
    }

    /// The message, which is of the type that the extension says it is; `None` after an error.
    pub(super) fn decode<P: Message + Default>(&self, v: &mut Validator) -> Option<P> {
        let name = &self.type_name;
        match &self.form {
            Form::Proto(bytes) => wire::decode::<P>(bytes)
                .inspect_err(|error| v.error(format!("{name} cannot be decoded: {error}")))
                .ok(),
            Form::Struct(_) => {
                v.error(format!("expected {name}, got it as a TypedStruct"));
                None
            }
        }
    }

    /// The message in `any`, which must be a `P`; `None` after an error.
    pub(super) fn expect<P: Message + Name + Default>(any: &Any, v: &mut Validator) -> Option<P> {
        let extension = Self::unwrap(any.clone())
            .inspect_err(|error| v.error(error))
            .ok()?;
        let (expected, got) = (P::full_name(), &extension.type_name);
        if *got != expected {
            v.error(format!("expected {expected}, got {got}"));
            return None;
        }
        extension.decode(v)
    }
}

/// The message in `any`, which must be a `P`; `None` after an error.
pub fn message<P: Message + Name + Default>(any: &Any, v: &mut Validator) -> Option<P> {
    Extension::expect(any, v)
}

/// A message in JSON form, with the URL of its type.
#[derive(Clone, PartialEq, prost::Message)]
struct TypedStruct {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Struct>,
}

/// The content of a `TypedStruct`: the name of a type, and JSON. `None` if `any` is of another type.
pub fn typed_struct(any: &Any) -> Option<Result<(String, Struct), String>> {
    let name = type_name(&any.type_url).ok()?;
    if !TYPED_STRUCTS.contains(&name) {
        return None;
    }
    let inner = wire::decode::<TypedStruct>(&any.value)
        .map_err(|error| format!("{name} cannot be decoded: {error}"));
    Some(inner.and_then(|inner| {
        let name = type_name(&inner.type_url)?.to_owned();
        Ok((name, inner.value.unwrap_or_default()))
    }))
}

/// A `TypedStruct` with JSON of the type of this URL.
pub fn to_typed_struct(type_url: &str, value: Struct) -> Any {
    let inner = TypedStruct {
        type_url: type_url.to_owned(),
        value: Some(value),
    };
    Any {
        type_url: format!("type.googleapis.com/{}", TYPED_STRUCTS[0]),
        value: inner.encode_to_vec(),
    }
}

/// The message name in a type URL: the text after its last slash.
///
/// # Errors
/// The URL has no slash, or no text after it.
pub fn type_name(type_url: &str) -> Result<&str, String> {
    match type_url.rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => Ok(name),
        _ => Err(format!(
            "expected a type_url such as type.googleapis.com/NAME, got {type_url:?}"
        )),
    }
}
