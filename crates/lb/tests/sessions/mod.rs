//! Calls with a session and plans for them, shared by the two files of session tests.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{sync::Arc, time::Duration};

use crowfly_lb::{
    BalancerEvent, Call, CallContext, ClusterPlan, Demand, Endpoint, Health, HealthSet, Leaf, Node,
    OverrideHost, Pick, Plan, Policy,
};

use crate::sim::{
    CLUSTER, Port, Sim, address, endpoint, endpoints_at,
    plans::{NO_LIMIT, tree_of},
};

pub(crate) const ALL: &[Health] = &[Health::Unknown, Health::Healthy, Health::Draining];
pub(crate) const WELL: &[Health] = &[Health::Unknown, Health::Healthy];

/// The outcome of a pick for a session.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Stuck {
    Fail,
    On(Port),
    Queue,
    Wake(Demand),
}

impl Stuck {
    /// The demand of a pick that must have one.
    pub(crate) fn demand(self) -> Demand {
        match self {
            Self::Wake(demand) => demand,
            other => panic!("expected a demand, got {other:?}"),
        }
    }

    /// The port of a pick that must succeed.
    pub(crate) fn port(self) -> Port {
        match self {
            Self::On(port) => port,
            other => panic!("expected a ready endpoint, got {other:?}"),
        }
    }
}

/// Picks for a session that sticks to these addresses.
pub(crate) fn stick(sim: &mut Sim, ports: &[Port]) -> Stuck {
    match sim.session_pick(ports) {
        Pick::Ready(call) => Stuck::On(*call.transport()),
        Pick::Queue => Stuck::Queue,
        Pick::Wake(demand) => Stuck::Wake(demand),
        Pick::Fail(_) => Stuck::Fail,
        Pick::Drop(dropped) => panic!("{dropped}"),
    }
}

impl Sim {
    pub(crate) fn session_pick(&mut self, ports: &[Port]) -> Pick<Port> {
        let addresses: Vec<_> = ports.iter().map(|&port| address(port)).collect();
        let picker = self.picker.clone().expect("no picker was published");
        picker.pick(&CallContext::new(1).with_session(&addresses, self.now))
    }

    /// The call of a session that must succeed.
    pub(crate) fn session_call(&mut self, ports: &[Port]) -> Call<Port> {
        match self.session_pick(ports) {
            Pick::Ready(call) => call,
            other => panic!("expected a ready endpoint, got {other:?}"),
        }
    }

    /// Passes a demand on to the balancer.
    pub(crate) fn demand(&mut self, demand: Demand) {
        self.handle(BalancerEvent::Demand(demand));
        self.flush();
    }
}

/// A cluster with a leaf, draining endpoints, and the health of endpoints that sessions may stick to.
pub(crate) fn with_health(
    health: &[Health],
    endpoints: Vec<Endpoint>,
    draining: Arc<[Endpoint]>,
) -> Plan {
    let override_host = OverrideHost {
        health: health.iter().copied().collect::<HealthSet>(),
        ..OverrideHost::default()
    };
    tree_of(Node::Cluster(Arc::new(ClusterPlan {
        name: CLUSTER.into(),
        eds_service_name: None,
        drops: Arc::from([]),
        max_concurrent_requests: NO_LIMIT,
        note: None,
        load: None,
        outlier_detection: None,
        draining,
        override_host,
        child: Node::round_robin(endpoints),
    })))
}

/// A copy of the plan, with another timeout.
pub(crate) fn with_timeout(seconds: u64, plan: &Plan) -> Plan {
    let Node::Cluster(cluster) = &plan.root else {
        panic!("expected a leaf cluster");
    };
    let mut cluster = ClusterPlan::clone(cluster);
    cluster.override_host.idle_timeout = Duration::from_secs(seconds);
    tree_of(Node::Cluster(Arc::new(cluster)))
}

pub(crate) fn healthy(port: Port) -> Endpoint {
    let mut healthy = endpoint(&[port]);
    healthy.health = Health::Healthy;
    healthy
}

/// A `pick_first` leaf.
pub(crate) fn pick_first(ports: &[Port]) -> Node {
    Node::Leaf(Leaf {
        policy: Policy::PickFirst { shuffle: false },
        endpoints: endpoints_at(ports),
    })
}

/// A balancer that has the plan, with all endpoints of its leaves ready, and sessions.
pub(crate) fn open(plan: Plan) -> Sim {
    let mut sim = Sim::ready_with(plan);
    let demand = stick(&mut sim, &[]).demand();
    sim.demand(demand);
    sim.forget();
    sim
}

/// A leaf of healthy endpoints, and draining endpoints, with the health that sessions may stick to.
pub(crate) fn draining(leaf: &[u16], draining: &[u16], health: &[Health]) -> Plan {
    with_health(health, endpoints_at(leaf).to_vec(), endpoints_at(draining))
}
