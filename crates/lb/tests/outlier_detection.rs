//! Tests of outlier detection (A50, A61, A75). Time is simulated, because ejections last for many
//! seconds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod sim;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crowfly_lb::{
    CallOutcome, ChoiceCount, ClusterPlan, Connectivity, Endpoint, FailurePercentageEjection, Leaf,
    Node, OutlierChange, OutlierDetection, OutlierRule, Plan, Policy, SpareReason,
    SuccessRateEjection, TreeEjection,
};
use sim::{
    CLUSTER, Picked, Port, Sim, endpoint, endpoints_at,
    plans::{cluster, localities, priorities, ring_hash, tree_of, zone},
};

/// S11-01: failure percentage ejects the bad endpoint. It returns after the base time, and the next time
/// after twice as long.
#[test]
fn a_bad_endpoint_is_ejected_and_returns_later_each_time() {
    let mut sim = Sim::ready_with(watched(&by_failures(), zone(&[1, 2, 3])));
    assert_eq!(send(&mut sim, 30, &[1]), [1, 2, 3].into());
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [1]);
    assert_eq!(send(&mut sim, 30, &[1]), [2, 3].into());
    assert_eq!(sim.view(1).state, Connectivity::TransientFailure);
    // 25 s after its ejection; looks are every 10 s.
    sim.advance_secs(20);
    assert_eq!(ejected(&sim), [1]);
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [0; 0]);
    assert_eq!(send(&mut sim, 30, &[1]), [1, 2, 3].into());
    // Again, in the interval after it returned: for 50 s.
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [1]);
    sim.advance_secs(50);
    assert_eq!(ejected(&sim), [1]);
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [0; 0]);
    assert_eq!(send(&mut sim, 30, &[]), [1, 2, 3].into());
}

/// A50: each interval without an ejection takes one off the multiplier of the ejection time.
#[test]
fn an_endpoint_that_does_well_is_forgiven() {
    let mut sim = Sim::ready_with(watched(&by_failures(), zone(&[1, 2, 3])));
    for _ in 0..2 {
        send(&mut sim, 30, &[1]);
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), [1]);
        sim.advance_secs(30);
        assert_eq!(ejected(&sim), [0; 0]);
        // One interval in service.
        sim.advance_secs(10);
    }
}

/// A50: the longest ejection has a limit, which is not less than the base time.
#[test]
fn ejection_times_have_a_limit() {
    let settings = OutlierDetection {
        max_ejection_time: Duration::from_secs(5),
        ..by_failures()
    };
    let mut sim = Sim::ready_with(watched(&settings, zone(&[1, 2, 3])));
    for _ in 0..4 {
        send(&mut sim, 30, &[1]);
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), [1]);
        sim.advance_secs(30);
        assert_eq!(ejected(&sim), [0; 0]);
    }
}

/// S11-02: success rate ejects an endpoint that is far below the mean, and none below the minimum of
/// endpoints or of calls.
#[test]
fn success_rate_ejects_by_the_deviation() {
    let settings = |rule: SuccessRateEjection| OutlierDetection {
        success_rate: Some(rule),
        failure_percentage: None,
        ..by_failures()
    };
    let rule = SuccessRateEjection {
        stdev_factor: 1900,
        enforcement_percentage: 100,
        minimum_hosts: 5,
        request_volume: 20,
    };
    let ports = [1, 2, 3, 4, 5];
    let cases = [
        (rule, vec![5]),
        // The rates 100, 100, 100, 100 and 0 are twice the deviation apart.
        (
            SuccessRateEjection {
                stdev_factor: 2000,
                ..rule
            },
            vec![],
        ),
        (
            SuccessRateEjection {
                minimum_hosts: 6,
                ..rule
            },
            vec![],
        ),
        (
            SuccessRateEjection {
                request_volume: 21,
                ..rule
            },
            vec![],
        ),
        // S11-06: no outlier is ejected.
        (
            SuccessRateEjection {
                enforcement_percentage: 0,
                ..rule
            },
            vec![],
        ),
    ];
    for (rule, expected) in cases {
        let mut sim = Sim::ready_with(watched(&settings(rule), zone(&ports)));
        send(&mut sim, 100, &[5]);
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), expected, "{rule:?}");
    }
}

/// S11-03: no more than the limit are ejected, but one always may be. Endpoints of priorities that are not
/// needed count as well (A75).
#[test]
fn the_number_of_ejected_endpoints_has_a_limit() {
    let ejected_of = |percent, ports: &[&[Port]]| {
        let settings = OutlierDetection {
            max_ejection_percent: percent,
            ..by_failures()
        };
        let mut sim = Sim::ready_with(watched(&settings, priorities(ports)));
        send(&mut sim, 100, ports[0]);
        sim.advance_secs(10);
        let spared = |change: &OutlierChange| {
            let (rule, reason) = (
                OutlierRule::FailurePercentage,
                SpareReason::MaxEjectionOverflow,
            );
            *change == OutlierChange::Spared { rule, reason }
        };
        let spared = sim.outliers.iter().filter(|event| spared(&event.change));
        (ejected(&sim).len(), spared.count())
    };
    assert_eq!(ejected_of(0, &[&[1, 2, 3, 4]]), (1, 3));
    assert_eq!(ejected_of(50, &[&[1, 2, 3, 4]]), (2, 2));
    assert_eq!(ejected_of(51, &[&[1, 2, 3, 4]]), (3, 1));
    assert_eq!(ejected_of(50, &[&[1, 2, 3, 4], &[5, 6, 7, 8]]), (4, 0));
}

/// S11-04: a plan without outlier detection, or with both rules off, lets all endpoints return at once, and
/// nothing is left of what was counted.
#[test]
fn without_outlier_detection_all_endpoints_return() {
    let off = OutlierDetection {
        failure_percentage: None,
        ..by_failures()
    };
    let nodes = || zone(&[1, 2, 3]);
    for none in [tree_of(cluster("x", nodes())), watched(&off, nodes())] {
        let mut sim = Sim::ready_with(watched(&by_failures(), nodes()));
        send(&mut sim, 30, &[1, 2]);
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), [1, 2]);
        assert_eq!(sim.outliers.len(), 2);
        send(&mut sim, 30, &[3]);

        sim.plan(none);
        assert_eq!(ejected(&sim), [0; 0]);
        assert_eq!(send(&mut sim, 30, &[1, 2, 3]), [1, 2, 3].into());
        assert_eq!(sim.balancer.next_timeout(), None);
        let returned = |event: &&crowfly_lb::OutlierEvent| event.change == OutlierChange::Returned;
        assert_eq!(sim.outliers.iter().filter(returned).count(), 2);

        // On again: the calls from before count for nothing, and the first ejection is a first one.
        sim.plan(watched(&by_failures(), nodes()));
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), [0; 0]);
        send(&mut sim, 30, &[1]);
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), [1]);
        sim.advance_secs(30);
        assert_eq!(ejected(&sim), [0; 0]);
    }
}

/// S11-05, gRFC A75: an ejected endpoint stays ejected when it moves to another priority, and so does one
/// that moves to another locality. Traffic goes to the next priority while all of one are ejected.
#[test]
fn an_ejection_outlasts_a_change_of_priorities() {
    let mut sim = Sim::ready_with(watched(&by_failures(), priorities(&[&[1], &[2]])));
    send(&mut sim, 30, &[1]);
    sim.advance_secs(10);
    sim.ready(&[2]);
    assert_eq!(send(&mut sim, 30, &[]), [2].into());

    // As in C-core's EjectionRetainedAcrossPriorities: it moves down, and a third one comes.
    sim.plan(watched(&by_failures(), priorities(&[&[], &[1, 2, 3]])));
    sim.ready(&[3]);
    assert_eq!(ejected(&sim), [1]);
    assert_eq!(send(&mut sim, 30, &[]), [2, 3].into());

    let zones = localities(&[("a", 1, &[2, 3]), ("b", 1, &[1])]);
    sim.plan(watched(&by_failures(), zones));
    assert_eq!(send(&mut sim, 30, &[]), [2, 3].into());
    sim.advance_secs(30);
    assert_eq!(send(&mut sim, 60, &[]), [1, 2, 3].into());
}

/// S11-06: with an enforcement of 0 no endpoint is ever ejected, and each outlier is told as spared (A91).
#[test]
fn an_enforcement_of_zero_never_ejects() {
    let mut settings = by_failures();
    let rule = settings.failure_percentage.as_mut().unwrap();
    rule.enforcement_percentage = 0;
    let mut sim = Sim::ready_with(watched(&settings, zone(&[1, 2])));
    for look in 1..=100 {
        send(&mut sim, 10, &[1]);
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), [0; 0]);
        assert_eq!(sim.outliers.len(), look);
    }
    let spared = OutlierChange::Spared {
        rule: OutlierRule::FailurePercentage,
        reason: SpareReason::EnforcementPercentage,
    };
    assert!(sim.outliers.iter().all(|event| event.change == spared));
}

/// S11-06: a new interval counts from the last look. If it is over by then, the look comes at once.
#[test]
fn a_new_interval_keeps_the_phase() {
    let every = |seconds| OutlierDetection {
        interval: Duration::from_secs(seconds),
        ..by_failures()
    };
    let nodes = || zone(&[1, 2]);
    let mut sim = Sim::ready_with(watched(&every(10), nodes()));
    sim.advance_secs(10);
    send(&mut sim, 10, &[1]);
    sim.advance_secs(4);
    sim.plan(watched(&every(7), nodes()));
    let left = sim.balancer.next_timeout().map(|at| at - sim.now);
    assert_eq!(left, Some(Duration::from_secs(3)));
    assert_eq!(ejected(&sim), [0; 0]);

    sim.plan(watched(&every(2), nodes()));
    assert_eq!(ejected(&sim), [1]);
    let left = sim.balancer.next_timeout().map(|at| at - sim.now);
    assert_eq!(left, Some(Duration::from_secs(2)));
}

/// A50: the time of an ejection is that of the settings of now.
#[test]
fn a_new_ejection_time_applies_to_ejected_endpoints() {
    let mut sim = Sim::ready_with(watched(&by_failures(), zone(&[1, 2])));
    send(&mut sim, 10, &[1]);
    sim.advance_secs(10);
    let shorter = OutlierDetection {
        base_ejection_time: Duration::from_secs(5),
        ..by_failures()
    };
    sim.plan(watched(&shorter, zone(&[1, 2])));
    assert!(sim.tree().contains("ejected for 5s"), "{}", sim.tree());
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [0; 0]);
}

/// Without outlier detection there is no timer, and no endpoint is looked at.
#[test]
fn without_outlier_detection_there_is_no_timer() {
    let mut sim = Sim::ready_with(tree_of(cluster("x", zone(&[1, 2]))));
    send(&mut sim, 100, &[1]);
    assert_eq!(sim.balancer.next_timeout(), None);
    let visits = sim.balancer.visits();
    sim.advance_secs(1000);
    sim.flush();
    assert_eq!(sim.balancer.visits(), visits);
}

/// gRFC A61: an endpoint is one for all of its addresses. It stays ejected when it connects to another of
/// them, and an endpoint with other addresses is a new one.
#[test]
fn an_endpoint_is_ejected_at_all_of_its_addresses() {
    let two = |first: &[Port]| {
        let endpoints: Arc<[Endpoint]> = Arc::from([endpoint(first), endpoint(&[5, 6])]);
        let leaf = Node::Leaf(Leaf {
            policy: Policy::RoundRobin,
            endpoints,
        });
        watched(&by_failures(), leaf)
    };
    let mut sim = Sim::ready_with(two(&[1, 2]));
    send(&mut sim, 10, &[1]);
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [1]);
    sim.idle(1);
    sim.report(1, sim::ready_at(2));
    assert_eq!(send(&mut sim, 10, &[]), [5].into());
    // The order of the addresses does not matter.
    sim.plan(two(&[2, 1]));
    assert_eq!(send(&mut sim, 10, &[]), [5].into());

    sim.plan(two(&[1]));
    sim.ready_newest(1);
    assert_eq!(send(&mut sim, 10, &[]), [1, 5].into());
}

/// A50: the connection of an ejected endpoint stays, and is made again if it is lost, so that the endpoint
/// can take calls at once when it returns.
#[test]
fn an_ejected_endpoint_keeps_its_connection() {
    let mut sim = Sim::ready_with(watched(&by_failures(), zone(&[1, 2])));
    let open = loop {
        let call = sim.call();
        if *call.transport() == 1 {
            break call;
        }
    };
    send(&mut sim, 10, &[1]);
    sim.advance_secs(10);
    assert_eq!((&sim.connects[..], &sim.releases[..]), (&[][..], &[][..]));
    assert_eq!(known(&sim, 1), (Connectivity::Ready, true));
    open.finish(CallOutcome::OK);

    sim.idle(1);
    assert_eq!(sim.connects, [1]);
    assert_eq!(known(&sim, 1), (Connectivity::Connecting, true));
    sim.ready(&[1]);
    assert_eq!(send(&mut sim, 10, &[]), [2].into());
    sim.advance_secs(30);
    assert_eq!(send(&mut sim, 10, &[]), [1, 2].into());
}

/// Every policy that chooses among endpoints leaves an ejected one out. gRFC A61: `pick_first` does not,
/// because it has no other.
#[test]
fn ejections_count_under_every_policy_but_pick_first() {
    let leaf = |policy| {
        Node::Leaf(Leaf {
            policy,
            endpoints: endpoints_at(&[1, 2]),
        })
    };
    let ring = ring_hash(&[1, 2]);
    let least = leaf(Policy::LeastRequest(ChoiceCount::default()));
    for node in [leaf(Policy::RoundRobin), least, ring] {
        let mut sim = connected(watched(&by_failures(), node.clone()));
        send(&mut sim, 40, &[1]);
        sim.advance_secs(10);
        assert_eq!(ejected(&sim), [1], "{node:?}");
        assert_eq!(send(&mut sim, 40, &[]), [2].into(), "{node:?}");
        sim.advance_secs(30);
        assert_eq!(send(&mut sim, 40, &[]), [1, 2].into(), "{node:?}");
    }
    let first = leaf(Policy::PickFirst { shuffle: false });
    let mut sim = Sim::ready_with(watched(&by_failures(), first));
    sim.forget();
    send(&mut sim, 10, &[1]);
    sim.advance_secs(10);
    assert_eq!(send(&mut sim, 10, &[]), [1].into());
    assert_eq!((sim.publishes, sim.connects.len()), (0, 0));
}

/// A call that fails because every endpoint is ejected says which rule ejected them, by which figures and
/// for how long. The tree says it as well.
#[test]
fn the_reason_of_an_ejection_is_told() {
    let mut sim = Sim::ready_with(watched(&by_failures(), zone(&[1])));
    send(&mut sim, 10, &[1]);
    sim.advance_secs(10);
    let why = "ejected for 25s by outlier detection: 10 of 10 calls failed, over 50%";
    assert_eq!(
        sim.pick_failure(),
        format!(
            "cluster payments: every endpoint in us/a fails or is ejected; \
             last error: 127.0.0.1:1: {why}"
        )
    );
    let line = format!("127.0.0.1:1 TRANSIENT_FAILURE ({why})");
    assert!(sim.tree().contains(&line), "{}", sim.tree());
    let mut ejections = Vec::new();
    sim.tree_fields()
        .visit_mut(&mut |node| ejections.extend(node.ejection.take()));
    let expected = TreeEjection {
        rule: "failure_percentage".to_owned(),
        succeeded: 0,
        failed: 10,
        time: Duration::from_secs(25),
        left: None,
    };
    assert_eq!(ejections, [expected]);
}

/// An endpoint that left the cluster is forgotten at once, even if a leaf keeps it: it neither counts nor
/// stays ejected.
#[test]
fn an_endpoint_that_left_is_not_ejected() {
    let zones = |b: &[Port]| {
        let all: &[(&str, u32, &[Port])] = &[("a", 1, &[1, 2]), ("b", 1, b)];
        watched(
            &by_failures(),
            localities(&all[..1 + usize::from(!b.is_empty())]),
        )
    };
    let mut sim = Sim::ready_with(zones(&[3]));
    send(&mut sim, 100, &[3]);
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [3]);
    // Its locality is kept for a while.
    sim.plan(zones(&[]));
    sim.advance_secs(10);
    assert_eq!(ejected(&sim), [0; 0]);
    sim.plan(zones(&[3]));
    assert_eq!(send(&mut sim, 100, &[]), [1, 2, 3].into());
}

/// After any calls and plans no more endpoints are ejected than the limit allows, or one. Every ejected
/// endpoint returns after its time if it does well, and none is ejected while outlier detection is off.
#[test]
fn ejections_keep_their_limits_whatever_happens() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let all: Vec<Port> = (1..=rng.u16(1..12)).collect();
        let percent = rng.u32(0..=100);
        let settings = OutlierDetection {
            max_ejection_percent: percent,
            max_ejection_time: Duration::from_secs(60),
            ..by_failures()
        };
        let split = |rng: &mut fastrand::Rng| {
            let (first, second) = all.split_at(rng.usize(0..all.len()));
            priorities(&[first, second])
        };
        let mut sim = Sim::ready_with(watched(&settings, split(&mut rng)));
        for _ in 0..30 {
            let live: Vec<_> = sim.live.values().copied().collect();
            sim.ready(&live);
            let bad: Vec<Port> = all.iter().copied().filter(|_| rng.bool()).collect();
            for _ in 0..rng.usize(0..60) {
                if let Picked::Ready(call) = sim.pick() {
                    let is_bad = bad.contains(call.transport());
                    call.finish(if is_bad {
                        CallOutcome::Status(14)
                    } else {
                        CallOutcome::OK
                    });
                }
            }
            sim.advance_secs(rng.u64(1..25));
            let most = (percent as usize * all.len()).div_ceil(100).max(1);
            assert!(ejected(&sim).len() <= most, "seed {seed}");
            match rng.u8(0..10) {
                0 => {
                    sim.plan(tree_of(cluster("x", split(&mut rng))));
                    assert_eq!(ejected(&sim), [0; 0], "seed {seed}");
                }
                1..4 => sim.plan(watched(&settings, split(&mut rng))),
                _ => {}
            }
        }
        // 60 s at most, and a look every 10 s.
        sim.advance_secs(80);
        assert_eq!(ejected(&sim), [0; 0], "seed {seed}");
        assert!(sim.balancer.is_settled(CLUSTER, sim.now), "seed {seed}");
    }
}

/// Endpoints that fail more than half of at least two calls are ejected for 25 s, all of them if need be;
/// looks are every 10 s.
fn by_failures() -> OutlierDetection {
    OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(25),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 100,
        success_rate: None,
        failure_percentage: Some(FailurePercentageEjection {
            threshold: 50,
            enforcement_percentage: 100,
            minimum_hosts: 1,
            request_volume: 2,
        }),
    }
}

/// The plan of a cluster with outlier detection.
fn watched(settings: &OutlierDetection, child: Node) -> Plan {
    let Node::Cluster(plain) = cluster("x", child) else {
        panic!("expected a cluster");
    };
    tree_of(Node::Cluster(Arc::new(ClusterPlan {
        outlier_detection: Some(Arc::new(settings.clone())),
        ..(*plain).clone()
    })))
}

/// All endpoints are connected, also those that connect only when a call wants them.
fn connected(plan: Plan) -> Sim {
    let mut sim = Sim::ready_with(plan);
    for view in sim.balancer.endpoints(CLUSTER) {
        sim.handle(crowfly_lb::BalancerEvent::Demand(view.id.into()));
    }
    sim.flush();
    let ports: Vec<_> = sim.live.values().copied().collect();
    sim.ready(&ports);
    sim.forget();
    sim
}

/// Sends calls, of which those to the bad ports fail. Returns the ports that got any.
fn send(sim: &mut Sim, calls: usize, bad: &[Port]) -> BTreeSet<Port> {
    let mut ports = BTreeSet::new();
    for _ in 0..calls {
        match sim.pick() {
            Picked::Ready(call) => {
                let port = *call.transport();
                let outcome = match bad.contains(&port) {
                    true => CallOutcome::Status(14),
                    false => CallOutcome::OK,
                };
                call.finish(outcome);
                ports.insert(port);
            }
            other => panic!("expected a call, got {other:?}"),
        }
    }
    ports
}

/// The main ports of the endpoints that are ejected.
fn ejected(sim: &Sim) -> Vec<Port> {
    let roster = sim.balancer.roster(CLUSTER);
    let ejected = roster.iter().filter(|view| view.ejection.is_some());
    let mut ports: Vec<_> = ejected.map(|view| view.addresses[0].port()).collect();
    ports.sort_unstable();
    ports
}

/// The state of an endpoint's connection, and whether it is ejected.
fn known(sim: &Sim, port: Port) -> (Connectivity, bool) {
    let roster = sim.balancer.roster(CLUSTER);
    let view = roster.iter().find(|view| view.addresses[0].port() == port);
    let view = view.unwrap();
    (view.state, view.ejection.is_some())
}
