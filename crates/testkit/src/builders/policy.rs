//! Entries for the list of balancing policies of a cluster.
//!
//! Policies are built here, because some of their messages have no generated types.

use envoy_types::pb::envoy::config::cluster::v3::{
    LoadBalancingPolicy, load_balancing_policy::Policy,
};
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use envoy_types::pb::google::protobuf::{self, Any, ListValue, Struct, value::Kind};
use envoy_types::util::pack_any;
use prost::Message;
use serde_json::Value;

/// A policy that the program itself defines, with this configuration, which must be an object (gRFC
/// A52).
pub fn custom_policy(name: &str, config: &Value) -> Any {
    let Some(Kind::StructValue(value)) = to_proto(config).kind else {
        panic!("expected an object, got {config}");
    };
    let message = TypedStruct {
        type_url: format!("type.googleapis.com/{name}"),
        value: Some(value),
    };
    Any {
        type_url: "type.googleapis.com/xds.type.v3.TypedStruct".to_owned(),
        value: message.encode_to_vec(),
    }
}

/// The policy that picks a locality by weight, and then an endpoint by the first of `policies` that
/// the client knows.
pub fn wrr_locality(policies: impl IntoIterator<Item = Any>) -> Any {
    pack_any(WrrLocality {
        endpoint_picking_policy: Some(list(policies)),
    })
}

pub(super) fn list(policies: impl IntoIterator<Item = Any>) -> LoadBalancingPolicy {
    let policies = policies.into_iter().map(|config| Policy {
        typed_extension_config: Some(TypedExtensionConfig {
            name: String::new(),
            typed_config: Some(config),
        }),
    });
    LoadBalancingPolicy {
        policies: policies.collect(),
    }
}

/// The message of a JSON configuration and the type that it is of. The generated types have no such
/// message.
#[derive(Clone, PartialEq, prost::Message)]
struct TypedStruct {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Struct>,
}

fn to_proto(json: &Value) -> protobuf::Value {
    let kind = match json {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(ListValue {
            values: values.iter().map(to_proto).collect(),
        }),
        Value::Object(fields) => {
            let fields = fields.iter();
            Kind::StructValue(Struct {
                fields: fields
                    .map(|(name, value)| (name.clone(), to_proto(value)))
                    .collect(),
            })
        }
    };
    protobuf::Value { kind: Some(kind) }
}
