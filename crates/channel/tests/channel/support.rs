//! Channels to test with, and calls on them, which most tests here share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crowfly::dns::{Lookup, Resolve};
use crowfly::{Channel, ConnectivityState, StateWatch, WaitForReady};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::{Resources, RoutesBuilder, routes};
use envoy_types::pb::envoy::config::route::v3::{
    RetryPolicy, retry_policy::RetryBackOff, route::Action,
};
use envoy_types::pb::google::protobuf::{self, UInt32Value};
use tokio::task::JoinHandle;
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

/// The service `payments` with a retry policy: up to `attempts` on `conditions`, a millisecond apart.
pub(crate) fn retrying(backends: &[&Backend], attempts: u32, conditions: &str) -> Resources {
    payments(backends).with(retrying_routes(policy(attempts, conditions)))
}

/// The routes of `payments` with this retry policy.
pub(crate) fn retrying_routes(policy: RetryPolicy) -> RoutesBuilder {
    let routes = routes("payments-routes").host("*");
    routes.route("/", "payments-cluster").edit(|config| {
        let route = &mut config.virtual_hosts[0].routes[0];
        if let Some(Action::Route(action)) = &mut route.action {
            action.retry_policy = Some(policy);
        }
    })
}

/// A retry policy whose attempts are a millisecond apart.
pub(crate) fn policy(attempts: u32, conditions: &str) -> RetryPolicy {
    let value = attempts - 1;
    RetryPolicy {
        retry_on: conditions.to_owned(),
        num_retries: Some(UInt32Value { value }),
        ..apart(RetryPolicy::default(), Duration::from_millis(1))
    }
}

/// The policy with another interval, for all retries.
pub(crate) fn apart(mut policy: RetryPolicy, interval: Duration) -> RetryPolicy {
    let interval = Some(protobuf::Duration {
        seconds: interval.as_secs().try_into().unwrap(),
        nanos: interval.subsec_nanos().try_into().unwrap(),
    });
    policy.retry_back_off = Some(RetryBackOff {
        base_interval: interval,
        max_interval: interval,
    });
    policy
}

/// Calls in the background.
pub(crate) fn start(channel: &Channel) -> JoinHandle<Result<String, Status>> {
    let channel = channel.clone();
    tokio::spawn(async move { call(&channel).await })
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

/// Calls until `done` is true of the spread of a round of calls.
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
