//! Encodes a message to the same bytes every time.
//!
//! The version of a resource is a hash of its bytes, and must be the same after each reload and on
//! every replica. But protobuf leaves the order of map entries open, and reflection keeps them in a
//! hash map. So here maps are written in the order of their keys, also inside an `Any`.

use std::cmp::Ordering;
use std::collections::HashMap;

use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DynamicMessage, FieldDescriptor, MapKey, ReflectMessage, Value};

use crate::descriptors;

/// The bytes of `message`.
pub(crate) fn encode(message: &DynamicMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, value) in message.fields() {
        encode_field(message, &field, value, &mut bytes);
    }
    if message.descriptor().full_name() == "google.protobuf.Any"
        && let Ok(any) = Any::decode(bytes.as_slice())
    {
        return normalized(any).encode_to_vec();
    }
    bytes
}

/// An `Any` with its contents encoded again; contents that cannot be decoded stay as they are.
pub(crate) fn normalized(mut any: Any) -> Any {
    let descriptor = descriptors::of_type_url(&any.type_url).ok();
    let message = descriptor.and_then(|d| DynamicMessage::decode(d, any.value.as_slice()).ok());
    if let Some(message) = message {
        any.value = encode(&message);
    }
    any
}

fn encode_field(
    message: &DynamicMessage,
    field: &FieldDescriptor,
    value: &Value,
    bytes: &mut Vec<u8>,
) {
    match value {
        Value::Message(inner) => encode_nested(field, inner, bytes),
        Value::List(items) if field.kind().as_message().is_some() => {
            for inner in items.iter().filter_map(Value::as_message) {
                encode_nested(field, inner, bytes);
            }
        }
        Value::Map(entries) => encode_map(field, entries, bytes),
        _ => {
            let mut alone = DynamicMessage::new(message.descriptor());
            alone.set_field(field, value.clone());
            bytes.extend(alone.encode_to_vec());
        }
    }
}

fn encode_nested(field: &FieldDescriptor, message: &DynamicMessage, bytes: &mut Vec<u8>) {
    let inner = encode(message);
    encode_key(field.number(), WireType::LengthDelimited, bytes);
    encode_varint(inner.len() as u64, bytes);
    bytes.extend(inner);
}

fn encode_map(field: &FieldDescriptor, entries: &HashMap<MapKey, Value>, bytes: &mut Vec<u8>) {
    let kind = field.kind();
    let Some(descriptor) = kind.as_message() else {
        return;
    };
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by(|(a, _), (b, _)| compare(a, b));
    for (key, value) in entries {
        let mut entry = DynamicMessage::new(descriptor.clone());
        entry.set_field(&descriptor.map_entry_key_field(), key.clone().into());
        entry.set_field(&descriptor.map_entry_value_field(), value.clone());
        encode_nested(field, &entry, bytes);
    }
}

fn compare(a: &MapKey, b: &MapKey) -> Ordering {
    match (a, b) {
        (MapKey::Bool(a), MapKey::Bool(b)) => a.cmp(b),
        (MapKey::I32(a), MapKey::I32(b)) => a.cmp(b),
        (MapKey::I64(a), MapKey::I64(b)) => a.cmp(b),
        (MapKey::U32(a), MapKey::U32(b)) => a.cmp(b),
        (MapKey::U64(a), MapKey::U64(b)) => a.cmp(b),
        (MapKey::String(a), MapKey::String(b)) => a.cmp(b),
        // The keys of one map are of one kind.
        _ => Ordering::Equal,
    }
}
