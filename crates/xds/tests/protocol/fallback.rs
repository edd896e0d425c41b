//! Several servers: fallback (gRFC A71) and federation (gRFC A47).

use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{cluster, endpoints};
use crowfly_testkit::{Servers, authorities, response};
use crowfly_xds::{Changed, Key, Reason};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;

const PRIMARY: usize = 0;
const SECONDARY: usize = 1;
const THIRD: usize = 2;
/// Longer than the first wait before another attempt, jitter included.
const FIRST_WAIT: Duration = Duration::from_millis(1200);

/// S1-31: the primary is down from the start, so the secondary serves, and nobody hears of an
/// error; the first word of the primary ends the conversation with the secondary.
#[test]
fn secondary_serves_until_the_primary_is_back() {
    let mut servers = Servers::new(2);
    servers.subscribe::<Cluster>("a");
    assert!(!servers.is_asked(SECONDARY), "not before it is needed");

    servers.fail(PRIMARY, "connection refused");
    assert_eq!(servers.changes(), [], "there is another to ask");
    servers.open(SECONDARY);
    assert_eq!(servers.request(SECONDARY).resource_names, ["a"]);
    servers.receive(SECONDARY, clusters("s1", &[("a", "secondary")]));
    assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("secondary"));

    servers.advance(FIRST_WAIT);
    servers.open(PRIMARY);
    let request = servers.request(PRIMARY);
    assert_eq!(
        (&*request.version_info, request.resource_names.len()),
        ("", 1)
    );
    assert!(servers.is_open(SECONDARY), "the primary has not spoken yet");
    servers.receive(PRIMARY, clusters("p1", &[("a", "primary")]));

    assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
    assert!(!servers.is_asked(SECONDARY));
}

/// S1-32: the primary dies while one resource is not known: all that the secondary has takes the
/// place of what the primary sent, which is asked of it anew when it is back.
#[test]
fn fallback_in_the_middle_uses_all_of_the_secondary() {
    let mut servers = Servers::new(2);
    servers.subscribe::<Cluster>("a");
    servers.open(PRIMARY);
    servers.receive(PRIMARY, clusters("p1", &[("a", "primary")]));
    servers.subscribe::<Cluster>("b");
    servers.advance(Duration::from_secs(5));

    servers.fail(PRIMARY, "gone");
    assert!(!servers.is_asked(SECONDARY), "it may just have restarted");
    servers.fail(PRIMARY, "connection refused");
    servers.open(SECONDARY);
    assert_eq!(servers.request(SECONDARY).resource_names, ["a", "b"]);
    servers.receive(
        SECONDARY,
        clusters("s1", &[("a", "secondary"), ("b", "secondary")]),
    );

    for name in ["a", "b"] {
        assert_eq!(servers.value::<Cluster>(name).eds_name(), Some("secondary"));
    }
    servers.advance(Duration::from_secs(2));
    servers.open(PRIMARY);
    let version = servers.request(PRIMARY).version_info;
    assert_eq!(version, "", "it must send again what was replaced");
}

/// S1-33: the primary dies with everything known: no other server is asked, and what is known
/// stays, under an ambient error. A resource that does not exist is known, too.
#[test]
fn no_fallback_with_everything_known() {
    let mut servers = Servers::new(2);
    servers.subscribe::<Cluster>("a");
    servers.subscribe::<Cluster>("missing");
    servers.open(PRIMARY);
    servers.receive(PRIMARY, clusters("p1", &[("a", "primary")]));
    servers.advance(Duration::from_secs(15));
    servers.changes();

    servers.fail(PRIMARY, "gone");
    servers.fail(PRIMARY, "connection refused");

    assert!(!servers.is_asked(SECONDARY));
    assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
    let a = (Key::of::<Cluster>("a"), Changed::Ambient);
    assert!(servers.changes().contains(&a));
}

/// S1-33: a new watch that finds the primary failing is a reason to ask the secondary.
#[test]
fn new_watch_can_start_the_fallback() {
    let mut servers = Servers::new(2);
    servers.subscribe::<Cluster>("a");
    servers.open(PRIMARY);
    servers.receive(PRIMARY, clusters("p1", &[("a", "primary")]));
    servers.fail(PRIMARY, "gone");
    servers.fail(PRIMARY, "connection refused");
    assert!(!servers.is_asked(SECONDARY));

    servers.subscribe::<Cluster>("b");

    servers.open(SECONDARY);
    assert_eq!(servers.request(SECONDARY).resource_names, ["a", "b"]);
}

/// S1-34: with the first two down the third serves; the second takes over when it is back, and the
/// first from the second.
#[test]
fn best_server_that_speaks_serves() {
    let mut servers = Servers::new(3);
    servers.subscribe::<Cluster>("a");
    servers.fail(PRIMARY, "connection refused");
    servers.fail(SECONDARY, "connection refused");
    servers.open(THIRD);
    servers.receive(THIRD, clusters("t1", &[("a", "third")]));
    assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("third"));

    servers.advance(FIRST_WAIT);
    servers.open(SECONDARY);
    servers.receive(SECONDARY, clusters("s1", &[("a", "secondary")]));
    assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("secondary"));
    assert!(!servers.is_asked(THIRD));
    assert!(servers.is_asked(PRIMARY), "it is still being tried");

    servers.open(PRIMARY);
    servers.receive(PRIMARY, clusters("p1", &[("a", "primary")]));
    assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
    assert!(!servers.is_asked(SECONDARY));
}

/// S1-35: with all servers down a watcher hears once, after the last has failed.
#[test]
fn error_is_told_after_the_last_server_failed() {
    let mut servers = Servers::new(3);
    servers.subscribe::<Cluster>("a");

    servers.fail(PRIMARY, "one");
    servers.fail(SECONDARY, "two");
    assert_eq!(servers.changes(), []);
    servers.fail(THIRD, "three");

    let told = [(Key::of::<Cluster>("a"), Changed::Data)];
    assert_eq!(servers.changes(), told);
    let error = servers.error::<Cluster>("a");
    assert_eq!(error.reason, Reason::Connectivity("three".into()));
    servers.advance(FIRST_WAIT);
    servers.fail(PRIMARY, "one, again");
    assert_eq!(servers.changes(), [], "it is not the last");
}

/// S1-31: what the secondary still says after the primary has spoken does not count, also while a
/// request to it is on its way.
#[test]
fn late_word_of_a_dismissed_server_does_not_count() {
    let mut servers = Servers::new(2);
    servers.subscribe::<Cluster>("a");
    servers.fail(PRIMARY, "connection refused");
    servers.open(SECONDARY);
    servers.hold_sends();
    servers.receive(SECONDARY, clusters("s1", &[("a", "secondary")]));
    servers.advance(FIRST_WAIT);
    servers.open(PRIMARY);
    servers.receive(PRIMARY, clusters("p1", &[("a", "primary")]));
    servers.changes();

    if servers.is_open(SECONDARY) {
        servers.receive(SECONDARY, clusters("s2", &[("a", "late")]));
    }

    assert_eq!(servers.value::<Cluster>("a").eds_name(), Some("primary"));
    assert_eq!(servers.changes(), []);
}

/// S1-31: with the last watch gone no server is asked, and the next watch begins with the primary.
#[test]
fn next_watch_begins_with_the_primary() {
    let mut servers = Servers::new(2);
    let key = servers.subscribe::<Cluster>("a");
    servers.fail(PRIMARY, "connection refused");
    servers.open(SECONDARY);
    servers.receive(SECONDARY, clusters("s1", &[("a", "secondary")]));

    servers.unsubscribe(&key);
    assert!(!servers.is_asked(PRIMARY) && !servers.is_asked(SECONDARY));
    servers.subscribe::<Cluster>("a");

    assert!(servers.is_asked(PRIMARY));
    assert!(!servers.is_asked(SECONDARY));
}

/// S1-36: a name whose parameters come in another order is the same resource, asked for and held
/// once, under the authority's own server.
#[test]
fn order_of_parameters_does_not_matter() {
    let mut servers = federated();

    let one = servers.subscribe::<Endpoints>(&xdstp("east", "x=1&y=2"));
    let other = servers.subscribe::<Endpoints>(&xdstp("east", "y=2&x=1"));

    assert_eq!(one, other);
    assert!(!servers.is_asked(PRIMARY), "it is not its authority");
    servers.open(SECONDARY);
    let names = servers.request(SECONDARY).resource_names;
    assert_eq!(names.len(), 1, "{names:?}");
    let sent = endpoints(&xdstp("east", "y=2&x=1")).any();
    servers.receive(SECONDARY, response::<Endpoints>("v1", "n1", [sent]));
    let entry = servers.cache().entry(&one).unwrap();
    assert!(entry.has_value());
    assert_eq!(servers.cache().iter().count(), 1);
}

/// S1-36: an authority that the bootstrap does not know is an error of that watch alone.
#[test]
fn unknown_authority_is_the_error_of_one_watch() {
    let mut servers = federated();
    servers.subscribe::<Endpoints>("old-style");

    let unknown = servers.subscribe::<Endpoints>(&xdstp("west", ""));

    assert_eq!(servers.changes(), [(unknown.clone(), Changed::Data)]);
    let error = servers.error::<Endpoints>(&unknown.name);
    assert!(
        matches!(error.reason, Reason::UnknownAuthority(_)),
        "{error}"
    );
    assert!(error.to_string().contains("west"), "{error}");
    assert!(error.to_string().ends_with("[node test-node]"), "{error}");
    servers.open(PRIMARY);
    assert_eq!(servers.request(PRIMARY).resource_names, ["old-style"]);
}

/// S1-36: the trouble of one authority's server is nothing to another's.
#[test]
fn authorities_fail_apart() {
    let mut servers = federated();
    servers.subscribe::<Endpoints>("old-style");
    let east = servers.subscribe::<Endpoints>(&xdstp("east", ""));

    servers.fail(SECONDARY, "connection refused");

    assert_eq!(servers.changes(), [(east, Changed::Data)]);
    servers.open(PRIMARY);
    let sent = endpoints("old-style").any();
    servers.receive(PRIMARY, response::<Endpoints>("v1", "n1", [sent]));
    assert_eq!(servers.value::<Endpoints>("old-style").name, "old-style");
}

/// S1-36: an authority that shares its server with the default shares the stream, and can fall
/// back by itself.
#[test]
fn authorities_share_a_server() {
    let mut servers = Servers::with(2, authorities(&[("", &[0]), ("east", &[0, 1])]));
    servers.subscribe::<Endpoints>("old-style");
    let east = servers.subscribe::<Endpoints>(&xdstp("east", ""));

    servers.fail(PRIMARY, "connection refused");

    let old = Key::of::<Endpoints>("old-style");
    assert_eq!(servers.changes(), [(old, Changed::Data)], "it has no other");
    servers.open(SECONDARY);
    assert_eq!(servers.request(SECONDARY).resource_names, [&*east.name]);
}

/// S1-37: a malformed name is the error of its watch, and names node and resource.
#[test]
fn malformed_name_is_the_error_of_its_watch() {
    let mut servers = federated();

    let key = servers.subscribe::<Endpoints>("xdstp://");

    let error = servers.error::<Endpoints>(&key.name).to_string();
    assert!(
        error.starts_with("endpoints xdstp://: malformed name"),
        "{error}"
    );
    assert!(error.ends_with("[node test-node]"), "{error}");
    assert!(!servers.is_asked(PRIMARY));
}

fn federated() -> Servers {
    Servers::with(2, authorities(&[("", &[PRIMARY]), ("east", &[SECONDARY])]))
}

fn xdstp(authority: &str, parameters: &str) -> String {
    let path = "envoy.config.endpoint.v3.ClusterLoadAssignment/shop";
    let query = if parameters.is_empty() { "" } else { "?" };
    format!("xdstp://{authority}/{path}{query}{parameters}")
}

/// Clusters with the names of their endpoints.
fn clusters(version: &str, resources: &[(&str, &str)]) -> DiscoveryResponse {
    let resources = resources
        .iter()
        .map(|(name, eds)| cluster(name).eds(eds).any());
    response::<Cluster>(version, version, resources)
}
