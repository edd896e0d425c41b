//! Faults that a control plane injects into calls (gRFC A33).
//!
//! The limit of active faults is one for the process, so its test is alone in another binary:
//! `active_faults.rs`.

use std::time::Duration;

use crowfly::Channel;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, cluster, listener, routes};
use envoy_types::pb::envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds};
use envoy_types::pb::envoy::config::route::v3::{
    FilterConfig, RouteConfiguration, route::Action, route_action::ClusterSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::common::fault::v3::{
    FaultDelay,
    fault_delay::{FaultDelaySecifier, HeaderDelay},
};
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{
    FaultAbort, HttpFault,
    fault_abort::{ErrorType, HeaderAbort},
};
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::google::protobuf::{self, Any, UInt32Value};
use envoy_types::util::pack_any;
use http_body_util::BodyExt;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::backend::Backend;
use crate::support::{PATH, call, call_within, channel, payments, send};

const ALL: Option<FractionalPercent> = Some(FractionalPercent {
    numerator: 100,
    denominator: 0,
});

/// Every call is aborted so.
pub(crate) fn abort(error_type: ErrorType) -> Any {
    pack_any(HttpFault {
        abort: Some(FaultAbort {
            percentage: ALL,
            error_type: Some(error_type),
            ..FaultAbort::default()
        }),
        ..HttpFault::default()
    })
}

/// Every call is delayed so.
fn delay(by: FaultDelaySecifier) -> HttpFault {
    HttpFault {
        delay: Some(FaultDelay {
            percentage: ALL,
            fault_delay_secifier: Some(by),
        }),
        ..HttpFault::default()
    }
}

fn fixed(time: Duration) -> FaultDelaySecifier {
    FaultDelaySecifier::FixedDelay(protobuf::Duration {
        seconds: time.as_secs().try_into().unwrap(),
        nanos: time.subsec_nanos().try_into().unwrap(),
    })
}

/// The service `payments`, with a fault filter in its listener.
fn faulty(a: &Backend, config: Any) -> Resources {
    let listener = listener("payments").rds("payments-routes");
    payments(&[a]).with(listener.filter("fault", config))
}

/// A call with these headers.
async fn call_with(channel: &Channel, headers: &[(&'static str, &str)]) -> Result<String, Status> {
    let mut request = Request::new("hello".to_owned());
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    send(channel, PATH, request).await
}

/// gRFC A33: an aborted call has the status that was asked for, and names the filter and the route.
/// It is never picked, so a cluster that takes no call does not refuse it.
#[tokio::test]
async fn an_aborted_call_is_not_picked() {
    let a = Backend::start("a").await;
    let closed = cluster("payments-cluster")
        .eds("payments-eds")
        .edit(|proto| {
            proto.circuit_breakers = Some(CircuitBreakers {
                thresholds: vec![Thresholds {
                    max_requests: Some(UInt32Value { value: 0 }),
                    ..Thresholds::default()
                }],
                ..CircuitBreakers::default()
            });
        });
    let named = routes("payments-routes")
        .host("*")
        .route("/", "payments-cluster")
        .edit(|config| config.virtual_hosts[0].routes[0].name = "all".to_owned());
    for (error, code) in [
        (ErrorType::GrpcStatus(8), Code::ResourceExhausted),
        (ErrorType::HttpStatus(401), Code::Unauthenticated),
    ] {
        let resources = faulty(&a, abort(error));
        let server = ResourceServer::start(&resources.with(closed.clone()).with(named.clone()));
        let status = call(&channel(&server)).await.unwrap_err();
        assert_eq!(status.code(), code);
        let expected = "Fault injected by filter fault (virtual host *, route all) [node ";
        assert!(status.message().starts_with(expected), "{status}");
    }
}

/// gRFC A33: a call that is aborted with OK looks like one whose server sent no message. A stream
/// ends at once, and a unary call lacks its response.
#[tokio::test]
async fn an_abort_with_ok_is_an_empty_response() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&faulty(&a, abort(ErrorType::GrpcStatus(0))));
    let mut channel = channel(&server);

    let mut grpc = Grpc::new(channel.clone());
    let codec = ProstCodec::<String, String>::default();
    let path = PATH.parse().unwrap();
    let stream = grpc.server_streaming(Request::new(String::new()), path, codec);
    let mut stream = stream.await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap(), None);

    let unary = call(&channel).await.unwrap_err();
    assert_eq!(unary.code(), Code::Internal);

    let request = http::Request::post(PATH).body(tonic::body::Body::empty());
    let response = channel.call(request.unwrap()).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "0");
    let body = response.into_body().collect().await.unwrap();
    assert!(body.to_bytes().is_empty());
}

/// gRFC A33: the caller asks for faults by headers, if the configuration lets it.
#[tokio::test]
async fn a_caller_asks_for_faults() {
    let a = Backend::start("a").await;
    let by_header = HttpFault {
        abort: Some(FaultAbort {
            percentage: ALL,
            error_type: Some(ErrorType::HeaderAbort(HeaderAbort {})),
            ..FaultAbort::default()
        }),
        ..delay(FaultDelaySecifier::HeaderDelay(HeaderDelay {}))
    };
    let server = ResourceServer::start(&faulty(&a, pack_any(by_header)));
    let channel = channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");

    let grpc = ("x-envoy-fault-abort-grpc-request", "3");
    let status = call_with(&channel, &[grpc]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let delayed = ("x-envoy-fault-delay-request", "1");
    let status = call_with(&channel, &[grpc, delayed]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let http = ("x-envoy-fault-abort-request", "404");
    let status = call_with(&channel, &[http]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);

    let never = ("x-envoy-fault-abort-request-percentage", "0");
    assert_eq!(call_with(&channel, &[grpc, never]).await.unwrap(), "a");
    assert_eq!(call_with(&channel, &[delayed]).await.unwrap(), "a");
}

/// gRFC A33: a delay is part of the time of a call. The backend is told what is left, and a call whose time ends has not
/// been sent.
#[tokio::test]
async fn a_delay_takes_time_of_the_call() {
    let mut a = Backend::holding("a").await;
    let short = Duration::from_millis(20);
    let server = ResourceServer::start(&faulty(&a, pack_any(delay(fixed(short)))));
    let channel = channel(&server);
    let whole = Duration::from_secs(50);
    let caller = tokio::spawn({
        let channel = channel.clone();
        async move { call_within(&channel, whole).await }
    });
    let held = a.next_call().await;
    let left = held.request.headers()["grpc-timeout"].to_str().unwrap();
    let left: u64 = left.strip_suffix('u').unwrap().parse().unwrap();
    assert!(Duration::from_micros(left) <= whole - short, "{left}");
    held.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");

    let hour = Duration::from_secs(3600);
    server.set(&faulty(&a, pack_any(delay(fixed(hour)))));
    loop {
        let timeout = Duration::from_millis(100);
        tokio::select! {
            ended = call_within(&channel, timeout) => {
                let status = ended.unwrap_err();
                assert_eq!(status.code(), Code::DeadlineExceeded);
                let delayed = "the end of a delay that filter fault (virtual host *) injected";
                if status.message().contains(delayed) {
                    break;
                }
            }
            // The listener had not changed yet.
            held = a.next_call() => held.answer(),
        }
    }
}

/// S5-08: the override of a route beats that of its virtual host, which beats the listener. An override that names no
/// filter of the chain has no effect, and a wrapper may disable a filter.
#[tokio::test]
async fn faults_are_overridden() {
    let a = Backend::start("a").await;
    let off = pack_any(FilterConfig {
        disabled: true,
        ..FilterConfig::default()
    });
    let to = "payments-cluster";
    let routes = routes("payments-routes")
        .host("*")
        .host_override("fault", abort(ErrorType::GrpcStatus(10)))
        .host_override("nobody", abort(ErrorType::GrpcStatus(1)))
        .exact("/test.Echo/Off", to)
        .route_override("fault", off)
        .exact("/test.Echo/Route", to)
        .route_override("fault", abort(ErrorType::GrpcStatus(9)))
        .exact("/test.Echo/Other", to)
        .route_override("nobody", abort(ErrorType::GrpcStatus(1)))
        .route("/", to);
    let listener_fault = abort(ErrorType::GrpcStatus(5));
    let server = ResourceServer::start(&faulty(&a, listener_fault.clone()).with(routes));
    let channel = channel(&server);
    let code = async |path| match send(&channel, path, Request::new(String::new())).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    };
    assert_eq!(code("/test.Echo/Off").await, Code::Ok);
    assert_eq!(code("/test.Echo/Route").await, Code::FailedPrecondition);
    assert_eq!(code("/test.Echo/Other").await, Code::Aborted);
    assert_eq!(code("/test.Echo/Call").await, Code::Aborted);

    // Without overrides the listener decides; only the routes have changed.
    server.set(&faulty(&a, listener_fault));
    until(async || code("/test.Echo/Call").await == Code::NotFound).await;
    // Without the filter there are no faults; only the listener has changed.
    server.set(&payments(&[&a]));
    until(async || code("/test.Echo/Call").await == Code::Ok).await;
}

/// S5-08: the override of a weighted cluster beats that of its route, for the calls that are drawn for it.
#[tokio::test]
async fn faults_of_a_weighted_cluster() {
    let a = Backend::start("a").await;
    let entry = |config: &mut RouteConfiguration| {
        let route = &mut config.virtual_hosts[0].routes[0];
        let Some(Action::Route(action)) = &mut route.action else {
            panic!("expected a route that forwards");
        };
        let Some(ClusterSpecifier::WeightedClusters(split)) = &mut action.cluster_specifier else {
            panic!("expected a split");
        };
        let overrides = &mut split.clusters[1].typed_per_filter_config;
        overrides.insert("fault".to_owned(), abort(ErrorType::GrpcStatus(9)));
    };
    let to = "payments-cluster";
    let routes = routes("payments-routes")
        .host("*")
        .split("/", &[(to, 1), (to, 1)])
        .route_override("fault", abort(ErrorType::GrpcStatus(10)))
        .edit(entry);
    let resources = faulty(&a, abort(ErrorType::GrpcStatus(5)));
    let server = ResourceServer::start(&resources.with(routes));
    let channel = channel(&server);
    let mut codes = std::collections::BTreeSet::new();
    for _ in 0..100 {
        codes.insert(i32::from(call(&channel).await.unwrap_err().code()));
    }
    assert_eq!(codes, [9, 10].into());
}

/// Asks again and again. An aborted call never waits, so the channel gets its turn here.
async fn until(done: impl AsyncFn() -> bool) {
    while !done().await {
        tokio::task::yield_now().await;
    }
}
