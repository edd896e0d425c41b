//! Tests of several servers in order of preference (gRFC A71). A client asks a later server only
//! while an earlier one cannot serve it.

use std::collections::BTreeMap;
use std::time::Duration;

use crowfly_model::grpc::Cluster;
use crowfly_testkit::builders::cluster;
use crowfly_testkit::{Servers, over_both};
use crowfly_xds::{Changed, Key, TroubleReason};

pub(crate) const PRIMARY: usize = 0;
pub(crate) const SECONDARY: usize = 1;
pub(crate) const THIRD: usize = 2;
/// Longer than the first wait before another attempt, jitter included.
pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(1200);

/// S1-31: the primary is down from the start, so the secondary serves, and nobody hears of an
/// error; the first word of the primary ends the conversation with the secondary.
#[test]
fn secondary_serves_until_the_primary_is_back() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        servers.subscribe::<Cluster>("a");
        assert!(!servers.is_asked(SECONDARY), "not before it is needed");

        servers.fail(PRIMARY, "connection refused");
        assert_eq!(servers.changes(), [], "there is another to ask");
        servers.open(SECONDARY);
        assert_eq!(servers.request(SECONDARY).names, ["a"]);
        send(&mut servers, SECONDARY, "s1", &[("a", "secondary")]);
        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("secondary"));

        servers.advance(FIRST_WAIT);
        servers.open(PRIMARY);
        let request = servers.request(PRIMARY);
        assert_eq!((request.names, request.held), (vec!["a".into()], none()));
        assert!(servers.is_open(SECONDARY), "the primary has not spoken yet");
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);

        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
        assert!(!servers.is_asked(SECONDARY));
    });
}

/// S1-32: the primary dies while one resource is not known: all that the secondary has takes the
/// place of what the primary sent, which is asked of it anew when it is back.
#[test]
fn fallback_in_the_middle_uses_all_of_the_secondary() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        servers.subscribe::<Cluster>("a");
        servers.open(PRIMARY);
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
        servers.subscribe::<Cluster>("b");
        servers.advance(Duration::from_secs(5));

        servers.fail(PRIMARY, "gone");
        assert!(!servers.is_asked(SECONDARY), "it may just have restarted");
        servers.fail(PRIMARY, "connection refused");
        servers.open(SECONDARY);
        let request = servers.request(SECONDARY);
        assert_eq!(request.names, ["a", "b"]);
        assert_eq!(request.held, none(), "it knows nothing of the primary's");
        let both = [("a", "secondary"), ("b", "secondary")];
        send(&mut servers, SECONDARY, "s1", &both);

        for name in ["a", "b"] {
            assert_eq!(servers.value::<Cluster>(name).eds_name(), Some("secondary"));
        }
        servers.advance(Duration::from_secs(2));
        servers.open(PRIMARY);
        let held = servers.request(PRIMARY).held;
        assert_eq!(held, none(), "it must send again what was replaced");
    });
}

/// S1-33: the primary dies with everything known: no other server is asked, and what is known
/// stays, under an ambient error. A resource that does not exist is known, too.
#[test]
fn no_fallback_with_everything_known() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        servers.subscribe::<Cluster>("a");
        servers.subscribe::<Cluster>("missing");
        servers.open(PRIMARY);
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
        servers.advance(Duration::from_secs(15));
        servers.changes();

        servers.fail(PRIMARY, "gone");
        servers.fail(PRIMARY, "connection refused");

        assert!(!servers.is_asked(SECONDARY));
        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
        let a = (Key::of::<Cluster>("a"), Changed::Ambient);
        assert!(servers.changes().contains(&a));
    });
}

/// S1-33: a new watch that finds the primary failing is a reason to ask the secondary.
#[test]
fn new_watch_can_start_the_fallback() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        servers.subscribe::<Cluster>("a");
        servers.open(PRIMARY);
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
        servers.fail(PRIMARY, "gone");
        servers.fail(PRIMARY, "connection refused");
        assert!(!servers.is_asked(SECONDARY));

        servers.subscribe::<Cluster>("b");

        servers.open(SECONDARY);
        assert_eq!(servers.request(SECONDARY).names, ["a", "b"]);
    });
}

/// S1-34: with the first two down the third serves; the second takes over when it is back, and the
/// first from the second.
#[test]
fn best_server_that_speaks_serves() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 3);
        servers.subscribe::<Cluster>("a");
        servers.fail(PRIMARY, "connection refused");
        servers.fail(SECONDARY, "connection refused");
        servers.open(THIRD);
        send(&mut servers, THIRD, "t1", &[("a", "third")]);
        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("third"));

        servers.advance(FIRST_WAIT);
        servers.open(SECONDARY);
        assert_eq!(servers.request(SECONDARY).held, none());
        send(&mut servers, SECONDARY, "s1", &[("a", "secondary")]);
        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("secondary"));
        assert!(!servers.is_asked(THIRD));
        assert!(servers.is_asked(PRIMARY), "it is still being tried");

        servers.open(PRIMARY);
        assert_eq!(servers.request(PRIMARY).held, none());
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
        assert!(!servers.is_asked(SECONDARY));
    });
}

/// S1-35: with all servers down a watcher hears once, after the last has failed.
#[test]
fn error_is_told_after_the_last_server_failed() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 3);
        servers.subscribe::<Cluster>("a");

        servers.fail(PRIMARY, "one");
        servers.fail(SECONDARY, "two");
        assert_eq!(servers.changes(), []);
        servers.fail(THIRD, "three");

        let told = [(Key::of::<Cluster>("a"), Changed::Data)];
        assert_eq!(servers.changes(), told);
        let error = servers.error::<Cluster>("a");
        assert_eq!(error.reason, TroubleReason::Connectivity("three".into()));
        servers.advance(FIRST_WAIT);
        servers.fail(PRIMARY, "one, again");
        assert_eq!(servers.changes(), [], "it is not the last");
    });
}

/// S1-31: responses of the secondary after the first one of the primary do not count, also while a
/// request to it is on its way.
#[test]
fn late_word_of_a_dismissed_server_does_not_count() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        servers.subscribe::<Cluster>("a");
        servers.fail(PRIMARY, "connection refused");
        servers.open(SECONDARY);
        servers.hold_sends();
        send(&mut servers, SECONDARY, "s1", &[("a", "secondary")]);
        servers.advance(FIRST_WAIT);
        servers.open(PRIMARY);
        send(&mut servers, PRIMARY, "p1", &[("a", "primary")]);
        servers.changes();

        if servers.is_open(SECONDARY) {
            send(&mut servers, SECONDARY, "s2", &[("a", "late")]);
        }

        assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
        assert_eq!(servers.changes(), []);
    });
}

/// S1-31: with the last watch gone no server is asked, and the next watch begins with the primary.
#[test]
fn next_watch_begins_with_the_primary() {
    over_both(|protocol| {
        let mut servers = Servers::new(protocol, 2);
        let key = servers.subscribe::<Cluster>("a");
        servers.fail(PRIMARY, "connection refused");
        servers.open(SECONDARY);
        send(&mut servers, SECONDARY, "s1", &[("a", "secondary")]);

        servers.unsubscribe(&key);
        assert!(!servers.is_asked(PRIMARY) && !servers.is_asked(SECONDARY));
        servers.subscribe::<Cluster>("a");

        assert!(servers.is_asked(PRIMARY));
        assert!(!servers.is_asked(SECONDARY));
    });
}

/// No version is held.
pub(crate) fn none() -> BTreeMap<String, String> {
    BTreeMap::new()
}

/// Sends clusters with the names of their endpoints.
pub(crate) fn send(servers: &mut Servers, server: usize, version: &str, all: &[(&str, &str)]) {
    let resources = all
        .iter()
        .map(|(name, eds)| (*name, cluster(name).eds(eds).any()));
    servers.send::<Cluster>(server, version, resources);
}
