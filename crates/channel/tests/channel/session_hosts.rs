//! Sessions and their hosts, while endpoints move, drain, leave and return (gRFC A55, A60, A61,
//! A75).
//!
//! A session must stay on its host for as long as the host may serve it. `sessions.rs` has the
//! rules about cookies.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use crowfly::Channel;
use crowfly_model::grpc::filter::SessionCookie;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{
    ClusterBuilder, EndpointsBuilder, Resources, cluster, endpoint, endpoints, routes, sessions,
};
use envoy_types::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use envoy_types::pb::envoy::config::core::v3::{
    HealthStatus, HealthStatusSet, HttpProtocolOptions as CommonOptions, TypedExtensionConfig,
};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::google::protobuf;
use envoy_types::util::pack_any;

use crate::backend::Backend;
use crate::sessions::{Answer, cookie_for, decoded, visit, with_sessions};
use crate::support::{PATH, channel, pass, payments, policy, retrying_routes};

const TO: &str = "payments-cluster";

/// The service `payments` with sessions and these backends.
fn with_hosts(backends: &[&Backend]) -> Resources {
    payments(backends).with(with_sessions(sessions("session")))
}

fn members() -> EndpointsBuilder {
    endpoints("payments-eds")
}

/// The backends of two priorities.
fn two_priorities(first: &[&Backend], second: &[&Backend]) -> EndpointsBuilder {
    let addresses = |backends: &[&Backend]| -> Vec<SocketAddr> {
        backends.iter().map(|backend| backend.address).collect()
    };
    let members = members().locality("eu/a", 1, addresses(first));
    members.priority(1).locality("eu/b", 1, addresses(second))
}

/// The cluster of `payments` with an idle timeout for the connections of sessions.
fn idle_after(seconds: i64) -> ClusterBuilder {
    cluster(TO).eds("payments-eds").edit(|cluster| {
        let idle_timeout = Some(protobuf::Duration { seconds, nanos: 0 });
        let options = HttpProtocolOptions {
            common_http_protocol_options: Some(CommonOptions {
                idle_timeout,
                ..CommonOptions::default()
            }),
            ..HttpProtocolOptions::default()
        };
        cluster.upstream_config = Some(TypedExtensionConfig {
            name: "http".to_owned(),
            typed_config: Some(pack_any(options)),
        });
    })
}

/// The service `payments` with sessions, whose calls are split over clusters by weight.
fn split(clusters: [(&str, u32, &[&Backend]); 2]) -> Resources {
    let weights = clusters.map(|(name, weight, _)| (name, weight));
    let split = routes("payments-routes").host("*").split("/", &weights);
    let resources = Resources::new().with(with_sessions(sessions("session")));
    let clusters = clusters.into_iter();
    clusters.fold(resources.with(split), |resources, (name, _, backends)| {
        let addresses = backends.iter().map(|backend| backend.address);
        let members = endpoints(name).locality("eu/a", 1, addresses);
        resources.with(cluster(name)).with(members)
    })
}

async fn three_backends() -> [Backend; 3] {
    [
        Backend::start("a").await,
        Backend::start("b").await,
        Backend::start("c").await,
    ]
}

/// The cluster of `payments`, whose sessions stay on endpoints with this health.
fn keeping(statuses: &[HealthStatus]) -> ClusterBuilder {
    cluster(TO).eds("payments-eds").edit(|cluster| {
        cluster.common_lb_config = Some(CommonLbConfig {
            override_host_status: Some(HealthStatusSet {
                statuses: statuses.iter().map(|status| (*status).into()).collect(),
            }),
            ..CommonLbConfig::default()
        });
    })
}

/// A cookie for a host that no call has seen.
fn cookie_of(addresses: &[SocketAddr], cluster: &str) -> String {
    let cookie = SessionCookie {
        name: "session".to_owned(),
        path: String::new(),
        ttl: Duration::ZERO,
    };
    let set = cookie.set_cookie(addresses.iter().copied(), cluster);
    set.split(';').next().unwrap().to_owned()
}

/// Makes a call of a session.
async fn call(channel: &Channel, cookie: &str) -> Answer {
    visit(channel, PATH, &[cookie]).await.unwrap()
}

/// Makes calls of a session, all of which must stay on `host`.
async fn stays(channel: &Channel, cookie: &str, host: &str) {
    for _ in 0..10 {
        let answer = call(channel, cookie).await;
        assert_eq!((answer.by.as_str(), &answer.set[..]), (host, &[][..]));
    }
}

/// Waits until new sessions begin on these backends alone.
async fn new_sessions_on(channel: &Channel, hosts: &[&str]) {
    loop {
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            seen.insert(visit(channel, PATH, &[]).await.unwrap().by);
        }
        if seen.iter().map(String::as_str).eq(hosts.iter().copied()) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Makes calls of a session until it moves; it must be on `from` until then.
async fn moves(channel: &Channel, cookie: &str, from: &str) -> Answer {
    loop {
        let answer = call(channel, cookie).await;
        if answer.by != from {
            return answer;
        }
        assert_eq!(answer.set, Vec::<String>::new());
        tokio::task::yield_now().await;
    }
}

/// S12-01, S12-02: calls with a cookie stay on its host, where round_robin would spread them, and set no cookie.
#[tokio::test]
async fn a_session_stays_under_round_robin() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let server = ResourceServer::start(&with_hosts(&[&a, &b]));
    let channel = channel(&server);
    new_sessions_on(&channel, &["a", "b"]).await;
    for (name, backend) in [("a", &a), ("b", &b)] {
        let cookie = cookie_for(&channel, name).await;
        let host = (vec![backend.address.to_string()], TO.to_owned());
        assert_eq!(decoded(&cookie), host);
        stays(&channel, &cookie, name).await;
    }
}

/// S12-03: a host that left the configuration is replaced, with a new cookie. The session does not go back.
#[tokio::test]
async fn a_host_that_left_is_replaced() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let server = ResourceServer::start(&with_hosts(&[&a, &b]));
    let channel = channel(&server);
    let cookie = cookie_for(&channel, "a").await;
    server.set(&with_hosts(&[&b]));
    let moved = moves(&channel, &cookie, "a").await.cookie();
    assert_eq!(decoded(&moved).0, [b.address.to_string()]);
    server.set(&with_hosts(&[&a, &b]));
    new_sessions_on(&channel, &["a", "b"]).await;
    stays(&channel, &moved, "b").await;
}

/// S12-03, S12-07: a host that cannot be connected is not waited for, and no call fails for it.
#[tokio::test]
async fn a_dead_host_is_replaced() {
    let (mut a, b) = (Backend::start("a").await, Backend::start("b").await);
    let server = ResourceServer::start(&with_hosts(&[&a, &b]));
    let channel = channel(&server);
    let cookie = cookie_for(&channel, "a").await;
    a.drain().await;
    let moved = call(&channel, &cookie).await;
    assert_eq!(moved.by, "b");
    stays(&channel, &moved.cookie(), "b").await;
}

/// S12-04: a draining host keeps its sessions if they may stay, and gets no new ones. Otherwise its sessions move.
#[tokio::test]
async fn a_draining_host() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let draining = members().locality(
        "region/zone",
        1,
        [
            endpoint(&a.address.to_string()).health(HealthStatus::Draining),
            endpoint(&b.address.to_string()),
        ],
    );
    let all = [
        HealthStatus::Unknown,
        HealthStatus::Healthy,
        HealthStatus::Draining,
    ];
    for (statuses, may_stay) in [(&all[..], true), (&all[..2], false), (&[], false)] {
        let resources = with_hosts(&[&a, &b]).with(keeping(statuses));
        let server = ResourceServer::start(&resources);
        let channel = channel(&server);
        let cookie = cookie_for(&channel, "a").await;
        if statuses.is_empty() {
            // The empty set keeps no session anywhere.
            let answer = moves(&channel, &cookie, "a").await;
            assert_eq!(answer.by, "b");
            continue;
        }
        server.set(&resources.with(draining.clone()));
        new_sessions_on(&channel, &["b"]).await;
        if may_stay {
            stays(&channel, &cookie, "a").await;
        } else {
            assert_eq!(call(&channel, &cookie).await.by, "b");
        }
    }
}

/// S12-06: a host that moves to a lower priority keeps its sessions and its connection, while others use the higher
/// one (gRFC A75).
#[tokio::test]
async fn a_session_stays_when_its_host_changes_priority() {
    let [a, b, c] = &three_backends().await;
    let server = ResourceServer::start(&with_hosts(&[a, b]));
    let channel = channel(&server);
    let cookie = cookie_for(&channel, "b").await;
    let lower = two_priorities(&[c], &[a, b]);
    server.set(&with_hosts(&[a, b]).with(lower));
    new_sessions_on(&channel, &["c"]).await;
    stays(&channel, &cookie, "b").await;
    let higher = two_priorities(&[b], &[c, a]);
    server.set(&with_hosts(&[a, b]).with(higher));
    new_sessions_on(&channel, &["b"]).await;
    stays(&channel, &cookie, "b").await;
    assert_eq!(b.connections(), 1);
}

/// S12-07: a host that only a session uses is idle after its server sent GOAWAY. The next call of the session waits for a
/// new connection. When the server is gone, the call goes to another host.
#[tokio::test]
async fn an_idle_host_is_connected_for_its_session() {
    let (a, mut b) = (Backend::start("a").await, Backend::start("b").await);
    let resources = with_hosts(&[]).with(two_priorities(&[&a], &[&b]));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let cookie = cookie_of(&[b.address], TO);
    stays(&channel, &cookie, "b").await;
    b.go_away();
    b.has_open(0).await;
    stays(&channel, &cookie, "b").await;
    assert_eq!(b.connections(), 2);
    b.stop().await;
    let moved = call(&channel, &cookie).await;
    assert_eq!(moved.by, "a");
    assert_eq!(decoded(&moved.cookie()).0, [a.address.to_string()]);
}

/// S12-08: a host of an unused priority has no connection. A session makes one connection for many
/// calls.
#[tokio::test]
async fn a_session_connects_a_host_that_nobody_uses() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let resources = with_hosts(&[]).with(two_priorities(&[&a], &[&b]));
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    new_sessions_on(&channel, &["a"]).await;
    assert_eq!(b.connections(), 0);
    let cookie = cookie_of(&[b.address], TO);
    let calls = (0..10).map(|_| {
        let (channel, cookie) = (channel.clone(), cookie.clone());
        tokio::spawn(async move { call(&channel, &cookie).await.by })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), "b");
    }
    assert_eq!(b.connections(), 1);
    new_sessions_on(&channel, &["a"]).await;
}

/// S12-09: the connection of a host that only sessions use is kept for the idle timeout after the last call, and then
/// released.
#[tokio::test]
async fn a_connection_is_kept_for_the_idle_timeout() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let timeout = Duration::from_secs(600);
    let resources = with_hosts(&[]).with(two_priorities(&[&a], &[&b]));
    let server = ResourceServer::start(&resources.with(idle_after(600)));
    let channel = channel(&server);
    let cookie = cookie_of(&[b.address], TO);
    stays(&channel, &cookie, "b").await;
    for _ in 0..3 {
        pass(timeout * 2 / 3).await;
        stays(&channel, &cookie, "b").await;
    }
    assert_eq!(b.connections(), 1);
    pass(timeout).await;
    b.has_open(0).await;
    // The session comes back to its host all the same.
    stays(&channel, &cookie, "b").await;
    assert_eq!(b.connections(), 2);
}

/// S12-10: another idle timeout counts from the update on, also for a connection that is kept by the old one.
#[tokio::test]
async fn another_idle_timeout_counts_at_once() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let resources = || with_hosts(&[]).with(two_priorities(&[&a], &[&b]));
    let server = ResourceServer::start(&resources().with(idle_after(600)));
    let channel = channel(&server);
    let cookie = cookie_of(&[b.address], TO);
    stays(&channel, &cookie, "b").await;
    pass(Duration::from_secs(60)).await;
    // The look that was due after the old timeout would not come for nine minutes.
    b.has_open(1).await;
    server.set(&resources().with(idle_after(1)));
    b.has_open(0).await;
    stays(&channel, &cookie, "b").await;
    assert_eq!(b.connections(), 2);
}

/// S12-11: the cookie lists the connected address of a host first, then its others. Each of them leads to the host.
#[tokio::test]
async fn a_host_with_two_addresses() {
    let dead = Backend::start("dead").await.kill().await;
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let members = members().locality(
        "eu/a",
        1,
        [
            endpoint(&dead.to_string()).also_at(&a.address.to_string()),
            endpoint(&b.address.to_string()),
        ],
    );
    let server = ResourceServer::start(&with_hosts(&[]).with(members));
    let channel = channel(&server);
    let cookie = cookie_for(&channel, "a").await;
    let both = vec![a.address.to_string(), dead.to_string()];
    assert_eq!(decoded(&cookie), (both, TO.to_owned()));
    stays(&channel, &cookie, "a").await;
    // Another order of the addresses, or one alone, leads there as well, and is set right.
    for addresses in [&[dead, a.address][..], &[dead], &[a.address]] {
        let answer = call(&channel, &cookie_of(addresses, TO)).await;
        assert_eq!((answer.by.as_str(), answer.cookie()), ("a", cookie.clone()));
    }
}

/// gRFC A55: a retry of a call goes to the host of its cookie. Without a cookie, the cookie of the response is that of
/// the host that answered.
#[tokio::test]
async fn retries_go_to_the_same_host() {
    let fails_once = |previous| (previous == 0).then_some(14);
    let a = Backend::scripted("a", fails_once).await;
    let b = Backend::scripted("b", fails_once).await;
    let routes = retrying_routes(policy(2, "unavailable"));
    let server = ResourceServer::start(&with_hosts(&[&a, &b]).with(routes));
    let channel = channel(&server);
    // The two attempts of a call without a cookie take turns.
    let fresh = visit(&channel, PATH, &[]).await.unwrap();
    let hosts = [("a", &a), ("b", &b)];
    let host = hosts.iter().find(|(name, _)| *name == fresh.by).unwrap().1;
    assert_eq!(decoded(&fresh.cookie()).0, [host.address.to_string()]);
    for (name, backend) in hosts {
        stays(&channel, &cookie_of(&[backend.address], TO), name).await;
    }
}

/// S12-05: of a cluster that the cookie pins, another host takes the session if its own is gone (gRFC A60).
#[tokio::test]
async fn a_pinned_cluster_has_another_host() {
    let [a, b, c] = &three_backends().await;
    let resources = split([("one", 99, &[a]), ("two", 1, &[b, c])]);
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let cookie = cookie_of(&[b.address], "two");
    stays(&channel, &cookie, "b").await;
    let without_b = endpoints("two").locality("eu/a", 1, [c.address]);
    server.set(&resources.with(without_b));
    let moved = moves(&channel, &cookie, "b").await;
    assert_eq!(moved.by, "c");
    let host = (vec![c.address.to_string()], "two".to_owned());
    assert_eq!(decoded(&moved.cookie()), host);
}

/// S12-05: the cluster of the cookie left the route, but its host is in another cluster. Calls that the weights send there
/// go to the host, with a cookie of that cluster.
#[tokio::test]
async fn a_host_is_found_in_another_cluster() {
    let [a, b, c] = &three_backends().await;
    let resources = split([("one", 1, &[a, b]), ("three", 1, &[c])]);
    let server = ResourceServer::start(&resources);
    let channel = channel(&server);
    let cookie = cookie_of(&[b.address], "two");
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        let answer = call(&channel, &cookie).await;
        let host = decoded(&answer.cookie());
        match answer.by.as_str() {
            "b" => assert_eq!(host, (vec![b.address.to_string()], "one".to_owned())),
            "c" => assert_eq!(host.1, "three"),
            other => panic!("{other} is not the host of the session"),
        }
        seen.insert(answer.by);
    }
    assert_eq!(seen.len(), 2);
}
