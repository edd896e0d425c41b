//! Tests of lookups over real sockets, because the resolver library does its own I/O.

use std::collections::BTreeSet;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::grpc::cluster::DnsName;
use crowfly_testkit::{DnsAnswer, DnsQuery, DnsServer, RecordType};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::names::Outcome;
use super::schedule::Schedule;
use super::{Lookup, LookupError, Names, Resolve, SystemResolver};

/// Longer than any test that passes.
const FOREVER: Duration = Duration::from_secs(3600);

fn resolver(server: &DnsServer) -> SystemResolver {
    SystemResolver::with_name_server(server.address())
}

/// Names that may be looked up on request at any time.
fn eager(server: &DnsServer) -> Names {
    let schedule = Schedule::new(Duration::ZERO, None);
    Names::with_schedule(Arc::new(resolver(server)), schedule)
}

/// Names of which a second lookup on request never comes within a test.
fn patient(resolver: impl Resolve) -> Names {
    Names::with_schedule(Arc::new(resolver), Schedule::new(FOREVER, None))
}

fn name(host: &str) -> DnsName {
    DnsName {
        host: host.to_owned(),
        port: 8080,
    }
}

fn ips(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|text| text.parse().unwrap()).collect()
}

fn sockets(addresses: &[&str]) -> Outcome {
    let sockets = addresses.iter().map(|text| text.parse().unwrap());
    Ok(sockets.collect())
}

async fn next(names: &mut Names) -> (String, Outcome) {
    let next = timeout(Duration::from_secs(20), names.next());
    let (name, outcome) = next.await.expect("a lookup ends");
    (name.host, outcome)
}

/// The lookups that the server saw of `host`, however often the client repeated itself.
fn lookups(queries: &[DnsQuery], host: &str, record_type: RecordType) -> usize {
    let of_host = queries
        .iter()
        .filter(|query| query.host == host && query.record_type == record_type);
    let ids: BTreeSet<_> = of_host.map(|query| query.id).collect();
    ids.len()
}

#[tokio::test]
async fn the_first_answer_has_all_addresses_ipv4_first_each_once() {
    let server = DnsServer::start().await;
    let addresses = ["2001:db8::1", "192.0.2.2", "192.0.2.1", "192.0.2.2"];
    server.set("backend.test", DnsAnswer::addresses(&addresses));
    let mut names = eager(&server);
    names.watch(&name("backend.test"));
    let expected = sockets(&["192.0.2.2:8080", "192.0.2.1:8080", "[2001:db8::1]:8080"]);
    assert_eq!(next(&mut names).await, ("backend.test".into(), expected));
    let queries = server.queries();
    assert_eq!(lookups(&queries, "backend.test", RecordType::A), 1);
    assert_eq!(lookups(&queries, "backend.test", RecordType::AAAA), 1);
}

#[tokio::test]
async fn an_answer_is_not_kept_however_long_its_time_to_live() {
    let server = DnsServer::start().await;
    server.set("backend.test", DnsAnswer::addresses(&["192.0.2.1"]));
    let mut names = eager(&server);
    names.watch(&name("backend.test"));
    assert_eq!(next(&mut names).await.1, sockets(&["192.0.2.1:8080"]));

    server.set("backend.test", DnsAnswer::addresses(&["192.0.2.2"]));
    names.request();
    assert_eq!(next(&mut names).await.1, sockets(&["192.0.2.2:8080"]));

    server.set("backend.test", DnsAnswer::ServerFailure);
    names.request();
    let outcome = next(&mut names).await.1;
    assert_eq!(outcome, Err("the name server failed (SERVFAIL)".into()));
}

#[tokio::test]
async fn requests_inside_the_window_cause_no_query() {
    let server = DnsServer::start().await;
    server.set("backend.test", DnsAnswer::addresses(&["192.0.2.1"]));
    server.set("other.test", DnsAnswer::addresses(&["192.0.2.9"]));
    let mut names = patient(resolver(&server));
    names.watch(&name("backend.test"));
    assert_eq!(next(&mut names).await.1, sockets(&["192.0.2.1:8080"]));

    for _ in 0..100 {
        names.request();
    }
    // Another name is looked up after all lookups that these requests could have started.
    names.watch(&name("other.test"));
    assert_eq!(next(&mut names).await.0, "other.test");
    let queries = server.queries();
    assert_eq!(lookups(&queries, "backend.test", RecordType::A), 1);
    assert_eq!(lookups(&queries, "backend.test", RecordType::AAAA), 1);
}

#[tokio::test]
async fn a_host_with_one_family_has_the_addresses_of_that_family() {
    let server = DnsServer::start().await;
    server.set_type(
        "four.test",
        RecordType::A,
        DnsAnswer::addresses(&["192.0.2.1"]),
    );
    server.set_type("four.test", RecordType::AAAA, DnsAnswer::NoSuchHost);
    server.set("six.test", DnsAnswer::addresses(&["2001:db8::1"]));
    server.set_type("half.test", RecordType::A, DnsAnswer::ServerFailure);
    server.set_type(
        "half.test",
        RecordType::AAAA,
        DnsAnswer::addresses(&["2001:db8::2"]),
    );
    let resolver = resolver(&server);
    assert_eq!(resolver.resolve("four.test").await, Ok(ips(&["192.0.2.1"])));
    assert_eq!(
        resolver.resolve("six.test").await,
        Ok(ips(&["2001:db8::1"]))
    );
    assert_eq!(
        resolver.resolve("half.test").await,
        Ok(ips(&["2001:db8::2"]))
    );
}

#[tokio::test]
async fn a_family_that_is_never_answered_does_not_spoil_the_other() {
    let server = DnsServer::start().await;
    server.set("half.test", DnsAnswer::addresses(&["192.0.2.1"]));
    server.set_type("half.test", RecordType::AAAA, DnsAnswer::Silence);
    let resolver = resolver(&server).timeout(Duration::from_secs(2));
    assert_eq!(resolver.resolve("half.test").await, Ok(ips(&["192.0.2.1"])));
}

#[tokio::test]
async fn every_kind_of_failure_says_what_it_is() {
    let server = DnsServer::start().await;
    server.set("broken.test", DnsAnswer::ServerFailure);
    server.set("empty.test", DnsAnswer::addresses::<&str>(&[]));
    server.set("silent.test", DnsAnswer::Silence);
    let resolver = resolver(&server);
    let impatient = resolver.clone().timeout(Duration::from_millis(200));
    let label = "x".repeat(64);

    let failure = async |resolver: &SystemResolver, host: &str| {
        let outcome = resolver.resolve(host).await;
        outcome.expect_err("no addresses").to_string()
    };
    assert_eq!(
        failure(&resolver, "missing.test").await,
        "no such host (NXDOMAIN)"
    );
    assert_eq!(
        failure(&resolver, "broken.test").await,
        "the name server failed (SERVFAIL)"
    );
    assert_eq!(failure(&resolver, "empty.test").await, "no addresses");
    // A lookup gives up on a silent server earlier, if the machine is not too busy.
    let late = ["timed out after 100ms", "timed out after 200ms"];
    assert!(late.contains(&&*failure(&impatient, "silent.test").await));
    let invalid = failure(&resolver, &label).await;
    assert!(invalid.starts_with("not a host name: "), "{invalid}");
}

#[tokio::test]
async fn an_answer_too_long_for_a_datagram_is_fetched_by_tcp() {
    let server = DnsServer::start().await;
    let addresses: Vec<_> = (0..200).map(|n| format!("192.0.2.{n}")).collect();
    server.set("big.test", DnsAnswer::addresses(&addresses));
    let answer = resolver(&server).resolve("big.test").await.unwrap();
    assert_eq!(answer.len(), 200);
}

#[tokio::test]
async fn addresses_and_localhost_need_no_query() {
    let server = DnsServer::start().await;
    let resolver = resolver(&server);
    assert_eq!(resolver.resolve("192.0.2.1").await, Ok(ips(&["192.0.2.1"])));
    assert_eq!(
        resolver.resolve("2001:db8::1").await,
        Ok(ips(&["2001:db8::1"]))
    );
    let local = resolver.resolve("localhost").await.unwrap();
    assert!(
        local.iter().all(IpAddr::is_loopback) && !local.is_empty(),
        "{local:?}"
    );
    assert_eq!(server.queries(), []);
}

#[tokio::test]
async fn a_changed_name_is_looked_up_and_the_old_one_is_let_go() {
    let mut server = DnsServer::start().await;
    server.set("old.test", DnsAnswer::Silence);
    server.set("new.test", DnsAnswer::addresses(&["192.0.2.2"]));
    let mut names = eager(&server);
    names.watch(&name("old.test"));
    tokio::select! {
        outcome = names.next() => panic!("{outcome:?} from a silent server"),
        query = server.next_query() => assert_eq!(query.host, "old.test"),
    }
    names.unwatch(&name("old.test"));
    names.watch(&name("new.test"));
    assert_eq!(next(&mut names).await.0, "new.test");
}

#[tokio::test]
async fn to_let_go_of_a_name_cancels_its_lookup() {
    /// Never answers. A lookup is a subscriber for as long as it lives.
    #[derive(Debug)]
    struct Endless(Arc<Notify>, watch::Sender<()>);

    impl Resolve for Endless {
        fn resolve(&self, _host: &str) -> Lookup {
            let held = self.1.subscribe();
            self.0.notify_one();
            Box::pin(async move {
                let _held = held;
                pending().await
            })
        }
    }

    let (started, lookups) = (Arc::new(Notify::new()), watch::Sender::default());
    let mut names = patient(Endless(Arc::clone(&started), lookups.clone()));
    names.watch(&name("backend.test"));
    tokio::select! {
        outcome = names.next() => panic!("{outcome:?} of an endless lookup"),
        () = started.notified() => {}
    }
    assert_eq!(lookups.receiver_count(), 1);
    names.unwatch(&name("backend.test"));
    let cancelled = timeout(Duration::from_secs(20), lookups.closed());
    cancelled.await.expect("the lookup is dropped");
}

#[tokio::test]
async fn to_drop_the_future_of_the_next_outcome_loses_nothing() {
    let mut server = DnsServer::start().await;
    server.set("backend.test", DnsAnswer::addresses(&["192.0.2.1"]));
    let mut names = patient(resolver(&server));
    names.watch(&name("backend.test"));
    while server.queries().is_empty() {
        tokio::select! {
            biased;
            _ = server.next_query() => {}
            outcome = names.next() => panic!("{outcome:?} before a query"),
        }
    }
    assert_eq!(next(&mut names).await.1, sockets(&["192.0.2.1:8080"]));
    let queries = server.queries();
    assert_eq!(lookups(&queries, "backend.test", RecordType::A), 1);
}

#[tokio::test]
async fn a_resolver_that_misbehaves_fails_its_own_lookups_only() {
    #[derive(Debug)]
    struct Odd;

    impl Resolve for Odd {
        fn resolve(&self, host: &str) -> Lookup {
            match host {
                "a-panic" => panic!("{host}"),
                "b-nothing" => Box::pin(async { Ok(vec![]) }),
                _ => Box::pin(async { Err(LookupError::Other("no idea".into())) }),
            }
        }
    }

    let mut names = patient(Odd);
    for (host, text) in [
        ("a-panic", "the resolver panicked"),
        ("b-nothing", "no addresses"),
        ("c-other", "no idea"),
    ] {
        names.watch(&name(host));
        assert_eq!(next(&mut names).await, (host.into(), Err(text.into())));
    }
}
