//! HTTP filters of the program's own (gRFC A39).
//!
//! The filters of a channel decide which listeners it accepts, so channels with other filters must
//! not share a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crowfly::Channel;
use crowfly::filter::{FilterFuture, FilterRegistry, FilterSettings, FilteredCall, HttpFilter};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{ListenerBuilder, Resources, custom_policy, listener, routes};
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{
    HttpFault, fault_abort::ErrorType,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use http::HeaderValue;
use serde_json::json;
use tonic::{Code, Request, Status};

use crate::backend::Backend;
use crate::faults::abort;
use crate::support::{PATH, call, channel, payments, policy, retrying_routes, send};

/// Adds its text to a header of each call. Ends calls that say so.
#[derive(Debug)]
struct Stamp {
    text: String,
    calls: Arc<AtomicUsize>,
}

impl HttpFilter for Stamp {
    fn on_call<'a>(&'a self, call: &'a mut FilteredCall<'_>) -> FilterFuture<'a> {
        Box::pin(async {
            self.calls.fetch_add(1, SeqCst);
            if call.headers().contains_key("x-unwanted") {
                let text = format!("{} to {} is unwanted", call.path(), call.cluster());
                return Err(Status::permission_denied(text));
            }
            tokio::task::yield_now().await;
            let stamp = HeaderValue::from_str(&self.text).unwrap();
            call.headers_mut().append("x-stamp", stamp);
            Ok(())
        })
    }
}

fn text(settings: &FilterSettings) -> Result<String, String> {
    match settings {
        FilterSettings::Json(config) => {
            let text = config["text"].as_str().map(str::to_owned);
            text.ok_or_else(|| "text: expected a string".to_owned())
        }
        FilterSettings::Proto(bytes) => {
            String::from_utf8(bytes.clone()).map_err(|error| error.to_string())
        }
    }
}

/// `test.Stamp`, whose overrides replace it, and `test.Suffixed`, to whose text overrides add; with the number of calls
/// that passed them.
fn stamps() -> (FilterRegistry, Arc<AtomicUsize>) {
    let calls = Arc::<AtomicUsize>::default();
    let read = {
        let calls = Arc::clone(&calls);
        move |settings: &FilterSettings| {
            let (text, calls) = (text(settings)?, Arc::clone(&calls));
            Ok::<_, String>(Stamp { text, calls })
        }
    };
    let suffixed = |stamp: &Stamp, suffix: &String| Stamp {
        text: format!("{}{suffix}", stamp.text),
        calls: Arc::clone(&stamp.calls),
    };
    let registry = FilterRegistry::new()
        .with("test.Stamp", read.clone())
        .with_overrides("test.Suffixed", read, "test.Suffix", text, suffixed);
    (registry, calls)
}

fn json(name: &str, text: &str) -> Any {
    custom_policy(name, &json!({ "text": text }))
}

fn by_rds() -> ListenerBuilder {
    listener("payments").rds("payments-routes")
}

fn with_filters(server: &ResourceServer, registry: &FilterRegistry) -> Channel {
    let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
    builder.filters(registry).build().unwrap()
}

/// The stamps that a backend sees on a call.
async fn stamps_of(a: &mut Backend, channel: &Channel, path: &'static str) -> Vec<String> {
    let caller = tokio::spawn({
        let channel = channel.clone();
        async move { send(&channel, path, Request::new(String::new())).await }
    });
    let held = a.next_call().await;
    let stamps = held.request.headers().get_all("x-stamp").iter();
    let stamps = stamps.map(|stamp| stamp.to_str().unwrap().to_owned());
    let stamps = stamps.collect();
    held.answer();
    caller.await.unwrap().unwrap();
    stamps
}

/// gRFC A39: calls pass the filters of the listener in their order, with the configuration that their route overrides.
/// S5-08: an override replaces the whole filter, or changes it if it has a type of its own.
#[tokio::test]
async fn calls_pass_the_filters_of_the_program() {
    let mut a = Backend::holding("a").await;
    let to = "payments-cluster";
    let bytes = Any {
        type_url: "type.googleapis.com/test.Stamp".to_owned(),
        value: b"bytes".to_vec(),
    };
    let listener = by_rds()
        .filter("first", json("test.Stamp", "one"))
        .filter("second", bytes)
        .filter("third", json("test.Suffixed", "three"));
    let routes = routes("payments-routes")
        .host("*")
        .host_override("third", json("test.Suffix", "+"))
        .exact("/test.Echo/Other", to)
        .route_override("first", json("test.Stamp", "other"))
        .route_override("third", json("test.Suffix", "-"))
        .route("/", to);
    let server = ResourceServer::start(&payments(&[&a]).with(listener).with(routes));
    let (registry, _) = stamps();
    let channel = with_filters(&server, &registry);
    let stamps = stamps_of(&mut a, &channel, PATH).await;
    assert_eq!(stamps, ["one", "bytes", "three+"]);
    let stamps = stamps_of(&mut a, &channel, "/test.Echo/Other").await;
    assert_eq!(stamps, ["other", "bytes", "three-"]);
}

/// gRFC A39: filters are above retries, so a call passes them once, and each attempt has what they changed.
#[tokio::test]
async fn a_retried_call_passes_a_filter_once() {
    let mut a = Backend::holding("a").await;
    let resources = payments(&[&a]).with(by_rds().filter("stamp", json("test.Stamp", "one")));
    let server = ResourceServer::start(&resources);
    let (registry, calls) = stamps();
    let channel = with_filters(&server, &registry);
    a.refuse(1);
    assert_eq!(stamps_of(&mut a, &channel, PATH).await, ["one"]);
    assert_eq!(calls.load(SeqCst), 1);
}

/// gRFC A39, A44: an injected abort is no failed attempt, so a retry policy for its status does not repeat the call.
#[tokio::test]
async fn an_injected_abort_is_not_retried() {
    let a = Backend::start("a").await;
    let listener = by_rds()
        .filter("stamp", json("test.Stamp", "one"))
        .filter("fault", abort(ErrorType::GrpcStatus(14)));
    let routes = retrying_routes(policy(4, "unavailable"));
    let server = ResourceServer::start(&payments(&[&a]).with(listener).with(routes));
    let (registry, calls) = stamps();
    let channel = with_filters(&server, &registry);
    let status = call(&channel).await.unwrap_err();
    assert!(status.message().starts_with("Fault injected"), "{status}");
    assert!(!status.metadata().contains_key("grpc-previous-rpc-attempts"));
    assert_eq!(calls.load(SeqCst), 1);
}

/// A filter may end a call, which is then not sent.
#[tokio::test]
async fn a_filter_ends_a_call() {
    let a = Backend::start("a").await;
    let resources = payments(&[&a]).with(by_rds().filter("stamp", json("test.Stamp", "one")));
    let server = ResourceServer::start(&resources);
    let channel = with_filters(&server, &stamps().0);
    assert_eq!(call(&channel).await.unwrap(), "a");
    let mut request = Request::new(String::new());
    request
        .metadata_mut()
        .insert("x-unwanted", "yes".parse().unwrap());
    let status = send(&channel, PATH, request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let expected = "/test.Echo/Call to payments-cluster is unwanted";
    assert!(status.message().starts_with(expected), "{status}");
}

/// A configuration that the filter refuses is a NACK with its path, and the last good one is used on.
#[tokio::test]
async fn a_bad_configuration_is_refused() {
    let mut a = Backend::holding("a").await;
    let by = |config| payments(&[&a]).with(by_rds().filter("stamp", config));
    let (good, bad): (Resources, Resources) = (
        by(json("test.Stamp", "one")),
        by(custom_policy("test.Stamp", &json!({ "text": 1 }))),
    );
    let mut server = ResourceServer::start(&good);
    let channel = with_filters(&server, &stamps().0);
    assert_eq!(stamps_of(&mut a, &channel, PATH).await, ["one"]);

    server.set(&bad);
    let told = server.next_nack().await;
    let expected = "listener payments: api_listener.api_listener.http_filters[0].typed_config\
                    .value: text: expected a string";
    assert!(told.contains(expected), "{told}");
    assert_eq!(stamps_of(&mut a, &channel, PATH).await, ["one"]);
}

/// S3-02: a program without the filter refuses the listener, unless the filter is optional.
#[tokio::test]
async fn a_program_without_the_filter() {
    let a = Backend::start("a").await;
    let listener = by_rds().filter("stamp", json("test.Stamp", "one"));
    let server = ResourceServer::start(&payments(&[&a]).with(listener.clone()));
    let refused = call(&channel(&server)).await.unwrap_err();
    let expected = "expected a supported filter, got test.Stamp";
    assert!(refused.message().contains(expected), "{refused}");

    let optional = listener.edit(|manager| manager.http_filters[0].is_optional = true);
    let server = ResourceServer::start(&payments(&[&a]).with(optional));
    assert_eq!(call(&channel(&server)).await.unwrap(), "a");
}

/// A registry that knows every type accepts every listener, but has no filter for calls to pass.
#[tokio::test]
async fn a_type_alone_passes_no_calls() {
    let a = Backend::start("a").await;
    let listener = by_rds().filter("stamp", json("test.Stamp", "one"));
    let server = ResourceServer::start(&payments(&[&a]).with(listener));
    let channel = with_filters(&server, &FilterRegistry::of_all_types());
    let failed = call(&channel).await.unwrap_err();
    let expected = "this program has no filter test.Stamp";
    assert!(failed.message().contains(expected), "{failed}");
}

/// gRFC A39: an override for another kind of filter than the one it names is passed over.
#[tokio::test]
async fn an_override_for_another_kind_is_passed_over() {
    let mut a = Backend::holding("a").await;
    let listener = by_rds().filter("stamp", json("test.Stamp", "one"));
    let routes = routes("payments-routes")
        .host("*")
        .host_override("stamp", json("test.Stamp", "host"))
        .route("/", "payments-cluster")
        .route_override("stamp", pack_any(HttpFault::default()));
    let server = ResourceServer::start(&payments(&[&a]).with(listener).with(routes));
    let channel = with_filters(&server, &stamps().0);
    assert_eq!(stamps_of(&mut a, &channel, PATH).await, ["host"]);
}

/// Channels whose filters are the same share what they hear; others would read it otherwise.
#[tokio::test]
async fn channels_share_a_client_by_their_filters() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let bootstrap = server.bootstrap();
    let ((registry, _), (other, _)) = (stamps(), stamps());
    let start = |registry: &FilterRegistry| {
        let builder = Channel::builder("xds:///payments").bootstrap(bootstrap.clone());
        builder.filters(registry).build().unwrap()
    };
    let same = [start(&registry), start(&registry.clone())];
    for channel in &same {
        assert_eq!(call(channel).await.unwrap(), "a");
    }
    server.has_streams(1).await;
    let another = start(&other);
    assert_eq!(call(&another).await.unwrap(), "a");
    server.has_streams(2).await;
}
