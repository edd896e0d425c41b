//! Trees on the wire: every field of a balancing tree has a field in the proto, in both directions.
//!
//! Both directions are here, because one renderer prints both: the trees of this program, and those
//! that came over the wire.

use std::fmt;
use std::time::Duration;

use crowfly_lb::{
    Connectivity, DropCategory, Health, HealthSet, OverrideHost, Tree, TreeEjection, TreeKind,
    TreeRole,
};

use super::v1;
use super::v1::tree::{Drop, Ejection, Kind, OverrideHost as Sessions, Role};
use crate::state::ConnectivityState;

/// The names of health in the proto.
const HEALTH: [(Health, &str); 3] = [
    (Health::Unknown, "UNKNOWN"),
    (Health::Healthy, "HEALTHY"),
    (Health::Draining, "DRAINING"),
];

impl From<Tree> for v1::Tree {
    fn from(tree: Tree) -> Self {
        let state = tree.state.map(ConnectivityState::from);
        Self {
            kind: Kind::from(tree.kind).into(),
            name: tree.name,
            addresses: tree.addresses,
            weight: tree.weight,
            limit: tree.limit,
            drops: tree.drops.iter().map(Drop::from).collect(),
            security: tree.security.as_deref().unwrap_or_default().to_owned(),
            override_host: tree.override_host.map(Sessions::from),
            state: state.map_or(v1::State::Unspecified, v1::State::from).into(),
            role: tree.role.map_or(Role::Unspecified, Role::from).into(),
            failover_timer_expired: tree.failover_timer_expired,
            in_flight: tree.in_flight,
            picks: tree.picks,
            waiting: tree.waiting,
            note: tree.note.as_deref().unwrap_or_default().to_owned(),
            ejection: tree.ejection.as_ref().map(Ejection::from),
            children: tree.children.into_iter().map(Self::from).collect(),
        }
    }
}

/// The id of an endpoint is not sent, because it has a meaning only in its own process.
impl From<&v1::Tree> for Tree {
    fn from(wire: &v1::Tree) -> Self {
        let mut tree = Self::new(kind(wire.kind()), &wire.name);
        tree.addresses.clone_from(&wire.addresses);
        tree.weight = wire.weight;
        tree.limit = wire.limit;
        tree.drops = wire.drops.iter().map(DropCategory::from).collect();
        tree.security = (!wire.security.is_empty()).then(|| wire.security.as_str().into());
        tree.override_host = wire.override_host.as_ref().map(OverrideHost::from);
        tree.state = state(wire.state());
        tree.role = role(wire.role());
        tree.failover_timer_expired = wire.failover_timer_expired;
        tree.in_flight = wire.in_flight;
        tree.picks = wire.picks;
        tree.waiting = wire.waiting;
        tree.note = (!wire.note.is_empty()).then(|| wire.note.as_str().into());
        tree.ejection = wire.ejection.as_ref().map(TreeEjection::from);
        tree.children = wire.children.iter().map(Self::from).collect();
        tree
    }
}

/// Prints the tree as [`Channel::tree`](crate::Channel::tree) does.
impl fmt::Display for v1::Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Tree::from(self).fmt(f)
    }
}

impl From<TreeKind> for Kind {
    fn from(kind: TreeKind) -> Self {
        match kind {
            TreeKind::Cluster => Self::Cluster,
            TreeKind::ClusterImpl => Self::ClusterImpl,
            TreeKind::Endpoint => Self::Endpoint,
            TreeKind::Failing => Self::Failing,
            TreeKind::LeafPolicy => Self::LeafPolicy,
            TreeKind::Localities => Self::Localities,
            TreeKind::OverrideHost => Self::OverrideHost,
            TreeKind::Locality => Self::Locality,
            TreeKind::Priority => Self::Priority,
            TreeKind::PriorityChild => Self::PriorityChild,
            _ => Self::Unspecified,
        }
    }
}

fn kind(kind: Kind) -> TreeKind {
    match kind {
        Kind::Cluster => TreeKind::Cluster,
        Kind::ClusterImpl => TreeKind::ClusterImpl,
        Kind::Endpoint => TreeKind::Endpoint,
        Kind::Failing => TreeKind::Failing,
        Kind::LeafPolicy => TreeKind::LeafPolicy,
        Kind::Localities => TreeKind::Localities,
        Kind::OverrideHost => TreeKind::OverrideHost,
        Kind::Locality => TreeKind::Locality,
        Kind::Priority => TreeKind::Priority,
        Kind::PriorityChild => TreeKind::PriorityChild,
        Kind::Unspecified => TreeKind::Unknown,
    }
}

impl From<TreeRole> for Role {
    fn from(role: TreeRole) -> Self {
        match role {
            TreeRole::Draining => Self::Draining,
            TreeRole::InUse => Self::InUse,
            TreeRole::Kept => Self::Kept,
            TreeRole::Leaving => Self::Leaving,
            TreeRole::NotNeeded => Self::NotNeeded,
            TreeRole::Pending => Self::Pending,
            _ => Self::Unspecified,
        }
    }
}

fn role(role: Role) -> Option<TreeRole> {
    match role {
        Role::Draining => Some(TreeRole::Draining),
        Role::InUse => Some(TreeRole::InUse),
        Role::Kept => Some(TreeRole::Kept),
        Role::Leaving => Some(TreeRole::Leaving),
        Role::NotNeeded => Some(TreeRole::NotNeeded),
        Role::Pending => Some(TreeRole::Pending),
        Role::Unspecified => None,
    }
}

impl From<&DropCategory> for Drop {
    fn from(drop: &DropCategory) -> Self {
        Self {
            category: drop.name.to_string(),
            per_million: drop.per_million,
        }
    }
}

impl From<&Drop> for DropCategory {
    fn from(drop: &Drop) -> Self {
        Self {
            name: drop.category.as_str().into(),
            per_million: drop.per_million,
        }
    }
}

impl From<&TreeEjection> for Ejection {
    fn from(ejection: &TreeEjection) -> Self {
        Self {
            rule: ejection.rule.clone(),
            succeeded: ejection.succeeded,
            failed: ejection.failed,
            time_ms: millis(ejection.time),
            left_ms: ejection.left.map(millis),
        }
    }
}

impl From<OverrideHost> for Sessions {
    fn from(settings: OverrideHost) -> Self {
        let health = HEALTH
            .iter()
            .filter(|(health, _)| settings.health.contains(HealthSet::of(*health)));
        Self {
            health: health.map(|(_, name)| (*name).to_owned()).collect(),
            idle_timeout_ms: millis(settings.idle_timeout),
        }
    }
}

impl From<&Ejection> for TreeEjection {
    fn from(wire: &Ejection) -> Self {
        Self {
            rule: wire.rule.clone(),
            succeeded: wire.succeeded,
            failed: wire.failed,
            time: Duration::from_millis(wire.time_ms),
            left: wire.left_ms.map(Duration::from_millis),
        }
    }
}

impl From<&Sessions> for OverrideHost {
    fn from(wire: &Sessions) -> Self {
        let has = |name: &str| wire.health.iter().any(|known| known == name);
        let health = HEALTH.iter().filter(|(_, name)| has(name));
        Self {
            health: health.map(|(health, _)| *health).collect(),
            idle_timeout: Duration::from_millis(wire.idle_timeout_ms),
        }
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

impl From<ConnectivityState> for v1::State {
    fn from(state: ConnectivityState) -> Self {
        match state {
            ConnectivityState::Connecting => Self::Connecting,
            ConnectivityState::Idle => Self::Idle,
            ConnectivityState::Ready => Self::Ready,
            ConnectivityState::TransientFailure => Self::TransientFailure,
        }
    }
}

fn state(state: v1::State) -> Option<Connectivity> {
    match state {
        v1::State::Connecting => Some(Connectivity::Connecting),
        v1::State::Idle => Some(Connectivity::Idle),
        v1::State::Ready => Some(Connectivity::Ready),
        v1::State::TransientFailure => Some(Connectivity::TransientFailure),
        v1::State::Unspecified => None,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// A tree in which each field, kind, role and state is set somewhere.
    fn full() -> Tree {
        let mut failed = endpoint("127.0.0.1:1", Connectivity::TransientFailure);
        failed.role = Some(TreeRole::Leaving);
        failed.note = Some("refused".into());
        let mut busy = endpoint("127.0.0.1:2", Connectivity::Ready);
        busy.addresses.push("[::1]:2".to_owned());
        (busy.in_flight, busy.waiting, busy.picks) = (Some(3), Some(2), Some(70));
        let mut ejected = endpoint("127.0.0.1:4", Connectivity::TransientFailure);
        ejected.note = Some("ejected for 30s".into());
        ejected.ejection = Some(TreeEjection {
            rule: "success_rate".to_owned(),
            succeeded: 1,
            failed: 9,
            time: Duration::from_secs(30),
            left: Some(Duration::from_millis(12_340)),
        });
        let mut pending = endpoint("127.0.0.1:3", Connectivity::Idle);
        pending.role = Some(TreeRole::Pending);
        let policy = node(
            TreeKind::LeafPolicy,
            "round_robin",
            vec![failed, busy, ejected, pending],
        );
        let mut near = node(TreeKind::Locality, "us/a", vec![policy]);
        near.weight = Some(70);
        let mut removed = node(TreeKind::Locality, "us/b", vec![]);
        removed.role = Some(TreeRole::Kept);
        let localities = node(TreeKind::Localities, "", vec![near, removed]);

        let mut first = node(TreeKind::PriorityChild, "child0", vec![localities]);
        first.role = Some(TreeRole::InUse);
        first.failover_timer_expired = true;
        first.state = Some(Connectivity::Connecting);
        let mut second = node(TreeKind::PriorityChild, "child1", vec![]);
        second.role = Some(TreeRole::NotNeeded);
        let priority = node(TreeKind::Priority, "", vec![first, second]);

        let mut kept = endpoint("127.0.0.1:4", Connectivity::Ready);
        (kept.role, kept.weight) = (Some(TreeRole::Kept), None);
        let mut draining = endpoint("127.0.0.1:5", Connectivity::Idle);
        (draining.role, draining.weight) = (Some(TreeRole::Draining), None);
        let sticky = vec![priority, kept, draining];
        let mut sessions = node(TreeKind::OverrideHost, "", sticky);
        sessions.override_host = Some(OverrideHost {
            health: [Health::Healthy, Health::Draining].into_iter().collect(),
            idle_timeout: Duration::from_secs(90),
        });
        let mut gate = node(TreeKind::ClusterImpl, "payments", vec![sessions]);
        gate.limit = Some(8);
        gate.security = Some("mtls, san exact \"payments\"".into());
        let drop = |name: &str, per_million| DropCategory {
            name: name.into(),
            per_million,
        };
        gate.drops = vec![drop("throttle", 100_000), drop("lb", 2_500)];
        let mut failing = node(TreeKind::Failing, "", vec![]);
        failing.role = Some(TreeRole::Pending);
        failing.note = Some("no such resource".into());
        let later = node(TreeKind::Unknown, "of a later version", vec![]);
        node(TreeKind::Cluster, "payments", vec![gate, failing, later])
    }

    fn node(kind: TreeKind, name: &str, children: Vec<Tree>) -> Tree {
        let mut tree = Tree::new(kind, name);
        tree.children = children;
        tree
    }

    fn endpoint(address: &str, state: Connectivity) -> Tree {
        let mut tree = Tree::new(TreeKind::Endpoint, address);
        tree.addresses.push(address.to_owned());
        tree.state = Some(state);
        tree.weight = Some(1);
        tree
    }

    #[test]
    fn every_field_of_a_tree_survives_the_wire() {
        let tree = full();
        let bytes = v1::Tree::from(tree.clone()).encode_to_vec();
        let received = v1::Tree::decode(bytes.as_slice()).unwrap();
        assert_eq!(Tree::from(&received), tree);
    }

    #[test]
    fn a_tree_prints_the_same_on_both_sides_of_the_wire() {
        let tree = full();
        let expected = "\
cluster payments
├ cluster_impl payments limit 8, drops throttle 10% + lb 0.25%, tls: mtls, san exact \"payments\"
│ └ override_host HEALTHY+DRAINING, idle timeout 90s
│   ├ priority
│   │ ├ child0 CONNECTING (in use, took too long)
│   │ │ └ localities
│   │ │   ├ us/a weight 70
│   │ │   │ └ round_robin
│   │ │   │   ├ 127.0.0.1:1 TRANSIENT_FAILURE (leaving, refused)
│   │ │   │   ├ 127.0.0.1:2,[::1]:2 READY 3 in flight, 2 waiting
│   │ │   │   ├ 127.0.0.1:4 TRANSIENT_FAILURE (ejected for 30s, 12.3s left)
│   │ │   │   └ 127.0.0.1:3 IDLE (pending)
│   │ │   └ us/b (removed, kept in case it returns)
│   │ └ child1 (not needed yet)
│   ├ 127.0.0.1:4 READY (kept for its sessions)
│   └ 127.0.0.1:5 IDLE (draining, kept for its sessions)
├ failing (takes over when it is READY, no such resource)
└ of a later version
";
        assert_eq!(tree.to_string(), expected);
        assert_eq!(v1::Tree::from(tree).to_string(), expected);
    }

    /// A server of a version before the kinds sends its text in the field that now has the name.
    #[test]
    fn the_tree_of_an_older_server_prints_as_it_came() {
        let older = v1::Tree {
            name: "cluster_impl payments limit 1024".to_owned(),
            state: v1::State::Ready.into(),
            note: "in use".to_owned(),
            ..v1::Tree::default()
        };
        let expected = "cluster_impl payments limit 1024 READY (in use)\n";
        assert_eq!(older.to_string(), expected);
    }
}
