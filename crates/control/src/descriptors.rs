//! The shape of every xDS message, for reading and writing proto JSON.
//!
//! The generated Rust types cannot do that; a descriptor set and reflection can. The set is the one
//! the types were generated from, so the two always agree (a test compares them). It is decoded
//! once, when it is first needed.

use std::sync::LazyLock;

use envoy_types::pb::google::protobuf::Any;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::{Value, json};

/// The serialized `FileDescriptorSet` of all xDS messages and services.
pub(crate) const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../proto/envoy-types.bin");

static POOL: LazyLock<Result<DescriptorPool, String>> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|error| error.to_string())
});

/// The descriptor of the message that a type URL names.
pub(crate) fn of_type_url(type_url: &str) -> Result<MessageDescriptor, String> {
    let (_, name) = type_url
        .rsplit_once('/')
        .ok_or_else(|| "expected a type URL such as \"type.googleapis.com/...\"".to_owned())?;
    of_message(name).ok_or_else(|| format!("message `{name}` is not known"))
}

/// The descriptor of a message, by its full name.
pub(crate) fn of_message(name: &str) -> Option<MessageDescriptor> {
    POOL.as_ref().ok()?.get_message_by_name(name)
}

/// A resource in proto JSON form, with `@type`; one that cannot be read is shown as its bytes.
pub fn to_json(any: &Any) -> Value {
    try_to_json(any).unwrap_or_else(
        |error| json!({ "@type": any.type_url, "undecodable": error, "bytes": any.value.len() }),
    )
}

fn try_to_json(any: &Any) -> Result<Value, String> {
    let descriptor =
        of_message("google.protobuf.Any").ok_or_else(|| "no descriptors".to_owned())?;
    let mut message = DynamicMessage::new(descriptor);
    message
        .transcode_from(any)
        .map_err(|error| error.to_string())?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_is_readable() {
        assert!(POOL.is_ok(), "{POOL:?}");
        assert!(of_type_url("type.googleapis.com/envoy.config.cluster.v3.Cluster").is_ok());
    }

    #[test]
    fn an_unknown_message_is_an_error() {
        let error = of_type_url("type.googleapis.com/x.Y").unwrap_err();
        assert_eq!(error, "message `x.Y` is not known");
    }

    #[test]
    fn undecodable_bytes_are_shown_as_such() {
        let any = Any {
            type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".into(),
            value: vec![0xff],
        };
        assert_eq!(to_json(&any)["bytes"], 1);
    }
}
