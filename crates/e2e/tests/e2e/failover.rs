//! The first cluster of an aggregate dies under load, and comes back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crowfly::{Channel, ConnectionLost};
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::product::{Backend, Config};
use crowfly_e2e::rpc;

use crate::load::{Ended, Load};
use crate::reserved::Reserved;
use crate::{CROWFLY, channel};

/// How long a priority may take to connect before the next one is tried (gRFC A56). It is no reason to
/// wait for that when connections are refused.
const FAILOVER_TIMER: Duration = Duration::from_secs(10);

/// S6-01: the backends of the first leaf are killed under load. The second leaf serves as soon as they
/// refuse connections; of all calls only those may fail that were on a connection as it broke; and when
/// the backends are back so is the traffic, without an error.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_leaf_serves_while_the_first_is_dead() {
    let places = [Reserved::new(), Reserved::new()];
    let start = || {
        let named = places.iter().zip(["first-1", "first-2"]);
        let started = named.map(|(place, name)| CROWFLY.backend_on(&place.listen(), name));
        started.collect::<Vec<_>>()
    };
    let mut first = start();
    let second = ["second-1", "second-2"].map(|name| CROWFLY.backend(name));
    let control = CROWFLY.control(
        &Config::service("svc", &first.iter().collect::<Vec<_>>())
            .with_fallback("other")
            .and_service("other", &second.each_ref()),
    );
    let channel = channel(control.address);
    rpc::until_served_by(&channel, &["first-1", "first-2"]).await;
    let addresses = places.each_ref().map(|place| place.address);
    assert_eq!(connected(&channel, &addresses).await, 2);
    let loads = [Load::start(&channel), Load::start_waiting(&channel)];

    let killed = Instant::now();
    first.iter_mut().for_each(|backend| backend.process.kill());
    // The moment at which the channel knows.
    while connected(&channel, &addresses).await > 0 {
        assert!(killed.elapsed() < PATIENCE, "still connected");
    }
    let lost = Instant::now();
    rpc::until_served_by(&channel, &["second-1", "second-2"]).await;

    let _first: Vec<Backend> = start();
    rpc::until_served_by(&channel, &["first-1", "first-2"]).await;
    let back = Instant::now();
    // Time for the loads to call, too.
    rpc::spread(&channel, 40).await;

    for (load, kind) in loads.into_iter().zip(["ordinary", "wait-for-ready"]) {
        let calls = load.stop().await;
        let failover = time_to_the_second_leaf(&calls, killed);
        let failed = calls.iter().filter(|call| call.result.is_err());
        let failed = failed
            .inspect(|call| assert_was_cut_off(call, lost))
            .count();
        println!(
            "{kind}: the second leaf served {failover:?} after the kill; {} calls, {failed} cut off",
            calls.len()
        );
        assert!(failover < FAILOVER_TIMER, "the timer was waited for");
        let late = calls
            .iter()
            .find(|call| call.begun > back && !is_of(call, "first"));
        assert!(late.is_none(), "{late:?}");
    }
}

/// To how many of these the channel is connected.
async fn connected(channel: &Channel, addresses: &[SocketAddr]) -> usize {
    let tree = channel.tree().await;
    let is_ready = |address: &&SocketAddr| tree.contains(&format!("{address} READY"));
    addresses.iter().filter(is_ready).count()
}

fn time_to_the_second_leaf(calls: &[Ended], killed: Instant) -> Duration {
    let answers = calls.iter().filter(|call| is_of(call, "second"));
    let first_answer = answers.map(|call| call.at).min();
    first_answer.expect("an answer of the second leaf") - killed
}

/// Whether a backend of this leaf answered.
fn is_of(call: &Ended, leaf: &str) -> bool {
    matches!(&call.result, Ok(name) if name.starts_with(leaf))
}

/// A failed call must have been under way when its connection broke.
fn assert_was_cut_off(call: &Ended, lost: Instant) {
    let Err(status) = &call.result else { return };
    let is_lost = ConnectionLost::find(status).is_some();
    assert!(is_lost && call.begun < lost, "lost at {lost:?}: {call:?}");
}
