//! The events of a tree, as values that shrink and print, so that a failing script can be pasted
//! into a test.

use std::fmt;

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Select, select},
};

pub(crate) const LEAVES: [&str; 3] = ["x", "y", "z"];
pub(crate) const ZONES: [&str; 2] = ["a", "b"];

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Plan(Shape),
    /// The last plan again, with its leaves and its priorities turned by so many places (A99).
    Turn(usize),
    /// The last plan again, with this policy for a leaf cluster: an index into [`LEAVES`].
    Switch(usize, Spread),
    /// The last plan again, with the endpoints of each locality so many localities further on, be they
    /// of the same priority or of the next (A75).
    Move(usize),
    /// The last plan again, with this endpoint draining in every leaf cluster that has it (A55).
    Drain(u8),
    /// A report of a subchannel, by a number modulo those that can be in that state next.
    Report(usize, Reported),
    /// A report of every subchannel.
    All(Reported),
    /// A report about an endpoint that was released.
    Late(usize, Reported),
    Millis(u64),
    /// A call starts and stays open.
    Hold,
    Finish,
    /// The balancer hears what endpoints calls have wanted since the last time.
    Demand,
    /// The channel is to connect without a call.
    ExitIdle,
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reported {
    Ready,
    Failing,
    Connecting,
    Idle,
}

impl Reported {
    /// True if a subchannel in this state can be in that one next, by itself.
    pub(crate) fn may_become(self, next: Self) -> bool {
        use Reported::*;
        match next {
            Ready => self == Connecting,
            // A connection that is closed at once counts as a failure.
            Failing => matches!(self, Connecting | Ready),
            Connecting => self == Connecting,
            // The backoff is over, or the connection was lost.
            Idle => matches!(self, Failing | Ready),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Nothing but a reason to fail.
    Broken,
    Leaf(LeafSpec),
    Aggregate(Vec<LeafSpec>),
}

/// A leaf cluster.
#[derive(Clone, Debug)]
pub(crate) struct LeafSpec {
    /// An index into [`LEAVES`].
    pub(crate) name: usize,
    /// The number of its endpoints resource.
    pub(crate) eds: u8,
    /// Calls dropped per million.
    pub(crate) drops: u32,
    /// The limit of open calls.
    pub(crate) limit: u32,
    /// True if no two localities have an endpoint in common.
    pub(crate) apart: bool,
    /// True if the second of two addresses comes first.
    pub(crate) flipped: bool,
    /// Its draining endpoints.
    pub(crate) draining: Vec<u8>,
    /// Its priorities.
    pub(crate) children: Vec<Child>,
}

/// A priority: its name, and its localities.
#[derive(Clone, Debug)]
pub(crate) struct Child(pub(crate) usize, pub(crate) Vec<Zone>);

/// A locality: an index into [`ZONES`], its weight, and its endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Zone(pub(crate) usize, pub(crate) u32, pub(crate) Vec<u8>);

/// How a leaf cluster is balanced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spread {
    /// By locality first.
    Zones(Choice),
    /// All endpoints of a priority alike.
    Whole(Choice),
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    RoundRobin,
    LeastRequest,
    PickFirst,
    /// With the least and the greatest size of the ring.
    RingHash(u64, u64),
    /// A policy of the user's own: the last endpoint that is READY.
    Last,
}

/// Batches of steps: the balancer acts once on each. Prints as the call that runs it.
#[derive(Clone)]
pub(crate) struct Script(pub(crate) Vec<Vec<Step>>);

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = format!("{:?}", self.0).replace('[', "vec![");
        write!(f, "run(Script({steps}))")
    }
}

/// Each leaf cluster has a policy before the first plan comes.
pub(crate) fn script() -> impl Strategy<Value = Script> {
    let batch = prop_oneof![
        6 => step().prop_map(|step| vec![step]),
        1 => vec(step(), 2..4),
    ];
    let first = ([spread(), spread(), spread()], shape()).prop_map(|([x, y, z], shape)| {
        let [x, y, z] = [(0, x), (1, y), (2, z)].map(|(leaf, spread)| Step::Switch(leaf, spread));
        vec![x, y, z, Step::Plan(shape)]
    });
    (first, vec(batch, 1..16)).prop_map(|(first, batches)| {
        let first = std::iter::once(first);
        Script(first.chain(batches).collect())
    })
}

fn step() -> impl Strategy<Value = Step> {
    let short = prop_oneof![Just(1), Just(249), Just(250), Just(500)];
    let long = prop_oneof![
        Just(9_500),
        Just(10_000),
        Just(450_000),
        Just(899_000),
        Just(900_000)
    ];
    prop_oneof![
        18 => (0..32_usize, reported()).prop_map(|(n, reported)| Step::Report(n, reported)),
        6 => Just(Step::All(Reported::Ready)),
        6 => reported().prop_map(Step::All),
        5 => shape().prop_map(Step::Plan).boxed(),
        3 => (1..3_usize).prop_map(Step::Turn),
        3 => (0..LEAVES.len(), spread()).prop_map(|(leaf, spread)| Step::Switch(leaf, spread)),
        5 => (1..4_usize).prop_map(Step::Move),
        2 => (1..5_u8).prop_map(Step::Drain),
        3 => short.prop_map(Step::Millis),
        6 => long.prop_map(Step::Millis),
        1 => (0..8_usize, reported()).prop_map(|(n, reported)| Step::Late(n, reported)),
        5 => Just(Step::Hold),
        2 => Just(Step::Finish),
        9 => Just(Step::Demand),
        1 => Just(Step::ExitIdle),
        1 => Just(Step::Remove),
    ]
}

fn reported() -> impl Strategy<Value = Reported> {
    prop_oneof![
        5 => Just(Reported::Ready),
        5 => Just(Reported::Failing),
        1 => Just(Reported::Connecting),
        4 => Just(Reported::Idle),
    ]
}

fn spread() -> impl Strategy<Value = Spread> {
    prop_oneof![
        choice().prop_map(Spread::Zones),
        choice().prop_map(Spread::Whole)
    ]
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        2 => Just(Choice::RoundRobin),
        1 => Just(Choice::LeastRequest),
        2 => Just(Choice::PickFirst),
        2 => (1..6_u64, 4..20_u64).prop_map(|(min, max)| Choice::RingHash(min, max)),
        1 => Just(Choice::Last),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let aggregate = (orders(&[0, 1, 2]), [leaf(), leaf(), leaf()]).prop_map(|(names, leaves)| {
        let leaves = names.into_iter().zip(leaves);
        let leaves = leaves.map(|(name, leaf)| LeafSpec { name, ..leaf });
        Shape::Aggregate(leaves.collect())
    });
    prop_oneof![
        6 => aggregate,
        4 => leaf().prop_map(Shape::Leaf),
        1 => Just(Shape::Broken),
    ]
}

fn leaf() -> impl Strategy<Value = LeafSpec> {
    let eds = prop_oneof![7 => Just(0), 1 => Just(1)];
    let drops = prop_oneof![6 => Just(0), 1 => Just(250_000), 1 => Just(1_000_000)];
    let limit = prop_oneof![1 => Just(0), 9 => 1..4_u32, 4 => Just(1024)];
    let children = (orders(&[0, 1, 2]), [zones(), zones(), zones()]).prop_map(|(names, zones)| {
        let children = names.into_iter().zip(zones);
        children.map(|(name, zones)| Child(name, zones)).collect()
    });
    let draining = prop_oneof![3 => Just(vec![]), 1 => orders(&[1, 2, 3])];
    let apart = prop_oneof![2 => Just(false), 1 => Just(true)];
    let endpoints = (apart, prop::bool::ANY, draining, children);
    (0..LEAVES.len(), eds, drops, limit, endpoints).prop_map(
        |(name, eds, drops, limit, (apart, flipped, draining, children))| LeafSpec {
            name,
            eds,
            drops,
            limit,
            apart,
            flipped,
            draining,
            children,
        },
    )
}

fn zones() -> impl Strategy<Value = Vec<Zone>> {
    let numbers = || orders(&[1, 2, 3, 4]);
    (
        orders(&[0, 1]),
        [(1..4_u32, numbers()), (1..4_u32, numbers())],
    )
        .prop_map(|(names, zones)| {
            let zones = names.into_iter().zip(zones);
            zones
                .map(|(name, (weight, numbers))| Zone(name, weight, numbers))
                .collect()
        })
}

/// Some of these, in any order, the shortest first.
fn orders<T: Copy + PartialEq + fmt::Debug + 'static>(of: &[T]) -> Select<Vec<T>> {
    let mut orders: Vec<Vec<T>> = vec![vec![]];
    let mut next = 0;
    while let Some(order) = orders.get(next).cloned() {
        let longer = of.iter().filter(|one| !order.contains(one));
        orders.extend(longer.map(|one| [&order[..], &[*one]].concat()));
        next += 1;
    }
    select(orders)
}
