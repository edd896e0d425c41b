//! Tests of nonces, ACKs and NACKs as the server half takes them. They tell the server which of its
//! responses the client has seen.

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::builders::{Resources, cluster, endpoints};
use crowfly_xds::RequestOutcome;

use crate::server::{Server, names};

/// P-01: Every response has a new nonce (xDS protocol: "Basic protocol overview").
#[test]
fn nonces_are_never_used_twice_on_a_stream() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a"], "");
    server.ask::<Endpoints>(&["a"], "");
    let clusters = server.response();
    let first = server.response();
    server.ack::<Endpoints>(&["a"], &first);

    server.set(&both(2));
    let second = server.response();

    assert_eq!(second.type_url, Endpoints::TYPE_URL);
    let mut nonces = vec![&clusters.nonce, &first.nonce, &second.nonce];
    nonces.sort();
    nonces.dedup();
    assert_eq!(nonces.len(), 3);
    assert!(nonces.iter().all(|nonce| !nonce.is_empty()));
}

/// H-09, P-01: A nonce belongs to its type: a response of another type does not make it stale (xDS
/// protocol: "Basic protocol overview").
#[test]
fn nonce_of_one_type_is_not_outdated_by_another_type() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a"], "");
    let clusters = server.response();
    server.ask::<Endpoints>(&["a"], "");
    server.response();

    let outcome = server.ask::<Cluster>(&["a", "b"], &clusters.nonce);

    assert!(matches!(outcome, RequestOutcome::Ack { .. }), "{outcome:?}");
}

/// P-02: A request that answers an outdated response gets no answer and changes nothing (xDS
/// protocol: "Resource updates").
#[test]
fn request_with_a_stale_nonce_is_void() {
    let mut server = Server::new(&both(1));
    server.ask::<Endpoints>(&["a"], "");
    let first = server.response();
    server.ack::<Endpoints>(&["a"], &first);
    server.set(&both(2));
    let second = server.response();

    // If this list counted, `a` would be forgotten and sent again.
    let outcome = server.ask::<Endpoints>(&["b"], &first.nonce);
    assert_eq!(
        outcome,
        RequestOutcome::Stale {
            type_url: Endpoints::TYPE_URL.to_owned()
        }
    );
    server.silent();

    server.ack::<Endpoints>(&["a"], &second);
    server.silent();

    // A list in an answer to the newest response counts.
    server.ack::<Endpoints>(&["a", "b"], &second);
    assert_eq!(names::<Endpoints>(&server.response()), ["b"]);
}

/// A request without a nonce comes from a client that knows of no response: it is sent everything
/// again, but not before it has answered what is on its way.
#[test]
fn request_without_a_nonce_starts_over() {
    let mut server = Server::new(&both(1));
    server.ask::<Endpoints>(&["a"], "");
    let first = server.response();
    server.ask::<Endpoints>(&["a", "b"], "");
    server.silent();

    server.ack::<Endpoints>(&["a", "b"], &first);

    assert_eq!(names::<Endpoints>(&server.response()), ["a", "b"]);
}

/// P-04: A NACK is a request with an error, whatever version it has (xDS protocol: "ACK/NACK").
#[test]
fn nack_is_known_by_its_error_and_not_by_its_version() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a"], "");
    let response = server.response();

    let unchanged = server.ask::<Cluster>(&["a"], &response.nonce);
    assert!(
        matches!(unchanged, RequestOutcome::Ack { .. }),
        "an old version is no NACK"
    );

    let nack = server.nack::<Cluster>(&["a"], &response);
    assert_eq!(
        nack,
        RequestOutcome::Nack {
            type_url: Cluster::TYPE_URL.to_owned(),
            version: response.version_info,
            message: "not good".to_owned(),
        }
    );
}

/// P-05: A refused version is not sent again; the next one is (xDS protocol: "When to send an
/// update").
#[test]
fn refused_version_is_not_sent_again() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a"], "");
    let refused = server.response();
    server.nack::<Cluster>(&["a"], &refused);
    server.silent();
    server.set(&both(1));
    server.silent();

    server.set(&Resources::new().with(cluster("a").eds("other")));

    let next = server.response();
    assert_eq!(names::<Cluster>(&next), ["a"]);
    assert_ne!(next.version_info, refused.version_info);
}

/// P-05: A refused version is not sent again because another type changes, nor to a client that
/// refuses without a nonce.
#[test]
fn refused_version_stays_refused_while_other_types_change() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a"], "");
    let refused = server.response();
    server.nack::<Cluster>(&["a"], &refused);
    server.ask::<Endpoints>(&["a"], "");
    let accepted = server.response();
    server.ack::<Endpoints>(&["a"], &accepted);

    server.set(&both(2));
    assert_eq!(names::<Endpoints>(&server.response()), ["a"]);
    server.nack_without_nonce::<Cluster>(&["a"]);
    server.silent();
}

/// P-30: A changed cluster is followed even by endpoints that were refused, once. Envoy would
/// otherwise wait for them, and the old cluster may have been the reason.
#[test]
fn refused_endpoints_follow_a_changed_cluster_once() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a"], "");
    let clusters = server.response();
    server.ack::<Cluster>(&["a"], &clusters);
    server.ask::<Endpoints>(&["a"], "");
    let refused = server.response();
    server.nack::<Endpoints>(&["a"], &refused);
    server.silent();

    server.set(&both(1).with(cluster("a").edit(|a| a.alt_stat_name = "new".to_owned())));
    assert_eq!(names::<Cluster>(&server.response()), ["a"]);
    let again = server.response();
    assert_eq!(names::<Endpoints>(&again), ["a"]);
    server.nack::<Endpoints>(&["a"], &again);
    server.silent();
}

/// P-06: A NACK may also change the names, and they count (xDS protocol: "How the client specifies
/// what resources to return").
#[test]
fn names_in_a_nack_are_taken() {
    let mut server = Server::new(&both(1));
    server.ask::<Endpoints>(&["a"], "");
    let refused = server.response();

    server.nack::<Endpoints>(&["a", "b"], &refused);

    assert_eq!(names::<Endpoints>(&server.response()), ["b"]);
}

/// P-07: An ACK is not answered (xDS protocol: "When to send an update").
#[test]
fn ack_is_not_answered() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a", "b"], "");
    let response = server.response();

    server.ack::<Cluster>(&["a", "b"], &response);
    server.silent();
    server.ack::<Cluster>(&["a", "b"], &response);
    server.silent();
}

/// A snapshot that changes nothing the client asked for is not sent.
#[test]
fn unchanged_resources_are_not_sent() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["a"], "");
    let response = server.response();
    server.ack::<Cluster>(&["a"], &response);

    server.set(&both(1).with(cluster("b").eds("other")).with(cluster("c")));

    server.silent();
}

/// P-08: The node is told once a stream (xDS protocol: "Basic protocol overview").
#[test]
fn node_is_remembered_from_the_first_request() {
    let mut server = Server::new(&both(1));
    assert_eq!(server.node_id(), None);

    server.ask_as::<Cluster>("web-1");
    server.ask::<Endpoints>(&["a"], "");

    assert_eq!(server.node_id().as_deref(), Some("web-1"));
}

/// P-26: Versions are those of the content: two servers with the same resources agree on them.
#[test]
fn servers_with_the_same_resources_agree_on_versions() {
    let mut first = Server::new(&both(1));
    let mut second = Server::new(&both(1));
    for server in [&mut first, &mut second] {
        server.ask::<Cluster>(&["a"], "");
    }

    assert_eq!(
        first.response().version_info,
        second.response().version_info
    );
}

/// P-31: An Envoy keeps the version before when it refuses a response, although it applied the good part of it. So
/// after a return to that version it is sent everything, and gets rid of that part.
#[test]
fn version_before_a_refusal_is_sent_again_on_a_new_stream() {
    let mut server = Server::new(&both(1));
    server.ask_with_agent::<Cluster>("envoy", &[]);
    let first = server.response();
    server.ack::<Cluster>(&[], &first);
    server.set(&both(1).with(cluster("a").eds("other")));
    let second = server.response();
    server.nack::<Cluster>(&[], &second);

    let mut server = Server::new(&both(1));
    server.resume::<Cluster>("envoy", &[], &first.version_info);

    let again = server.response();
    assert_eq!(again.version_info, first.version_info);
    assert_eq!(names::<Cluster>(&again), ["a", "b"]);
}

/// P-31: A version saves nothing: not in the first request of a stream, nor later, with any list and any kind of client.
#[test]
fn version_of_an_earlier_stream_saves_nothing() {
    let mut server = Server::new(&both(1));
    server.ask::<Cluster>(&["*"], "");
    let version = server.response().version_info;

    for agent in ["envoy", "gRPC C-core", ""] {
        for list in [&[][..], &["*"], &["*", "a"], &["a"]] {
            let mut server = Server::new(&both(1));
            server.resume::<Cluster>(agent, list, &version);
            let first = server.response();
            assert!(!names::<Cluster>(&first).is_empty());
            server.ack::<Cluster>(list, &first);

            server.resume::<Cluster>(agent, list, &version);
            assert_eq!(server.response().resources, first.resources);
        }
    }
}

/// Clusters and endpoints `a` and `b`; `port` is that of the endpoints in `a`.
fn both(port: u16) -> Resources {
    let address = format!("127.0.0.1:{port}");
    Resources::new()
        .with(cluster("a"))
        .with(cluster("b"))
        .with(endpoints("a").locality("z", 1, [address.as_str()]))
        .with(endpoints("b"))
}
