//! Channels to test with, and calls on them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crowfly::dns::{Lookup, Resolve};
use crowfly::{Channel, ConnectivityState, StateWatch, WaitForReady};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tonic::client::Grpc;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::backend::Backend;

pub(crate) const PATH: &str = "/test.Echo/Call";

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A channel to `xds:///payments`, served by `server`.
pub(crate) fn channel(server: &ResourceServer) -> Channel {
    Channel::builder("xds:///payments")
        .bootstrap(server.bootstrap())
        .build()
        .unwrap()
}

/// A service `payments` with these backends, all in one locality.
pub(crate) fn payments(backends: &[&Backend]) -> Resources {
    Resources::service("payments", backends.iter().map(|b| b.address))
}

/// A resolver for which every host has these addresses.
#[derive(Debug)]
pub(crate) struct AllHostsAt(pub(crate) Vec<IpAddr>);

impl Resolve for AllHostsAt {
    fn resolve(&self, _: &str) -> Lookup {
        let addresses = self.0.clone();
        Box::pin(async { Ok(addresses) })
    }
}

/// Calls, and returns the name of the backend that answered.
pub(crate) async fn call(channel: &Channel) -> Result<String, Status> {
    send(channel, PATH, Request::new("hello".to_owned())).await
}

/// Calls with a deadline.
pub(crate) async fn call_within(channel: &Channel, timeout: Duration) -> Result<String, Status> {
    let mut request = Request::new("hello".to_owned());
    request.set_timeout(timeout);
    send(channel, PATH, request).await
}

/// Calls, and waits for ready.
pub(crate) async fn call_when_ready(channel: &Channel) -> Result<String, Status> {
    let mut request = Request::new("hello".to_owned());
    request.extensions_mut().insert(WaitForReady(true));
    send(channel, PATH, request).await
}

/// Calls any method with any request.
pub(crate) async fn send(
    channel: &Channel,
    path: &'static str,
    request: Request<String>,
) -> Result<String, Status> {
    let mut grpc = Grpc::new(channel.clone());
    let codec = ProstCodec::<String, String>::default();
    let call = grpc.unary(request, path.parse().unwrap(), codec);
    let response = tokio::time::timeout(PATIENCE, call).await;
    response
        .expect("the call ends")
        .map(|response| response.into_inner())
}

/// Makes `count` calls one after the other, and counts the answers by backend.
pub(crate) async fn spread(channel: &Channel, count: usize) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..count {
        *answers.entry(call(channel).await.unwrap()).or_default() += 1;
    }
    answers
}

/// Calls until `done` likes the spread of a round of calls.
pub(crate) async fn spread_until(
    channel: &Channel,
    round: usize,
    done: impl Fn(&BTreeMap<String, usize>) -> bool,
) {
    let looking = async {
        loop {
            let answers = spread(channel, round).await;
            if done(&answers) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looking).await;
    found.expect("the spread changes");
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits until the channel is in this state.
pub(crate) async fn reaches(watch: &mut StateWatch, state: ConnectivityState) {
    let reached = async {
        while watch.state() != state {
            watch.changed().await.expect("the channel lives");
        }
    };
    let reached = tokio::time::timeout(PATIENCE, reached).await;
    reached.unwrap_or_else(|_| panic!("the channel is {}, not {state}", watch.state()));
}
