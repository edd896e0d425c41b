//! `xds_override_host` (A55, A61, A75): calls of a session stick to the session's backend.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use crowfly_lb::{EndpointState, Node};
use sim::{
    CLUSTER, Sim, address, endpoint,
    plans::{cluster, tree_of},
};

/// gRFC A61: a session sticks to every address of its backend, and to the connected one first.
#[test]
fn the_addresses_of_a_session_begin_with_the_connected_one() {
    let mut sim = Sim::new();
    let backend = endpoint(&[1, 2, 3]);
    sim.plan(tree_of(cluster(CLUSTER, Node::round_robin([backend]))));
    let ready = EndpointState::Ready {
        transport: 2,
        address: address(2),
    };
    sim.report(1, ready);
    let call = sim.call();
    let addresses: Vec<_> = call.session_addresses().collect();
    assert_eq!(addresses, [2, 1, 3].map(address));
}
