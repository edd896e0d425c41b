//! The descriptors of all xDS messages, for reading and writing proto JSON.
//!
//! The generated Rust types cannot read or write JSON; a descriptor set with reflection can. The
//! set is the one that the types were generated from, so both agree, which a test checks. It is
//! decoded once, when it is first needed.

use std::sync::LazyLock;

use envoy_types::pb::google::protobuf::Any;
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    field_descriptor_proto::{Label, Type},
};
use prost_reflect::{
    DescriptorError, DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage,
    SerializeOptions,
};
use serde_json::{Value, json};

use crate::redact;

/// The serialized `FileDescriptorSet` of all xDS messages and services.
pub(crate) const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../proto/envoy-types.bin");

static POOL: LazyLock<Result<DescriptorPool, String>> =
    LazyLock::new(|| decode().map_err(|error| error.to_string()));

/// All messages.
pub(crate) fn pool() -> Option<&'static DescriptorPool> {
    POOL.as_ref().ok()
}

/// The descriptor of the message that a type URL names.
pub(crate) fn of_type_url(type_url: &str) -> Result<MessageDescriptor, String> {
    let (_, name) = type_url
        .rsplit_once('/')
        .ok_or_else(|| "expected a type URL such as \"type.googleapis.com/...\"".to_owned())?;
    of_message(name).ok_or_else(|| format!("message `{name}` is not known"))
}

/// The descriptor of a message, by its full name.
pub(crate) fn of_message(name: &str) -> Option<MessageDescriptor> {
    pool()?.get_message_by_name(name)
}

/// A resource in proto JSON form, with `@type`. One that cannot be decoded is shown by its length.
///
/// Secrets are shown as `[redacted]`: fields that xDS marks as sensitive, such as private keys,
/// passwords and tokens.
///
/// ```
/// use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{GenericSecret, Secret, secret};
/// use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
/// use envoy_types::pb::google::protobuf::Any;
/// use prost::Message;
///
/// let password = DataSource { specifier: Some(Specifier::InlineString("hunter2".into())), ..DataSource::default() };
/// let generic = GenericSecret { secret: Some(password), ..GenericSecret::default() };
/// let message = Secret { name: "s".into(), r#type: Some(secret::Type::GenericSecret(generic)) };
/// let any = Any {
///     type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".into(),
///     value: message.encode_to_vec(),
/// };
/// let shown = crowfly_control::to_json(&any);
/// assert_eq!(shown["generic_secret"]["secret"]["inline_string"], "[redacted]");
/// ```
pub fn to_json(any: &Any) -> Value {
    try_to_json(any).unwrap_or_else(
        |error| json!({ "@type": any.type_url, "undecodable": error, "bytes": any.value.len() }),
    )
}

fn decode() -> Result<DescriptorPool, DescriptorError> {
    let mut pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET)?;
    pool.add_file_descriptor_protos(["udpa.type.v1", "xds.type.v3"].map(typed_struct))?;
    Ok(pool)
}

/// The `TypedStruct` message of a package, which the descriptor set does not have. It holds JSON
/// and the type that the JSON is of. Filters and balancing policies without a proto file are
/// configured by it (gRFC A39, A52).
fn typed_struct(package: &str) -> FileDescriptorProto {
    let field = |name: &str, number, kind: Type| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..FieldDescriptorProto::default()
    };
    let value = FieldDescriptorProto {
        type_name: Some(".google.protobuf.Struct".to_owned()),
        ..field("value", 2, Type::Message)
    };
    FileDescriptorProto {
        name: Some(format!("{}/typed_struct.proto", package.replace('.', "/"))),
        package: Some(package.to_owned()),
        dependency: vec!["google/protobuf/struct.proto".to_owned()],
        message_type: vec![DescriptorProto {
            name: Some("TypedStruct".to_owned()),
            field: vec![field("type_url", 1, Type::String), value],
            ..DescriptorProto::default()
        }],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

fn try_to_json(any: &Any) -> Result<Value, String> {
    let descriptor = of_type_url(&any.type_url)?;
    let mut message = DynamicMessage::decode(descriptor, any.value.as_slice())
        .map_err(|error| error.to_string())?;
    redact::redact(&mut message);
    let options = SerializeOptions::new().use_proto_field_name(true);
    let shown = message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| error.to_string())?;
    // The JSON form of `Any`; Google's own messages have forms that take no further key.
    Ok(match shown {
        Value::Object(mut fields) if !is_googles(&message) => {
            fields.insert("@type".to_owned(), any.type_url.clone().into());
            Value::Object(fields)
        }
        value => json!({ "@type": any.type_url, "value": value }),
    })
}

fn is_googles(message: &DynamicMessage) -> bool {
    message
        .descriptor()
        .full_name()
        .starts_with("google.protobuf.")
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

    /// The form is that of `Any` in the JSON form of protobuf.
    #[test]
    fn a_well_known_message_is_a_value() {
        let any = Any {
            type_url: "type.googleapis.com/google.protobuf.Duration".into(),
            value: vec![8, 3],
        };
        let expected = json!({ "@type": any.type_url, "value": "3s" });
        assert_eq!(to_json(&any), expected);
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
