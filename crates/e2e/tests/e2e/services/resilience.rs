//! Limits, drops, outlier detection and session affinity. One control plane serves one file to gRPC
//! C-core, an Envoy and our channel, which obey it alike.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crowfly_e2e::c_core::CCoreClient;
use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::product::{Backend, Control};
use crowfly_e2e::rpc::{self, Session, Spread};
use crowfly_e2e::{peers, resources};
use tokio::task::JoinSet;

use super::envoy::{plain_channel, with_filters};
use super::{CALLS, assert_all, assert_share};
use crate::{CROWFLY, channel};

/// A client of `svc`.
enum Client {
    CCore(CCoreClient),
    Crowfly(crowfly::Channel, Session),
    /// A tonic client of an Envoy.
    Envoy(Envoy, tonic::transport::Channel, Session),
}

impl Client {
    /// Every client that can be had, with its name.
    fn all(control: &Control) -> Vec<(&'static str, Self)> {
        let c_core = || {
            let client = CCoreClient::start(peers::python()?, control.address, "xds:///svc");
            Some(("C-core", Self::CCore(client)))
        };
        let envoy = || {
            let envoy = Envoy::start(peers::envoy()?, control.address);
            let channel = plain_channel(envoy.listener("ingress"));
            Some(("Envoy", Self::Envoy(envoy, channel, Session::default())))
        };
        let ours = Self::Crowfly(channel(control.address), Session::default());
        let mut all = vec![("Crowfly", ours)];
        all.extend(c_core().into_iter().chain(envoy()));
        all
    }

    /// The number of times that each outcome came: the name of a backend, or the status of a
    /// failure.
    async fn outcomes(&mut self, count: usize) -> Spread {
        match self {
            Self::CCore(client) => client.outcomes(count),
            Self::Crowfly(channel, _) => named(rpc::outcomes(channel, count).await),
            Self::Envoy(_, channel, _) => named(rpc::outcomes(channel, count).await),
        }
    }

    /// The number of failures of calls that are open at the same time.
    async fn failures_of_open(&mut self, count: u32) -> usize {
        match self {
            Self::CCore(client) => {
                let [_, failed, _] = client.load(count, 1);
                usize::try_from(failed.as_u64().unwrap()).unwrap()
            }
            Self::Crowfly(channel, _) => failures(channel, count).await,
            Self::Envoy(_, channel, _) => failures(channel, count).await,
        }
    }

    /// The backends that answer calls of one session.
    async fn spread_of_session(&mut self, count: usize) -> Spread {
        match self {
            Self::CCore(client) => {
                client.keep_cookie();
                let spread = client.spread(count);
                client.forget_cookie();
                spread
            }
            Self::Crowfly(channel, session) => session.spread(channel, count).await,
            Self::Envoy(_, channel, session) => session.spread(channel, count).await,
        }
    }

    /// Asserts that an Envoy refused nothing.
    fn assert_content(&self) {
        let Self::Envoy(envoy, ..) = self else { return };
        for counter in [
            "listener_manager.lds.update_rejected",
            "cluster_manager.cds.update_rejected",
            "cluster.svc.update_rejected",
            "http.svc.rds.svc.update_rejected",
        ] {
            assert_eq!(envoy.stat(counter), Some(0), "{counter}");
        }
    }
}

/// The statuses as C-core names them.
fn named(outcomes: Spread) -> Spread {
    let name = |(key, count): (String, usize)| match key.as_str() {
        "Unavailable" => ("UNAVAILABLE".to_owned(), count),
        _ => (key, count),
    };
    outcomes.into_iter().map(name).collect()
}

async fn failures<S>(channel: &S, count: u32) -> usize
where
    S: Clone + Send + Sync + 'static,
    S: tonic::client::GrpcService<tonic::body::Body, Future: Send>,
    S::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let channel = channel.clone();
        calls.spawn(async move { rpc::unary_call(&channel).await });
    }
    let outcomes = calls.join_all().await;
    outcomes.iter().filter(|outcome| outcome.is_err()).count()
}

/// A file with `svc`, and with the listener of an Envoy that has the routes of `svc`.
fn config(settings: &str, endpoints: &[(&Backend, &str)]) -> String {
    let endpoints = endpoints.iter().map(|(backend, health)| {
        format!("{{ address: \"{}\", health: {health} }}", backend.address)
    });
    let endpoints = endpoints.collect::<Vec<_>>().join(", ");
    let listener = with_filters(resources::http2_listener("svc"));
    format!(
        "services:\n- {{ name: svc, {settings}, endpoints: [{endpoints}] }}\nresources:\n- {listener}\n"
    )
}

/// Categories are drawn one after the other, and an Envoy drops as many calls as all of them.
#[tokio::test(flavor = "multi_thread")]
async fn drops_fail_their_share_of_the_calls() {
    let v1 = CROWFLY.backend("v1");
    let settings = "drops: { throttle: 20%, load_test: 12.5% }";
    let control = CROWFLY.control_of(&config(settings, &[(&v1, "healthy")]));
    for (name, mut client) in Client::all(&control) {
        println!("{name}");
        let outcomes = client.outcomes(CALLS).await;
        assert_share(&outcomes, "UNAVAILABLE", 30.0);
        assert_share(&outcomes, "v1", 70.0);
        client.assert_content();
    }
}

/// gRFC A32: a client has no more calls open than the limit, and the others fail at once.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_calls_are_open_than_the_limit() {
    let slow = CROWFLY.backend_with("127.0.0.1:0", "slow", &["--delay", "3s"]);
    let settings =
        "limits: { max_requests: 2, max_connections: 9, max_pending: 9, max_retries: 9 }";
    // The channels of a process count together, so the cluster has a name that no other test uses.
    let yaml = config("routes: [{ to: busy }]", &[]);
    let busy = format!(
        "- {{ name: busy, {settings}, endpoints: [{{ address: \"{}\" }}] }}",
        slow.address
    );
    let yaml = yaml.replace("resources:", &format!("{busy}\nresources:"));
    let control = CROWFLY.control_of(&yaml);
    for (name, mut client) in Client::all(&control) {
        assert_eq!(client.failures_of_open(8).await, 6, "{name}");
        client.assert_content();
    }
}

/// gRFC A50: an endpoint whose calls all fail gets none any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_whose_calls_fail_is_ejected() {
    let good = ["v1", "v2"].map(|name| CROWFLY.backend(name));
    let bad = CROWFLY.backend_with("127.0.0.1:0", "bad", &["--fail-rate", "1"]);
    let settings = "outlier_detection: {
        interval: 500ms, ejection: { base: 5m, max_percent: 40% },
        failure_percentage: { threshold: 50%, min_endpoints: 3, min_calls: 5 } }";
    let endpoints = [
        (&good[0], "healthy"),
        (&bad, "healthy"),
        (&good[1], "healthy"),
    ];
    let control = CROWFLY.control_of(&config(settings, &endpoints));
    for (name, mut client) in Client::all(&control) {
        let mut seen = client.outcomes(30).await;
        assert!(seen.contains_key("UNAVAILABLE"), "{name}: {seen:?}");
        let deadline = Instant::now() + PATIENCE;
        while seen.contains_key("UNAVAILABLE") {
            assert!(Instant::now() < deadline, "{name}: {seen:?}");
            seen = client.outcomes(30).await;
        }
        // It stays away for longer than an interval.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = client.outcomes(30).await;
        assert!(after.keys().eq(["v1", "v2"]), "{name}: {after:?}");
        client.assert_content();
    }
}

/// gRFC A55: calls with the cookie of a session go to one endpoint, also when it drains.
#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_session_go_to_one_endpoint() {
    let [v1, v2] = ["v1", "v2"].map(|name| CROWFLY.backend(name));
    let settings =
        "session_affinity: { cookie: { name: session, ttl: 1h }, health: [healthy, draining] }";
    let control = CROWFLY.control_of(&config(settings, &[(&v1, "healthy"), (&v2, "healthy")]));
    let mut sessions = Vec::new();
    for (name, mut client) in Client::all(&control) {
        let others = client.outcomes(40).await;
        assert!(others.keys().eq(["v1", "v2"]), "{name}: {others:?}");
        let session = client.spread_of_session(20).await;
        let home = session.keys().next().cloned().unwrap();
        assert_all(&session, &home);
        client.assert_content();
        sessions.push((name, client, home));
    }
    for (drained, left) in [("v1", "v2"), ("v2", "v1")] {
        let health = |name: &str| {
            if name == drained {
                "draining"
            } else {
                "healthy"
            }
        };
        let endpoints = [(&v1, health("v1")), (&v2, health("v2"))];
        control.configure_with(&config(settings, &endpoints));
        for (name, client, home) in &mut sessions {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let others = client.outcomes(20).await;
                if others.keys().eq([left]) {
                    break;
                }
                assert!(Instant::now() < deadline, "{name}: {others:?}");
            }
            assert_all(&client.spread_of_session(20).await, home);
        }
    }
}

/// An Envoy takes everything that the example has.
#[test]
fn envoy_accepts_the_example_of_resilience() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = fs::read_to_string(root.join("examples/resilience.yaml")).unwrap();
    let listener = with_filters(resources::http2_listener("cart"));
    let control = CROWFLY.control_of(&format!("{example}resources:\n- {listener}\n"));
    let envoy = Envoy::start(program, control.address);
    envoy.listener("ingress");
    for counter in [
        "listener_manager.lds.update_rejected",
        "cluster_manager.cds.update_rejected",
        "cluster.cart.update_rejected",
        "cluster.reports.update_rejected",
        "http.cart.rds.cart.update_rejected",
    ] {
        assert_eq!(envoy.stat(counter), Some(0), "{counter}");
    }
}
