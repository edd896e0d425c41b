//! Metadata of resources, in the namespace that the agent reads.
//!
//! All resources have their metadata in one form, so one reader serves all of them.

use std::sync::Arc;
use std::time::Duration;

use crowfly_model::Validator;
use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};

use super::mapping::Mapping;
use crate::model::MAX_AFFINITY_TIMEOUT;

/// Reads `metadata` of the current path with `read`. The first namespace that is there counts.
pub(super) fn read<R: Default>(
    metadata: Option<&Metadata>,
    mapping: &Mapping,
    v: &mut Validator,
    read: impl FnOnce(&Struct, &mut Validator) -> R,
) -> R {
    let filters = metadata.map(|metadata| &metadata.filter_metadata);
    let mut namespaces = mapping.namespaces.iter();
    let found = filters.and_then(|filters| {
        namespaces.find_map(|namespace| Some((namespace, filters.get(&**namespace)?)))
    });
    let Some((namespace, fields)) = found else {
        return R::default();
    };
    v.field("metadata.filter_metadata", |v| {
        v.key(namespace, |v| read(fields, v))
    })
}

/// A text that must not be empty; `None` if the key is missing, or after an error.
pub(super) fn text<'a>(fields: &'a Struct, key: &str, v: &mut Validator) -> Option<&'a str> {
    match fields.fields.get(key)?.kind.as_ref() {
        Some(Kind::StringValue(text)) if !text.is_empty() => Some(text),
        other => {
            let message = format!("expected a text, got {}", shown(other));
            v.error_at(key, message);
            None
        }
    }
}

/// A name that is a part of `namespace/name`, and so has no slash.
pub(super) fn name(fields: &Struct, key: &str, v: &mut Validator) -> Option<Arc<str>> {
    let name = text(fields, key, v)?;
    if name.contains('/') {
        v.error_at(key, format!("expected a name without `/`, got {name:?}"));
        return None;
    }
    Some(name.into())
}

/// The timeout of session affinity: a duration such as `60s`, or a number of seconds.
pub(super) fn affinity_timeout(fields: &Struct, v: &mut Validator) -> Option<Duration> {
    const KEY: &str = "session_affinity_timeout";
    let value = fields.fields.get(KEY)?.kind.as_ref();
    let seconds = match value {
        Some(Kind::NumberValue(seconds)) => Some(*seconds),
        Some(Kind::StringValue(text)) => {
            let number = text.strip_suffix('s');
            let number = number.filter(|it| it.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
            number.and_then(|number| number.parse().ok())
        }
        _ => None,
    };
    let max = MAX_AFFINITY_TIMEOUT.as_secs();
    let allowed = seconds.filter(|seconds| (1.0..=max as f64).contains(seconds));
    let Some(seconds) = allowed else {
        let message = format!("expected 1s to {max}s, got {}", shown(value));
        v.error_at(KEY, message);
        return None;
    };
    if seconds.fract() != 0.0 {
        v.unsupported_at(KEY, "parts of a second have no effect");
    }
    Some(Duration::from_secs(seconds as u64))
}

/// A value in an error message.
pub(super) fn shown(kind: Option<&Kind>) -> String {
    match kind {
        None | Some(Kind::NullValue(_)) => "none".to_owned(),
        Some(Kind::BoolValue(value)) => value.to_string(),
        Some(Kind::NumberValue(number)) => number.to_string(),
        Some(Kind::StringValue(text)) => format!("{text:?}"),
        Some(Kind::StructValue(_)) => "a struct".to_owned(),
        Some(Kind::ListValue(_)) => "a list".to_owned(),
    }
}

/// One of the texts in `choices`; the empty text and a missing key are `None`, as is an error.
pub(super) fn choice<T: Copy>(
    fields: &Struct,
    key: &str,
    choices: &[(&str, T)],
    v: &mut Validator,
) -> Option<T> {
    let value: &Value = fields.fields.get(key)?;
    let kind = value.kind.as_ref();
    let text = match kind {
        Some(Kind::StringValue(text)) if text.is_empty() => return None,
        Some(Kind::StringValue(text)) => Some(text),
        _ => None,
    };
    let found = text.and_then(|text| choices.iter().find(|(name, _)| name == text));
    if found.is_none() {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let expected = names.join(" or ");
        v.error_at(key, format!("expected {expected}, got {}", shown(kind)));
    }
    found.map(|(_, value)| *value)
}
