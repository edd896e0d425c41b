//! Policies of the program's own, which clusters name (gRFC A52).
//!
//! The policies of a channel decide which clusters it accepts, so channels with other policies must
//! not share a client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crowfly::Channel;
use crowfly::policy::{
    CallContext, CallOutcome, CustomPolicy, Endpoint, PolicyRegistry, ReadySet, Selection, Selector,
};
use crowfly_model::ResourceType;
use crowfly_model::grpc::Cluster;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{ClusterBuilder, Resources, cluster, custom_policy, wrr_locality};
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds};
use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use envoy_types::util::pack_any;
use serde_json::json;

use crate::backend::Backend;
use crate::policies::backends;
use crate::support::{call, channel, payments, spread, spread_until};

/// S3-16: the policy that a cluster names is asked, and told how its calls ended. A new configuration
/// is a new policy, on the connections of the old one.
#[tokio::test]
async fn calls_follow_the_policy_that_the_cluster_names() {
    let backends = backends().await;
    let by = |nth| by_policies(&backends, [wrr_locality([nth_of(nth)])]);
    let server = ResourceServer::start(&by(2));
    let (registry, seen) = nth();
    let channel = with_policies(&server, &registry);

    assert_eq!(spread(&channel, 20).await, all_to("c", 20));
    assert_eq!(seen.fine.load(SeqCst), 20);
    let tree = channel.tree().await;
    assert!(tree.contains("test.Nth"), "{tree}");

    server.set(&by(0));
    spread_until(&channel, 5, |answers| *answers == all_to("a", 5)).await;
    let connections = backends.each_ref().map(Backend::connections);
    assert_eq!(connections, [1, 1, 1]);
}

/// A policy stays while its configuration does, even if other parts of the cluster change.
#[tokio::test]
async fn a_policy_outlives_other_changes() {
    let backends = backends().await;
    let limited = |limit| {
        let cluster = named([nth_of(1)]).edit(|proto| {
            proto.circuit_breakers = Some(CircuitBreakers {
                thresholds: vec![Thresholds {
                    max_requests: Some(UInt32Value { value: limit }),
                    ..Thresholds::default()
                }],
                ..CircuitBreakers::default()
            });
        });
        payments(&backends.each_ref()).with(cluster)
    };
    let server = ResourceServer::start(&limited(7));
    let (registry, seen) = nth();
    let channel = with_policies(&server, &registry);
    assert_eq!(spread(&channel, 3).await, all_to("b", 3));

    server.set(&limited(8));
    while !channel.tree().await.contains("limit 8") {
        tokio::task::yield_now().await;
    }
    assert_eq!(spread(&channel, 3).await, all_to("b", 3));
    assert_eq!((seen.reads.load(SeqCst), seen.builds.load(SeqCst)), (2, 1));
}

/// S3-16: a configuration that the policy refuses is a NACK that says where and why; the last good one
/// is used on.
#[tokio::test]
async fn a_bad_configuration_is_refused() {
    let backends = backends().await;
    let mut server = ResourceServer::start(&by_policies(&backends, [nth_of(1)]));
    let (registry, _) = nth();
    let channel = with_policies(&server, &registry);
    assert_eq!(spread(&channel, 3).await, all_to("b", 3));

    let bad = custom_policy("test.Nth", &json!({ "nth": "first" }));
    server.set(&by_policies(&backends, [bad]));
    let told = server.next_nack().await;
    let expected = "cluster payments-cluster: load_balancing_policy.policies[0]\
                    .typed_extension_config.typed_config.value: nth: expected a number";
    assert!(told.contains(expected), "{told}");
    assert_eq!(spread(&channel, 3).await, all_to("b", 3));
}

/// S3-16: a program without the policy uses the next one of the list, and refuses a list with no
/// other.
#[tokio::test]
async fn a_program_without_the_policy_goes_on() {
    let backends = backends().await;
    let round_robin = pack_any(RoundRobin::default());
    let server = ResourceServer::start(&by_policies(&backends, [nth_of(1), round_robin]));
    let without = channel(&server);
    spread_until(&without, 6, |answers| answers.len() == 3).await;

    let server = ResourceServer::start(&by_policies(&backends, [nth_of(1)]));
    let refused = call(&channel(&server)).await.unwrap_err();
    let expected = "expected a supported policy, got test.Nth (not registered)";
    assert!(refused.message().contains(expected), "{refused}");
}

/// A registry that knows every name accepts every cluster, but has no policy to choose endpoints by.
#[tokio::test]
async fn a_name_alone_sends_no_calls() {
    let backends = backends().await;
    let mut server = ResourceServer::start(&by_policies(&backends, [nth_of(1)]));
    let channel = with_policies(&server, &PolicyRegistry::of_all_names());
    server.next_ack(Cluster::TYPE_URL).await;
    let failed = call(&channel).await.unwrap_err();
    let expected = "this program has no policy test.Nth";
    assert!(failed.message().contains(expected), "{failed}");
}

/// Channels whose policies are the same share what they hear; others would read it otherwise.
#[tokio::test]
async fn channels_share_a_client_by_their_policies() {
    let backends = backends().await;
    let server = ResourceServer::start(&by_policies(&backends, [nth_of(1)]));
    let bootstrap = server.bootstrap();
    let (registry, _) = nth();
    let (other, _) = nth();
    let start = |registry: &PolicyRegistry| {
        let builder = Channel::builder("xds:///payments").bootstrap(bootstrap.clone());
        builder.policies(registry).build().unwrap()
    };
    let same = [start(&registry), start(&registry.clone())];
    for channel in &same {
        assert_eq!(call(channel).await.unwrap(), "b");
    }
    server.has_streams(1).await;
    let another = start(&other);
    assert_eq!(call(&another).await.unwrap(), "b");
    server.has_streams(2).await;
}

/// The calls that the policies of one registry have seen.
#[derive(Debug, Default)]
struct Seen {
    reads: AtomicUsize,
    builds: AtomicUsize,
    fine: AtomicUsize,
}

/// Has `test.Nth`, which sends every call to one endpoint of the list.
fn nth() -> (PolicyRegistry, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    let told = Arc::clone(&seen);
    let registry = PolicyRegistry::new().with("test.Nth", move |config| {
        told.reads.fetch_add(1, SeqCst);
        let nth = config["nth"].as_u64().ok_or("nth: expected a number")?;
        let seen = Arc::clone(&told);
        Ok::<_, &str>(Nth { nth, seen })
    });
    (registry, seen)
}

#[derive(Clone, Debug)]
struct Nth {
    nth: u64,
    seen: Arc<Seen>,
}

impl CustomPolicy for Nth {
    fn name(&self) -> &str {
        "test.Nth"
    }

    fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
        self.seen.builds.fetch_add(1, SeqCst);
        Arc::new(self.clone())
    }
}

impl Selector for Nth {
    fn pick<'a>(&self, _: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
        let mut ready = ready.iter();
        let chosen = ready.find(|endpoint| endpoint.index() as u64 == self.nth);
        chosen.map_or(Selection::Queue, Selection::Send)
    }

    fn finished(&self, _: usize, outcome: CallOutcome) {
        if outcome == CallOutcome::Status(0) {
            self.seen.fine.fetch_add(1, SeqCst);
        }
    }
}

fn nth_of(nth: u64) -> Any {
    custom_policy("test.Nth", &json!({ "nth": nth }))
}

fn named<const N: usize>(policies: [Any; N]) -> ClusterBuilder {
    let cluster = cluster("payments-cluster").eds("payments-eds");
    cluster.policies(policies)
}

fn by_policies<const N: usize>(backends: &[Backend; 3], policies: [Any; N]) -> Resources {
    payments(&backends.each_ref()).with(named(policies))
}

fn with_policies(server: &ResourceServer, registry: &PolicyRegistry) -> Channel {
    let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
    builder.policies(registry).build().unwrap()
}

fn all_to(name: &str, count: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(name.to_owned(), count)])
}
