//! Tests of aggregates, which are clusters that stand for others (gRFC A37, A75, A99). Most of
//! their own settings have no effect, because each leaf has its own.

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Cluster,
        cluster::{Aggregate, Children, ClusterKind, EndpointPolicy, LbPolicy},
    },
};
use envoy_types::pb::{
    envoy::{
        config::cluster::v3::{
            self as pb, LoadBalancingPolicy,
            cluster::{ClusterDiscoveryType, CustomClusterType, LbPolicy as PbLbPolicy},
        },
        extensions::clusters::aggregate::v3::{AggregateClusterResource, ClusterConfig},
    },
    google::protobuf::Any,
};
use prost::{Message, Name};

use crate::{
    Case, accept, check_rejections,
    messages::{ads, aggregate, any, file_source, of_type, self_source},
    reject,
};

const INLINE: &str = "envoy.extensions.clusters.aggregate.v3.ClusterConfig";
const RESOURCE: &str = "envoy.extensions.clusters.aggregate.v3.AggregateClusterResource";

/// S3-07: any policy is accepted, CLUSTER_PROVIDED as Envoy demands it included, and kept if it is
/// one that we have (gRFC A75).
#[test]
fn every_policy_is_accepted() {
    let round_robin = Some(LbPolicy::WrrLocality(EndpointPolicy::RoundRobin));
    let cases = [
        (PbLbPolicy::ClusterProvided as i32, None),
        (PbLbPolicy::Maglev as i32, None),
        (PbLbPolicy::RoundRobin as i32, round_robin),
        (77, None),
    ];
    for make in [aggregate, aggregate_resource] {
        for (policy, expected) in &cases {
            let mut proto = make();
            proto.lb_policy = *policy;
            assert_eq!(parsed(&proto).lb_policy, *expected, "{policy}");

            // It wins over the enum, and here there is none that we have.
            proto.load_balancing_policy = Some(LoadBalancingPolicy::default());
            assert_eq!(parsed(&proto).lb_policy, None, "{policy}");
        }
    }
}

/// S3-07: an aggregate without clusters is a NACK, whatever is said of its policy.
#[test]
fn no_clusters() {
    let mut proto = of_type(any(&ClusterConfig::default()));
    proto.lb_policy = PbLbPolicy::ClusterProvided as i32;

    let errors = reject::<Cluster>(&proto);

    let expected = "cluster_type.typed_config.clusters: expected at least one, got none";
    assert_eq!(errors, [expected]);
}

/// gRFC A37, A99: the type of the configuration decides, and the name of the extension does not.
#[test]
fn type_of_the_configuration_decides() {
    for name in ["", "envoy.clusters.aggregate", "envoy.clusters.fancy"] {
        let mut proto = aggregate();
        custom(&mut proto).name = name.to_owned();
        assert!(matches!(parsed(&proto).children, Children::Inline(_)));

        let mut proto = aggregate_resource();
        custom(&mut proto).name = name.to_owned();
        assert_eq!(
            parsed(&proto).children,
            Children::Resource("list".to_owned())
        );
    }
}

/// S3-05: an extension that is no aggregate, or cannot be read as one.
#[test]
fn other_extensions_are_nacked() {
    let struct_of_it = Any {
        type_url: "type.googleapis.com/xds.type.v3.TypedStruct".to_owned(),
        value: any(&ClusterConfig::default()).encode_to_vec(),
    };
    let with_type = |type_url: &str| Any {
        type_url: type_url.to_owned(),
        value: vec![0x0f],
    };
    let (inline, resource) = (
        ClusterConfig::type_url(),
        AggregateClusterResource::type_url(),
    );
    let garbled = "cannot be decoded: failed to decode Protobuf message: \
                   invalid wire type value: 7";
    let cases = [
        (
            with_type("type.googleapis.com/x.Fancy"),
            format!("expected {INLINE} or {RESOURCE}, got type.googleapis.com/x.Fancy"),
        ),
        (
            with_type(""),
            "expected a type_url such as type.googleapis.com/NAME, got \"\"".to_owned(),
        ),
        (with_type(&inline), format!("{INLINE} {garbled}")),
        (with_type(&resource), format!("{RESOURCE} {garbled}")),
        (
            struct_of_it,
            format!("expected {INLINE}, got it as a TypedStruct"),
        ),
    ];
    for (config, expected) in cases {
        let errors = reject::<Cluster>(&of_type(config));
        assert_eq!(errors, [format!("cluster_type.typed_config: {expected}")]);
    }
}

/// gRFC A99: the list comes from the same stream, and has a name.
#[test]
fn resource_that_cannot_be_fetched_is_nacked() {
    let cases: &[Case<AggregateClusterResource>] = &[
        (
            "no source",
            |p| p.config_source = None,
            &["cluster_type.typed_config.config_source: expected ads or self, got none"],
        ),
        (
            "another source, and no name",
            |p| {
                p.config_source = Some(file_source());
                p.resource_name.clear();
            },
            &[
                "cluster_type.typed_config.config_source: \
               expected ads or self, got path_config_source",
                "cluster_type.typed_config.resource_name: \
               expected a non-empty string, got none",
            ],
        ),
    ];
    for (what, spoil, expected) in cases {
        let mut resource = resource();
        spoil(&mut resource);
        let errors = reject::<Cluster>(&of_type(any(&resource)));
        assert_eq!(errors, *expected, "{what}");
    }
    for source in [ads(), self_source()] {
        let mut resource = resource();
        resource.config_source = Some(source);
        let children = parsed(&of_type(any(&resource))).children;
        assert_eq!(children, Children::Resource("list".to_owned()));
    }
}

/// S4-29, S3-05: with the gate of gRFC A99 closed the type is refused. The error names the variable
/// that opens the gate. An inline list stays valid.
#[test]
fn gate_closed() {
    let closed = Features::default();

    let refused = Cluster::parse(&aggregate_resource().encode_to_vec(), &closed);

    assert_eq!(refused.name.as_deref(), Some("payments"));
    let error = refused.value.unwrap_err().to_string();
    let expected = format!(
        "cluster_type.typed_config: expected {INLINE}, got type.googleapis.com/{RESOURCE} \
         (an experiment: GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE=true allows it)"
    );
    assert_eq!(error, expected);
    let inline = Cluster::parse(&aggregate().encode_to_vec(), &closed);
    assert!(inline.value.is_ok());
}

/// Load reports go where the cluster came from, also if it is an aggregate, which has none itself.
#[test]
fn what_leaves_would_use_is_validated() {
    let cases: &[Case<pb::Cluster>] = &[(
        "load reports",
        |p| p.lrs_server = Some(ads()),
        &["lrs_server: expected self, got ads"],
    )];
    check_rejections::<Cluster, _>(aggregate, cases);
    check_rejections::<Cluster, _>(aggregate_resource, cases);
}

fn resource() -> AggregateClusterResource {
    AggregateClusterResource {
        config_source: Some(ads()),
        resource_name: "list".to_owned(),
    }
}

fn aggregate_resource() -> pb::Cluster {
    of_type(any(&resource()))
}

fn custom(cluster: &mut pb::Cluster) -> &mut CustomClusterType {
    match &mut cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(custom)) => custom,
        other => panic!("expected an extension, got {other:?}"),
    }
}

fn parsed(proto: &pb::Cluster) -> Aggregate {
    let cluster = accept::<Cluster>(proto);
    assert_eq!(cluster.eds_name(), None);
    match cluster.kind {
        ClusterKind::Aggregate(aggregate) => aggregate,
        ClusterKind::Leaf(leaf) => panic!("expected an aggregate, got {leaf:?}"),
    }
}
