//! Tests of policies of the program's own, which a cluster names (gRFC A52). The program reads
//! their configuration, and may refuse it.

use std::sync::Arc;

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Cluster,
        cluster::{
            ClusterKind, CustomPolicies, CustomPolicyConfig, EndpointPolicy, LbPolicy, MadePolicy,
            ReadPolicy,
        },
    },
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{self as pb, LoadBalancingPolicy, load_balancing_policy::Policy},
            core::v3::TypedExtensionConfig,
        },
        extensions::load_balancing_policies::{
            round_robin::v3::RoundRobin, wrr_locality::v3::WrrLocality,
        },
    },
    google::protobuf::{self, Any, ListValue, Struct, value::Kind},
};
use prost::Message;
use serde_json::{Value, json};

use crate::messages::{aggregate, any, cluster};

const KINDS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

/// S3-16: a policy that the program has is taken, from either kind of `TypedStruct`, alone or inside
/// `wrr_locality`, and its configuration is the JSON it was.
#[test]
fn a_policy_of_the_program_is_taken() {
    let config = fields([
        ("choices", Kind::NumberValue(2.0)),
        ("big", Kind::NumberValue(1e300)),
        ("least", Kind::NumberValue(-3.0)),
        ("share", Kind::NumberValue(0.5)),
        ("name", Kind::StringValue("x".to_owned())),
        ("on", Kind::BoolValue(true)),
        ("nothing", Kind::NullValue(0)),
        ("inner", Kind::StructValue(fields([]))),
        (
            "list",
            list([Kind::NumberValue(1.0), Kind::BoolValue(false)]),
        ),
    ]);
    let expected = json!({
        "choices": 2, "big": 1e300, "least": -3, "share": 0.5, "name": "x", "on": true,
        "nothing": null, "inner": {}, "list": [1, false],
    });
    for kind in KINDS {
        let entry = typed_struct(kind, "type.googleapis.com/my.Policy", Some(config.clone()));
        let LbPolicy::Endpoints(flat) = accepted(vec![entry.clone()]) else {
            panic!("expected no localities");
        };
        let LbPolicy::WrrLocality(inner) = accepted(vec![wrr_locality(vec![entry])]) else {
            panic!("expected localities");
        };
        for policy in [flat, inner] {
            let policy = custom(policy);
            assert_eq!(policy.name, "my.Policy");
            assert_eq!(policy.config, expected);
            // What the reader made is what is kept.
            assert_eq!(policy.made.downcast_ref(), Some(&expected.to_string()));
        }
    }
}

/// S3-16: a policy without a configuration has an empty one; its name is what follows the last slash.
#[test]
fn a_policy_may_have_no_configuration() {
    let entry = typed_struct(KINDS[0], "a/b/my.Policy", None);
    let LbPolicy::Endpoints(policy) = accepted(vec![entry]) else {
        panic!("expected no localities");
    };
    assert_eq!(custom(policy).config, json!({}));
}

/// S3-16: one that the program does not have is passed over, and not looked into.
#[test]
fn others_are_passed_over() {
    let round_robin = || any(&RoundRobin::default());
    let unreadable = fields([("x", Kind::NumberValue(f64::NAN))]);
    let unknown = typed_struct(KINDS[0], "type.googleapis.com/my.Other", Some(unreadable));
    // A message of the name is something else, and so is a struct of the name of a message.
    let message = Any {
        type_url: "type.googleapis.com/my.Policy".to_owned(),
        value: vec![],
    };
    let name = round_robin().type_url;
    let of_a_message = typed_struct(KINDS[1], &name, None);
    for other in [unknown, message, of_a_message] {
        assert_eq!(
            accepted(vec![other.clone(), round_robin()]),
            LbPolicy::Endpoints(EndpointPolicy::RoundRobin)
        );
        let LbPolicy::WrrLocality(inner) =
            accepted(vec![wrr_locality(vec![other, mine(json!({}))])])
        else {
            panic!("expected localities");
        };
        assert_eq!(custom(inner).name, "my.Policy");
    }
    // The first one counts.
    assert_eq!(
        accepted(vec![round_robin(), mine(json!({}))]),
        LbPolicy::Endpoints(EndpointPolicy::RoundRobin)
    );
}

/// S3-16: nothing but policies that the program does not have is a NACK that names them, wherever
/// they are.
#[test]
fn a_list_without_a_policy_of_the_program() {
    let other = || typed_struct(KINDS[0], "type.googleapis.com/my.Other", None);
    let fancy = any(&pb::Cluster::default());
    let expected = "policies: expected a supported policy, got my.Other (not registered), \
                    envoy.config.cluster.v3.Cluster";
    assert_eq!(
        refused(vec![other(), fancy.clone()], &known()),
        [format!("load_balancing_policy.{expected}")]
    );
    let inside = "policies[0].typed_extension_config.typed_config.endpoint_picking_policy";
    assert_eq!(
        refused(vec![wrr_locality(vec![other(), fancy])], &known()),
        [format!("load_balancing_policy.{inside}.{expected}")]
    );
    // To a program without policies, all are unknown.
    assert_eq!(
        refused(vec![mine(json!({}))], &CustomPolicies::NONE),
        [
            "load_balancing_policy.policies: expected a supported policy, got my.Policy (not registered)"
        ]
    );
}

/// S3-16: a configuration that the policy refuses is a NACK with its reason, whatever comes after it.
#[test]
fn a_bad_configuration_is_an_error() {
    let bad = || mine(json!({ "bad": "very" }));
    let path = "load_balancing_policy.policies[0].typed_extension_config.typed_config";
    for list in [vec![bad()], vec![bad(), any(&RoundRobin::default())]] {
        let expected = format!("{path}.value: bad: \"very\"");
        assert_eq!(refused(list, &known()), [expected]);
    }
    let inner = "endpoint_picking_policy.policies[0].typed_extension_config.typed_config";
    assert_eq!(
        refused(vec![wrr_locality(vec![bad()])], &known()),
        [format!("{path}.{inner}.value: bad: \"very\"")]
    );
}

/// A configuration that is not JSON, or no `TypedStruct`, is a NACK. Of several errors the first by
/// name is told.
#[test]
fn a_malformed_struct_is_an_error() {
    let named = |config| typed_struct(KINDS[0], "type.googleapis.com/my.Policy", Some(config));
    let no_value = protobuf::Value { kind: None };
    let mut unset = fields([]);
    unset.fields.insert("inner".to_owned(), no_value);
    let deep = fields([("a", list([Kind::StructValue(unset)]))]);
    // So many that they come in order by chance only.
    let names: [String; 100] = std::array::from_fn(|i| format!("{:02}", 99 - i));
    let numbers = names
        .each_ref()
        .map(|name| (&**name, Kind::NumberValue(f64::NAN)));
    let undecodable = Any {
        value: vec![0x0f],
        ..typed_struct(KINDS[0], "", None)
    };
    let url = |url| typed_struct(KINDS[1], url, None);
    let want = "expected a type_url such as type.googleapis.com/NAME, got";
    let cases = [
        (
            named(deep),
            ".value: a: inner: expected a value, got none".to_owned(),
        ),
        (
            named(fields(numbers)),
            ".value: 00: expected a number, got NaN".to_owned(),
        ),
        (url("my.Policy"), format!(": {want} \"my.Policy\"")),
        (url("my.Policy/"), format!(": {want} \"my.Policy/\"")),
        (
            undecodable,
            ": xds.type.v3.TypedStruct cannot be decoded: ".to_owned(),
        ),
    ];
    for (entry, expected) in cases {
        let told = refused(vec![entry, any(&RoundRobin::default())], &known());
        let path = "load_balancing_policy.policies[0].typed_extension_config.typed_config";
        assert!(
            told[0].starts_with(&format!("{path}{expected}")),
            "{told:?}"
        );
        assert_eq!(told.len(), 1);
    }
}

/// S3-16: a policy of the program's own may be in the innermost of 16 lists.
#[test]
fn a_policy_may_be_16_lists_deep() {
    let nested = |depth| (1..depth).fold(mine(json!({})), |inner, _| wrr_locality(vec![inner]));
    let LbPolicy::WrrLocality(inner) = accepted(vec![nested(16)]) else {
        panic!("expected localities");
    };
    assert_eq!(custom(inner).name, "my.Policy");
    let told = refused(vec![nested(17)], &known());
    assert!(told[0].contains("expected at most 16"), "{told:?}");
}

/// An aggregate says how leaves were balanced before gRFC A75, also by such a policy.
#[test]
fn an_aggregate_may_name_one() {
    let mut proto = aggregate();
    proto.load_balancing_policy = Some(policies(vec![mine(json!({}))]));
    let ClusterKind::Aggregate(aggregate) = parse(&proto, &known()).unwrap().kind else {
        panic!("expected an aggregate");
    };
    assert!(matches!(
        aggregate.lb_policy,
        Some(LbPolicy::Endpoints(EndpointPolicy::Custom(_)))
    ));
}

/// Policies are equal if their names and configurations are, although they are read twice.
#[test]
fn policies_are_compared_by_what_the_cluster_says() {
    let [one, again] = [1, 1].map(|n| accepted(vec![mine(json!({ "n": n, "m": 1 }))]));
    assert_eq!(one, again);
    assert_ne!(one, accepted(vec![mine(json!({ "n": 2, "m": 1 }))]));
    let features = known().with_all_others(reader());
    let renamed = typed_struct(KINDS[0], "type.googleapis.com/my.Other", None);
    let mut proto = cluster();
    proto.load_balancing_policy = Some(policies(vec![renamed]));
    let renamed = leaf_policy(parse(&proto, &features).unwrap());
    assert_ne!(renamed, accepted(vec![mine(json!({}))]));
    assert_eq!(format!("{renamed:?}"), "Endpoints(Custom(my.Other {}))");
}

/// Clones know the same policies; others do not, even under the same names.
#[test]
fn registries_are_compared_by_their_readers() {
    let read = reader();
    let one = CustomPolicies::NONE.with("my.Policy", Arc::clone(&read));
    assert_eq!(one, one.clone());
    assert_eq!(
        one,
        CustomPolicies::NONE.with("my.Policy", Arc::clone(&read))
    );
    assert_ne!(one, known());
    assert_ne!(one, CustomPolicies::NONE);
    assert_ne!(one, one.clone().with("my.Other", Arc::clone(&read)));
    let others = CustomPolicies::NONE.with_all_others(Arc::clone(&read));
    assert_ne!(others, CustomPolicies::NONE.with("", Arc::clone(&read)));
    assert_ne!(one, one.clone().with_all_others(read));
    let all = one.with_all_others(reader());
    assert_eq!(format!("{all:?}"), r#"{"my.Policy", "*"}"#);
}

/// Knows `my.Policy`.
fn known() -> CustomPolicies {
    CustomPolicies::NONE.with("my.Policy", reader())
}

/// Makes the text of the configuration, unless that is `bad`.
fn reader() -> Arc<ReadPolicy> {
    Arc::new(|config: &Value| match config.get("bad") {
        None => Ok(Arc::new(config.to_string()) as MadePolicy),
        Some(why) => Err(format!("bad: {why}")),
    })
}

fn accepted(list: Vec<Any>) -> LbPolicy {
    let mut proto = cluster();
    proto.load_balancing_policy = Some(policies(list));
    leaf_policy(parse(&proto, &known()).unwrap())
}

fn refused(list: Vec<Any>, known: &CustomPolicies) -> Vec<String> {
    let mut proto = cluster();
    proto.load_balancing_policy = Some(policies(list));
    parse(&proto, known).unwrap_err()
}

fn parse(proto: &pb::Cluster, known: &CustomPolicies) -> Result<Cluster, Vec<String>> {
    let features = Features {
        custom_policies: known.clone(),
        ..Features::ALL
    };
    let parsed = Cluster::parse(&proto.encode_to_vec(), &features).value;
    parsed.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn leaf_policy(cluster: Cluster) -> LbPolicy {
    match cluster.kind {
        ClusterKind::Leaf(leaf) => leaf.lb_policy,
        ClusterKind::Aggregate(aggregate) => panic!("expected a leaf, got {aggregate:?}"),
    }
}

fn custom(policy: EndpointPolicy) -> CustomPolicyConfig {
    match policy {
        EndpointPolicy::Custom(policy) => policy,
        other => panic!("expected a policy of the program's own, got {other:?}"),
    }
}

/// `my.Policy` with a configuration of numbers and texts.
#[expect(clippy::needless_pass_by_value, reason = "cases read better")]
fn mine(config: Value) -> Any {
    let fields = config.as_object().unwrap().iter();
    let fields = fields.map(|(name, value)| {
        let kind = match value {
            Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
            other => Kind::StringValue(other.as_str().unwrap().to_owned()),
        };
        let value = protobuf::Value { kind: Some(kind) };
        (name.clone(), value)
    });
    let config = Struct {
        fields: fields.collect(),
    };
    typed_struct(KINDS[0], "type.googleapis.com/my.Policy", Some(config))
}

fn typed_struct(kind: &str, type_url: &str, value: Option<Struct>) -> Any {
    #[derive(Clone, PartialEq, prost::Message)]
    struct TypedStruct {
        #[prost(string, tag = "1")]
        type_url: String,
        #[prost(message, optional, tag = "2")]
        value: Option<Struct>,
    }
    let type_url = type_url.to_owned();
    Any {
        type_url: format!("type.googleapis.com/{kind}"),
        value: TypedStruct { type_url, value }.encode_to_vec(),
    }
}

fn fields<const N: usize>(kinds: [(&str, Kind); N]) -> Struct {
    let fields = kinds.map(|(name, kind)| {
        let value = protobuf::Value { kind: Some(kind) };
        (name.to_owned(), value)
    });
    Struct {
        fields: fields.into(),
    }
}

fn list<const N: usize>(kinds: [Kind; N]) -> Kind {
    let values = kinds.map(|kind| protobuf::Value { kind: Some(kind) });
    Kind::ListValue(ListValue {
        values: values.into(),
    })
}

fn wrr_locality(inner: Vec<Any>) -> Any {
    any(&WrrLocality {
        endpoint_picking_policy: Some(policies(inner)),
    })
}

fn policies(configs: Vec<Any>) -> LoadBalancingPolicy {
    let policies = configs.into_iter().map(|config| Policy {
        typed_extension_config: Some(TypedExtensionConfig {
            name: String::new(),
            typed_config: Some(config),
        }),
    });
    LoadBalancingPolicy {
        policies: policies.collect(),
    }
}
