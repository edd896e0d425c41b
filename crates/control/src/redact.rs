//! Removes secrets from the pages that show resources, and from errors of resources.
//!
//! The xDS protos mark secret fields with `udpa.annotations.sensitive` or `debug_redact`, which the
//! configuration dump of Envoy obeys too. A few older fields that hold credentials have no mark, so
//! they are listed here.

use std::collections::HashSet;
use std::sync::LazyLock;

use crowfly_source::yaml::{Node, Value as Yaml};
use envoy_types::pb::google::protobuf::Any;
use prost_reflect::bytes::Bytes;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, Value,
};

use crate::descriptors;

/// The text that is shown in place of a secret.
const REDACTED: &str = "[redacted]";

/// Fields that hold credentials and have no mark.
const UNMARKED: [&str; 11] = [
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.access_token",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.google_refresh_token",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.GoogleIAMCredentials.authorization_token",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.ServiceAccountJWTAccessCredentials.json_key",
    "envoy.config.trace.v3.LightstepConfig.access_token",
    "envoy.extensions.filters.http.aws_lambda.v3.Credentials.secret_access_key",
    "envoy.extensions.filters.http.aws_lambda.v3.Credentials.session_token",
    "envoy.extensions.grpc_service.call_credentials.access_token.v3.AccessTokenCredentials.token",
    "envoy.extensions.grpc_service.call_credentials.google_iam.v3.GoogleIamCredentials.authorization_token",
    "envoy.extensions.grpc_service.call_credentials.google_refresh_token.v3.GoogleRefreshTokenCredentials.token",
    "envoy.extensions.grpc_service.call_credentials.service_account_jwt_access.v3.ServiceAccountJwtAccessCredentials.json_key",
];

/// The full names of all fields that hold secrets.
static SENSITIVE: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let messages = descriptors::pool().map(|pool| pool.all_messages());
    let fields = messages.into_iter().flatten();
    let fields = fields.flat_map(|message| message.fields().collect::<Vec<_>>());
    let marked = fields.filter(is_marked);
    let marked = marked.map(|field| field.full_name().to_owned());
    marked.chain(UNMARKED.map(str::to_owned)).collect()
});

/// Replaces every secret in `message`, also inside its `Any` fields. One of those that cannot be read is blank.
pub(crate) fn redact(message: &mut DynamicMessage) {
    visit(message, false);
}

/// A resource without its secrets; `None` if its type is not known, because it may be one.
pub(crate) fn redacted(any: &Any) -> Option<Any> {
    let descriptor = descriptors::of_type_url(&any.type_url).ok()?;
    let mut message = DynamicMessage::decode(descriptor, any.value.as_slice()).ok()?;
    redact(&mut message);
    Some(Any {
        type_url: any.type_url.clone(),
        value: prost::Message::encode_to_vec(&message),
    })
}

/// The path of the secret in which the field at `wanted` is, if there is one. `node` is a message in its JSON form, at
/// `path`.
pub(crate) fn secret_around(
    node: &Node,
    descriptor: &MessageDescriptor,
    path: &str,
    wanted: &str,
) -> Option<String> {
    if descriptor.full_name() == "google.protobuf.Any" {
        let inner = type_of(node).filter(|inner| inner != descriptor)?;
        return secret_around(node, &inner, path, wanted);
    }
    node.entries().iter().find_map(|(key, value)| {
        let path = format!("{path}.{}", key.text);
        let field = descriptor.get_field_by_json_name(&key.text);
        let field = field.or_else(|| descriptor.get_field_by_name(&key.text));
        let field = field.filter(|_| wanted.starts_with(&path))?;
        if SENSITIVE.contains(field.full_name()) {
            return Some(path);
        }
        parts_of(&field, value, &path)
            .into_iter()
            .find_map(|(path, kind, part)| secret_around(part, kind.as_message()?, &path, wanted))
    })
}

/// The values of a field, each with its path and its kind.
fn parts_of<'a>(
    field: &FieldDescriptor,
    value: &'a Node,
    path: &str,
) -> Vec<(String, Kind, &'a Node)> {
    match (&value.value, field.kind()) {
        (Yaml::List(items), kind) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (format!("{path}[{index}]"), kind.clone(), item))
                .collect()
        }
        (Yaml::Map(entries), Kind::Message(entry)) if field.is_map() => {
            let kind = entry.map_entry_value_field().kind();
            let entries = entries.iter();
            entries
                .map(|(key, value)| (format!("{path}.{}", key.text), kind.clone(), value))
                .collect()
        }
        (_, kind) => vec![(path.to_owned(), kind, value)],
    }
}

/// The type of a message in the JSON form of `Any`.
fn type_of(node: &Node) -> Option<MessageDescriptor> {
    match &node.get("@type")?.value {
        Yaml::Text(type_url) => descriptors::of_type_url(type_url).ok(),
        _ => None,
    }
}

/// Visits a message. If the field that holds it is secret, the whole message is.
fn visit(message: &mut DynamicMessage, is_secret: bool) {
    if message.descriptor().full_name() == "google.protobuf.Any" {
        return visit_any(message, is_secret);
    }
    let fields: Vec<FieldDescriptor> = message.fields().map(|(field, _)| field).collect();
    for field in fields {
        let is_secret = is_secret || SENSITIVE.contains(field.full_name());
        if is_secret || holds_messages(&field) {
            visit_value(message.get_field_mut(&field), is_secret);
        }
    }
}

fn visit_value(value: &mut Value, is_secret: bool) {
    match value {
        Value::Message(message) => visit(message, is_secret),
        Value::List(items) => {
            for item in items {
                visit_value(item, is_secret);
            }
        }
        Value::Map(entries) => {
            for value in entries.values_mut() {
                visit_value(value, is_secret);
            }
        }
        _ if !is_secret => {}
        Value::String(text) => REDACTED.clone_into(text),
        Value::Bytes(bytes) => *bytes = Bytes::from_static(REDACTED.as_bytes()),
        Value::Bool(value) => *value = false,
        Value::I32(value) | Value::EnumNumber(value) => *value = 0,
        Value::I64(value) => *value = 0,
        Value::U32(value) => *value = 0,
        Value::U64(value) => *value = 0,
        Value::F32(value) => *value = 0.0,
        Value::F64(value) => *value = 0.0,
    }
}

fn visit_any(any: &mut DynamicMessage, is_secret: bool) {
    let shown = decoded(any).map(|mut inner| {
        visit(&mut inner, is_secret);
        prost::Message::encode_to_vec(&inner)
    });
    // One of an unknown type, or that cannot be read, is blank, because it may be a secret.
    let bytes = Bytes::from(shown.unwrap_or_default());
    any.set_field_by_name("value", Value::Bytes(bytes));
}

fn decoded(any: &DynamicMessage) -> Option<DynamicMessage> {
    let type_url = any.get_field_by_name("type_url")?;
    let value = any.get_field_by_name("value")?;
    let descriptor = descriptors::of_type_url(type_url.as_str()?).ok()?;
    DynamicMessage::decode(descriptor, value.as_bytes()?.clone()).ok()
}

fn holds_messages(field: &FieldDescriptor) -> bool {
    field.kind().as_message().is_some()
}

fn is_marked(field: &FieldDescriptor) -> bool {
    let options = field.options();
    let is_set = |value: &Value| value.as_bool() == Some(true);
    let redacted = options.get_field_by_name("debug_redact");
    redacted.as_deref().is_some_and(is_set)
        || options.extensions().any(|(extension, value)| {
            extension.full_name() == "udpa.annotations.sensitive" && is_set(value)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, ConfigFile};
    use crate::translate::translate;

    /// All resources of `text` as they are shown.
    fn shown(text: &str) -> String {
        let path = "mesh.yaml".into();
        let text = text.to_owned();
        let snapshot = translate(&Catalog::read(&[ConfigFile { path, text }]).unwrap()).unwrap();
        let resources = snapshot.types().flat_map(|(_, of)| of.resources());
        let shown = resources.map(|(_, resource)| descriptors::to_json(&resource.any).to_string());
        shown.collect()
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = r#"
resources:
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: certificate
  tls_certificate:
    certificate_chain: { inline_string: public }
    private_key: { inline_string: hidden }
    password: { inline_bytes: aGlkZGVu }
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: tickets
  session_ticket_keys: { keys: [{ inline_string: hidden }] }
"#;
        let shown = shown(text);
        assert!(
            !shown.contains("hidden") && !shown.contains("aGlkZGVu"),
            "{shown}"
        );
        assert!(shown.contains("public"), "{shown}");
        assert_eq!(shown.matches(REDACTED).count(), 2, "{shown}");
    }

    /// A key in a TLS context, in the transport socket of a cluster.
    #[test]
    fn secrets_inside_of_other_messages_are_not_shown() {
        let text = r#"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: c
  transport_socket:
    name: tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      sni: public
      common_tls_context:
        tls_certificates: [{ private_key: { inline_string: hidden } }]
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: d
  eds_cluster_config:
    eds_config:
      api_config_source:
        grpc_services:
        - google_grpc: { target_uri: public, stat_prefix: s, call_credentials: [{ access_token: hidden }] }
"#;
        let shown = shown(text);
        assert!(!shown.contains("hidden"), "{shown}");
        assert_eq!(shown.matches("public").count(), 2, "{shown}");
        assert_eq!(shown.matches(REDACTED).count(), 2, "{shown}");
    }

    /// A message of a type that is not known, or that cannot be read, may be a secret.
    #[test]
    fn unknown_messages_inside_of_others_are_not_shown() {
        use envoy_types::pb::envoy::config::cluster::v3::Cluster;
        use envoy_types::pb::envoy::config::core::v3::TransportSocket;
        use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
        use prost::Message;

        for name in ["acme.Secret", "envoy.config.cluster.v3.Cluster"] {
            let inner = Any {
                type_url: format!("type.googleapis.com/{name}"),
                value: b"hidden".to_vec(),
            };
            let cluster = Cluster {
                name: "c".to_owned(),
                transport_socket: Some(TransportSocket {
                    name: "tls".to_owned(),
                    config_type: Some(ConfigType::TypedConfig(inner.clone())),
                }),
                ..Cluster::default()
            };
            let any = Any {
                type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
                value: cluster.encode_to_vec(),
            };
            let shown = Cluster::decode(redacted(&any).unwrap().value.as_slice()).unwrap();
            assert_eq!(shown.name, "c");
            let shown = shown.transport_socket.unwrap().config_type.unwrap();
            let ConfigType::TypedConfig(shown) = shown;
            let value = Vec::new();
            assert_eq!(shown, Any { value, ..inner });
        }
    }

    /// Checks what the error of a resource of type `kind` with these fields tells.
    fn tells(kind: &str, fields: &str, told: &str) {
        let text = format!(
            "resources:\n- {{ \"@type\": type.googleapis.com/{kind}, name: s, {fields} }}\n"
        );
        let path = "mesh.yaml".into();
        let error = Catalog::read(&[ConfigFile { path, text }]).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("mesh.yaml:2:"), "{error}");
        let end = format!(": resources[0].{told}");
        assert!(error.ends_with(&end), "{error}");
    }

    /// A secret in the wrong place is not in the error, in whatever form it is written.
    #[test]
    fn secrets_in_bad_resources_are_not_told() {
        let kind = "envoy.extensions.transport_sockets.tls.v3.Secret";
        for (fields, told) in [
            ("hidden", "expected a map, got a string"),
            ("1234567", "expected a map, got a number"),
            ("[hidden]", "expected a map, got a list"),
            ("{ hidden }", "unrecognized field name"),
            ("{ hidden: { a: b } }", "unrecognized field name"),
            ("{ inline_bytes: 'hidden!' }", "invalid base64"),
            (
                "{ inline_string: [hidden] }",
                "expected a string, got a list",
            ),
        ] {
            let fields = format!("tls_certificate: {{ password: {fields} }}");
            tells(kind, &fields, &format!("tls_certificate.password: {told}"));
        }
        let keys = "session_ticket_keys: { keys: [{ inline_string: a }, hidden] }";
        let told = "session_ticket_keys.keys: expected a map, got a string";
        tells(kind, keys, told);
        let told = "unknown_name: unrecognized field name 'unknown_name'";
        tells(kind, "unknown_name: 1", told);
    }

    /// No value of any field is in an error, because a secret may be anywhere by mistake.
    #[test]
    fn values_in_bad_resources_are_not_told() {
        let kind = "envoy.config.cluster.v3.Cluster";
        for (field, told) in [
            ("type", "unrecognized enum value"),
            ("connect_timeout", "failed to parse duration"),
            (
                "per_connection_buffer_limit_bytes",
                "invalid digit found in string",
            ),
            ("lb_subset_config", "expected a map, got a string"),
        ] {
            tells(
                kind,
                &format!("{field}: hidden"),
                &format!("{field}: {told}"),
            );
        }
        let tls = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        let path = "common_tls_context.tls_certificates[0].private_key";
        for (key, told) in [
            ("hidden", "expected a map, got a string"),
            ("{ hidden }", "unrecognized field name"),
        ] {
            let context =
                format!("common_tls_context: {{ tls_certificates: [{{ private_key: {key} }}] }}");
            let config = format!("{{ '@type': type.googleapis.com/{tls}, {context} }}");
            tells(
                kind,
                &format!("transport_socket: {{ name: tls, typed_config: {config} }}"),
                &format!("transport_socket.typed_config.{path}: {told}"),
            );
        }
    }

    #[test]
    fn fields_that_are_listed_exist() {
        for name in UNMARKED {
            let (message, field) = name.rsplit_once('.').unwrap();
            let message = descriptors::of_message(message);
            let found = message.and_then(|message| message.get_field_by_name(field));
            assert!(found.is_some(), "{name}");
        }
    }
}
