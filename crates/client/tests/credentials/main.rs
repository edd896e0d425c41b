//! Tests of credentials over real sockets, with certificates made for each test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod environment;
mod front;
mod jwt;
mod pki;
mod tls;
mod unix;
mod unsaid;

use std::time::Duration;

use crowfly_client::{WatchEvent, XdsClient};
use crowfly_model::bootstrap::{Bootstrap, ServerBuilder};
use crowfly_model::grpc::Cluster;
use tokio::time::timeout;

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(20);

fn bootstrap(server: ServerBuilder) -> Bootstrap {
    Bootstrap::builder(server).unwrap().node_id("test").build()
}

fn client(server: ServerBuilder) -> XdsClient {
    XdsClient::new(&bootstrap(server)).unwrap()
}

/// Waits until a watch is told of an error with these words.
async fn error_with(watch: &mut crowfly_client::Watch<Cluster>, words: &str) {
    let error = async {
        loop {
            let text = match watch.next().await.expect("the client lives") {
                WatchEvent::ResourceChanged(Err(error)) => error.to_string(),
                WatchEvent::AmbientError(error) => format!("{error:?}"),
                WatchEvent::ResourceChanged(Ok(_)) => continue,
            };
            if text.contains(words) {
                return;
            }
            eprintln!("not yet {words:?}: {text}");
        }
    };
    if timeout(PATIENCE, error).await.is_err() {
        panic!("no error with {words:?} in {PATIENCE:?}");
    }
}
