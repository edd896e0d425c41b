//! Tests of the conditions of views: which clients meet them, and which view leaves nothing to a later one.

use std::collections::HashMap;

use crowfly_source::yaml::Node as Yaml;
use envoy_types::pb::envoy::config::core::v3::Locality;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};

use super::*;

fn conditions(text: &str) -> NodeMatch {
    let nodes = Yaml::parse(text).unwrap();
    nodes[0].read("match").unwrap()
}

fn text(text: &str) -> Value {
    let kind = Some(Kind::StringValue(text.to_owned()));
    Value { kind }
}

fn client() -> Node {
    let labels = HashMap::from([
        ("team".to_owned(), text("pay")),
        ("x".to_owned(), text("y")),
    ]);
    let labels = Kind::StructValue(Struct { fields: labels });
    let number = Kind::NumberValue(7.0);
    let fields = HashMap::from([
        ("env".to_owned(), text("test")),
        (
            "canary".to_owned(),
            Value {
                kind: Some(Kind::BoolValue(true)),
            },
        ),
        ("shard".to_owned(), Value { kind: Some(number) }),
        ("labels".to_owned(), Value { kind: Some(labels) }),
    ]);
    Node {
        id: "canary-1".to_owned(),
        cluster: "shop".to_owned(),
        locality: Some(Locality {
            region: "eu".to_owned(),
            zone: "a".to_owned(),
            sub_zone: String::new(),
        }),
        metadata: Some(Struct { fields }),
        user_agent_name: "gRPC Go".to_owned(),
        ..Node::default()
    }
}

/// V-01: a client must meet all conditions; a list needs one.
#[test]
fn a_client_meets_all_conditions() {
    for (wanted, is_met) in [
        ("{ id: canary-1 }", true),
        ("{ id: canary }", false),
        ("{ id: { prefix: canary- } }", true),
        ("{ id: { suffix: \"-1\" } }", true),
        ("{ id: { contains: nary } }", true),
        ("{ id: { prefix: CANARY, ignore_case: true } }", true),
        ("{ id: { regex: 'canary-[0-9]+' } }", true),
        ("{ id: { regex: 'canary' } }", false),
        ("{ id: [web-1, { prefix: canary- }] }", true),
        ("{ cluster: shop }", true),
        ("{ cluster: [web, pay] }", false),
        ("{ locality: { zone: a } }", true),
        ("{ locality: { region: eu, zone: a } }", true),
        ("{ locality: { region: us, zone: a } }", false),
        (
            "{ locality: { region: eu, zone: a, sub_zone: rack-1 } }",
            false,
        ),
        ("{ metadata: { env: test } }", true),
        ("{ metadata: { env: prod } }", false),
        ("{ metadata: { canary: true, shard: 7 } }", true),
        ("{ metadata: { shard: '7' } }", false),
        ("{ metadata: { labels: { team: pay } } }", true),
        ("{ metadata: { labels: { team: web } } }", false),
        ("{ metadata: { absent: x } }", false),
        ("{ client: grpc }", true),
        ("{ client: [envoy, grpc] }", true),
        ("{ client: envoy }", false),
        ("{ id: canary-1, locality: { zone: b } }", false),
    ] {
        assert_eq!(conditions(wanted).matches(&client()), is_met, "{wanted}");
    }
}

/// V-01: a client that says nothing about itself meets no condition.
#[test]
fn an_unknown_client_meets_nothing() {
    let nobody = Node::default();
    for wanted in [
        "{ id: a }",
        "{ cluster: a }",
        "{ locality: { zone: a } }",
        "{ metadata: { a: b } }",
        "{ client: [grpc, envoy, node] }",
    ] {
        assert!(!conditions(wanted).matches(&nobody), "{wanted}");
    }
}

/// V-03: a view covers another one if it matches all of its clients.
#[test]
fn a_wider_view_covers_a_narrower_one() {
    for (wide, narrow, is_covered) in [
        ("{ id: { prefix: a } }", "{ id: { prefix: ab } }", true),
        ("{ id: { prefix: ab } }", "{ id: { prefix: a } }", false),
        ("{ id: { prefix: a } }", "{ id: abc }", true),
        ("{ id: { regex: 'a.*' } }", "{ id: abc }", true),
        ("{ id: { suffix: c } }", "{ id: { suffix: bc } }", true),
        ("{ id: { contains: b } }", "{ id: { prefix: abc } }", true),
        ("{ id: [a, b] }", "{ id: [b] }", true),
        ("{ id: [a, b] }", "{ id: [b, c] }", false),
        (
            "{ id: { prefix: a } }",
            "{ id: { prefix: ab }, cluster: c }",
            true,
        ),
        (
            "{ id: { prefix: a }, cluster: c }",
            "{ id: { prefix: ab } }",
            false,
        ),
        (
            "{ locality: { zone: a } }",
            "{ locality: { region: eu, zone: a } }",
            true,
        ),
        (
            "{ locality: { region: eu, zone: a } }",
            "{ locality: { zone: a } }",
            false,
        ),
        (
            "{ metadata: { a: b } }",
            "{ metadata: { a: b, c: d } }",
            true,
        ),
        (
            "{ metadata: { a: { b: c } } }",
            "{ metadata: { a: { b: c, d: e } } }",
            true,
        ),
        (
            "{ metadata: { a: b, c: d } }",
            "{ metadata: { a: b } }",
            false,
        ),
        ("{ client: [grpc, envoy] }", "{ client: envoy }", true),
        ("{ client: envoy }", "{ client: [grpc, envoy] }", false),
        (
            "{ id: { prefix: a } }",
            "{ id: { prefix: AB, ignore_case: true } }",
            false,
        ),
    ] {
        let covers = conditions(wide).covers(&conditions(narrow));
        assert_eq!(covers, is_covered, "{wide} over {narrow}");
    }
}
