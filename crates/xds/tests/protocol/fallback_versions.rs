//! Tests of the versions that each of several servers is told. A server hears only of what it sent
//! itself, while that is what the cache holds (gRFC A71). In delta a wrong version would never be
//! put right: the server would believe that the client has what it has not.

use std::collections::BTreeMap;
use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::endpoints;
use crowfly_testkit::{Servers, authorities, over_both, removed};
use crowfly_xds::{Changed, Key, Protocol};

use crate::fallback::{FIRST_WAIT, PRIMARY, SECONDARY, none, send};

/// S1-32: a fallback server that loses its stream is told of its own versions on the next, and the
/// primary, when it is back, of none; from then on, of its own.
#[test]
fn each_server_hears_of_its_own_versions_only() {
    over_both(|protocol| {
        let mut servers = fallen_back(protocol);
        restart(&mut servers, SECONDARY);
        let request = servers.request(SECONDARY);
        assert_eq!(request.names, ["a", "b"]);
        assert_eq!(request.held, held(protocol, "s1", &["a", "b"]));

        servers.advance(Duration::from_secs(2));
        servers.open(PRIMARY);
        assert_eq!(servers.request(PRIMARY).held, none());
        let both = [("a", "primary"), ("b", "primary")];
        send(&mut servers, PRIMARY, "p2", &both);

        restart(&mut servers, PRIMARY);
        let request = servers.request(PRIMARY);
        assert_eq!(request.names, ["a", "b"]);
        assert_eq!(request.held, held(protocol, "p2", &["a", "b"]));
    });
}

/// S1-32: a dismissed server that is needed again starts anew: what it once sent has been replaced.
#[test]
fn dismissed_server_starts_anew() {
    over_both(|protocol| {
        let mut servers = fallen_back(protocol);
        servers.advance(Duration::from_secs(2));
        servers.open(PRIMARY);
        let both = [("a", "primary"), ("b", "primary")];
        send(&mut servers, PRIMARY, "p2", &both);
        assert!(!servers.is_asked(SECONDARY));
        servers.advance(Duration::from_secs(5));

        servers.subscribe::<Cluster>("c");
        servers.fail(PRIMARY, "gone");
        servers.fail(PRIMARY, "connection refused");
        servers.open(SECONDARY);

        let request = servers.request(SECONDARY);
        assert_eq!(request.names, ["a", "b", "c"]);
        assert_eq!(request.held, none());
    });
}

/// S1-32: a resource that only the fallback server had is not told to the primary, though the cache
/// still holds it.
#[test]
fn leftover_of_the_fallback_is_not_of_the_primary() {
    let mut servers = fallen_back(Protocol::Delta);
    servers.advance(Duration::from_secs(2));
    servers.open(PRIMARY);
    send(&mut servers, PRIMARY, "p2", &[("a", "primary")]);
    assert_eq!(servers.value::<Cluster>("b").eds_name(), Some("secondary"));

    restart(&mut servers, PRIMARY);

    let request = servers.request(PRIMARY);
    assert_eq!(request.held, held(Protocol::Delta, "p2", &["a"]));
    servers.receive(PRIMARY, removed::<Cluster>("p3", &["b"]));
    assert!(servers.error::<Cluster>("b").to_string().contains("exist"));
}

/// S1-31: a dismissed server whose stream lives on for another authority hears that nothing of the
/// rest is wanted, and, needed again, has nothing to its name of what it once sent.
#[test]
fn dismissed_server_of_another_authority_starts_anew() {
    let mut servers = Servers::with(
        Protocol::Delta,
        2,
        authorities(&[("", &[PRIMARY, SECONDARY]), ("east", &[SECONDARY])]),
    );
    let east = servers.subscribe::<Cluster>("xdstp://east/envoy.config.cluster.v3.Cluster/e");
    servers.open(SECONDARY);
    servers.request(SECONDARY);
    servers.subscribe_all::<Cluster>();
    servers.fail(PRIMARY, "connection refused");
    assert_eq!(servers.request(SECONDARY).names, ["*"]);
    let both = [("gone-later", "secondary"), ("stays", "secondary")];
    send(&mut servers, SECONDARY, "s1", &both);
    servers.request(SECONDARY);
    servers.advance(FIRST_WAIT);
    servers.open(PRIMARY);
    assert_eq!(servers.request(PRIMARY).held, none());
    let both = [("gone-later", "primary"), ("stays", "primary")];
    send(&mut servers, PRIMARY, "p1", &both);
    assert_eq!(servers.request(SECONDARY).left, ["*"]);

    servers.subscribe::<Endpoints>("missing");
    servers.advance(Duration::from_secs(5));
    servers.fail(PRIMARY, "gone");
    servers.fail(PRIMARY, "connection refused");
    assert_eq!(servers.request(SECONDARY).names, ["*"]);
    send(&mut servers, SECONDARY, "s2", &[("stays", "secondary")]);
    restart(&mut servers, SECONDARY);

    let again = std::iter::from_fn(|| Some(servers.request(SECONDARY)));
    let mut first = again.skip_while(|request| request.node.is_none());
    let request = first.next().unwrap();
    assert_eq!(request.names, ["*", &*east.name]);
    assert_eq!(request.held, held(Protocol::Delta, "s2", &["stays"]));
}

/// S1-32: a resource that one server sent by a wildcard and the next does not have is gone. In
/// delta the next never says so, because it never had it. It has the time that it has for any
/// resource.
#[test]
fn leftovers_of_a_wildcard_are_gone_in_the_end() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        servers.subscribe_all::<Cluster>();
        servers.fail(PRIMARY, "connection refused");
        servers.open(SECONDARY);
        let both = [("a", "secondary"), ("leftover", "secondary")];
        send(&mut servers, SECONDARY, "s1", &both);
        servers.advance(FIRST_WAIT);
        servers.open(PRIMARY);
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
        servers.changes();

        servers.advance(Duration::from_secs(10));
        restart(&mut servers, PRIMARY);
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
        servers.advance(Duration::from_secs(15));

        let names = servers.cache().iter().map(|(key, _)| &*key.name);
        assert_eq!(names.collect::<Vec<_>>(), ["a"]);
        if protocol == Protocol::Delta {
            let gone = (Key::of::<Cluster>("leftover"), Changed::Data);
            assert_eq!(servers.changes(), [gone]);
        }
        servers.advance(Duration::from_secs(60));
        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
    });
}

/// S1-31: a primary that is connected and silent does not take away what the secondary sent
/// meanwhile: its time to send a resource counts only while there is none.
#[test]
fn silent_primary_takes_nothing_away() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        servers.subscribe::<Endpoints>("a");
        servers.fail(PRIMARY, "connection refused");
        servers.advance(FIRST_WAIT);
        servers.open(PRIMARY);
        servers.open(SECONDARY);
        servers.send::<Endpoints>(SECONDARY, "s1", [("a", endpoints("a").any())]);
        let told = [(Key::of::<Endpoints>("a"), Changed::Data)];
        assert_eq!(servers.changes(), told);

        servers.advance(Duration::from_secs(60));

        assert_eq!(servers.changes(), []);
        assert_eq!(servers.value::<Endpoints>("a").name, "a");
    });
}

/// The primary had `a` and died before it sent `b`; the secondary has sent both.
fn fallen_back(protocol: Protocol) -> Servers {
    let mut servers = Servers::new(protocol, 2);
    servers.subscribe::<Cluster>("a");
    servers.open(PRIMARY);
    send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
    servers.subscribe::<Cluster>("b");
    servers.advance(Duration::from_secs(5));
    servers.fail(PRIMARY, "gone");
    servers.fail(PRIMARY, "connection refused");
    servers.open(SECONDARY);
    assert_eq!(servers.request(SECONDARY).held, none());
    let both = [("a", "secondary"), ("b", "secondary")];
    send(&mut servers, SECONDARY, "s1", &both);
    servers
}

/// Ends a stream that was a good one, and opens the next.
fn restart(servers: &mut Servers, server: usize) {
    servers.fail(server, "restarts");
    servers.open(server);
}

/// The versions that a server is told when it has sent these resources, all of one version.
fn held(protocol: Protocol, version: &str, names: &[&str]) -> BTreeMap<String, String> {
    let names = match protocol {
        Protocol::Delta => names,
        Protocol::StateOfTheWorld => &[""],
    };
    let held = names.iter().map(|name| (*name, version));
    held.map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}
