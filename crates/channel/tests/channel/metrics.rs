//! Metrics of calls (gRFC A66, A89, A96) over real sockets.
//!
//! The tests read the series of an exporter, because users see nothing else.

use std::sync::Arc;

use crowfly::Channel;
use crowfly::metrics::OpenTelemetry;
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tonic::{Code, GrpcMethod, Request};

use crate::backend::Backend;
use crate::exporter::{Exported, Series};
use crate::support::{PATH, call, payments, retrying, send};

/// The bytes of the request "hello" and of an answer "a", as protobuf has them: a tag, a length, the text.
const HELLO: f64 = 7.0;
const A: f64 = 3.0;

/// gRFC A66: each attempt is counted when it begins, and measured with its status when it ends; so is the
/// call. The method of generated code has its name, any other is `other`.
#[tokio::test]
async fn calls_and_attempts_are_measured() {
    let a = Backend::start("a").await;
    let measured = Measured::new(&payments(&[&a]));
    assert_eq!(measured.call().await.unwrap(), "a");
    assert_eq!(measured.call().await.unwrap(), "a");
    assert_eq!(call(&measured.channel).await.unwrap(), "a");

    for (method, count) in [("test.Echo/Call", 2), ("other", 1)] {
        let started = measured.find("attempt.started", method, None);
        assert_eq!(started.sum, f64::from(count));
        assert_eq!(started.labels["grpc.target"], "xds:///payments");
        for (name, sum) in [
            ("attempt.duration", None),
            ("attempt.sent_total_compressed_message_size", Some(HELLO)),
            ("attempt.rcvd_total_compressed_message_size", Some(A)),
            ("call.duration", None),
        ] {
            let series = measured.find(name, method, Some("OK"));
            assert_eq!(series.count, u64::from(count as u32), "{name}");
            assert_eq!(series.labels["grpc.target"], "xds:///payments");
            if let Some(sum) = sum {
                assert_eq!(series.sum, sum * f64::from(count), "{name}");
            }
            if name.starts_with("attempt") {
                let locality = &series.labels["grpc.lb.locality"];
                assert!(locality.starts_with("{region=\""), "{locality}");
                let service = &series.labels["grpc.lb.backend_service"];
                assert_eq!(service, "payments-cluster");
            }
        }
    }
    let names: Vec<String> = measured.names();
    assert!(!names.iter().any(|name| name.contains("retr")), "{names:?}");
}

/// gRFC A66: a failed call has the status that its caller sees, and a call that its caller gives up is
/// CANCELLED. What was sent is counted all the same.
#[tokio::test]
async fn calls_that_fail_have_their_status() {
    let mut a = Backend::holding("a").await;
    let measured = Arc::new(Measured::new(&payments(&[&a])));
    for (status, name) in [(5, "NOT_FOUND"), (13, "INTERNAL")] {
        let caller = tokio::spawn({
            let measured = Arc::clone(&measured);
            async move { measured.call().await }
        });
        let held = a.next_call().await;
        match status {
            5 => held.end_in_head(5),
            status => held.answer_and_end(status),
        }
        assert_eq!(
            caller.await.unwrap().unwrap_err().code(),
            Code::from(status)
        );
        assert_eq!(measured.ended(name), (1, 1));
    }
    let caller = tokio::spawn({
        let measured = Arc::clone(&measured);
        async move { measured.call().await }
    });
    let mut held = a.next_call().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    held.reset().await;
    assert_eq!(measured.ended("CANCELLED"), (1, 1));
    let name = "attempt.sent_total_compressed_message_size";
    let sent = measured.find(name, "test.Echo/Call", Some("CANCELLED"));
    assert_eq!(sent.sum, HELLO);
}

/// gRFC A66: an attempt begins before a pick, so one that finds no endpoint is measured. gRFC A89: its
/// backend service is the cluster. A call without a route has no attempt.
#[tokio::test]
async fn an_attempt_without_an_endpoint_is_measured() {
    let dead = Backend::start("dead").await.kill().await;
    let measured = Measured::new(&Resources::service("payments", [dead]));
    let status = measured.call().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(measured.ended("UNAVAILABLE"), (1, 1));
    let attempt = measured.find("attempt.duration", "test.Echo/Call", Some("UNAVAILABLE"));
    assert_eq!(attempt.labels["grpc.lb.locality"], "");
    assert_eq!(
        attempt.labels["grpc.lb.backend_service"],
        "payments-cluster"
    );

    let unrouted = Measured::new(&payments(&[]).without("payments"));
    unrouted.server.set(&Resources::new());
    let mut request = Request::new("hello".to_owned());
    request.set_timeout(std::time::Duration::from_millis(1));
    let error = send(&unrouted.channel, PATH, request).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let names = unrouted.names();
    assert!(names.contains(&"grpc.client.call.duration".to_owned()));
    assert!(
        !names.iter().any(|name| name.contains("attempt")),
        "{names:?}"
    );
}

/// gRFC A96: a transparent retry is another attempt of the same call.
#[tokio::test]
async fn a_retried_call_is_one_call_of_two_attempts() {
    let a = Backend::start("a").await;
    let measured = Measured::new(&payments(&[&a]));
    a.refuse(1);
    assert_eq!(measured.call().await.unwrap(), "a");
    let method = "test.Echo/Call";
    assert_eq!(measured.find("attempt.started", method, None).sum, 2.0);
    let refused = measured.find("attempt.duration", method, Some("UNAVAILABLE"));
    assert_eq!(refused.count, 1);
    assert_eq!(measured.ended("OK"), (1, 1));
    let retries = measured.find("call.transparent_retries", method, None);
    assert_eq!((retries.count, retries.sum), (1, 1.0));
    assert_eq!(measured.find("call.retry_delay", method, None).count, 1);
    let names = measured.names();
    assert!(!names.contains(&"grpc.client.call.retries".to_owned()));
}

/// gRFC A96: the retries of a policy are counted apart from transparent ones.
#[tokio::test]
async fn retries_of_a_policy_are_counted() {
    let mut a = Backend::holding("a").await;
    let measured = Arc::new(Measured::new(&retrying(&[&a], 3, "unavailable")));
    a.refuse(1);
    let caller = tokio::spawn({
        let measured = Arc::clone(&measured);
        async move { measured.call().await }
    });
    a.next_call().await.end_in_head(14);
    a.next_call().await.end_in_head(14);
    a.next_call().await.answer();
    assert_eq!(caller.await.unwrap().unwrap(), "a");
    let method = "test.Echo/Call";
    let sum = |name| measured.find(name, method, None).sum;
    assert_eq!(sum("attempt.started"), 4.0);
    assert_eq!(sum("call.retries"), 2.0);
    assert_eq!(sum("call.transparent_retries"), 1.0);
    let failed = measured.find("attempt.duration", method, Some("UNAVAILABLE"));
    assert_eq!(failed.count, 3);
    assert_eq!(measured.ended("OK"), (1, 1));
    let delay = measured.find("call.retry_delay", method, None);
    assert!(delay.sum >= 0.0016, "two waits of a millisecond: {delay:?}");
}

/// A channel whose calls are measured.
struct Measured {
    exported: Exported,
    server: ResourceServer,
    channel: Channel,
}

impl Measured {
    fn new(resources: &Resources) -> Self {
        let exported = Exported::new();
        let metrics = OpenTelemetry::new(&exported.meter());
        let metrics = metrics.with_locality().with_backend_service();
        let server = ResourceServer::start(resources);
        let channel = Channel::builder("xds:///payments")
            .bootstrap(server.bootstrap())
            .opentelemetry(&Arc::new(metrics))
            .build()
            .unwrap();
        Self {
            exported,
            server,
            channel,
        }
    }

    /// Calls as generated code does.
    async fn call(&self) -> Result<String, tonic::Status> {
        let mut request = Request::new("hello".to_owned());
        let method = GrpcMethod::new("test.Echo", "Call");
        request.extensions_mut().insert(method);
        send(&self.channel, PATH, request).await
    }

    fn names(&self) -> Vec<String> {
        let series = self.exported.series().into_iter();
        series.map(|series| series.name).collect()
    }

    /// The only series of a metric with this method and status.
    fn find(&self, name: &str, method: &str, status: Option<&str>) -> Series {
        let name = format!("grpc.client.{name}");
        let all = self.exported.series();
        let is_it = |series: &&Series| {
            let label = |name| series.labels.get(name).map(String::as_str);
            series.name == name
                && label("grpc.method") == Some(method)
                && label("grpc.status") == status
        };
        let found: Vec<&Series> = all.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{name} of {method}: {all:#?}");
        found[0].clone()
    }

    /// The number of attempts and of calls of generated code that ended with a status.
    fn ended(&self, status: &str) -> (u64, u64) {
        let method = "test.Echo/Call";
        let attempts = self.find("attempt.duration", method, Some(status)).count;
        let calls = self.find("call.duration", method, Some(status)).count;
        (attempts, calls)
    }
}
