//! Tests of fields that are set and have no effect yet: each is shown at the resource that sets it.

use envoy_types::pb::envoy::config::{
    cluster::v3::OutlierDetection,
    route::v3::{HeaderMatcher, RetryPolicy, RouteConfiguration, route::Action},
};
use envoy_types::pb::google::protobuf::UInt32Value;

use super::{
    routes::{table, with_query_and_redirect},
    *,
};

const EJECTS: &str = "outlier_detection.consecutive_5xx: \
                      ignored: gRPC ejects by success rate and failure percentage alone (gRFC A50)";
const TRIES: &str = "route.retry_policy.retriable_headers: ignored: it is for proxies (gRFC A44)";

/// gRFC A44, A50: each unsupported field is shown at the resource that sets it, inline or not, and
/// calls go on.
#[test]
fn wishes_are_told_where_they_are() {
    let other = routes("table").host("other").route("/", "top");
    let table = || other.clone().host("*").route("/", "top").edit(retrying);
    let inline = Resources::new().with(listener("payments").routes(table()));
    let fetched = to_top().with(table());
    for resources in [inline, fetched] {
        let ejecting = cluster("top").edit(|proto| {
            proto.outlier_detection = Some(OutlierDetection {
                consecutive_5xx: Some(UInt32Value { value: 5 }),
                ..OutlierDetection::default()
            });
        });
        let resources = leaf(resources, "top").with(ejecting);

        let explanation = explained(&resources, &call("/pay.Pay/Charge"));

        assert!(explanation.reachable);
        assert_eq!(explanation.routes[0].unsupported, [TRIES]);
        let cluster = &explanation.clusters[0].cluster;
        assert_eq!(cluster.resource.unsupported, [EJECTS]);
        assert_eq!(explanation.listener.unsupported, [""; 0]);
        let text = explanation.to_string();
        for wish in [TRIES, EJECTS] {
            assert_eq!(text.matches(&format!("! {wish}\n")).count(), 1, "{text}");
        }
    }
}

/// gRFC A28: a route that is left out is one of the lines with `!`, with or without a path.
#[test]
fn a_route_left_out_is_noted() {
    let resources = table(with_query_and_redirect);
    let line = "routes[1] (canary): left out, match.query_parameters is not supported";
    let cases = [
        (
            every_call(),
            "! the calls that it is for go to the routes after it",
        ),
        (
            call("/none.Such/Method"),
            "! for a client that supports it, the call might match it",
        ),
    ];
    for (call, note) in cases {
        let text = explained(&resources, &call).to_string();
        let (_, after) = text.split_once(line).unwrap();
        assert!(after.lines().nth(1).unwrap().ends_with(note), "{text}");
    }
}

/// Makes the route of both virtual hosts ask for retries by headers.
fn retrying(config: &mut RouteConfiguration) {
    for host in &mut config.virtual_hosts {
        if let Some(Action::Route(action)) = &mut host.routes[0].action {
            action.retry_policy = Some(RetryPolicy {
                retry_on: "unavailable".to_owned(),
                retriable_headers: vec![HeaderMatcher::default()],
                ..RetryPolicy::default()
            });
        }
    }
}
