//! Tests of the cluster list of an aggregate, as a resource of its own (gRFC A99). It is parsed
//! like an inline list, because both have one meaning.

use std::sync::Arc;

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Cluster, ClusterConfig,
        cluster::{Children, ClusterKind},
    },
};
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3 as pb;
use prost::Message;

use crate::{
    Case, accept, check_rejections,
    messages::{any, of_type},
    reject,
};

/// S3-14: the list is parsed the same whether it is a resource or inside a cluster: in its order,
/// with names as they are written.
#[test]
fn parsed_the_same_as_inline() {
    let xdstp = "xdstp://east/envoy.config.cluster.v3.Cluster/c?b=1&a=2";
    for names in [&["a"][..], &["b", "a", "b"], &[xdstp, "a"]] {
        let parsed = accept::<ClusterConfig>(&list(names));
        assert_eq!(parsed.clusters, names);

        let cluster = accept::<Cluster>(&of_type(any(&list(names))));
        let ClusterKind::Aggregate(aggregate) = cluster.kind else {
            panic!("expected an aggregate, got {cluster:?}");
        };
        assert_eq!(aggregate.children, Children::Inline(Arc::new(parsed)));
    }
}

/// S3-14: a list without a cluster is a NACK, and so is a name that no cluster has; inside a cluster
/// the same errors are told, further down.
#[test]
fn what_is_nacked() {
    let cases: &[Case<pb::ClusterConfig>] = &[
        (
            "empty",
            |p| p.clusters.clear(),
            &["clusters: expected at least one, got none"],
        ),
        (
            "empty name",
            |p| {
                p.clusters
                    .extend([String::new(), "b".to_owned(), String::new()]);
            },
            &[
                "clusters[1]: expected the name of a cluster, got an empty string",
                "clusters[3]: expected the name of a cluster, got an empty string",
            ],
        ),
    ];
    check_rejections::<ClusterConfig, _>(|| list(&["a"]), cases);

    for (what, spoil, expected) in cases {
        let mut proto = list(&["a"]);
        spoil(&mut proto);
        let errors = reject::<Cluster>(&of_type(any(&proto)));
        let below = |error: &&str| format!("cluster_type.typed_config.{error}");
        let expected: Vec<String> = expected.iter().map(below).collect();
        assert_eq!(errors, expected, "{what}");
    }
}

/// S3-14: the message does not know its name, which is the wrapper's, and is not needed to be listed
/// in every response.
#[test]
fn has_no_name_of_its_own() {
    for proto in [list(&["a"]), list(&[])] {
        let decoded = ClusterConfig::parse(&proto.encode_to_vec(), &Features::ALL);
        assert_eq!(decoded.name, None);
    }
    let undecodable = ClusterConfig::parse(&[0x0f], &Features::ALL);
    assert_eq!(undecodable.name, None);
    let error = undecodable.value.unwrap_err().to_string();
    assert!(error.starts_with("cannot be decoded"), "{error}");
    const { assert!(!ClusterConfig::ALL_IN_SOTW) };
}

/// The gate of gRFC A99 is at the cluster that leads here: a list that is never asked for never comes.
#[test]
fn gate_is_not_here() {
    let decoded = ClusterConfig::parse(&list(&["a"]).encode_to_vec(), &Features::default());
    assert_eq!(decoded.value.unwrap().clusters, ["a"]);
}

fn list(names: &[&str]) -> pb::ClusterConfig {
    pb::ClusterConfig {
        clusters: names.iter().map(ToString::to_string).collect(),
    }
}
