//! Tests of gRPC's own policies, named by a `TypedStruct` (gRFC A52). Their configuration is then
//! the JSON of the service config, and not a message.

use std::sync::Arc;

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Cluster,
        cluster::{ClusterKind, CustomPolicies, EndpointPolicy, LbPolicy, RingSizeBounds},
    },
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{LoadBalancingPolicy, load_balancing_policy::Policy},
            core::v3::TypedExtensionConfig,
        },
        extensions::load_balancing_policies::wrr_locality::v3::WrrLocality,
    },
    google::protobuf::{self, Any, ListValue, Struct, value::Kind},
};
use prost::Message;
use serde_json::{Value, json};

use crate::messages::{any, cluster};

/// gRFC A52: a `TypedStruct` may name any registered policy, whose configuration is that of the
/// service config.
#[test]
fn a_typed_struct_may_name_a_policy_of_grpc() {
    let sized =
        |min, max| LbPolicy::Endpoints(EndpointPolicy::RingHash(RingSizeBounds { min, max }));
    let least = |choice_count| LbPolicy::Endpoints(EndpointPolicy::LeastRequest { choice_count });
    let first = |shuffle| LbPolicy::Endpoints(EndpointPolicy::PickFirst { shuffle });
    let ring = "ring_hash_experimental";
    let cases = [
        (
            "round_robin",
            json!({ "unknown": 1 }),
            LbPolicy::Endpoints(EndpointPolicy::RoundRobin),
        ),
        ("pick_first", json!({}), first(false)),
        (
            "pick_first",
            json!({ "shuffleAddressList": true }),
            first(true),
        ),
        // gRFC A42: by this way, the ring has at most 4096 entries unless it says more.
        (ring, json!({}), sized(1024, 4096)),
        (
            ring,
            json!({ "minRingSize": 10, "maxRingSize": "20" }),
            sized(10, 20),
        ),
        ("least_request_experimental", json!({}), least(2)),
        (
            "least_request_experimental",
            json!({ "choiceCount": 99 }),
            least(10),
        ),
        (
            "xds_wrr_locality_experimental",
            json!({ "childPolicy": [{ "round_robin": {} }, { "x": {} }] }),
            LbPolicy::WrrLocality(EndpointPolicy::RoundRobin),
        ),
    ];
    for (name, config, expected) in cases {
        for known in [&CustomPolicies::NONE, &all()] {
            assert_eq!(
                parse(name, &config, known),
                Ok(expected.clone()),
                "{name} {config}"
            );
        }
    }
}

/// gRFC A52: a configuration that the policy refuses is a NACK.
#[test]
fn a_bad_configuration_of_a_policy_of_grpc_is_nacked() {
    let ring = "ring_hash_experimental";
    let wrr = "xds_wrr_locality_experimental";
    let cases = [
        (
            "pick_first",
            json!({ "shuffleAddressList": "yes" }),
            ".shuffleAddressList: expected true or false, got \"yes\"",
        ),
        (
            ring,
            json!({ "minRingSize": 0 }),
            ".minRingSize: expected 1 to 8388608, got 0",
        ),
        (
            ring,
            json!({ "minRingSize": 5000 }),
            ".minRingSize: expected at most maxRingSize (4096), got 5000",
        ),
        (
            ring,
            json!({ "maxRingSize": 1.5 }),
            ".maxRingSize: expected a whole number, got 1.5",
        ),
        (
            "least_request_experimental",
            json!({ "choiceCount": 1 }),
            ".choiceCount: expected at least 2, got 1",
        ),
        (
            wrr,
            json!({}),
            ".childPolicy: expected a supported policy, got none",
        ),
        (
            wrr,
            json!({ "childPolicy": [{ "fancy": {} }] }),
            ".childPolicy: expected a supported policy, got fancy",
        ),
        (
            wrr,
            json!({ "childPolicy": [{ "a": {}, "b": {} }] }),
            ".childPolicy[0]: expected an object with one policy in it",
        ),
    ];
    for (name, config, expected) in cases {
        let errors = parse(name, &config, &CustomPolicies::NONE).unwrap_err();
        let path = "load_balancing_policy.policies[0].typed_extension_config.typed_config.value";
        assert!(errors.starts_with(path), "{errors}");
        assert!(errors.ends_with(expected), "{errors}");
    }
}

/// gRFC A52: the first policy of the list that is known counts, and how deep lists may be inside each
/// other counts those in JSON, too.
#[test]
fn lists_in_json_are_lists_like_others() {
    let wrr = "xds_wrr_locality_experimental";
    let none = &CustomPolicies::NONE;
    let config = json!({ "childPolicy": [{ "fancy": {} }, { "round_robin": {} }] });
    let expected = Ok(LbPolicy::WrrLocality(EndpointPolicy::RoundRobin));
    assert_eq!(parse(wrr, &config, none), expected);
    assert_eq!(parse_inside(14, wrr, &config, none), expected);
    let errors = parse_inside(15, wrr, &config, none).unwrap_err();
    let too_deep = "value.childPolicy: expected at most 16 policies inside each other, got more";
    assert!(errors.ends_with(too_deep), "{errors}");
}

/// A policy that the program adds by a name of gRPC's takes its place, as in gRPC's registry.
#[test]
fn a_policy_of_the_program_replaces_that_of_grpc() {
    let known = CustomPolicies::NONE.with("round_robin", Arc::new(|_| Ok(Arc::new(()))));
    let policy = parse("round_robin", &json!({}), &known).unwrap();
    assert!(matches!(
        policy,
        LbPolicy::Endpoints(EndpointPolicy::Custom(_))
    ));
}

fn all() -> CustomPolicies {
    CustomPolicies::NONE.with_all_others(Arc::new(|_| Err("not to be asked".to_owned())))
}

fn parse(name: &str, config: &Value, known: &CustomPolicies) -> Result<LbPolicy, String> {
    parse_inside(0, name, config, known)
}

/// Reads it inside so many `wrr_locality`.
fn parse_inside(
    depth: usize,
    name: &str,
    config: &Value,
    known: &CustomPolicies,
) -> Result<LbPolicy, String> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct TypedStruct {
        #[prost(string, tag = "1")]
        type_url: String,
        #[prost(message, optional, tag = "2")]
        value: Option<Struct>,
    }
    let Some(Kind::StructValue(config)) = proto(config).kind else {
        panic!("expected an object");
    };
    let message = TypedStruct {
        type_url: format!("type.googleapis.com/{name}"),
        value: Some(config),
    };
    let mut list = one(Any {
        type_url: "type.googleapis.com/xds.type.v3.TypedStruct".to_owned(),
        value: message.encode_to_vec(),
    });
    for _ in 0..depth {
        list = one(any(&WrrLocality {
            endpoint_picking_policy: Some(list),
        }));
    }
    let mut proto = cluster();
    proto.load_balancing_policy = Some(list);
    let features = Features {
        custom_policies: known.clone(),
        ..Features::ALL
    };
    let parsed = Cluster::parse(&proto.encode_to_vec(), &features).value;
    match parsed.map_err(|errors| errors.to_string())?.kind {
        ClusterKind::Leaf(leaf) => Ok(leaf.lb_policy),
        ClusterKind::Aggregate(aggregate) => panic!("expected a leaf, got {aggregate:?}"),
    }
}

fn one(config: Any) -> LoadBalancingPolicy {
    LoadBalancingPolicy {
        policies: vec![Policy {
            typed_extension_config: Some(TypedExtensionConfig {
                name: String::new(),
                typed_config: Some(config),
            }),
        }],
    }
}

fn proto(value: &Value) -> protobuf::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(flag) => Kind::BoolValue(*flag),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(ListValue {
            values: values.iter().map(proto).collect(),
        }),
        Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields.iter().map(|(k, v)| (k.clone(), proto(v))).collect(),
        }),
    };
    protobuf::Value { kind: Some(kind) }
}
