//! Tests of the settings of a route for its calls: shares, splits and timeouts, as text and as JSON.

use crowfly_testkit::builders::RoutesBuilder;
use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::{HttpProtocolOptions, RuntimeFractionalPercent},
            route::v3::{
                RetryPolicy, RouteConfiguration, WeightedCluster,
                route::Action,
                route_action::{
                    ClusterSpecifier, HashPolicy, MaxStreamDuration,
                    hash_policy::{self, PolicySpecifier},
                },
                weighted_cluster::ClusterWeight,
            },
        },
        extensions::filters::{
            http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
            network::http_connection_manager::v3::{HttpFilter, http_filter::ConfigType},
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::{self, UInt32Value},
};
use envoy_types::util::pack_any;
use serde_json::json;

use super::*;

/// gRFC A28: a route that takes a share of its calls is shown as "by chance", and the call goes on. A share of 0 is
/// passed over, and a share of all decides.
#[test]
fn a_share_is_by_chance_and_the_next_routes_count_too() {
    let resources = shares([Some(10), Some(0), Some(100), None]);
    let explanation = explained(&resources, &call("/pay.Pay/Charge"));

    let verdicts: Vec<_> = explanation.routes.iter().flat_map(|r| r.verdict).collect();
    let expected = [
        Verdict::ByChance,
        Verdict::PassedOver,
        Verdict::Matches,
        Verdict::NotReached,
    ];
    assert_eq!(verdicts, expected);
    assert!(explanation.reachable);
    let shown = explanation
        .clusters
        .iter()
        .map(|one| &*one.cluster.resource.name);
    assert_eq!(Vec::from_iter(shown), ["c0", "c2"]);
    let text = explanation.to_string();
    for line in [
        "routes[0] prefix /, 10 % of them -> cluster c0: by chance\n",
        "routes[1] prefix /, 0 % of them -> cluster c1: passed over, the call is not one of its 0%\n",
        "routes[2] prefix /, 100 % of them -> cluster c2: matches\n",
        "routes[3] prefix / -> cluster c3: not reached\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// gRFC A28: a call that no share takes has no route.
#[test]
fn the_calls_that_no_share_takes_end_at_the_virtual_host() {
    let resources = shares([Some(10), Some(20)]);
    let explanation = explained(&resources, &call("/pay.Pay/Charge"));
    let why = "no route takes the calls of /pay.Pay/Charge that routes[0], routes[1] leave";
    assert_stops(&explanation, "virtual host *", why);
    assert_eq!(explanation.stop.unwrap().part, StopPart::VirtualHost);
}

/// gRFC A28, A31: a split is shown with its percentages, and each of its clusters is explained. One that has no
/// endpoint ends a part of the calls.
#[test]
fn a_split_and_a_timeout_are_told() {
    let table = to("c0").edit(|config| {
        forward(config, |action| {
            let weights =
                [("c0", 137), ("c1", 13), ("c2", 0)].map(|(name, weight)| ClusterWeight {
                    name: name.to_owned(),
                    weight: Some(UInt32Value { value: weight }),
                    ..ClusterWeight::default()
                });
            action.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: weights.into(),
                ..WeightedCluster::default()
            }));
            action.max_stream_duration = Some(MaxStreamDuration {
                max_stream_duration: Some(seconds(10)),
                ..MaxStreamDuration::default()
            });
        });
    });
    let resources = leaf(leaf(to_top().with(table), "c0"), "c1");
    let explanation = explained(&resources, &call("/pay.Pay/Charge"));

    assert!(explanation.reachable);
    assert_eq!(explanation.clusters.len(), 2);
    let text = explanation.to_string();
    let lines = [
        "routes[0] prefix / -> clusters c0 91.3333 %, c1 8.6667 %: matches\n",
        "timeout 10 s, set by the route\n",
    ];
    for line in lines {
        assert!(text.contains(line), "{text}");
    }
    let json = serde_json::to_value(&explanation).unwrap();
    let route = &json["routes"][0];
    let splits = json!([
        { "cluster": "c0", "weight": 137, "per_million": 913_333, "filters": [] },
        { "cluster": "c1", "weight": 13, "per_million": 86_667, "filters": [] },
    ]);
    assert_eq!(route["clusters"], splits);
    assert_eq!(
        route["timeout"],
        json!({ "seconds": 10.0, "set_by": "route" })
    );
    assert_eq!(route["verdict"], "matches");

    let explanation = explained(&resources.without("c1"), &call("/pay.Pay/Charge"));
    let why = "does not exist: the server did not send it within 15s";
    assert_stops(&explanation, "cluster c1", why);
}

/// gRFC A31: a route without a limit has the listener's, and one of zero has none.
#[test]
fn a_timeout_of_the_listener_is_told_unless_the_route_has_its_own() {
    let limited = listener("payments").rds("table").edit(|manager| {
        manager.common_http_protocol_options = Some(HttpProtocolOptions {
            max_stream_duration: Some(seconds(5)),
            ..HttpProtocolOptions::default()
        });
    });
    let resources = leaf(to_top().with(limited), "top");
    let explanation = explained(&resources, &call("/pay.Pay/Charge"));
    let timeout = explanation.routes[0].timeout.as_ref().unwrap();
    assert_eq!((timeout.seconds, timeout.set_by), (5.0, "listener"));

    let unlimited = to("top").edit(|config| {
        forward(config, |action| {
            action.max_stream_duration = Some(MaxStreamDuration {
                max_stream_duration: Some(seconds(0)),
                ..MaxStreamDuration::default()
            });
        });
    });
    let explanation = explained(&resources.with(unlimited), &call("/pay.Pay/Charge"));
    assert_eq!(explanation.routes[0].timeout, None);
}

/// gRFC A44: the retry policy of a route is shown, with its limits and codes.
#[test]
fn a_retry_policy_is_told() {
    let table = to("top").edit(|config| {
        forward(config, |action| {
            action.retry_policy = Some(RetryPolicy {
                retry_on: "unavailable,internal".to_owned(),
                num_retries: Some(UInt32Value { value: 2 }),
                ..RetryPolicy::default()
            });
        });
    });
    let resources = leaf(to_top().with(table), "top");
    let explanation = explained(&resources, &call("/pay.Pay/Charge"));
    let text = explanation.to_string();
    let line = "retries: up to 3 attempts, on internal, unavailable; 0.025 s to 0.25 s apart\n";
    assert!(text.contains(line), "{text}");
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json["routes"][0]["retry"]["retry_on"], json!([13, 14]));
}

/// gRFC A42: the hash policies of a route are shown in their order.
#[test]
fn hash_policies_are_told() {
    let table = to("top").edit(|config| {
        forward(config, |action| {
            let header = |name: &str, terminal| HashPolicy {
                terminal,
                policy_specifier: Some(PolicySpecifier::Header(hash_policy::Header {
                    header_name: name.to_owned(),
                    regex_rewrite: None,
                })),
            };
            action.hash_policy = vec![header("x-user", true), header("x-shop", false)];
        });
    });
    let resources = leaf(to_top().with(table), "top");
    let explanation = explained(&resources, &call("/pay.Pay/Charge"));
    let text = explanation.to_string();
    let line = "hash of header x-user (terminal), then header x-shop\n";
    assert!(text.contains(line), "{text}");
    let json = serde_json::to_value(&explanation).unwrap();
    let first = json!({ "header": "x-user", "terminal": true });
    assert_eq!(json["routes"][0]["hash_policies"][0], first);
}

/// gRFC A39, A33: the filters that calls pass are shown, with the place that sets each.
#[test]
fn filters_are_told_with_the_place_that_sets_them() {
    let abort = |code| {
        pack_any(HttpFault {
            abort: Some(FaultAbort {
                error_type: Some(ErrorType::GrpcStatus(code)),
                percentage: Some(FractionalPercent {
                    numerator: 5,
                    denominator: DenominatorType::Hundred as i32,
                }),
                ..FaultAbort::default()
            }),
            ..HttpFault::default()
        })
    };
    let faulty = listener("payments").rds("table").edit(|manager| {
        let filter = HttpFilter {
            name: "fault".to_owned(),
            config_type: Some(ConfigType::TypedConfig(abort(14))),
            ..HttpFilter::default()
        };
        manager.http_filters.insert(0, filter);
    });
    let overriding = to("top").edit(|config| {
        let route = &mut config.virtual_hosts[0].routes[0];
        let overrides = &mut route.typed_per_filter_config;
        overrides.insert("fault".to_owned(), abort(8));
    });
    let resources = leaf(to_top().with(faulty), "top");
    for (resources, set_by) in [
        (resources.clone(), "listener"),
        (resources.with(overriding), "route"),
    ] {
        let explanation = explained(&resources, &call("/pay.Pay/Charge"));
        let filters = &explanation.routes[0].clusters[0].filters;
        assert_eq!((&*filters[0].name, &*filters[0].set_by), ("fault", set_by));
        let line = format!("filter fault: {}, set by the {set_by}\n", filters[0].config);
        let text = explanation.to_string();
        assert!(text.contains(&line), "{text}");
    }
}

/// A route for each of these shares, in percent, to a cluster of its own: `c0`, `c1` and so on.
fn shares<const N: usize>(percents: [Option<u32>; N]) -> Resources {
    let names: Vec<String> = (0..N).map(|number| format!("c{number}")).collect();
    let table = names.iter().fold(routes("table").host("*"), |table, name| {
        table.route("/", name)
    });
    let table = table.edit(|config| {
        let routes = &mut config.virtual_hosts[0].routes;
        for (route, percent) in routes.iter_mut().zip(percents) {
            let share = percent.map(|numerator| FractionalPercent {
                numerator,
                denominator: DenominatorType::Hundred as i32,
            });
            route.r#match.as_mut().unwrap().runtime_fraction =
                share.map(|share| RuntimeFractionalPercent {
                    default_value: Some(share),
                    ..RuntimeFractionalPercent::default()
                });
        }
    });
    let resources = to_top().with(table);
    names
        .iter()
        .fold(resources, |resources, name| leaf(resources, name))
}

/// One route, of all calls.
fn to(cluster: &str) -> RoutesBuilder {
    routes("table").host("*").route("/", cluster)
}

/// Edits the action of the first route.
fn forward(
    config: &mut RouteConfiguration,
    edit: impl FnOnce(&mut envoy_types::pb::envoy::config::route::v3::RouteAction),
) {
    match &mut config.virtual_hosts[0].routes[0].action {
        Some(Action::Route(action)) => edit(action),
        other => panic!("expected a route that forwards, got {other:?}"),
    }
}

fn seconds(seconds: i64) -> protobuf::Duration {
    protobuf::Duration { seconds, nanos: 0 }
}
