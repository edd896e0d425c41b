//! What can happen to a tree, as values that shrink and print.

use std::fmt;

use proptest::{collection::vec, prelude::*, sample::subsequence};

pub(crate) const LEAVES: [&str; 3] = ["x", "y", "z"];
pub(crate) const ZONES: [&str; 2] = ["a", "b"];

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Plan(Shape),
    /// The last plan again, with its leaves and its priorities turned by so many places (A99).
    Turn(usize),
    /// A report about an endpoint, by a number modulo those that there are.
    Report(usize, Reported),
    /// A report about an endpoint that was released.
    Late(usize, Reported),
    /// Every endpoint is READY, or fails.
    All(Reported),
    Seconds(u64),
    /// A call starts and stays open.
    Hold,
    Finish,
    Remove,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Reported {
    Ready,
    Failing,
    Connecting,
    Idle,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Nothing but a reason to fail.
    Broken,
    Leaf(LeafSpec),
    Aggregate(Vec<LeafSpec>),
}

/// A leaf cluster: an index into [`LEAVES`], calls dropped per million, and its priorities.
#[derive(Clone, Debug)]
pub(crate) struct LeafSpec(pub(crate) usize, pub(crate) u32, pub(crate) Vec<Child>);

/// A priority: its name, and its localities.
#[derive(Clone, Debug)]
pub(crate) struct Child(pub(crate) usize, pub(crate) Vec<Zone>);

/// A locality: an index into [`ZONES`], its weight, and its endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Zone(pub(crate) usize, pub(crate) u32, pub(crate) Vec<u16>);

/// Batches of steps: the balancer acts once on each. Prints as the call that runs it.
#[derive(Clone)]
pub(crate) struct Script(pub(crate) Vec<Vec<Step>>);

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = format!("{:?}", self.0).replace('[', "vec![");
        write!(f, "run(Script({steps}))")
    }
}

pub(crate) fn script() -> impl Strategy<Value = Script> {
    let batch = prop_oneof![
        6 => step().prop_map(|step| vec![step]),
        1 => vec(step(), 2),
    ];
    (shape(), vec(batch, 1..11)).prop_map(|(first, batches)| {
        let first = std::iter::once(vec![Step::Plan(first)]);
        Script(first.chain(batches).collect())
    })
}

fn step() -> impl Strategy<Value = Step> {
    let seconds = prop_oneof![Just(1), Just(9), Just(10), Just(450), Just(899), Just(900)];
    prop_oneof![
        18 => (0..32_usize, reported()).prop_map(|(n, reported)| Step::Report(n, reported)),
        6 => shape().prop_map(Step::Plan),
        4 => (1..3_usize).prop_map(Step::Turn),
        6 => reported().prop_map(Step::All),
        6 => seconds.prop_map(Step::Seconds),
        1 => (0..8_usize, reported()).prop_map(|(n, reported)| Step::Late(n, reported)),
        2 => Just(Step::Hold),
        1 => Just(Step::Finish),
        1 => Just(Step::Remove),
    ]
}

fn reported() -> impl Strategy<Value = Reported> {
    prop_oneof![
        5 => Just(Reported::Ready),
        5 => Just(Reported::Failing),
        2 => Just(Reported::Connecting),
        2 => Just(Reported::Idle),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let aggregate = (order(3), vec(leaf(), 3)).prop_map(|(names, leaves)| {
        let leaves = names.into_iter().zip(leaves);
        Shape::Aggregate(
            leaves
                .map(|(name, leaf)| LeafSpec(name, leaf.1, leaf.2))
                .collect(),
        )
    });
    prop_oneof![
        6 => aggregate,
        4 => leaf().prop_map(Shape::Leaf),
        1 => Just(Shape::Broken),
    ]
}

fn leaf() -> impl Strategy<Value = LeafSpec> {
    let drops = prop_oneof![6 => Just(0), 1 => Just(250_000), 1 => Just(1_000_000)];
    let children = (order(3), vec(zones(), 3)).prop_map(|(names, zones)| {
        let children = names.into_iter().zip(zones);
        children.map(|(name, zones)| Child(name, zones)).collect()
    });
    (0..2_usize, drops, children)
        .prop_map(|(name, drops, children)| LeafSpec(name, drops, children))
}

fn zones() -> impl Strategy<Value = Vec<Zone>> {
    let ports = subsequence(vec![1, 2, 3], 0..=3);
    (order(2), vec((1..4_u32, ports), 2)).prop_map(|(names, zones)| {
        let zones = names.into_iter().zip(zones);
        zones
            .map(|(name, (weight, ports))| Zone(name, weight, ports))
            .collect()
    })
}

/// Some of the first numbers, in any order.
fn order(of: usize) -> impl Strategy<Value = Vec<usize>> {
    subsequence((0..of).collect::<Vec<_>>(), 0..=of).prop_shuffle()
}
