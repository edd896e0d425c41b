//! A pick allocates nothing, and neither does the end of its call.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::hint::black_box;

use crowfly_lb::{CallContext, Pick};
use sim::{Sim, flat, noted, plan};

#[test]
fn a_pick_and_the_end_of_its_call_allocate_nothing() {
    let ports: Vec<_> = (1..=300).collect();
    let localities = [
        ("a", 7, &ports[..100]),
        ("b", 2, &ports[100..200]),
        ("c", 1, &ports[200..]),
    ];
    let mut sim = Sim::ready_with(plan(&localities));
    let picked = allocations_of(&sim, |pick| matches!(pick, Pick::Ready(_)));
    assert_eq!(picked, 0);

    sim.plan(noted(flat(&[]), "no healthy endpoint"));
    assert_eq!(
        allocations_of(&sim, |pick| matches!(pick, Pick::Fail(_))),
        0
    );

    sim.plan(plan(&[("z", 1, &[301])]));
    assert_eq!(allocations_of(&sim, |pick| matches!(pick, Pick::Queue)), 0);
}

/// The measure itself sees an allocation: otherwise the test above could not fail.
#[test]
fn the_measure_sees_allocations() {
    let info = allocation_counter::measure(|| drop(black_box(Box::new(1))));
    assert_eq!(info.count_total, 1);
}

fn allocations_of(sim: &Sim, expected: impl Fn(&Pick<u16>) -> bool) -> u64 {
    let picker = sim.picker.as_ref().unwrap();
    let mut as_expected = 0;
    let info = allocation_counter::measure(|| {
        for seed in 0..1000 {
            let pick = picker.pick(&CallContext::new(seed));
            as_expected += u32::from(expected(&pick));
        }
    });
    assert_eq!(as_expected, 1000);
    info.count_total
}
