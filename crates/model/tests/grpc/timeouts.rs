//! Tests of the longest time that routes and listeners allow for calls (gRFC A31). Several fields
//! may hold it, so their precedence is tested.

use std::time::Duration;

use crowfly_model::grpc::{
    Listener, RouteConfig,
    listener::ListenerKind,
    route::{MaxDuration, RouteAction},
};
use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::HttpProtocolOptions,
            route::v3::{
                RouteConfiguration, route::Action, route_action::ClusterSpecifier,
                route_action::MaxStreamDuration,
            },
        },
        extensions::filters::network::http_connection_manager::v3::HttpConnectionManager,
    },
    google::protobuf,
};

use crate::{
    Case, accept, check_rejections,
    messages::{listener, manager, route_config},
    reject,
};

/// S5-06: gRFC A31: `grpc_timeout_header_max` counts before `max_stream_duration`; zero is set, and no
/// limit; a message without either is not set.
#[test]
fn limit_of_a_route() {
    let ten = MaxDuration::Limited(Duration::from_secs(10));
    for (message, expected) in [
        (None, MaxDuration::Unset),
        (Some((None, None)), MaxDuration::Unset),
        (Some((None, Some(0))), MaxDuration::Unlimited),
        (Some((None, Some(10))), ten),
        (Some((Some(0), None)), MaxDuration::Unlimited),
        (Some((Some(0), Some(10))), MaxDuration::Unlimited),
        (Some((Some(10), None)), ten),
        (Some((Some(10), Some(0))), ten),
        (Some((Some(10), Some(20))), ten),
    ] {
        let mut proto = route_config();
        *limits(&mut proto) = message.map(|(header_max, max)| MaxStreamDuration {
            grpc_timeout_header_max: header_max.map(seconds),
            max_stream_duration: max.map(seconds),
            ..MaxStreamDuration::default()
        });
        let config = accept::<RouteConfig>(&proto);
        let RouteAction::Forward(forward) = &config.virtual_hosts[0].routes[0].action else {
            panic!("the route forwards");
        };
        assert_eq!(forward.max_duration, expected, "{message:?}");
    }
}

/// S5-06: gRFC A31: the listener has the default for routes without a limit.
#[test]
fn limit_of_a_listener() {
    let part = MaxDuration::Limited(Duration::new(1, 500_000_000));
    let half = protobuf::Duration {
        seconds: 1,
        nanos: 500_000_000,
    };
    for (limit, expected) in [
        (None, MaxDuration::Unset),
        (Some(protobuf::Duration::default()), MaxDuration::Unlimited),
        (Some(half), part),
    ] {
        let proto = limited(limit);
        let ListenerKind::Api(api) = accept::<Listener>(&listener(&proto)).kind else {
            panic!("it is a listener for clients");
        };
        assert_eq!(api.max_duration, expected, "{limit:?}");
    }
}

/// gRPC C-core: durations have the range of the proto, and none is negative.
#[test]
fn durations_out_of_range_are_nacked() {
    let cases: &[Case<RouteConfiguration>] = &[
        (
            "negative seconds",
            |p| {
                *limits(p) = Some(MaxStreamDuration {
                    max_stream_duration: Some(seconds(-1)),
                    ..MaxStreamDuration::default()
                });
            },
            &[
                "virtual_hosts[0].routes[0].route.max_stream_duration.max_stream_duration.seconds: \
                 expected 0 to 315576000000, got -1",
            ],
        ),
        (
            "both parts, in a route whose cluster is wrong too",
            |p| {
                *limits(p) = Some(MaxStreamDuration {
                    grpc_timeout_header_max: Some(protobuf::Duration {
                        seconds: 315_576_000_001,
                        nanos: 1_000_000_000,
                    }),
                    ..MaxStreamDuration::default()
                });
                *specifier(p) = Some(ClusterSpecifier::Cluster(String::new()));
            },
            &[
                "virtual_hosts[0].routes[0].route.cluster: expected a non-empty string, got none",
                "virtual_hosts[0].routes[0].route.max_stream_duration.grpc_timeout_header_max\
                 .seconds: expected 0 to 315576000000, got 315576000001",
                "virtual_hosts[0].routes[0].route.max_stream_duration.grpc_timeout_header_max\
                 .nanos: expected 0 to 999999999, got 1000000000",
            ],
        ),
    ];
    check_rejections::<RouteConfig, _>(route_config, cases);

    let negative = protobuf::Duration {
        seconds: 0,
        nanos: -1,
    };
    assert_eq!(
        reject::<Listener>(&listener(&limited(Some(negative)))),
        [
            "api_listener.api_listener.common_http_protocol_options.max_stream_duration.nanos: \
             expected 0 to 999999999, got -1"
        ]
    );
}

/// gRPC C-core: a limit that does not count is not looked at.
#[test]
fn limit_behind_another_is_not_validated() {
    let mut proto = route_config();
    *limits(&mut proto) = Some(MaxStreamDuration {
        grpc_timeout_header_max: Some(seconds(1)),
        max_stream_duration: Some(seconds(-1)),
        ..MaxStreamDuration::default()
    });
    accept::<RouteConfig>(&proto);
}

fn limited(limit: Option<protobuf::Duration>) -> HttpConnectionManager {
    let mut proto = manager();
    proto.common_http_protocol_options = Some(HttpProtocolOptions {
        max_stream_duration: limit,
        ..HttpProtocolOptions::default()
    });
    proto
}

fn seconds(seconds: i64) -> protobuf::Duration {
    protobuf::Duration { seconds, nanos: 0 }
}

fn limits(proto: &mut RouteConfiguration) -> &mut Option<MaxStreamDuration> {
    match &mut proto.virtual_hosts[0].routes[0].action {
        Some(Action::Route(action)) => &mut action.max_stream_duration,
        other => panic!("expected a route action, got {other:?}"),
    }
}

fn specifier(proto: &mut RouteConfiguration) -> &mut Option<ClusterSpecifier> {
    match &mut proto.virtual_hosts[0].routes[0].action {
        Some(Action::Route(action)) => &mut action.cluster_specifier,
        other => panic!("expected a route action, got {other:?}"),
    }
}
