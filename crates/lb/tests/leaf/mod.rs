//! Plans of one leaf, and a measure of the allocations of its picks. The tests of single policies
//! share them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use crowfly_lb::{CallContext, Endpoint, Leaf, Node, Pick, Plan, Policy};

use crate::sim::{CLUSTER, Sim};

/// A plan that is a leaf and nothing else.
pub(crate) fn leaf(policy: Policy, endpoints: impl Into<Arc<[Endpoint]>>) -> Plan {
    Plan {
        cluster: CLUSTER.into(),
        root: Node::Leaf(Leaf {
            policy,
            endpoints: endpoints.into(),
        }),
        note: None,
    }
}

/// How often a thousand picks that find an endpoint, and the ends of their calls, allocate.
pub(crate) fn allocations_of_picks(sim: &mut Sim) -> u64 {
    let picker = sim.picker.clone().expect("a picker");
    let mut ready = 0;
    let info = allocation_counter::measure(|| {
        for seed in 0..1000 {
            let cx = CallContext::new(seed);
            ready += u32::from(matches!(picker.pick(&cx), Pick::Ready(_)));
        }
    });
    assert_eq!(ready, 1000);
    info.count_total
}
