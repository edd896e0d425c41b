//! Tests of the policies in a plan: each policy that a cluster names becomes a policy of the balancer.
//!
//! The policies of a program are their main subject, because the model knows them by name only.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use crowfly_lb::{CustomPolicy, Selector};
use crowfly_model::{Features, ResourceType, grpc};
use crowfly_testkit::builders::{ClusterBuilder, cluster, custom_policy, endpoints, wrr_locality};
use crowfly_xds::Members;
use envoy_types::pb::envoy::config::cluster::v3::cluster::LbPolicy as Classic;
use envoy_types::pb::google::protobuf::Any;
use serde_json::json;

use super::*;
use crate::policy::PolicyRegistry;

/// gRFC A52: the policy is that of each locality inside `wrr_locality`, else of all endpoints at once.
#[test]
fn a_policy_of_the_program_is_a_leaf() {
    let mut planner = planner();
    let inside = planner.leaf(
        &"c".into(),
        &state([wrr_locality([mine(1)])], &[1, 2]),
        None,
    );
    let Node::Localities(localities) = spread_of(&inside) else {
        panic!("expected localities, got {inside:?}");
    };
    for (locality, count) in localities.iter().zip([1, 2]) {
        let Node::Leaf(leaf) = &locality.child else {
            panic!("expected a leaf, got {:?}", locality.child);
        };
        assert_eq!(
            (leaf.policy.name(), leaf.endpoints.len()),
            ("my.Policy", count)
        );
    }

    let flat = planner.leaf(&"c".into(), &state([mine(1)], &[1, 2]), None);
    let leaf = leaf_of(&flat);
    assert_eq!((leaf.policy.name(), leaf.endpoints.len()), ("my.Policy", 3));
}

/// The policy in use stays while its configuration does, although the cluster was read again.
/// Another configuration is another policy.
#[test]
fn a_policy_stays_with_its_configuration() {
    let mut planner = planner();
    let mut policy = |n, count| {
        let node = planner.leaf(&"c".into(), &state([mine(n)], &[count]), None);
        leaf_of(&node).policy.clone()
    };
    let first = policy(1, 1);
    assert_eq!(policy(1, 2), first);
    assert_ne!(policy(2, 2), first);
}

/// With the policies of aggregates imposed on leaves, as before gRFC A75, one of the program's own is
/// imposed as well.
#[test]
fn an_aggregate_may_impose_a_policy_of_the_program() {
    let mut planner = planner();
    let imposed = policy_of(&parsed(&cluster("top").policies([mine(1)])));
    let round_robin = Arc::new(parsed(&cluster("c")));
    let members = Members::Endpoints(None);
    let state = Arc::new(ClusterState {
        cluster: round_robin,
        members,
        notes: Vec::new(),
    });
    let node = planner.leaf(&"c".into(), &state, Some(("top".into(), &imposed)));
    assert_eq!(leaf_of(&node).policy.name(), "my.Policy");
}

/// gRFC A113: under `ring_hash` and `pick_first`, which see all localities at once, endpoints weigh by
/// shares.
#[test]
fn endpoints_of_all_localities_weigh_by_shares() {
    let ring_hash = cluster("c").edit(|proto| proto.lb_policy = Classic::RingHash as i32);
    let pick_first = Any {
        type_url: "x/envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst".to_owned(),
        value: vec![],
    };
    let pick_first = cluster("c").policies([pick_first]);
    for cluster in [ring_hash, pick_first] {
        let node = planner().leaf(&"c".into(), &with_endpoints(&cluster, &[1, 2]), None);
        let weights = leaf_of(&node).endpoints.iter().map(|e| e.weight.get());
        assert_eq!(weights.collect::<Vec<_>>(), [1 << 30, 1 << 29, 1 << 29]);
    }
}

/// gRFC A55 and A75: a plan carries draining endpoints for the cluster, with their localities, and none
/// for its leaves.
#[test]
fn draining_endpoints_are_the_clusters_and_in_no_leaf() {
    let list = endpoints("c")
        .locality("eu/a", 1, ["10.0.0.1:1", "10.0.0.1:2"])
        .locality("eu/b", 1, ["10.0.0.2:1"]);
    let list = grpc::Endpoints::parse(&list.any().value, &Features::ALL);
    let mut list = list.value.unwrap();
    let second = &mut list.priorities[0][0].endpoints[1];
    second.health = model::Health::Draining;
    let state = Arc::new(ClusterState {
        cluster: Arc::new(parsed(&cluster("c"))),
        members: Members::Endpoints(Some(Arc::new(list))),
        notes: Vec::new(),
    });
    let node = planner().leaf(&"c".into(), &state, None);
    let Node::Cluster(cluster) = &node else {
        panic!("expected a cluster, got {node:?}");
    };
    let draining = cluster.draining.iter();
    let draining = draining.map(|e| (e.to_string(), e.locality.as_ref().unwrap().to_string()));
    let expected = [("10.0.0.1:2".to_owned(), "eu/a".to_owned())];
    assert_eq!(draining.collect::<Vec<_>>(), expected);
    let Node::Localities(localities) = spread_of(&node) else {
        panic!("expected localities, got {node:?}");
    };
    let counts = localities.iter().map(|locality| match &locality.child {
        Node::Leaf(leaf) => leaf.endpoints.len(),
        other => panic!("expected a leaf, got {other:?}"),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1]);
}

fn planner() -> Planner {
    Planner::new(EndpointChoice::default())
}

/// `my.Policy`, which does nothing, and knows one number.
#[derive(Debug)]
struct Mine;

impl CustomPolicy for Mine {
    fn name(&self) -> &str {
        "my.Policy"
    }

    fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
        panic!("nothing is balanced here");
    }
}

fn mine(n: u32) -> Any {
    custom_policy("my.Policy", &json!({ "n": n }))
}

/// A cluster with these policies, and as many endpoints in each of its localities.
fn state<const N: usize>(policies: [Any; N], localities: &[u16]) -> Arc<ClusterState> {
    with_endpoints(&cluster("c").policies(policies), localities)
}

fn with_endpoints(cluster: &ClusterBuilder, localities: &[u16]) -> Arc<ClusterState> {
    let mut list = endpoints("c");
    for (zone, &count) in localities.iter().enumerate() {
        let addresses = (1..=count).map(|port| format!("10.0.0.{zone}:{port}"));
        let addresses: Vec<String> = addresses.collect();
        let addresses = addresses.iter().map(String::as_str);
        list = list.locality(&format!("eu/{zone}"), 1, addresses);
    }
    let list = grpc::Endpoints::parse(&list.any().value, &Features::ALL);
    Arc::new(ClusterState {
        cluster: Arc::new(parsed(cluster)),
        members: Members::Endpoints(Some(Arc::new(list.value.unwrap()))),
        notes: Vec::new(),
    })
}

/// The cluster as a client with `my.Policy` reads it.
fn parsed(cluster: &ClusterBuilder) -> grpc::Cluster {
    let registry = PolicyRegistry::new().with("my.Policy", |_| Ok::<_, String>(Mine));
    let features = Features {
        custom_policies: registry.into(),
        ..Features::ALL
    };
    let parsed = grpc::Cluster::parse(&cluster.any().value, &features);
    parsed.value.unwrap()
}

fn policy_of(cluster: &grpc::Cluster) -> LbPolicy {
    let ClusterKind::Leaf(leaf) = &cluster.kind else {
        panic!("expected a leaf, got {cluster:?}");
    };
    leaf.lb_policy.clone()
}

/// The node below the first priority of a cluster.
fn spread_of(node: &Node) -> &Node {
    let Node::Cluster(cluster) = node else {
        panic!("expected a cluster, got {node:?}");
    };
    let Node::Priority(priority) = &cluster.child else {
        panic!("expected priorities, got {node:?}");
    };
    &priority.children[0].node
}

fn leaf_of(node: &Node) -> &Leaf {
    match spread_of(node) {
        Node::Leaf(leaf) => leaf,
        other => panic!("expected a leaf, got {other:?}"),
    }
}
