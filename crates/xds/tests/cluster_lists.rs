//! Tests of cluster lists (gRFC A99) on the wire. Their messages do not hold their name, so the
//! wrapper of the resource must.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, ClusterConfig};
use crowfly_testkit::builders::{Resource, Resources, cluster, cluster_config};
use crowfly_testkit::{
    Pair, Script, Servers, authorities, delta, over_both, removed, response, wrapped,
};
use crowfly_xds::{Changed, Key, Protocol, TroubleReason};

/// S3-14: in state of the world the name is the wrapper's.
#[test]
fn list_is_named_by_its_wrapper_in_sotw() {
    let mut script = Script::watching::<ClusterConfig>(Protocol::StateOfTheWorld, &["x", "y"]);
    let lists = [
        cluster_config("x").clusters(["a", "b"]),
        cluster_config("y").clusters(["b", "a"]),
    ];

    script.receive(response::<ClusterConfig>(
        "v1",
        "n1",
        lists.map(|list| list.in_sotw()),
    ));

    let ack = script.request();
    assert_eq!((&*ack.version_info, ack.error_detail), ("v1", None));
    assert_eq!(script.value::<ClusterConfig>("x").clusters, ["a", "b"]);
    assert_eq!(script.value::<ClusterConfig>("y").clusters, ["b", "a"]);
}

/// S3-14: in delta the name is the wrapper's too, and every resource has one.
#[test]
fn list_is_named_by_its_wrapper_in_delta() {
    let mut script = Script::watching::<ClusterConfig>(Protocol::Delta, &["x"]);
    let list = cluster_config("x").clusters(["a", "b"]);

    script.receive(delta::<ClusterConfig>("n1", [("x", "1", list.any())]));

    assert_eq!(script.delta_request().error_detail, None);
    assert_eq!(script.value::<ClusterConfig>("x").clusters, ["a", "b"]);
}

/// gRFC A47: the wrapper may spell an xdstp name in its own way.
#[test]
fn name_in_the_wrapper_is_canonicalised() {
    let [asked, sent] = ["a=1&b=2", "b=2&a=1"].map(|parameters| {
        let prefix = "xdstp://east/envoy.extensions.clusters.aggregate.v3.ClusterConfig/x";
        format!("{prefix}?{parameters}")
    });
    let mut servers = Servers::with(
        Protocol::StateOfTheWorld,
        1,
        authorities(&[("", &[0]), ("east", &[0])]),
    );
    servers.subscribe::<ClusterConfig>(&asked);
    servers.open(0);
    servers.request(0);

    let list = cluster_config(&sent).clusters(["a"]);
    servers.receive(0, response::<ClusterConfig>("v1", "n1", [list.in_sotw()]));

    assert_eq!(servers.request(0).refusal, None);
    assert_eq!(servers.value::<ClusterConfig>(&asked).clusters, ["a"]);
}

/// S3-14: a list that nothing names is an error that says so, and is nobody's; the others of the
/// response are taken.
#[test]
fn list_without_a_name_is_refused_alone() {
    let list = || cluster_config("x").clusters(["a"]);
    for nameless in [list().any(), wrapped("", list().any())] {
        let mut script = Script::watching::<ClusterConfig>(Protocol::StateOfTheWorld, &["x", "y"]);
        let good = cluster_config("y").clusters(["b"]).in_sotw();

        script.receive(response::<ClusterConfig>("v1", "n1", [nameless, good]));

        let nack = script.request().error_detail.unwrap();
        let expected = "cluster list at resources[0]: \
                        has no name, expected a Resource wrapper that names it";
        assert!(nack.message.contains(expected), "{}", nack.message);
        assert_eq!(
            script.changes(),
            [(Key::of::<ClusterConfig>("y"), Changed::Data)]
        );
        assert!(script.read::<ClusterConfig>("x").is_none());
    }
}

/// S3-14: an empty list is refused under its name, and the one before stays in use.
#[test]
fn empty_list_is_refused_and_the_last_one_kept() {
    let mut script = Script::watching::<ClusterConfig>(Protocol::StateOfTheWorld, &["x"]);
    let good = cluster_config("x").clusters(["a"]);
    script.receive(response::<ClusterConfig>("v1", "n1", [good.in_sotw()]));
    script.request();

    let empty = cluster_config("x").invalid();
    script.receive(response::<ClusterConfig>("v2", "n2", [empty.in_sotw()]));

    let nack = script.request();
    assert_eq!(nack.version_info, "v1");
    let message = nack.error_detail.unwrap().message;
    let expected = "cluster list x: clusters: expected at least one, got none";
    assert!(message.contains(expected), "{message}");
    assert_eq!(script.value::<ClusterConfig>("x").clusters, ["a"]);
}

/// gRFC A53: only listeners and clusters are deleted by absence.
#[test]
fn list_left_out_of_a_response_is_kept() {
    let mut script = Script::watching::<ClusterConfig>(Protocol::StateOfTheWorld, &["x"]);
    let list = cluster_config("x").clusters(["a"]);
    script.receive(response::<ClusterConfig>("v1", "n1", [list.in_sotw()]));
    script.changes();

    script.receive(response::<ClusterConfig>("v2", "n2", []));

    assert_eq!(script.changes(), []);
    assert_eq!(script.value::<ClusterConfig>("x").clusters, ["a"]);
}

/// In delta the server says what is gone.
#[test]
fn list_removed_in_delta_does_not_exist() {
    let mut script = Script::watching::<ClusterConfig>(Protocol::Delta, &["x"]);
    let list = cluster_config("x").clusters(["a"]);
    script.receive(delta::<ClusterConfig>("n1", [("x", "1", list.any())]));

    script.receive(removed::<ClusterConfig>("n2", &["x"]));

    assert_eq!(
        script.error::<ClusterConfig>("x").reason,
        TroubleReason::Deleted
    );
}

/// Our server sends a list as our client wants it, and sends what changes of it.
#[test]
fn both_halves_agree_on_lists() {
    let resources = |order: [&str; 2]| {
        Resources::new()
            .with(cluster("c").aggregate_resource("x"))
            .with(cluster_config("x").clusters(order))
    };
    over_both(|protocol| {
        let mut pair = Pair::new(protocol, resources(["a", "b"]).snapshot());
        pair.subscribe::<Cluster>("c");
        pair.subscribe::<ClusterConfig>("x");
        for order in [["a", "b"], ["b", "a"]] {
            pair.set_snapshot(resources(order).snapshot());
            pair.drive(20);

            let list = pair.cache().read::<ClusterConfig>("x").unwrap().unwrap();
            assert_eq!(list.clusters, order);
            assert!(pair.cache().read::<Cluster>("c").unwrap().is_ok());
            assert!(!pair.refused(ClusterConfig::TYPE_URL));
        }
    });
}
