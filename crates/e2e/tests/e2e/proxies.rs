//! Proxies that replace connections: they send GOAWAY after a number of requests, which under load is
//! soon.

use std::net::SocketAddr;

use crowfly::Channel;
use crowfly_e2e::envoy::{Envoy, INGRESS};
use crowfly_e2e::nginx::Nginx;
use crowfly_e2e::{peers, rpc};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tokio::task::{JoinSet, block_in_place};

use crate::CROWFLY;

const CALLERS: usize = 16;
const CALLS_EACH: usize = 100;
/// The number of requests that a connection may have. It is many times the number of callers,
/// because a call above the last stream id is repeated only once (gRFC A6).
const REQUESTS: u32 = 200;
const CONNECTIONS: usize = CALLERS * CALLS_EACH / REQUESTS as usize;

/// nginx names the last stream it takes in its only GOAWAY, and passes over those that come after.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_that_replaces_connections_fails_no_call() {
    let Some(program) = peers::nginx() else {
        return;
    };
    let backend = CROWFLY.backend("b1");
    let nginx = block_in_place(|| Nginx::start_before(program, backend.address, Some(REQUESTS)));
    assert_eq!(calls_through(nginx.address).await, Vec::<String>::new());
    let connections = nginx.connections();
    assert!(connections >= CONNECTIONS, "{connections}");
}

/// Envoy warns first, and names the last stream later.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_that_replaces_connections_fails_no_call() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let backend = CROWFLY.backend("b1");
    let envoy = block_in_place(|| Envoy::start_sending_away(program, backend.address, REQUESTS));
    let address = block_in_place(|| envoy.listener(INGRESS));
    assert_eq!(calls_through(address).await, Vec::<String>::new());
    let reached = "http.ingress.downstream_cx_max_requests_reached";
    let reached = envoy.stat(reached).unwrap_or_default();
    assert!(reached as usize >= CONNECTIONS - 1, "{reached}");
}

/// Calls without a pause, and returns the failures.
async fn calls_through(proxy: SocketAddr) -> Vec<String> {
    let control = ResourceServer::start(&Resources::service("svc", [proxy]));
    let channel = Channel::builder("xds:///svc")
        .bootstrap(control.bootstrap())
        .build()
        .unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let channel = channel.clone();
        callers.spawn(async move {
            let mut failures = Vec::new();
            for _ in 0..CALLS_EACH {
                let call = rpc::unary_call(&channel).await;
                failures.extend(call.err().map(|status| status.to_string()));
            }
            failures
        });
    }
    callers.join_all().await.concat()
}
