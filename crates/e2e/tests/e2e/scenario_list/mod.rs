//! One list of scenarios, which every client of the control plane runs. The clients are gRPC
//! C-core, gRPC-Node, gRPC-Go, and an Envoy and our own channel in both variants of ADS.
//!
//! [`LIST`] is the list. Where a client cannot do something by the rules, the list says why, and
//! `docs/peers.md` shows both in a table that [`table`] keeps true. A run shares its processes among
//! the scenarios, because most of the time would be their start.

mod balance;
mod c_core;
mod envoy;
mod failover;
mod go;
mod kind;
mod node;
mod ours;
mod peer;
mod refusal;
mod reports;
mod restarts;
mod secured;
mod stage;
mod table;
mod traffic;
mod views;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use kind::Kind;
use stage::Stage;

/// A situation, and what a client does in it.
struct Scenario {
    id: &'static str,
    title: &'static str,
    run: fn(&mut Stage),
    /// The clients that cannot do it, and the reason.
    left_out: Option<(&'static [Kind], &'static str)>,
}

const BY_HEALTH_ALONE: Option<(&[Kind], &str)> = Some((
    Kind::ENVOYS,
    "An Envoy leaves endpoints because of their health, and not because it cannot connect. It needs \
     `health`, outlier detection or health checks.",
));

const NO_VERSIONS: Option<(&[Kind], &str)> = Some((
    Kind::BY_STATE_OF_THE_WORLD,
    "In state of the world a client cannot say which resources it has, so it is sent all of them \
     again. gRPC C-core, gRPC-Node and gRPC-Go do not speak delta.",
));

const NO_TLS: Option<(&[Kind], &str)> = Some((
    &[Kind::GrpcNode],
    "The bootstrap of gRPC-Node knows no `tls`: only `insecure`, and `google_default` for Google's own.",
));

/// The list, in the order in which it runs.
const LIST: &[Scenario] = &[
    Scenario {
        id: "E-01",
        title: "First answer",
        run: balance::first_answer,
        left_out: None,
    },
    Scenario {
        id: "E-02",
        title: "Change of endpoints",
        run: balance::endpoint_change,
        left_out: None,
    },
    Scenario {
        id: "E-03",
        title: "Two zones by weight",
        run: balance::two_zones_by_weight,
        left_out: None,
    },
    Scenario {
        id: "E-04",
        title: "Priority failover by EDS health",
        run: failover::priority_by_health,
        left_out: None,
    },
    Scenario {
        id: "E-05",
        title: "Priority failover from a dead backend",
        run: failover::priority_by_connection,
        left_out: BY_HEALTH_ALONE,
    },
    Scenario {
        id: "E-06",
        title: "Drops",
        run: balance::drops,
        left_out: None,
    },
    Scenario {
        id: "E-07",
        title: "Aggregate failover to EDS, in the form of the client",
        run: failover::aggregate_to_endpoints,
        left_out: None,
    },
    Scenario {
        id: "E-08",
        title: "Aggregate failover to logical DNS by EDS health",
        run: failover::aggregate_to_dns_by_health,
        left_out: None,
    },
    Scenario {
        id: "E-09",
        title: "Aggregate failover to logical DNS from a dead backend",
        run: failover::aggregate_to_dns_by_connection,
        left_out: BY_HEALTH_ALONE,
    },
    Scenario {
        id: "E-10",
        title: "Load reports equal the calls",
        run: reports::counts,
        left_out: None,
    },
    Scenario {
        id: "E-11",
        title: "View by node id",
        run: views::view_by_node_id,
        left_out: None,
    },
    Scenario {
        id: "E-12",
        title: "A bad cluster is refused while the others are applied",
        run: refusal::bad_cluster,
        left_out: None,
    },
    Scenario {
        id: "E-13",
        title: "Restart of the control plane under traffic",
        run: restarts::restart_under_traffic,
        left_out: None,
    },
    Scenario {
        id: "E-14",
        title: "Reconnect with nothing resent",
        run: restarts::reconnect_with_nothing_resent,
        left_out: NO_VERSIONS,
    },
    Scenario {
        id: "E-15",
        title: "TLS to the control plane",
        run: secured::over_tls,
        left_out: NO_TLS,
    },
    Scenario {
        id: "E-16",
        title: "Mutual TLS to the control plane, which refuses those without a certificate",
        run: secured::over_mutual_tls,
        left_out: NO_TLS,
    },
    Scenario {
        id: "E-17",
        title: "Other certificates on both sides, under traffic",
        run: secured::certificates_change,
        left_out: NO_TLS,
    },
];

impl Scenario {
    /// The reason why a client does not do it.
    fn reason(&self, kind: Kind) -> Option<&'static str> {
        let (kinds, reason) = self.left_out?;
        kinds.contains(&kind).then_some(reason)
    }
}

/// E-01, E-02, E-03, E-04, E-06, E-07, E-08, E-10, E-11, E-12, E-13, E-15, E-16, E-17: an Envoy by state of the world.
#[test]
fn the_list_with_an_envoy() {
    run(Kind::EnvoySotw);
}

/// E-01, E-02, E-03, E-04, E-06, E-07, E-08, E-10, E-11, E-12, E-13, E-14, E-15, E-16, E-17: an Envoy by delta.
#[test]
fn the_list_with_an_envoy_by_delta() {
    run(Kind::EnvoyDelta);
}

/// E-01, E-02, E-03, E-04, E-05, E-06, E-07, E-08, E-09, E-10, E-11, E-12, E-13, E-15, E-16, E-17: gRPC C-core.
#[test]
fn the_list_with_c_core() {
    run(Kind::CCore);
}

/// E-01, E-02, E-03, E-04, E-05, E-06, E-07, E-08, E-09, E-10, E-11, E-12, E-13: gRPC-Node.
#[test]
fn the_list_with_grpc_node() {
    run(Kind::GrpcNode);
}

/// E-01, E-02, E-03, E-04, E-05, E-06, E-07, E-08, E-09, E-10, E-11, E-12, E-13, E-15, E-16, E-17: gRPC-Go.
#[test]
fn the_list_with_grpc_go() {
    run(Kind::GrpcGo);
}

/// E-01, E-02, E-03, E-04, E-05, E-06, E-07, E-08, E-09, E-10, E-11, E-12, E-13, E-15, E-16,
/// E-17: our channel by state of the world.
#[test]
fn the_list_with_our_channel() {
    run(Kind::CrowflySotw);
}

/// E-01, E-02, E-03, E-04, E-05, E-06, E-07, E-08, E-09, E-10, E-11, E-12, E-13, E-14, E-15,
/// E-16, E-17: our channel by delta.
#[test]
fn the_list_with_our_channel_by_delta() {
    run(Kind::CrowflyDelta);
}

/// Runs the list with one client. A scenario that fails does not keep the next ones from running.
fn run(kind: Kind) {
    let mut failed = Vec::new();
    let mut kept = None;
    for scenario in LIST {
        let (id, title) = (scenario.id, scenario.title);
        if let Some(reason) = scenario.reason(kind) {
            println!("{id} {title}: left out. {reason}");
            continue;
        }
        let begun = Instant::now();
        // The stage is moved in, so that its processes print their output if the scenario fails.
        let stage = kept.take();
        let run = AssertUnwindSafe(|| {
            let mut stage = stage.or_else(|| Stage::start(kind))?;
            (scenario.run)(&mut stage);
            stage.assert_nothing_refused();
            Some(stage)
        });
        match catch_unwind(run) {
            Ok(None) => return,
            Ok(stage) => kept = stage,
            Err(_) => failed.push(id),
        }
        println!("{id} {title}: {:?}", begun.elapsed());
    }
    assert!(failed.is_empty(), "{}: failed: {failed:?}", kind.title());
}
