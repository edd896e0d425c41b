//! Endpoints are chosen by the policy of the cluster.
//!
//! `crowfly-lb` tests the policies themselves. These tests show that calls over sockets follow
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use crowfly::{Channel, RequestHash};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster};
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    LbConfig, LbPolicy, LeastRequestLbConfig,
};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use tonic::Request;

use crate::backend::Backend;
use crate::support::{PATH, call, call_within, channel, payments, send, spread};

/// S10-08: under ring_hash, calls with one hash go to one backend, and calls with many to all. A
/// header of the program's choice can be the hash (gRFC A76).
#[tokio::test]
async fn calls_follow_their_hash() {
    let backends = backends().await;
    let server = ResourceServer::start(&by_ring_hash(&backends));
    let plain = channel(&server);
    let by_header = Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .request_hash_header("x-user")
        .build()
        .unwrap();
    let mut by_user = BTreeMap::new();
    for round in 0..3 {
        for user in 0..30u64 {
            let mut request = Request::new("hello".to_owned());
            request.extensions_mut().insert(RequestHash(user << 59));
            let first = send(&plain, PATH, request).await.unwrap();
            let mut request = Request::new("hello".to_owned());
            let name = format!("user-{user}").parse().unwrap();
            request.metadata_mut().insert("x-user", name);
            let second = send(&by_header, PATH, request).await.unwrap();

            let answers = by_user
                .entry(user)
                .or_insert_with(|| (first.clone(), second.clone()));
            assert_eq!(*answers, (first, second), "round {round}, user {user}");
        }
    }
    let firsts: std::collections::BTreeSet<_> = by_user.values().map(|(first, _)| first).collect();
    let seconds: std::collections::BTreeSet<_> =
        by_user.values().map(|(_, second)| second).collect();
    assert_eq!((firsts.len(), seconds.len()), (3, 3));
}

/// S10-04: under pick_first, one backend takes all calls.
#[tokio::test]
async fn the_first_takes_all() {
    let backends = backends().await;
    let pick_first = Any {
        type_url:
            "type.googleapis.com/envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst"
                .to_owned(),
        value: Vec::new(),
    };
    let resources = payments(&backends.each_ref()).with(
        cluster("payments-cluster")
            .eds("payments-eds")
            .policies([pick_first]),
    );
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    assert_eq!(
        spread(&channel, 20).await,
        BTreeMap::from([("a".to_owned(), 20)])
    );
    let tree = channel.tree().await;
    assert!(tree.contains("pick_first"), "{tree}");
}

/// gRFC A48: while one backend has an open call, the calls that follow go to the other. With ten choices of two, the
/// busy one is taken when all ten are it: once in 1024 calls.
#[tokio::test]
async fn the_least_busy_takes_the_next() {
    let (mut busy, idle) = tokio::join!(Backend::holding("busy"), Backend::start("idle"));
    let config = LeastRequestLbConfig {
        choice_count: Some(UInt32Value { value: 10 }),
        ..LeastRequestLbConfig::default()
    };
    let resources =
        payments(&[&busy, &idle]).with(cluster("payments-cluster").eds("payments-eds").edit(
            move |proto| {
                proto.lb_policy = LbPolicy::LeastRequest as i32;
                proto.lb_config = Some(LbConfig::LeastRequestLbConfig(config));
            },
        ));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let mut first = Box::pin(call(&channel));
    let _held = loop {
        tokio::select! {
            held = busy.next_call() => break held,
            answer = &mut first => {
                assert_eq!(answer.unwrap(), "idle");
                first = Box::pin(call(&channel));
            }
        }
    };

    // A call that the busy backend has ends with its deadline.
    let mut others = 0;
    for _ in 0..20 {
        let answer = call_within(&channel, Duration::from_secs(5)).await;
        others += usize::from(answer.is_err());
        assert!(others <= 2, "the busy backend gets calls: {answer:?}");
    }
}

pub(crate) async fn backends() -> [Backend; 3] {
    let (a, b, c) = tokio::join!(
        Backend::start("a"),
        Backend::start("b"),
        Backend::start("c")
    );
    [a, b, c]
}

fn by_ring_hash(backends: &[Backend; 3]) -> Resources {
    payments(&backends.each_ref()).with(
        cluster("payments-cluster")
            .eds("payments-eds")
            .edit(|proto| proto.lb_policy = LbPolicy::RingHash as i32),
    )
}
