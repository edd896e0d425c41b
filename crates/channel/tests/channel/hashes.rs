//! Calls that a route hashes, on clusters that balance by `ring_hash` (gRFC A42).
//!
//! The route, the call and a header of the program can each give the hash, so their order is tested
//! too.

use std::collections::BTreeSet;

use crowfly::{Channel, RequestHash};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};
use envoy_types::pb::envoy::config::cluster::v3::cluster::LbPolicy;
use envoy_types::pb::envoy::config::route::v3::route_action::HashPolicy;
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::{
    FilterState, Header, PolicySpecifier,
};
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::backend::Backend;
use crate::support::{PATH, channel, send};

/// S5-10: calls with the same value of the header go to one backend, and other values to others. A call without
/// the header goes anywhere.
#[tokio::test]
async fn equal_headers_go_to_one_backend() {
    let backends = three().await;
    let server = ResourceServer::start(&hashing(&backends, by_header("x-user")));
    let channel = channel(&server);
    let mut all = BTreeSet::new();
    for user in 0..60 {
        let user = format!("user-{user}");
        let mut of_user = BTreeSet::new();
        for _ in 0..5 {
            of_user.insert(call_with(&channel, "x-user", &user).await);
        }
        assert_eq!(of_user.len(), 1, "{user}: {of_user:?}");
        all.append(&mut of_user);
    }
    assert_eq!(all.len(), 3);
    assert_eq!(spread(&channel, 100, |_, _| {}).await.len(), 3);
}

/// S5-10: all calls of a channel go to one backend, and other channels have other numbers.
#[tokio::test]
async fn calls_of_one_channel_go_to_one_backend() {
    let backends = three().await;
    let id = PolicySpecifier::FilterState(FilterState {
        key: "io.grpc.channel_id".to_owned(),
    });
    let server = ResourceServer::start(&hashing(&backends, id));
    let mut all = BTreeSet::new();
    for _ in 0..40 {
        let mut of_channel = spread(&channel(&server), 5, |_, _| {}).await;
        assert_eq!(of_channel.len(), 1, "{of_channel:?}");
        all.append(&mut of_channel);
    }
    assert_eq!(all.len(), 3);
}

/// A hash of the call itself decides before the policies of its route.
#[tokio::test]
async fn a_hash_of_the_call_decides_before_the_route() {
    let backends = three().await;
    let server = ResourceServer::start(&hashing(&backends, by_header("x-user")));
    let channel = channel(&server);
    let same_hash = |index: usize, request: &mut Request<String>| {
        set(request, "x-user", &format!("user-{index}"));
        request.extensions_mut().insert(RequestHash(7));
    };
    assert_eq!(spread(&channel, 30, same_hash).await.len(), 1);
}

/// gRFC A76: the header that the program names decides before a hash of the call and before the route.
#[tokio::test]
async fn a_header_of_the_program_decides_before_all_hashes() {
    let backends = three().await;
    let server = ResourceServer::start(&hashing(&backends, by_header("x-user")));
    let channel = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .request_hash_header("x-shard")
        .build()
        .unwrap();
    let same_shard = |index: usize, request: &mut Request<String>| {
        set(request, "x-shard", "one");
        set(request, "x-user", &format!("user-{index}"));
        request.extensions_mut().insert(RequestHash(index as u64));
    };
    assert_eq!(spread(&channel, 30, same_shard).await.len(), 1);
}

/// The backends that calls went to.
async fn spread(
    channel: &Channel,
    count: usize,
    edit: impl Fn(usize, &mut Request<String>),
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for index in 0..count {
        let mut request = Request::new("hello".to_owned());
        edit(index, &mut request);
        found.insert(send(channel, PATH, request).await.unwrap());
    }
    found
}

async fn call_with(channel: &Channel, header: &'static str, value: &str) -> String {
    let mut request = Request::new("hello".to_owned());
    set(&mut request, header, value);
    send(channel, PATH, request).await.unwrap()
}

fn set(request: &mut Request<String>, header: &'static str, value: &str) {
    let value = MetadataValue::try_from(value).unwrap();
    request.metadata_mut().insert(header, value);
}

async fn three() -> [Backend; 3] {
    let (a, b, c) = tokio::join!(
        Backend::start("a"),
        Backend::start("b"),
        Backend::start("c")
    );
    [a, b, c]
}

fn by_header(name: &str) -> PolicySpecifier {
    PolicySpecifier::Header(Header {
        header_name: name.to_owned(),
        regex_rewrite: None,
    })
}

/// The service `payments` on a ring, with this hash policy.
fn hashing(backends: &[Backend], specifier: PolicySpecifier) -> Resources {
    let policy = HashPolicy {
        policy_specifier: Some(specifier),
        ..HashPolicy::default()
    };
    let routes = routes("payments-routes")
        .host("*")
        .route("/", "payments-cluster")
        .edit_action(|action| action.hash_policy = vec![policy]);
    let addresses = backends.iter().map(|backend| backend.address);
    Resources::new()
        .with(listener("payments").rds("payments-routes"))
        .with(routes)
        .with(
            cluster("payments-cluster")
                .eds("payments-eds")
                .edit(|cluster| cluster.lb_policy = LbPolicy::RingHash as i32),
        )
        .with(endpoints("payments-eds").locality("eu/a", 1, addresses))
}
