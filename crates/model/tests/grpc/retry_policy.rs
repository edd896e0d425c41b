//! Tests of the retry policies of routes and virtual hosts (gRFC A44). A bad policy refuses the
//! resource, even if no call would retry by it.

use std::{sync::Arc, time::Duration};

use crowfly_model::{
    ResourceType,
    grpc::{
        RouteConfig,
        route::{RetryPolicy, RouteAction},
    },
};
use envoy_types::pb::{
    envoy::config::route::v3::{
        self as pb, HeaderMatcher, HedgePolicy, RouteConfiguration,
        retry_policy::{RateLimitedRetryBackOff, RetryBackOff, RetryHostPredicate, RetryPriority},
        route::Action,
    },
    google::protobuf::{self, Any, UInt32Value},
};

use crate::{
    Case, accept, check_rejections,
    messages::{route, route_config},
    reject,
};

/// gRFC A44: the defaults of a policy that has nothing but conditions.
#[test]
fn defaults() {
    let policy = policy_of(&on("unavailable")).unwrap();
    assert_eq!(*policy, RetryPolicy::on([14].into_iter().collect()));
    assert_eq!(policy.max_attempts, 2);
    assert_eq!(policy.base_interval, Duration::from_millis(25));
    assert_eq!(policy.max_interval, Duration::from_millis(250));
}

/// gRFC A44: five conditions stand for status codes, and all others for none.
#[test]
fn conditions() {
    let codes = |text: &str| -> Vec<i32> {
        let policy = policy_of(&on(text));
        let has = |code: &i32| policy.as_ref().is_some_and(|p| p.retry_on.contains(*code));
        (-1..40).filter(has).collect()
    };
    let all = "cancelled,deadline-exceeded,internal,resource-exhausted,unavailable";
    assert_eq!(codes(all), [1, 4, 8, 13, 14]);
    assert_eq!(codes("5xx,unavailable,gateway-error"), [14]);
    assert_eq!(codes(" Cancelled , internal"), [1, 13]);
    for none in ["", "5xx", ",", "UNKNOWN", "14", "unavailable;internal"] {
        assert_eq!(policy_of(&on(none)), None, "{none:?}");
    }
}

/// gRFC A44, A6: one attempt more than retries, and five at most.
#[test]
fn number_of_attempts() {
    for (retries, attempts) in [(1, 2), (2, 3), (4, 5), (5, 5), (u32::MAX, 5)] {
        let mut proto = on("internal");
        proto.num_retries = Some(UInt32Value { value: retries });
        let policy = policy_of(&proto).unwrap();
        assert_eq!(policy.max_attempts, attempts, "{retries} retries");
    }
}

/// gRFC A44: the longest interval is ten times the first by default, and nothing is below a millisecond.
#[test]
fn intervals() {
    let (millis, micros) = (Duration::from_millis, Duration::from_micros);
    for (base, max, expected) in [
        (millis(30), None, (millis(30), millis(300))),
        (millis(30), Some(millis(30)), (millis(30), millis(30))),
        (millis(30), Some(millis(31)), (millis(30), millis(31))),
        (micros(1), None, (millis(1), millis(10))),
        (micros(500), Some(micros(300)), (millis(1), millis(1))),
    ] {
        let mut proto = on("internal");
        proto.retry_back_off = Some(RetryBackOff {
            base_interval: Some(proto_of(base)),
            max_interval: max.map(proto_of),
        });
        let policy = policy_of(&proto).unwrap();
        assert_eq!((policy.base_interval, policy.max_interval), expected);
    }
    let mut longest = on("internal");
    longest.retry_back_off = Some(RetryBackOff {
        base_interval: Some(protobuf::Duration {
            seconds: 315_576_000_000,
            nanos: 999_999_999,
        }),
        max_interval: None,
    });
    assert!(policy_of(&longest).is_some());
}

/// gRFC A44: the update is refused, with or without a condition that counts.
#[test]
fn what_is_nacked() {
    let cases: [Case<RouteConfiguration>; 7] = [
        (
            "no retries",
            |proto| in_route(proto).num_retries = Some(UInt32Value { value: 0 }),
            &[
                "virtual_hosts[0].routes[0].route.retry_policy.num_retries: \
               expected at least 1, got 0",
            ],
        ),
        (
            "no retries, no conditions, in the virtual host",
            |proto| {
                let host = proto.virtual_hosts[0].retry_policy.get_or_insert_default();
                host.num_retries = Some(UInt32Value { value: 0 });
            },
            &["virtual_hosts[0].retry_policy.num_retries: expected at least 1, got 0"],
        ),
        (
            "no base_interval",
            |proto| backoff(proto).base_interval = None,
            &[
                "virtual_hosts[0].routes[0].route.retry_policy.retry_back_off.base_interval: \
               expected a duration, got none",
            ],
        ),
        (
            "a base_interval of 0",
            |proto| backoff(proto).base_interval = Some(proto_of(Duration::ZERO)),
            &[
                "virtual_hosts[0].routes[0].route.retry_policy.retry_back_off.base_interval: \
               expected more than 0s, got 0s",
            ],
        ),
        (
            "a negative base_interval",
            |proto| {
                let seconds = -1;
                backoff(proto).base_interval = Some(protobuf::Duration { seconds, nanos: 0 });
            },
            &[
                "virtual_hosts[0].routes[0].route.retry_policy.retry_back_off.base_interval\
               .seconds: expected 0 to 315576000000, got -1",
            ],
        ),
        (
            "a max_interval of 0",
            |proto| backoff(proto).max_interval = Some(proto_of(Duration::ZERO)),
            &[
                "virtual_hosts[0].routes[0].route.retry_policy.retry_back_off.max_interval: \
               expected more than 0s, got 0s",
            ],
        ),
        (
            "a max_interval below the base_interval",
            |proto| backoff(proto).max_interval = Some(proto_of(Duration::from_millis(9))),
            &[
                "virtual_hosts[0].routes[0].route.retry_policy.retry_back_off.max_interval: \
               expected at least base_interval, 10ms, got 9ms",
            ],
        ),
    ];
    check_rejections::<RouteConfig, _>(route_config, &cases);
}

/// gRFC A46: an error in the cluster does not hide those in the policy.
#[test]
fn every_error_is_reported() {
    let mut proto = route_config();
    let policy = in_route(&mut proto);
    policy.num_retries = Some(UInt32Value { value: 0 });
    policy.retry_back_off = Some(RetryBackOff::default());
    let Some(Action::Route(nowhere)) = route("/", "").action else {
        panic!("a route");
    };
    action_of(&mut proto).cluster_specifier = nowhere.cluster_specifier;
    let fields = [
        "cluster: expected a non-empty string, got none",
        "retry_policy.num_retries: expected at least 1, got 0",
        "retry_policy.retry_back_off.base_interval: expected a duration, got none",
    ];
    let expected = fields.map(|field| format!("virtual_hosts[0].routes[0].route.{field}"));
    assert_eq!(reject::<RouteConfig>(&proto), expected);
}

/// S5-07: the policy of a route stands in place of the one of its virtual host, as a whole (gRFC A44).
#[test]
fn route_beats_virtual_host() {
    let mut proto = route_config();
    let host = &mut proto.virtual_hosts[0];
    let mut shared = on("internal");
    shared.num_retries = Some(UInt32Value { value: 3 });
    host.retry_policy = Some(shared);
    host.routes = ["/a.A/", "/b.B/", "/c.C/"]
        .map(|path| route(path, "x"))
        .into();
    let [_, own, nothing] = &mut host.routes[..] else {
        panic!("three routes");
    };
    for (route, conditions) in [(own, "unavailable"), (nothing, "5xx")] {
        if let Some(Action::Route(action)) = &mut route.action {
            action.retry_policy = Some(on(conditions));
        }
    }
    let config = accept::<RouteConfig>(&proto);
    let policies: Vec<_> = config.virtual_hosts[0].routes.iter().map(policy).collect();
    let [shared, own, nothing] = &policies[..] else {
        panic!("three routes");
    };
    let shared = shared.as_ref().unwrap();
    assert_eq!(
        (shared.max_attempts, shared.retry_on.contains(13)),
        (4, true)
    );
    assert_eq!(
        own.as_deref(),
        Some(&RetryPolicy::on([14].into_iter().collect()))
    );
    assert_eq!(*nothing, None, "not that of the virtual host either");
}

/// gRFC A44: fields without a meaning for gRPC are ignored, and each is said.
#[test]
fn what_is_ignored_is_said() {
    let mut proto = on("5xx,unavailable,retriable-4xx");
    proto.num_retries = Some(UInt32Value { value: 7 });
    proto.per_try_timeout = Some(protobuf::Duration::default());
    proto.per_try_idle_timeout = Some(protobuf::Duration::default());
    proto.retry_priority = Some(RetryPriority::default());
    proto.retry_host_predicate = vec![RetryHostPredicate::default()];
    proto.retry_options_predicates = vec![Default::default()];
    proto.host_selection_retry_max_attempts = 3;
    proto.retriable_status_codes = vec![503];
    proto.rate_limited_retry_back_off = Some(RateLimitedRetryBackOff::default());
    proto.retriable_headers = vec![HeaderMatcher::default()];
    proto.retriable_request_headers = vec![HeaderMatcher::default()];
    proto.refresh_cluster_on_retry = true;
    let mut config = with(&proto);
    let action = action_of(&mut config);
    action.hedge_policy = Some(HedgePolicy::default());
    action.retry_policy_typed_config = Some(Any::default());
    let said = said(&config);
    let fields = [
        "retry_policy.retry_on: 5xx is ignored (gRFC A44)",
        "retry_policy.retry_on: retriable-4xx is ignored (gRFC A44)",
        "retry_policy.num_retries: 4 retries at most are made, not 7 (gRFC A6)",
        "retry_policy.per_try_timeout: ignored: it is for proxies (gRFC A44)",
        "retry_policy.per_try_idle_timeout: ignored: it is for proxies (gRFC A44)",
        "retry_policy.retry_priority: ignored: it is for proxies (gRFC A44)",
        "retry_policy.retry_host_predicate: ignored: it is for proxies (gRFC A44)",
        "retry_policy.retry_options_predicates: ignored: it is for proxies (gRFC A44)",
        "retry_policy.host_selection_retry_max_attempts: ignored: it is for proxies (gRFC A44)",
        "retry_policy.retriable_status_codes: ignored: it is for proxies (gRFC A44)",
        "retry_policy.rate_limited_retry_back_off: ignored: it is for proxies (gRFC A44)",
        "retry_policy.retriable_headers: ignored: it is for proxies (gRFC A44)",
        "retry_policy.retriable_request_headers: ignored: it is for proxies (gRFC A44)",
        "retry_policy.refresh_cluster_on_retry: ignored: it is for proxies (gRFC A44)",
        "retry_policy_typed_config: ignored: only retry_policy is read (gRFC A44)",
        "hedge_policy: not supported: a call has one attempt at a time (gRFC A44)",
    ];
    let expected = fields.map(|field| format!("virtual_hosts[0].routes[0].route.{field}"));
    assert_eq!(said, expected);
    assert_eq!(
        self::said(&with(&on("5xx"))),
        [
            "virtual_hosts[0].routes[0].route.retry_policy.retry_on: 5xx is ignored (gRFC A44)",
            "virtual_hosts[0].routes[0].route.retry_policy.retry_on: no call is retried, because \
             none of these is set: cancelled, deadline-exceeded, internal, resource-exhausted, \
             unavailable (gRFC A44)",
        ]
    );
    assert_eq!(self::said(&with(&on("unavailable"))), [""; 0]);
}

fn on(conditions: &str) -> pb::RetryPolicy {
    pb::RetryPolicy {
        retry_on: conditions.to_owned(),
        ..pb::RetryPolicy::default()
    }
}

fn with(policy: &pb::RetryPolicy) -> RouteConfiguration {
    let mut proto = route_config();
    action_of(&mut proto).retry_policy = Some(policy.clone());
    proto
}

fn policy_of(proto: &pb::RetryPolicy) -> Option<Arc<RetryPolicy>> {
    let config = accept::<RouteConfig>(&with(proto));
    policy(&config.virtual_hosts[0].routes[0])
}

fn policy(route: &crowfly_model::grpc::route::Route) -> Option<Arc<RetryPolicy>> {
    match &route.action {
        RouteAction::Forward(forward) => forward.retry.clone(),
        RouteAction::NonForwarding => panic!("the route forwards"),
    }
}

fn said(proto: &RouteConfiguration) -> Vec<String> {
    let config = accept::<RouteConfig>(proto);
    let wishes = RouteConfig::unsupported(&config);
    wishes.iter().map(ToString::to_string).collect()
}

fn action_of(proto: &mut RouteConfiguration) -> &mut pb::RouteAction {
    match &mut proto.virtual_hosts[0].routes[0].action {
        Some(Action::Route(action)) => action,
        other => panic!("expected a route action, got {other:?}"),
    }
}

fn in_route(proto: &mut RouteConfiguration) -> &mut pb::RetryPolicy {
    let policy = &mut action_of(proto).retry_policy;
    policy.get_or_insert_with(|| on("unavailable"))
}

fn backoff(proto: &mut RouteConfiguration) -> &mut RetryBackOff {
    let backoff = &mut in_route(proto).retry_back_off;
    backoff.get_or_insert_with(|| RetryBackOff {
        base_interval: Some(proto_of(Duration::from_millis(10))),
        max_interval: None,
    })
}

fn proto_of(duration: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap(),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap(),
    }
}
