//! Tests of `pick_first`: one connection for all calls, and the race for it (A61, A62). It differs
//! from the other policies, which connect each endpoint for itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod leaf;
mod sim;

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::Arc,
    time::{Duration, Instant},
};

use crowfly_lb::{
    BalancerEvent, Command, Endpoint, EndpointState, LocalityId, Policy, Race, RaceAction,
    RaceEvent, timing,
};
use leaf::leaf;
use sim::{Picked, Port, Sim, address, endpoint, endpoints_at, ready_at};

const IN_ORDER: Policy = Policy::PickFirst { shuffle: false };
const SHUFFLED: Policy = Policy::PickFirst { shuffle: true };

/// S10-04: all addresses are one endpoint, which is connected at once and takes all calls.
#[test]
fn all_calls_go_to_one_connection() {
    let mut sim = Sim::new();
    sim.plan(leaf(IN_ORDER, endpoints_at(&[1, 2, 3])));
    assert_eq!(sim.connects, [1]);
    assert!(sim.is_queued());
    assert_eq!(sim.view(1).addresses.len(), 3);

    sim.ready(&[1]);
    assert_eq!(sim.count(100), BTreeMap::from([(1, 100)]));
}

/// S10-04: when no address can be reached, calls fail with the reason, and names are looked up
/// again.
#[test]
fn an_endpoint_that_failed_fails_calls_and_asks_for_other_addresses() {
    let mut sim = Sim::new();
    sim.plan(leaf(IN_ORDER, endpoints_at(&[1, 2])));
    sim.failing(1, "127.0.0.1:2: refused");
    assert!(sim.pick_failure().contains("127.0.0.1:2: refused"));
    assert_eq!(sim.reresolves, 1);
    sim.ready(&[1]);
    assert_eq!(sim.pick_port(), 1);
}

/// A connection that is lost is made again when a call comes, and one call is enough.
#[test]
fn a_lost_connection_is_not_made_again_without_a_call() {
    let mut sim = Sim::ready_with(leaf(IN_ORDER, endpoints_at(&[1, 2])));
    sim.idle(1);
    assert_eq!((sim.connects.len(), sim.reresolves), (0, 1));

    // New addresses change nothing about that.
    sim.plan(leaf(IN_ORDER, endpoints_at(&[3, 1])));
    assert!(sim.connects.is_empty());
    let Picked::Wake(id) = sim.pick() else {
        panic!("a call wants the connection");
    };
    assert!(sim.is_queued());
    sim.handle(BalancerEvent::Demand(id));
    sim.flush();
    assert_eq!(sim.connects, [3]);
}

/// A changed list is a new address list for the same endpoint; the driver knows whether its
/// connection is good for it.
#[test]
fn a_new_list_keeps_the_endpoint_and_its_calls() {
    let mut sim = Sim::ready_with(leaf(IN_ORDER, endpoints_at(&[1, 2])));
    let id = sim.id(1);
    sim.plan(leaf(IN_ORDER, endpoints_at(&[3, 1])));
    assert_eq!((sim.id(3), &*sim.connects), (id, &[3][..]));
    assert!(sim.releases.is_empty());
    assert_eq!(sim.pick_port(), 1);

    // The same addresses are no news.
    sim.forget();
    let mut again = [address(3), address(1)].map(Endpoint::from);
    again[0].weight = NonZeroU64::new(7).unwrap();
    sim.plan(leaf(IN_ORDER, again));
    assert!(sim.connects.is_empty());
}

/// A61: the endpoints are one list of addresses. It is shown in the locality that they share, and else
/// where the tree has the leaf, which is nowhere here.
#[test]
fn the_list_is_in_the_locality_that_its_endpoints_share() {
    let placed = |zones: [&str; 2]| {
        let endpoints = [1, 2].map(address).map(Endpoint::from);
        let endpoints: Vec<_> = endpoints
            .into_iter()
            .zip(zones)
            .map(|(mut endpoint, zone)| {
                endpoint.locality = Some(LocalityId::new("us", zone, ""));
                endpoint
            })
            .collect();
        Sim::ready_with(leaf(IN_ORDER, endpoints)).view(1).locality
    };
    assert_eq!(placed(["b", "b"]), LocalityId::new("us", "b", ""));
    assert_eq!(placed(["a", "b"]), LocalityId::default());
}

/// S10-06: a leaf that failed stays so after an update of its addresses, until it is READY.
#[test]
fn a_failure_outlives_an_update() {
    let mut sim = Sim::new();
    sim.plan(leaf(IN_ORDER, endpoints_at(&[1])));
    sim.failing(1, "refused");
    sim.forget();
    sim.plan(leaf(IN_ORDER, endpoints_at(&[2])));
    assert_eq!(sim.connects, [2]);
    assert!(sim.pick_failure().contains("refused"));
    sim.connecting(2);
    assert!(sim.pick_failure().contains("refused"));
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
}

/// An update without addresses drops the connection, fails, and asks for others.
#[test]
fn an_empty_list_fails_and_heals() {
    let mut sim = Sim::ready_with(leaf(IN_ORDER, endpoints_at(&[1])));
    sim.plan(leaf(IN_ORDER, []));
    assert_eq!((&*sim.releases, sim.reresolves), (&[1][..], 1));
    assert!(sim.pick_failure().contains("no endpoints"));

    sim.plan(leaf(IN_ORDER, endpoints_at(&[2])));
    assert!(sim.is_queued());
    sim.ready(&[2]);
    assert_eq!(sim.pick_port(), 2);
}

/// S10-07: shuffling is by endpoint, leaves the addresses of each together, follows the weights
/// (A113) and the seed.
#[test]
fn endpoints_are_shuffled_by_weight() {
    let mut light = endpoint(&[1, 2]);
    light.weight = NonZeroU64::new(1).unwrap();
    let mut heavy = endpoint(&[3, 4]);
    heavy.weight = NonZeroU64::new(3).unwrap();
    let endpoints = [light, heavy];
    let order = |policy: Policy, seed| {
        let mut sim = Sim::with_seed(seed);
        sim.plan(leaf(policy, endpoints.clone()));
        let first = sim.connects[0];
        let addresses = sim.view(first).addresses;
        addresses.iter().map(|address| address.port()).collect()
    };
    let (mut heavy_first, mut light_first) = (0, 0);
    for seed in 0..1000 {
        assert_eq!(order(IN_ORDER, seed), [1, 2, 3, 4]);
        let shuffled: Vec<Port> = order(SHUFFLED, seed);
        assert_eq!(shuffled, order(SHUFFLED, seed));
        match shuffled.as_slice() {
            [3, 4, 1, 2] => heavy_first += 1,
            [1, 2, 3, 4] => light_first += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        (700..800).contains(&heavy_first),
        "{heavy_first}, {light_first}"
    );
}

/// S10-07: an endpoint is the first with the probability of its weight, then the next among those that
/// are left (A113). Weights may be of any size, such as shares of 2^31.
#[test]
fn each_place_is_given_by_weight() {
    let order = |unit: u64, seed| {
        let weights = [2, 1, 1].map(|weight| NonZeroU64::new(weight * unit).unwrap());
        let mut endpoints = [1, 2, 3].map(|port| Endpoint::from(address(port)));
        for (endpoint, weight) in endpoints.iter_mut().zip(weights) {
            endpoint.weight = weight;
        }
        let mut sim = Sim::with_seed(seed);
        sim.plan(leaf(SHUFFLED, endpoints));
        let addresses = sim.view(sim.connects[0]).addresses;
        let ports: Vec<_> = addresses.iter().map(|address| address.port()).collect();
        ports
    };
    let mut counts = BTreeMap::new();
    for seed in 0..3000 {
        let shares = order(1 << 29, seed);
        assert_eq!(shares, order(1, seed), "seed {seed}");
        *counts.entry(shares).or_insert(0) += 1;
    }
    // 1 is first in half of all cases, and second in two of three of the others.
    let expected = [
        ([1, 2, 3], 750),
        ([1, 3, 2], 750),
        ([2, 1, 3], 500),
        ([2, 3, 1], 250),
        ([3, 1, 2], 500),
        ([3, 2, 1], 250),
    ];
    for (order, expected) in expected {
        let counted = counts[order.as_slice()];
        assert!(
            (expected - 75..expected + 75).contains(&counted),
            "{counts:?}"
        );
    }
}

#[test]
fn a_pick_allocates_nothing() {
    let mut sim = Sim::ready_with(leaf(IN_ORDER, endpoints_at(&[1, 2, 3])));
    assert_eq!(leaf::allocations_of_picks(&mut sim), 0);
}

/// S10-04: the first address that can be reached is taken, without a look at the others.
#[test]
fn the_first_address_is_enough() {
    let mut course = Course::start(&[1, 2, 3]);
    assert_eq!(course.log(), ["connecting", "dial 1"]);
    course.ready(1);
    assert_eq!(course.log(), ["ready 1"]);
    assert_eq!(course.race.next_timeout(), None);
    assert_eq!(course.race.winner(), Some(address(1)));
}

/// S10-04: a failure is followed by the next address at once; when all have failed the endpoint
/// has, and each address goes on for itself.
#[test]
fn addresses_are_tried_in_order_and_then_all_at_all_times() {
    let mut course = Course::start(&[1, 2]);
    course.fail(1);
    assert_eq!(course.log(), ["connecting", "dial 1", "dial 2"]);
    course.idle(1);
    assert_eq!(course.log(), [""; 0], "not again in the first pass");
    course.fail(2);
    assert_eq!(course.log(), ["failing 127.0.0.1:2: refused", "dial 1"]);

    // From now on every second failure asks for new addresses.
    course.idle(2);
    assert_eq!(course.log(), ["dial 2"]);
    course.fail(2);
    course.idle(2);
    assert_eq!(course.log(), ["dial 2"]);
    course.fail(2);
    assert_eq!(course.log(), ["failing 127.0.0.1:2: refused"]);
    course.ready(1);
    assert_eq!(course.log(), ["abandon 2", "ready 1"]);
}

/// S10-05: an address that is slow is joined by the next after 250 ms, not before; the first to
/// connect wins, and the others are let go.
#[test]
fn a_slow_address_is_joined_by_the_next() {
    let mut course = Course::start(&[1, 2, 3]);
    course.log();
    course.wait(249);
    assert_eq!(course.log(), [""; 0]);
    course.wait(1);
    assert_eq!(course.log(), ["dial 2"]);
    // One that had its time and then fails does not hurry the one after the next.
    course.fail(1);
    assert_eq!(course.log(), [""; 0]);
    course.wait(250);
    assert_eq!(course.log(), ["dial 3"]);
    assert_eq!(course.race.next_timeout(), None, "3 is the last");
    course.ready(2);
    assert_eq!(course.log(), ["abandon 1", "abandon 3", "ready 2"]);
    // What a loser still says is of no interest.
    course.ready(3);
    assert_eq!(course.log(), [""; 0]);
}

/// S10-05: the delay can be set from 100 ms to 2 s.
#[test]
fn the_delay_has_bounds() {
    let now = Instant::now();
    for (millis, expected) in [(1, 100), (300, 300), (60_000, 2000)] {
        let mut race = Race::<Port>::new(Duration::from_millis(millis));
        let addresses = Arc::from([address(1), address(2)]);
        race.handle(RaceEvent::Connect(addresses), now);
        let expected = now + Duration::from_millis(expected);
        assert_eq!(race.next_timeout(), Some(expected));
    }
    assert_eq!(timing::HAPPY_EYEBALLS_DELAY, Duration::from_millis(250));
}

/// An address that others found unreachable counts as tried: it is in backoff.
#[test]
fn an_address_in_backoff_has_had_its_turn() {
    let mut course = Course::start(&[1, 2]);
    course.fail(1);
    course.fail(2);
    course.log();
    course.connect(&[1, 2, 3]);
    assert_eq!(course.log(), ["dial 3"], "nothing is said: it is failing");
    course.fail(3);
    assert_eq!(course.log(), ["failing 127.0.0.1:3: refused"]);
}

/// S10-06: an update restarts the race, and while it runs the endpoint stays failing.
#[test]
fn a_race_that_failed_is_failing_until_it_is_won() {
    let mut course = Course::start(&[1]);
    course.fail(1);
    assert_eq!(course.log(), ["connecting", "dial 1", "failing refused"]);
    course.connect(&[2]);
    assert_eq!(course.log(), ["abandon 1", "dial 2"]);
    course.ready(2);
    assert_eq!(course.log(), ["ready 2"]);
}

/// A connection is kept if its address is in the new list, and else replaced.
#[test]
fn an_update_keeps_a_connection_that_is_still_good() {
    let mut course = Course::start(&[1, 2]);
    course.ready(1);
    course.log();
    course.connect(&[3, 1]);
    assert_eq!(course.log(), [""; 0]);
    course.connect(&[3, 2]);
    assert_eq!(course.log(), ["abandon 1", "connecting", "dial 3"]);
}

/// A connection that is lost is reported as IDLE and not made again unasked; one that was closed at
/// once is in backoff, and that is not forgotten.
#[test]
fn a_lost_connection_is_idle() {
    let mut course = Course::start(&[1]);
    course.ready(1);
    course.idle(1);
    course.log();
    course.connect(&[1]);
    assert_eq!(course.log(), ["connecting", "dial 1"]);
    course.ready(1);
    course.fail(1);
    assert_eq!(course.log(), ["ready 1", "idle"]);
    course.connect(&[1]);
    assert_eq!(course.log(), ["connecting", "failing refused"]);
    course.idle(1);
    assert_eq!(course.log(), ["dial 1"]);
    assert_eq!(course.race.held().collect::<Vec<_>>(), [address(1)]);
}

/// S10-07: the race interleaves the address families of the list that the leaf has flattened.
#[test]
fn families_take_turns() {
    let six = |port: Port| ([0, 0, 0, 0, 0, 0, 0, 1], port).into();
    let mut sim = Sim::new();
    let endpoints = [address(1), address(2), six(3), six(4)].map(Endpoint::from);
    sim.handle(BalancerEvent::Plan(Arc::new(leaf(IN_ORDER, endpoints))));
    let now = Instant::now();
    sim.balancer.flush(now);
    let Some(Command::Connect {
        addresses,
        is_pick_first,
        ..
    }) = sim.balancer.poll_command()
    else {
        panic!("it connects at once");
    };
    // gRFC A61: its health is not checked.
    assert!(is_pick_first);
    let mut course = Course {
        race: Race::default(),
        now,
    };
    course.race.handle(RaceEvent::Connect(addresses), now);
    for _ in 0..3 {
        course.wait(250);
    }
    assert_eq!(
        course.log(),
        ["connecting", "dial 1", "dial 3", "dial 2", "dial 4"]
    );
}

/// A race in virtual time, and what it asks for as text.
struct Course {
    race: Race<Port>,
    now: Instant,
}

impl Course {
    fn start(ports: &[Port]) -> Self {
        let mut course = Self {
            race: Race::default(),
            now: Instant::now(),
        };
        course.connect(ports);
        course
    }

    fn connect(&mut self, ports: &[Port]) {
        let addresses = ports.iter().map(|&port| address(port)).collect();
        self.race.handle(RaceEvent::Connect(addresses), self.now);
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.race.handle(RaceEvent::Timeout, self.now);
    }

    fn ready(&mut self, port: Port) {
        self.report(port, ready_at(port));
    }

    fn fail(&mut self, port: Port) {
        self.report(port, EndpointState::TransientFailure("refused".into()));
    }

    fn idle(&mut self, port: Port) {
        self.report(port, EndpointState::Idle);
    }

    fn report(&mut self, port: Port, state: EndpointState<Port>) {
        let address = address(port);
        let event = RaceEvent::Subchannel { address, state };
        self.race.handle(event, self.now);
    }

    fn log(&mut self) -> Vec<String> {
        let actions = std::iter::from_fn(|| self.race.poll_action());
        let text = |action| match action {
            RaceAction::Abandon(address) => format!("abandon {}", address.port()),
            RaceAction::Dial(address) => format!("dial {}", address.port()),
            RaceAction::State(EndpointState::Connecting) => "connecting".into(),
            RaceAction::State(EndpointState::Idle) => "idle".into(),
            RaceAction::State(EndpointState::Ready { transport, address }) => {
                assert_eq!(address.port(), transport, "the address that won");
                format!("ready {transport}")
            }
            RaceAction::State(EndpointState::TransientFailure(why)) => format!("failing {why}"),
        };
        actions.map(text).collect()
    }
}
