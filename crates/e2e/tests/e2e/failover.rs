//! The first cluster of an aggregate dies under load, and comes back.
//!
//! The backends are processes, because only a killed process breaks connections as a crash does.

use std::time::{Duration, Instant};

use crowfly::{Channel, ConnectionLost};
use crowfly_e2e::product::{Backend, Config, Control};
use crowfly_e2e::rpc;
use crowfly_testkit::Reserved;

use crate::load::{Ended, Load};
use crate::{CROWFLY, channel};

/// The time that a priority has to connect before the next one is tried (gRFC A56). The channel
/// does not wait for it when connections are refused.
const FAILOVER_TIMER: Duration = Duration::from_secs(10);

/// S6-01: the backends of the first leaf are killed under load. The second leaf serves as soon as
/// they refuse connections. Only calls that were on a connection as it broke may fail. When the
/// backends are back they get the traffic again, without an error.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_leaf_serves_while_the_first_is_dead() {
    let mut leaves = Leaves::start().await;
    let loads = [
        Load::start(&leaves.channel),
        Load::start_waiting(&leaves.channel),
    ];
    let killed = leaves.kill_the_first();
    leaves.until_served_by("second").await;
    let back = leaves.restart_the_first().await;

    for (load, kind) in loads.into_iter().zip(["ordinary", "wait-for-ready"]) {
        let calls = load.stop().await;
        let failed = calls.iter().filter(|call| call.result.is_err());
        let failed = failed
            .inspect(|call| assert_was_cut_off(call, killed))
            .count();
        check_times(kind, &calls, killed, back);
        println!("{kind}: {} calls, {failed} cut off", calls.len());
    }
}

/// S6-01: all calls that begin after the connections to the first leaf broke succeed, even those
/// that do not wait for ready. The first of them begin as soon as the processes are gone, before
/// the channel may know. When the first leaf is back it gets the traffic, without an error.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_begin_after_the_connections_broke_succeed() {
    let mut leaves = Leaves::start().await;
    for _ in 0..3 {
        let killed = leaves.kill_the_first();
        let loads = [
            Load::start(&leaves.channel),
            Load::start_waiting(&leaves.channel),
        ];
        leaves.until_served_by("second").await;
        let back = leaves.restart_the_first().await;
        for (load, kind) in loads.into_iter().zip(["ordinary", "wait-for-ready"]) {
            let calls = load.stop().await;
            let failed = calls.iter().find(|call| call.result.is_err());
            assert!(failed.is_none(), "{kind}: {failed:?}");
            check_times(kind, &calls, killed, back);
        }
    }
}

/// An aggregate of two leaves with two backends each.
struct Leaves {
    channel: Channel,
    places: [Reserved; 2],
    first: Vec<Backend>,
    _second: [Backend; 2],
    _control: Control,
}

impl Leaves {
    /// The first leaf serves.
    async fn start() -> Self {
        let places = [Reserved::new(), Reserved::new()];
        let first = start_first(&places);
        let second = ["second-1", "second-2"].map(|name| CROWFLY.backend(name));
        let control = CROWFLY.control(
            &Config::service("svc", &first.iter().collect::<Vec<_>>())
                .with_fallback("other")
                .and_service("other", &second.each_ref()),
        );
        let leaves = Self {
            channel: channel(control.address),
            places,
            first,
            _second: second,
            _control: control,
        };
        leaves.until_served_by("first").await;
        leaves
    }

    /// Kills the backends of the first leaf; the moment at which they are gone, and their sockets
    /// with them.
    fn kill_the_first(&mut self) -> Instant {
        let first = std::mem::take(&mut self.first);
        first
            .into_iter()
            .for_each(|mut backend| backend.process.kill());
        Instant::now()
    }

    /// Starts them again; the moment at which they have the traffic.
    async fn restart_the_first(&mut self) -> Instant {
        self.first = start_first(&self.places);
        self.until_served_by("first").await;
        let back = Instant::now();
        // Time for loads to call, too.
        rpc::spread(&self.channel, 40).await;
        back
    }

    async fn until_served_by(&self, leaf: &str) {
        let names = [format!("{leaf}-1"), format!("{leaf}-2")];
        rpc::until_served_by(&self.channel, &names.each_ref().map(String::as_str)).await;
    }
}

fn start_first(places: &[Reserved; 2]) -> Vec<Backend> {
    let named = places.iter().zip(["first-1", "first-2"]);
    let started = named.map(|(place, name)| CROWFLY.backend_on(&place.address.to_string(), name));
    started.collect()
}

/// Checks the time until the second leaf served, and that the first leaf has all calls once it is
/// back.
fn check_times(kind: &str, calls: &[Ended], killed: Instant, back: Instant) {
    let failover = time_to_the_second_leaf(calls, killed);
    println!("{kind}: the second leaf served {failover:?} after the kill");
    assert!(failover < FAILOVER_TIMER, "the timer was waited for");
    let late = calls
        .iter()
        .find(|call| call.begun > back && !is_of(call, "first"));
    assert!(late.is_none(), "{late:?}");
}

fn time_to_the_second_leaf(calls: &[Ended], killed: Instant) -> Duration {
    let answers = calls.iter().filter(|call| is_of(call, "second"));
    let first_answer = answers.map(|call| call.at).min();
    first_answer.expect("an answer of the second leaf") - killed
}

/// True if a backend of this leaf answered.
fn is_of(call: &Ended, leaf: &str) -> bool {
    matches!(&call.result, Ok(name) if name.starts_with(leaf))
}

/// A failed call must have been under way when its backend was killed.
fn assert_was_cut_off(call: &Ended, killed: Instant) {
    let Err(status) = &call.result else { return };
    let is_lost = ConnectionLost::find(status).is_some();
    assert!(
        is_lost && call.begun < killed,
        "killed at {killed:?}: {call:?}"
    );
}
