//! The limit of active faults (gRFC A33).
//!
//! The limit is one for the whole process, so this binary has no other test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    missing_docs,
    reason = "test code, shared with the tests of channels"
)]

#[path = "channel/backend.rs"]
mod backend;
#[path = "channel/support.rs"]
mod support;

use std::time::Duration;

use crowfly::Channel;
use crowfly::filter::{FilterFuture, FilterRegistry, FilteredCall, HttpFilter};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{custom_policy, listener};
use envoy_types::pb::envoy::extensions::filters::common::fault::v3::{
    FaultDelay, fault_delay::FaultDelaySecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::google::protobuf::{self, UInt32Value};
use envoy_types::util::pack_any;
use serde_json::json;
use tokio::sync::mpsc;
use tonic::Code;

use crate::backend::Backend;
use crate::support::{call, call_within, payments};

/// Tells the test of each call that passes.
#[derive(Debug)]
struct Tell(mpsc::UnboundedSender<()>);

impl HttpFilter for Tell {
    fn on_call<'a>(&'a self, _: &'a mut FilteredCall<'_>) -> FilterFuture<'a> {
        let _ = self.0.send(());
        Box::pin(async { Ok(()) })
    }
}

/// gRFC A33: the configuration limits the calls of the process that have a fault. Above the limit a
/// call has none, on any channel. A call that is given up makes room.
#[tokio::test]
async fn active_faults_are_limited_for_the_process() {
    let a = Backend::start("a").await;
    let fault = HttpFault {
        delay: Some(FaultDelay {
            percentage: Some(FractionalPercent {
                numerator: 100,
                denominator: 0,
            }),
            fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(protobuf::Duration {
                seconds: 3600,
                nanos: 0,
            })),
        }),
        max_active_faults: Some(UInt32Value { value: 1 }),
        ..HttpFault::default()
    };
    let listener = listener("payments")
        .rds("payments-routes")
        .filter("tell", custom_policy("test.Tell", &json!({})))
        .filter("fault", pack_any(fault));
    let resources = payments(&[&a]).with(listener);
    let (told, mut passed) = mpsc::unbounded_channel();
    let tell = move |_: &_| Ok::<_, String>(Tell(told.clone()));
    let filters = FilterRegistry::new().with("test.Tell", tell);
    let servers = [
        ResourceServer::start(&resources),
        ResourceServer::start(&resources),
    ];
    let [one, other] = servers.each_ref().map(|server| {
        let builder = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
        builder.filters(&filters).build().unwrap()
    });

    let first = tokio::spawn(async move { call(&one).await });
    // The fault of a call begins before the call waits, so nothing else runs in between on this one thread.
    passed.recv().await.unwrap();
    assert_eq!(call(&other).await.unwrap(), "a");

    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let timeout = Duration::from_millis(100);
    let delayed = call_within(&other, timeout).await.unwrap_err();
    assert_eq!(delayed.code(), Code::DeadlineExceeded);
    assert!(delayed.message().contains("filter fault"), "{delayed}");
}
