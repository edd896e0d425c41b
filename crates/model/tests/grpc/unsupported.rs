//! Fields that are set in valid resources and have no effect. They are recorded, because an
//! operator would otherwise take them to be in force.

use crowfly_model::{
    Features, ResourceType,
    grpc::{Cluster, Endpoints, Listener, RouteConfig},
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as pb, CircuitBreakers, LoadBalancingPolicy, OutlierDetection,
                cluster::CommonLbConfig, load_balancing_policy,
            },
            core::v3::{HealthStatusSet, TypedExtensionConfig},
            route::v3::{
                QueryParameterMatcher, RetryPolicy, Route, RouteAction, RouteConfiguration,
                route::Action, route_action::MaxStreamDuration, route_match,
            },
        },
        extensions::{
            filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier,
            load_balancing_policies::{
                client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
                pick_first::v3::PickFirst, round_robin::v3::RoundRobin,
            },
        },
    },
    google::protobuf::{Any, BoolValue, Duration, UInt32Value},
};
use prost::Message;

use crate::{
    accept,
    messages::{
        aggregate, any, assignment, cluster, endpoint, filter, listener, manager, route,
        route_config, self_source,
    },
};

/// gRFC A50, A58: what a leaf asks for beside endpoints and is not done.
#[test]
fn wishes_of_a_cluster() {
    let mut proto = cluster();
    assert_eq!(wishes::<Cluster>(&proto), Vec::<String>::new());
    wish_in_vain(&mut proto);
    proto.load_balancing_policy = Some(policies(vec![
        any(&ClientSideWeightedRoundRobin::default()),
        any(&RoundRobin::default()),
    ]));
    let weighted = "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3\
                    .ClientSideWeightedRoundRobin";
    assert_eq!(
        wishes::<Cluster>(&proto),
        [
            format!(
                "load_balancing_policy.policies[0]: {weighted} is not supported: \
                 a later one is used"
            )
            .as_str(),
            "outlier_detection.consecutive_5xx: \
             ignored: gRPC ejects by success rate and failure percentage alone (gRFC A50)",
        ]
    );
}

/// gRFC A75: settings of an aggregate have no effect, because each of its leaves has its own. That is said.
#[test]
fn wishes_of_an_aggregate() {
    let mut proto = aggregate();
    assert_eq!(wishes::<Cluster>(&proto), Vec::<String>::new());
    proto.circuit_breakers = Some(CircuitBreakers::default());
    proto.common_lb_config = Some(CommonLbConfig {
        override_host_status: Some(HealthStatusSet::default()),
        ..CommonLbConfig::default()
    });
    proto.lrs_server = Some(self_source());
    proto.outlier_detection = Some(OutlierDetection::default());
    let no_effect = "no effect in an aggregate: each of its clusters";
    assert_eq!(
        wishes::<Cluster>(&proto),
        [
            format!("lrs_server: {no_effect} reports its own load (gRFC A75)"),
            format!("circuit_breakers: {no_effect} has its own (gRFC A75)"),
            format!("common_lb_config.override_host_status: {no_effect} has its own (gRFC A75)"),
            format!("outlier_detection: {no_effect} has its own (gRFC A75)"),
        ]
    );
}

/// gRFC A50: the fields of rules that gRPC does not have are ignored and said, unless they turn a rule off.
/// gRFC A61: outlier detection has no effect on `pick_first`.
#[test]
fn wishes_of_outlier_detection() {
    let mut proto = cluster();
    let number = |value| Some(UInt32Value { value });
    let switch = |value| Some(BoolValue { value });
    proto.outlier_detection = Some(OutlierDetection {
        enforcing_consecutive_5xx: number(0),
        successful_active_health_check_uneject_host: switch(false),
        always_eject_one_host: switch(true),
        max_ejection_time_jitter: Some(Duration::default()),
        ..OutlierDetection::default()
    });
    assert_eq!(wishes::<Cluster>(&proto), Vec::<String>::new());
    let one = Duration {
        seconds: 0,
        nanos: 1,
    };
    proto.outlier_detection = Some(OutlierDetection {
        consecutive_5xx: number(5),
        enforcing_consecutive_5xx: number(1),
        consecutive_gateway_failure: number(5),
        enforcing_consecutive_gateway_failure: number(1),
        split_external_local_origin_errors: true,
        consecutive_local_origin_failure: number(5),
        enforcing_consecutive_local_origin_failure: number(1),
        enforcing_local_origin_success_rate: number(1),
        enforcing_failure_percentage_local_origin: number(1),
        max_ejection_time_jitter: Some(one),
        successful_active_health_check_uneject_host: switch(true),
        monitors: vec![TypedExtensionConfig::default()],
        always_eject_one_host: switch(false),
        interval: Some(one),
        ..OutlierDetection::default()
    });
    proto.load_balancing_policy = Some(policies(vec![any(&PickFirst::default())]));
    let paths = [
        "consecutive_5xx",
        "enforcing_consecutive_5xx",
        "consecutive_gateway_failure",
        "enforcing_consecutive_gateway_failure",
        "consecutive_local_origin_failure",
        "enforcing_consecutive_local_origin_failure",
        "monitors",
        "split_external_local_origin_errors",
        "enforcing_local_origin_success_rate",
        "enforcing_failure_percentage_local_origin",
        "max_ejection_time_jitter",
        "successful_active_health_check_uneject_host",
        "always_eject_one_host",
        "interval",
    ];
    let wishes = wishes::<Cluster>(&proto);
    let (last, others) = wishes.split_last().unwrap();
    let said = others.iter().filter_map(|wish| wish.split(": ").next());
    let expected = paths.map(|path| format!("outlier_detection.{path}"));
    assert_eq!(said.collect::<Vec<_>>(), expected);
    assert_eq!(
        others.last().map(String::as_str),
        Some("outlier_detection.interval: 10ms is used, the shortest")
    );
    assert_eq!(
        last,
        "outlier_detection: no effect on pick_first (gRFC A61)"
    );
}

/// gRFC A28, A31, A42, A44: what a route configuration asks for and is not done, with the routes
/// that are left out.
#[test]
fn wishes_of_routes() {
    assert_eq!(wishes::<RouteConfig>(&route_config()), Vec::<String>::new());
    assert_eq!(wishes::<RouteConfig>(&wishing_routes()), ROUTE_WISHES);
}

/// Routes inside a listener are wishes of the listener; so are the optional filters that are left out (gRFC
/// A39).
#[test]
fn wishes_of_a_listener() {
    let mut manager = manager();
    manager.route_specifier = Some(RouteSpecifier::RouteConfig(wishing_routes()));
    let mut fancy = filter("fancy", named("x.Fancy"));
    fancy.is_optional = true;
    manager.http_filters.insert(0, fancy);
    let own = ["api_listener.api_listener.http_filters[0].typed_config: \
         left out: x.Fancy is optional, and not supported"];
    let own = own.map(str::to_owned).into_iter();
    let inline = ROUTE_WISHES.map(|wish| format!("api_listener.api_listener.route_config.{wish}"));
    assert_eq!(
        wishes::<Listener>(&listener(&manager)),
        own.chain(inline).collect::<Vec<_>>()
    );
}

/// gRFC A27 takes port 0, at which nothing can be reached.
#[test]
fn wishes_of_endpoints() {
    let mut proto = assignment();
    assert_eq!(wishes::<Endpoints>(&proto), Vec::<String>::new());
    proto.endpoints[0].lb_endpoints[0] = endpoint("10.0.0.1", 0);
    assert_eq!(
        wishes::<Endpoints>(&proto),
        [
            "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value: \
             nothing can be connected to at port 0"
        ]
    );
}

const ROUTE_WISHES: [&str; 6] = [
    "virtual_hosts[0].retry_policy.per_try_timeout: ignored: it is for proxies (gRFC A44)",
    "virtual_hosts[0].routes[0]: left out: match.query_parameters is not supported",
    "virtual_hosts[0].routes[1].match.tls_context: \
     ignored: the route matches without it (gRFC A28)",
    "virtual_hosts[0].routes[1].route.timeout: \
     ignored: max_stream_duration limits the calls of gRPC (gRFC A31)",
    "virtual_hosts[0].routes[1].route.max_stream_duration.grpc_timeout_header_offset: \
     ignored: it is for proxies (gRFC A31)",
    "virtual_hosts[0].routes[1].route.retry_policy.per_try_timeout: \
     ignored: it is for proxies (gRFC A44)",
];

fn wishing_routes() -> RouteConfiguration {
    let mut proto = route_config();
    let mut left_out = route("/a.A/", "a");
    if let Some(matcher) = &mut left_out.r#match {
        matcher.query_parameters = vec![QueryParameterMatcher::default()];
    }
    action(&mut left_out).retry_policy = Some(retries_in_vain());
    let mut used = route("", "b");
    if let Some(matcher) = &mut used.r#match {
        matcher.tls_context = Some(route_match::TlsContextMatchOptions::default());
    }
    let wishes = action(&mut used);
    wishes.timeout = Some(Duration {
        seconds: 15,
        nanos: 0,
    });
    wishes.max_stream_duration = Some(MaxStreamDuration {
        grpc_timeout_header_offset: Some(Duration::default()),
        ..MaxStreamDuration::default()
    });
    wishes.retry_policy = Some(retries_in_vain());
    let host = &mut proto.virtual_hosts[0];
    host.retry_policy = Some(retries_in_vain());
    host.routes = vec![left_out, used];
    proto
}

fn retries_in_vain() -> RetryPolicy {
    RetryPolicy {
        retry_on: "unavailable".to_owned(),
        per_try_timeout: Some(Duration::default()),
        ..RetryPolicy::default()
    }
}

fn wish_in_vain(proto: &mut pb::Cluster) {
    proto.outlier_detection = Some(OutlierDetection {
        consecutive_5xx: Some(UInt32Value { value: 5 }),
        ..OutlierDetection::default()
    });
}

fn policies(configs: Vec<Any>) -> LoadBalancingPolicy {
    let policies = configs
        .into_iter()
        .map(|config| load_balancing_policy::Policy {
            typed_extension_config: Some(TypedExtensionConfig {
                name: String::new(),
                typed_config: Some(config),
            }),
        });
    LoadBalancingPolicy {
        policies: policies.collect(),
    }
}

fn action(route: &mut Route) -> &mut RouteAction {
    match &mut route.action {
        Some(Action::Route(action)) => action,
        other => panic!("expected a route action, got {other:?}"),
    }
}

fn named(name: &str) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{name}"),
        value: Vec::new(),
    }
}

fn wishes<R: ResourceType<Context = Features>>(proto: &impl Message) -> Vec<String> {
    let parsed = accept::<R>(proto);
    let wishes = R::unsupported(&parsed);
    wishes.iter().map(ToString::to_string).collect()
}
