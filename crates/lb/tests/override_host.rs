//! Tests of `xds_override_host` (A55, A61, A75): calls of a session stick to the session's backend.
//! Many cases are those of gRPC C-core, because the two must agree.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sessions;
mod sim;

use std::collections::BTreeMap;

use crowfly_lb::{EndpointState, Health, Node};
use sessions::{ALL, Stuck, WELL, draining, healthy, open, stick, with_health};
use sim::{
    CLUSTER, Sim, address, endpoint, endpoints_at,
    plans::{aggregate, cluster, priorities, ring_hash, tree_of, zone},
};

/// C-core: DelegatesToChild. A call without a session goes where the leaf sends it, and asks for nothing.
#[test]
fn a_call_without_a_session_is_balanced() {
    let mut sim = Sim::ready_with(tree_of(cluster(CLUSTER, zone(&[1, 2, 3]))));
    assert_eq!(sim.count(6), BTreeMap::from([(1, 2), (2, 2), (3, 2)]));
    assert_eq!(sim.balancer.next_timeout(), None);
}

/// C-core: OverrideHost. A call of a session goes to its backend, whoever's turn it is. The first call of all
/// sessions waits until the balancer looks for backends.
#[test]
fn a_session_sticks_to_its_backend() {
    let mut sim = Sim::ready_with(tree_of(cluster(CLUSTER, zone(&[1, 2, 3]))));
    let demand = stick(&mut sim, &[2]).demand();
    assert_eq!(stick(&mut sim, &[3]), Stuck::Queue, "one call asks for all");
    sim.demand(demand);
    assert_eq!(sim.publishes, 1, "both calls look again");
    for port in [2, 2, 1, 3, 3, 2] {
        assert_eq!(stick(&mut sim, &[port]), Stuck::On(port));
    }
}

/// gRFC A75: a session without a backend is balanced like any call.
#[test]
fn the_first_call_of_a_session_is_balanced() {
    let mut sim = open(tree_of(cluster(CLUSTER, zone(&[1, 2]))));
    let picked: BTreeMap<_, usize> = (0..4).fold(BTreeMap::new(), |mut counts, _| {
        *counts.entry(stick(&mut sim, &[]).port()).or_default() += 1;
        counts
    });
    assert_eq!(picked, BTreeMap::from([(1, 2), (2, 2)]));
}

/// S12-03 and C-core's SubchannelNotFound: a session whose backend is not known is balanced.
#[test]
fn a_session_whose_backend_is_gone_is_balanced() {
    let mut sim = open(tree_of(cluster(CLUSTER, zone(&[1, 2]))));
    let picked = [(); 4].map(|()| stick(&mut sim, &[9]).port());
    assert!(picked.contains(&1) && picked.contains(&2), "{picked:?}");
}

/// S12-03 and C-core's SubchannelsComeAndGo: a backend that leaves the plan loses its sessions at once, even while
/// its leaf still has it. When it comes back, they stick to it again.
#[test]
fn a_backend_may_leave_and_return() {
    let mut sim = open(tree_of(cluster(CLUSTER, zone(&[1, 2, 3]))));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));

    sim.plan(tree_of(cluster(CLUSTER, zone(&[1, 4, 3]))));
    let picked = [(); 6].map(|()| stick(&mut sim, &[2]).port());
    assert!(picked.contains(&1) && picked.contains(&3), "{picked:?}");
    sim.ready(&[4]);
    assert_eq!(sim.releases, [2]);

    sim.plan(tree_of(cluster(CLUSTER, zone(&[2, 3]))));
    sim.ready(&[2]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
}

/// S12-07 and C-core's OverrideIsQueuedInIdleOrConnectingAndFailedInTransientFailure: a call waits for a backend
/// that connects, and not for one that failed. It is woken by either.
#[test]
fn a_call_waits_for_its_backend_until_that_fails() {
    let mut sim = open(tree_of(cluster(CLUSTER, zone(&[1, 2, 3]))));
    sim.idle(2);
    sim.forget();
    assert_eq!(stick(&mut sim, &[2]), Stuck::Queue);
    sim.connecting(2);
    assert_eq!(stick(&mut sim, &[2]), Stuck::Queue);
    assert_eq!(sim.publishes, 0, "nothing has changed for anyone");

    sim.failing(2, "refused");
    assert_eq!(sim.publishes, 1, "the call is woken at once");
    let picked = [(); 4].map(|()| stick(&mut sim, &[2]).port());
    assert!(picked.contains(&1) && picked.contains(&3), "{picked:?}");
    sim.ready(&[2]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
}

/// gRFC A75: a READY backend comes before one that is IDLE, that before one that connects, and that before one
/// without a connection, whatever their order in the session.
#[test]
fn the_states_of_a_sessions_backends_have_an_order() {
    let mut sim = Sim::new();
    sim.plan(tree_of(cluster(CLUSTER, ring_hash(&[1, 2, 3, 4, 5]))));
    let demand = stick(&mut sim, &[1]).demand();
    sim.demand(demand);
    // None is connected: the first one is.
    let first = stick(&mut sim, &[4, 5]).demand();
    sim.demand(first);
    assert_eq!(sim.connects.pop(), Some(4));
    // 4 connects, and 5 has nothing: wait.
    assert_eq!(stick(&mut sim, &[5, 4]), Stuck::Queue);
    sim.ready(&[4]);
    assert_eq!(stick(&mut sim, &[5, 4]), Stuck::On(4));
    // 4 is IDLE, 3 connects, 5 has nothing: 4 is connected.
    let third = stick(&mut sim, &[3]).demand();
    sim.demand(third);
    assert_eq!(sim.connects.pop(), Some(3));
    sim.idle(4);
    sim.forget();
    let wanted = stick(&mut sim, &[5, 3, 4]).demand();
    sim.demand(wanted);
    assert_eq!(sim.connects, [4]);
    // 4 and 3 fail: 5 is created, because a failure is not waited for.
    sim.failing(4, "refused");
    sim.failing(3, "refused");
    sim.forget();
    let wanted = stick(&mut sim, &[4, 3, 5]).demand();
    sim.demand(wanted);
    assert!(sim.connects.contains(&5));
}

/// S12-04 and C-core's DrainingState: a draining backend keeps its sessions and gets no other calls, until it is
/// removed.
#[test]
fn a_draining_backend_keeps_its_sessions() {
    let mut sim = open(draining(&[1, 2, 3], &[], ALL));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.plan(draining(&[1, 3], &[2], ALL));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
    assert_eq!(sim.count(4), BTreeMap::from([(1, 2), (3, 2)]));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));

    sim.plan(draining(&[1, 3], &[], ALL));
    assert_eq!(sim.releases, [2]);
    assert_ne!(stick(&mut sim, &[2]).port(), 2);
}

/// S12-04: if sessions may not stick to draining backends, they move, and the connection is not kept for them.
#[test]
fn a_draining_backend_loses_its_sessions_if_the_cluster_says_so() {
    let mut sim = open(draining(&[1, 2], &[], WELL));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.plan(draining(&[1], &[2], WELL));
    assert_eq!(sim.releases, [2]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(1));

    // The next plan allows it: the session connects it again, and the one after lets go of it.
    sim.plan(draining(&[1], &[2], ALL));
    let wanted = stick(&mut sim, &[2]).demand();
    sim.demand(wanted);
    sim.ready(&[2]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.forget();
    sim.plan(draining(&[1], &[2], WELL));
    assert_eq!(sim.releases, [2]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(1));
}

/// S12-04 and C-core's DrainingSubchannelIsConnecting: the connection of a draining backend is lost. A session waits
/// until it is made again, and is woken although no leaf has the backend.
#[test]
fn a_session_waits_for_a_draining_backend() {
    let mut sim = open(draining(&[1, 2, 3], &[], ALL));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.plan(draining(&[1, 3], &[2], ALL));
    sim.idle(2);
    let wanted = stick(&mut sim, &[2]).demand();
    assert_eq!(stick(&mut sim, &[2]), Stuck::Queue);
    assert_eq!(sim.count(4), BTreeMap::from([(1, 2), (3, 2)]));
    sim.forget();
    sim.demand(wanted);
    assert_eq!(sim.connects, [2]);
    assert_eq!(stick(&mut sim, &[2]), Stuck::Queue);
    sim.connecting(2);
    sim.forget();
    sim.ready(&[2]);
    assert_eq!(sim.publishes, 1);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(sim.count(4), BTreeMap::from([(1, 2), (3, 2)]));
}

/// S12-07: a backend that sessions alone hold is not tried again by itself after it failed, but by the next session.
#[test]
fn a_backend_of_sessions_alone_is_tried_again_for_a_session() {
    let mut sim = open(draining(&[1], &[2], ALL));
    let wanted = stick(&mut sim, &[2]).demand();
    sim.demand(wanted);
    sim.failing(2, "refused");
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(1));
    sim.forget();
    sim.idle(2);
    assert!(sim.connects.is_empty());
    let wanted = stick(&mut sim, &[2]).demand();
    sim.demand(wanted);
    assert_eq!(sim.connects, [2]);
}

/// C-core's DrainingToHealthy: the leaf takes the backend back, with its connection.
#[test]
fn a_draining_backend_becomes_healthy_again() {
    let mut sim = open(draining(&[1, 2, 3], &[], ALL));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    sim.plan(draining(&[1, 3], &[2], ALL));
    sim.plan(draining(&[1, 2, 3], &[], ALL));
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(sim.count(3), BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
    // It is the leaf's own again: no time takes it away.
    sim.advance_secs(3 * 60 * 60);
    assert!(sim.releases.is_empty());
}

/// C-core's OverrideHostStatus: sessions stick to backends of the allowed health only.
#[test]
fn sessions_stick_to_backends_of_allowed_health() {
    let sets = [
        (ALL, [true, true, true]),
        (
            &[Health::Healthy, Health::Draining][..],
            [false, true, true],
        ),
        (
            &[Health::Unknown, Health::Draining][..],
            [true, false, true],
        ),
        (WELL, [true, true, false]),
        (&[][..], [false; 3]),
    ];
    let plan = |set: &[Health]| {
        let endpoints = vec![endpoint(&[1]), healthy(2)];
        with_health(set, endpoints, endpoints_at(&[3]))
    };
    let mut sim = open(plan(ALL));
    let wanted = stick(&mut sim, &[3]).demand();
    sim.demand(wanted);
    sim.ready(&[3]);
    for (set, sticks) in sets {
        sim.plan(plan(set));
        for (port, sticks) in [1, 2, 3].into_iter().zip(sticks) {
            if sticks && port == 3 && stick(&mut sim, &[3]) == Stuck::Queue {
                panic!("the connection of {port} was not kept");
            }
            let picked = [(); 4].map(|()| stick(&mut sim, &[port]).port());
            assert_eq!(picked.iter().all(|p| *p == port), sticks, "{set:?}: {port}");
        }
        if !set.contains(&Health::Draining) {
            // It was let go of: the next set needs it again.
            sim.plan(plan(ALL));
            let wanted = stick(&mut sim, &[3]).demand();
            sim.demand(wanted);
            sim.ready(&[3]);
        }
    }
}

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

/// S12-11 and C-core's MultipleAddressesPerEndpoint: any address of a backend leads to its connection, also after it
/// connected to another one of them, and after one of them was taken away.
#[test]
fn any_address_of_a_backend_leads_to_it() {
    let backends = |first: &[u16]| {
        let backends = vec![endpoint(first), endpoint(&[3, 4])];
        tree_of(cluster(CLUSTER, Node::round_robin(backends)))
    };
    let mut sim = open(backends(&[1, 2]));
    for session in [&[1, 2][..], &[2, 1], &[2], &[9, 2]] {
        assert_eq!(stick(&mut sim, session), Stuck::On(1));
    }
    assert_eq!(stick(&mut sim, &[4]), Stuck::On(3));
    let at_the_other = EndpointState::Ready {
        transport: 2,
        address: address(2),
    };
    sim.report(1, at_the_other);
    assert_eq!(stick(&mut sim, &[1, 2]), Stuck::On(2));

    // The backend with other addresses is another one to balancing. The session finds it by the one that stays.
    sim.plan(backends(&[2]));
    sim.ready_newest(2);
    assert_eq!(stick(&mut sim, &[1, 2]), Stuck::On(2));
    let picked = [(); 4].map(|()| stick(&mut sim, &[1]).port());
    assert!(picked.contains(&3), "the other address is gone: {picked:?}");
}

/// S12-06: a session sticks to a backend of a lower priority while a higher one serves. The backend has no
/// connection, because its priority was never needed: the first call of the session makes one.
#[test]
fn a_session_sticks_to_a_backend_of_a_lower_priority() {
    let mut sim = open(tree_of(cluster(CLUSTER, priorities(&[&[1], &[2, 3]]))));
    let wanted = stick(&mut sim, &[3]).demand();
    assert_eq!(stick(&mut sim, &[3]), Stuck::Queue);
    // Two calls that race ask for one connection.
    sim.demand(wanted);
    sim.demand(wanted);
    assert_eq!(sim.connects, [3]);
    sim.ready(&[3]);
    assert_eq!(stick(&mut sim, &[3]), Stuck::On(3));
    assert_eq!(sim.count(3), BTreeMap::from([(1, 3)]));
}

/// S12-06: a backend that moves between priorities, with renamed children, keeps its sessions and its connection.
#[test]
fn a_backend_that_moves_between_priorities_keeps_its_sessions() {
    let mut sim = open(tree_of(cluster(CLUSTER, priorities(&[&[1, 2], &[3]]))));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    let id = sim.id(2);
    let moved = sim::plans::priority(&[("child7", zone(&[1])), ("child8", zone(&[3, 2]))]);
    sim.plan(tree_of(cluster(CLUSTER, moved)));
    sim.ready(&[1]);
    assert_eq!((sim.id(2), sim.releases.contains(&2)), (id, false));
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
    assert_eq!(sim.count(3), BTreeMap::from([(1, 3)]));

    // The lower priority is needed and has it again.
    sim.failing(1, "refused");
    sim.ready(&[3]);
    assert_eq!(sim.count(4), BTreeMap::from([(2, 2), (3, 2)]));
    assert_eq!((sim.id(2), sim.releases.contains(&2)), (id, false));
}

/// gRFC A75: every leaf cluster of an aggregate has its own sessions, and a change of a cluster that is not in use is
/// noticed as well.
#[test]
fn leaf_clusters_of_an_aggregate_have_their_own_sessions() {
    let plan = || tree_of(aggregate(&[("x", zone(&[1])), ("y", zone(&[2]))]));
    let mut sim = open(plan());
    assert_eq!(
        stick(&mut sim, &[2]),
        Stuck::On(1),
        "it is in another cluster"
    );
    sim.failing(1, "refused");
    sim.ready(&[2]);
    let wanted = stick(&mut sim, &[2]).demand();
    sim.demand(wanted);
    assert_eq!(stick(&mut sim, &[2]), Stuck::On(2));
}
