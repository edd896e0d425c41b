//! Tests of several authorities, each with servers of its own (gRFC A47). Trouble of one authority
//! must not reach the others.

use crowfly_model::grpc::Endpoints;
use crowfly_testkit::builders::endpoints;
use crowfly_testkit::{Servers, authorities, over_both, removed};
use crowfly_xds::{Changed, Key, Protocol, TroubleReason};

use crate::fallback::{PRIMARY, SECONDARY};

/// S1-36: a name whose parameters come in another order is the same resource, asked for and held
/// once, under the authority's own server.
#[test]
fn order_of_parameters_does_not_matter() {
    over_both(|protocol| {
        let mut servers = federated(protocol);

        let one = servers.subscribe::<Endpoints>(&xdstp("east", "x=1&y=2"));
        let other = servers.subscribe::<Endpoints>(&xdstp("east", "y=2&x=1"));

        assert_eq!(one, other);
        assert!(!servers.is_asked(PRIMARY), "it is not its authority");
        servers.open(SECONDARY);
        let names = servers.request(SECONDARY).names;
        assert_eq!(names.len(), 1, "{names:?}");
        let name = xdstp("east", "y=2&x=1");
        servers.send::<Endpoints>(SECONDARY, "v1", [(&*name, endpoints(&name).any())]);
        let entry = servers.cache().entry(&one).unwrap();
        assert!(entry.has_value());
        assert_eq!(servers.cache().iter().count(), 1);
    });
}

/// S1-36: in delta a server also says what is gone by name, and again in any order; what it is told
/// on the next stream has the name it was asked for.
#[test]
fn order_of_parameters_does_not_matter_for_what_is_gone() {
    let mut servers = federated(Protocol::Delta);
    let key = servers.subscribe::<Endpoints>(&xdstp("east", "x=1&y=2"));
    servers.open(SECONDARY);
    let asked = servers.request(SECONDARY).names;
    let name = xdstp("east", "y=2&x=1");
    servers.send::<Endpoints>(SECONDARY, "v1", [(&*name, endpoints(&name).any())]);
    servers.fail(SECONDARY, "gone");
    servers.open(SECONDARY);
    let again = servers.request(SECONDARY);
    assert_eq!(again.names, asked);
    assert_eq!(again.held, [(asked[0].clone(), "v1".to_owned())].into());

    servers.receive(SECONDARY, removed::<Endpoints>("n2", &[&name]));

    let error = servers.error::<Endpoints>(&key.name);
    assert_eq!(error.reason, TroubleReason::Deleted);
}

/// S1-36: an authority that the bootstrap does not know is an error of that watch alone.
#[test]
fn unknown_authority_is_the_error_of_one_watch() {
    over_both(|protocol| {
        let mut servers = federated(protocol);
        servers.subscribe::<Endpoints>("old-style");

        let unknown = servers.subscribe::<Endpoints>(&xdstp("west", ""));

        assert_eq!(servers.changes(), [(unknown.clone(), Changed::Data)]);
        let error = servers.error::<Endpoints>(&unknown.name);
        assert!(
            matches!(error.reason, TroubleReason::UnknownAuthority(_)),
            "{error}"
        );
        assert!(error.to_string().contains("west"), "{error}");
        assert!(error.to_string().ends_with("[node test-node]"), "{error}");
        servers.open(PRIMARY);
        assert_eq!(servers.request(PRIMARY).names, ["old-style"]);
    });
}

/// S1-36: the trouble of one authority's server is nothing to another's.
#[test]
fn authorities_fail_apart() {
    over_both(|protocol| {
        let mut servers = federated(protocol);
        servers.subscribe::<Endpoints>("old-style");
        let east = servers.subscribe::<Endpoints>(&xdstp("east", ""));

        servers.fail(SECONDARY, "connection refused");

        assert_eq!(servers.changes(), [(east, Changed::Data)]);
        servers.open(PRIMARY);
        let sent = endpoints("old-style").any();
        servers.send::<Endpoints>(PRIMARY, "v1", [("old-style", sent)]);
        assert_eq!(servers.value::<Endpoints>("old-style").name, "old-style");
    });
}

/// S1-36: the trouble of the default authority does not reach others, even if it wants all of a
/// type.
#[test]
fn failure_of_a_wildcard_is_its_authoritys_own() {
    over_both(|protocol| {
        let mut servers = federated(protocol);
        servers.subscribe_all::<Endpoints>();
        let east = servers.subscribe::<Endpoints>(&xdstp("east", ""));
        servers.open(SECONDARY);
        let sent = endpoints(&east.name).any();
        servers.send::<Endpoints>(SECONDARY, "v1", [(&*east.name, sent)]);
        servers.changes();

        servers.fail(PRIMARY, "connection refused");

        assert_eq!(servers.changes(), []);
    });
}

/// S1-36: an authority that shares its server with the default shares the stream, and can fall
/// back by itself.
#[test]
fn authorities_share_a_server() {
    over_both(|protocol| {
        let mut servers = Servers::with(protocol, 2, authorities(&[("", &[0]), ("east", &[0, 1])]));
        servers.subscribe::<Endpoints>("old-style");
        let east = servers.subscribe::<Endpoints>(&xdstp("east", ""));

        servers.fail(PRIMARY, "connection refused");

        let old = Key::of::<Endpoints>("old-style");
        assert_eq!(servers.changes(), [(old, Changed::Data)], "it has no other");
        servers.open(SECONDARY);
        assert_eq!(servers.request(SECONDARY).names, [&*east.name]);
    });
}

/// S1-37: a malformed name is the error of its watch, and names node and resource.
#[test]
fn malformed_name_is_the_error_of_its_watch() {
    over_both(|protocol| {
        let mut servers = federated(protocol);

        let key = servers.subscribe::<Endpoints>("xdstp://");

        let error = servers.error::<Endpoints>(&key.name).to_string();
        assert!(
            error.starts_with("endpoints xdstp://: malformed name"),
            "{error}"
        );
        assert!(error.ends_with("[node test-node]"), "{error}");
        assert!(!servers.is_asked(PRIMARY));
    });
}

fn federated(protocol: Protocol) -> Servers {
    Servers::with(
        protocol,
        2,
        authorities(&[("", &[PRIMARY]), ("east", &[SECONDARY])]),
    )
}

fn xdstp(authority: &str, parameters: &str) -> String {
    let path = "envoy.config.endpoint.v3.ClusterLoadAssignment/shop";
    let query = if parameters.is_empty() { "" } else { "?" };
    format!("xdstp://{authority}/{path}{query}{parameters}")
}
