//! Tests of the configuration of fault injection (gRFC A33): delays and aborts, fixed or by header.

use std::time::Duration;

use crowfly_model::grpc::{
    Listener,
    filter::{AbortWith, DelayBy, FaultAbort, FaultConfig, FaultDelay, FaultShare, FilterConfig},
    listener::ListenerKind,
};
use envoy_types::pb::{
    envoy::{
        config::{listener::v3 as pb, route::v3::HeaderMatcher},
        extensions::filters::{
            common::fault::v3::{
                FaultDelay as Delay, FaultRateLimit,
                fault_delay::{FaultDelaySecifier, HeaderDelay},
            },
            http::fault::v3::{
                FaultAbort as Abort, HttpFault,
                fault_abort::{ErrorType, HeaderAbort},
            },
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::{self, UInt32Value},
};

use crate::{
    accept,
    messages::{any, filter, listener, manager},
    reject,
};

fn with(fault: &HttpFault) -> pb::Listener {
    let mut manager = manager();
    manager.http_filters.insert(0, filter("fault", any(fault)));
    listener(&manager)
}

fn config(fault: &HttpFault) -> FaultConfig {
    let ListenerKind::Api(api) = accept::<Listener>(&with(fault)).kind else {
        panic!("expected an API listener");
    };
    match &api.filters.iter().next().unwrap().config {
        FilterConfig::Fault(config) => FaultConfig::clone(config),
        other => panic!("expected a fault, got {other}"),
    }
}

fn percent(numerator: u32, denominator: DenominatorType) -> Option<FractionalPercent> {
    Some(FractionalPercent {
        numerator,
        denominator: denominator.into(),
    })
}

fn fixed(seconds: i64, nanos: i32) -> Option<FaultDelaySecifier> {
    let time = protobuf::Duration { seconds, nanos };
    Some(FaultDelaySecifier::FixedDelay(time))
}

/// gRFC A33: delays and aborts are fixed or by header, each with a share of calls and a denominator.
#[test]
fn faults_are_read() {
    let fault = HttpFault {
        delay: Some(Delay {
            percentage: percent(5, DenominatorType::TenThousand),
            fault_delay_secifier: fixed(2, 500_000_000),
        }),
        abort: Some(Abort {
            percentage: percent(7, DenominatorType::Million),
            error_type: Some(ErrorType::GrpcStatus(14)),
            ..Abort::default()
        }),
        max_active_faults: Some(UInt32Value { value: 0 }),
        ..HttpFault::default()
    };
    let read = config(&fault);
    let share = |numerator, denominator| FaultShare {
        numerator,
        denominator,
    };
    let expected = FaultConfig {
        delay: Some(FaultDelay {
            by: DelayBy::Fixed(Duration::from_millis(2500)),
            share: share(5, 10_000),
        }),
        abort: Some(FaultAbort {
            with: AbortWith::Grpc(14),
            share: share(7, 1_000_000),
        }),
        max_active: Some(0),
    };
    assert_eq!(read, expected);
    assert_eq!(
        read.to_string(),
        "delay 2.5s for 5 of 10000 calls, abort with gRPC status 14 for 7 of 1000000 calls, \
         at most 0 at a time"
    );

    let by_header = config(&HttpFault {
        delay: Some(Delay {
            percentage: percent(100, DenominatorType::Hundred),
            fault_delay_secifier: Some(FaultDelaySecifier::HeaderDelay(HeaderDelay {})),
        }),
        abort: Some(Abort {
            percentage: percent(50, DenominatorType::Hundred),
            error_type: Some(ErrorType::HeaderAbort(HeaderAbort {})),
            ..Abort::default()
        }),
        ..HttpFault::default()
    });
    assert_eq!(
        by_header.to_string(),
        "delay by header for 100 of 100 calls, abort by header for 50 of 100 calls"
    );
}

/// A status of OK is a status (gRFC A33: 200/OK error injection), and a share that is not set is no call.
#[test]
fn ok_is_a_status_and_no_percentage_is_no_call() {
    for (status, with) in [
        (ErrorType::GrpcStatus(0), AbortWith::Grpc(0)),
        (ErrorType::HttpStatus(200), AbortWith::Http(200)),
        (ErrorType::HttpStatus(599), AbortWith::Http(599)),
    ] {
        let fault = HttpFault {
            abort: Some(Abort {
                error_type: Some(status),
                ..Abort::default()
            }),
            ..HttpFault::default()
        };
        let share = FaultShare {
            numerator: 0,
            denominator: 100,
        };
        assert_eq!(config(&fault).abort, Some(FaultAbort { with, share }));
    }
}

/// A fault of no kind is none: neither a length nor a status is set, or the length is zero.
#[test]
fn faults_without_effect_are_none() {
    let all = percent(100, DenominatorType::Hundred);
    for fault_delay_secifier in [None, fixed(0, 0)] {
        let fault = HttpFault {
            delay: Some(Delay {
                percentage: all,
                fault_delay_secifier,
            }),
            abort: Some(Abort {
                percentage: all,
                ..Abort::default()
            }),
            ..HttpFault::default()
        };
        assert_eq!(config(&fault), FaultConfig::default());
    }
    assert_eq!(config(&HttpFault::default()).to_string(), "no faults");
}

/// Bad faults are NACKed, each with its path.
#[test]
fn bad_faults_are_nacked() {
    let unknown = Some(FractionalPercent {
        numerator: 1,
        denominator: 9,
    });
    let bad = |error_type| HttpFault {
        delay: Some(Delay {
            percentage: unknown,
            fault_delay_secifier: fixed(-1, 1_000_000_000),
        }),
        abort: Some(Abort {
            percentage: unknown,
            error_type: Some(error_type),
            ..Abort::default()
        }),
        ..HttpFault::default()
    };
    for (status, expected) in [
        (
            ErrorType::GrpcStatus(17),
            "abort.grpc_status: expected 0 to 16, got 17",
        ),
        (
            ErrorType::HttpStatus(199),
            "abort.http_status: expected 200 to 599, got 199",
        ),
        (
            ErrorType::HttpStatus(65_736),
            "abort.http_status: expected 200 to 599, got 65736",
        ),
    ] {
        let denominator =
            "percentage.denominator: expected HUNDRED, TEN_THOUSAND or MILLION, got 9";
        let expected = [
            "delay.fixed_delay.seconds: expected 0 to 315576000000, got -1",
            "delay.fixed_delay.nanos: expected 0 to 999999999, got 1000000000",
            &format!("delay.{denominator}"),
            expected,
            &format!("abort.{denominator}"),
        ];
        let path = "api_listener.api_listener.http_filters[0].typed_config";
        let expected = expected.map(|error| format!("{path}.{error}"));
        assert_eq!(reject::<Listener>(&with(&bad(status))), expected);
    }
}

/// gRFC A33: what Envoy's filter has besides is ignored, and a tool can tell.
#[test]
fn deferred_fields_are_ignored_and_said() {
    let fault = HttpFault {
        upstream_cluster: "payments".to_owned(),
        headers: vec![HeaderMatcher::default()],
        downstream_nodes: vec!["web-1".to_owned()],
        response_rate_limit: Some(FaultRateLimit::default()),
        abort: Some(Abort {
            response_body: "no".to_owned(),
            ..Abort::default()
        }),
        delay_percent_runtime: "key".to_owned(),
        ..HttpFault::default()
    };
    let parsed = accept::<Listener>(&with(&fault));
    let wishes: Vec<_> = parsed.unsupported.iter().map(ToString::to_string).collect();
    let path = "api_listener.api_listener.http_filters[0].typed_config";
    let everywhere = "ignored: calls get faults whether they meet it or not (gRFC A33)";
    assert_eq!(
        wishes,
        [
            format!("upstream_cluster: {everywhere}"),
            format!("headers: {everywhere}"),
            format!("downstream_nodes: {everywhere}"),
            "response_rate_limit: not supported: responses are not slowed down (gRFC A33)"
                .to_owned(),
            "abort.response_body: ignored: an aborted gRPC call has no body".to_owned(),
            "delay_percent_runtime: ignored: gRPC has no runtime settings (gRFC A33)".to_owned(),
        ]
        .map(|wish| format!("{path}.{wish}"))
    );
}
