//! Settings in the environment of the process.
//!
//! Each test runs once more in a process of its own, because a variable holds for all tests of a
//! process.

use std::env;
use std::process::Command;

use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, endpoints, listener, routes};
use envoy_types::pb::google::protobuf::Any;
use tokio::runtime::Runtime;

use crate::backend::Backend;
use crate::support::{call, channel, spread, spread_until};

const INNER: &str = "CROWFLY_TEST_INNER";
const BACKWARD_COMPAT: &str = "GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT";

/// Runs the test called `name` again with this variable, or says that this is that run.
pub(crate) fn is_inner(name: &str, variable: (&str, &str)) -> bool {
    if env::var_os(INNER).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INNER, "1")
        .env(variable.0, variable.1)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}{errors}");
    false
}

/// S6-08: each leaf is balanced by its own policy (gRFC A75): here in turn, though the aggregate names
/// pick_first.
#[tokio::test]
async fn leaves_are_balanced_by_their_own_policy() {
    let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
    let server = ResourceServer::start(&aggregate(&[&a, &b]));
    let channel = channel(&server);
    spread_until(&channel, 10, |answers| answers.len() == 2).await;
}

/// A variable brings back the rule from before gRFC A75, by which leaves are balanced by the
/// aggregate's policy.
#[test]
fn leaves_are_balanced_by_the_policy_of_their_aggregate_if_asked_to() {
    let name = "environment::leaves_are_balanced_by_the_policy_of_their_aggregate_if_asked_to";
    if !is_inner(name, (BACKWARD_COMPAT, "true")) {
        return;
    }
    Runtime::new().unwrap().block_on(async {
        let (a, b) = tokio::join!(Backend::start("a"), Backend::start("b"));
        let server = ResourceServer::start(&aggregate(&[&a, &b]));
        let channel = channel(&server);
        let first = call(&channel).await.unwrap();
        assert_eq!(spread(&channel, 20).await[&first], 20);
        // One that would take turns would have connected to both by now.
        assert_eq!(a.connections() + b.connections(), 1);
    });
}

/// An aggregate that names pick_first, over a leaf that takes turns.
fn aggregate(backends: &[&Backend]) -> Resources {
    let policies = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let pick_first = Any {
        type_url: format!("{policies}.pick_first.v3.PickFirst"),
        value: Vec::new(),
    };
    let addresses = backends.iter().map(|backend| backend.address);
    Resources::new()
        .with(listener("payments").rds("routes"))
        .with(routes("routes").host("*").route("/", "top"))
        .with(cluster("top").aggregate(["leaf"]).policies([pick_first]))
        .with(cluster("leaf"))
        .with(endpoints("leaf").locality("eu/a", 1, addresses))
}
