//! Which backends of a service get new connections from this node.
//!
//! For what Kubernetes says (conditions, policies, hints) the rules are those of kube-proxy. For what only xDS says
//! (health, weights, priorities) they are those of the xDS mapping. They apply in this order, and each looks only at
//! what the last one left:
//!
//! 1. A backend serves the port (by name and protocol) and has an address of the frontend's family.
//! 2. It is usable: active, or at least a fallback. Terminating backends that still serve are
//!    fallbacks, and so are degraded and draining ones.
//! 3. `internalTrafficPolicy: Local` leaves the backends on this node.
//! 4. Active backends are used, or else fallbacks.
//! 5. A global service may prefer the backends of its own cluster, or those of others.
//! 6. The lowest priority is used.
//! 7. Hints leave those for this node, if every active backend has hints for nodes and one of them is
//!    for us. Otherwise the same rule applies to hints for zones. Fallbacks have no hints.
//!
//! Hints alone decide, as in kube-proxy. Sources that have no controller to write hints set
//! [`Policy::distribution`] instead: then the place of a backend is its hint.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::model::{
    Backend, Distribution, Health, InternalTraffic, Place, Policy, PortName, Protocol,
    RemoteBackends, Service, ServicePort,
};

/// An address that clients connect to: a ClusterIP with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frontend {
    /// The ClusterIP.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = SocketAddr::new(self.address, self.port);
        write!(f, "{address}/{}", self.protocol)
    }
}

impl Serialize for Frontend {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The way of a connection to a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The backends that it may go to, in the order of their addresses.
    pub targets: Vec<Target>,
    /// The timeout of session affinity, if there is affinity.
    pub affinity: Option<Duration>,
    /// Its error if there is no target.
    pub without: Without,
}

/// A backend that gets connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// Its share, relative to the other targets.
    pub weight: NonZeroU32,
}

/// The error of a connection to a frontend without targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Without {
    /// No backend can be used: ECONNREFUSED, which is what the conformance tests of Kubernetes expect.
    #[default]
    Refused,
    /// Backends can be used, but none is on this node, and the service wants that: EHOSTUNREACH.
    Unreachable,
}

/// A service, and the backends that it may use beside its own.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// The service, with its own backends.
    pub service: &'a Service,
    /// The backends that other clusters have for it. They are empty unless it is a global service.
    pub remote: Vec<&'a Backend>,
}

/// A route, and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    /// The route.
    pub route: Route,
    /// The backend of each target, in the order of the targets.
    pub backends: Vec<&'a Backend>,
    /// The backends that get no connections.
    pub left_out: Vec<LeftOut>,
}

/// A backend that gets no connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its address. The port is missing if it has none for the frontend.
    pub address: String,
    /// The cluster that it is in, if that is not the cluster of the agent.
    pub cluster: Option<Arc<str>>,
    /// The reason.
    pub reason: Reason,
}

/// A reason to give a backend no connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// All its addresses are of the other IP family.
    OtherFamily,
    /// It has no port of this name and protocol.
    NoSuchPort,
    /// It is not ready.
    NotReady,
    /// It is terminating, and serves no more.
    Terminating,
    /// It is unhealthy.
    Unhealthy,
    /// Its weight is 0.
    NoWeight,
    /// Another entry has the same address.
    Duplicate,
    /// It is on another node, and the service wants this one.
    NotLocal,
    /// The service wants a backend on this node, and the node does not know its name.
    NamelessNode,
    /// It is a fallback, and active backends are there.
    Fallback,
    /// It is in another cluster, and the service prefers its own.
    RemoteCluster,
    /// It is in the service's own cluster, and the service prefers others.
    OwnCluster,
    /// Backends of a lower priority number are there.
    LowerPriority,
    /// It is meant for clients on other nodes.
    OtherNode,
    /// It is meant for clients in other zones.
    OtherZone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherFamily => "no address of this IP family",
            Self::NoSuchPort => "no port of this name and protocol",
            Self::NotReady => "not ready",
            Self::Terminating => "terminating, serves no more",
            Self::Unhealthy => "unhealthy",
            Self::NoWeight => "weight 0",
            Self::Duplicate => "another entry has this address",
            Self::NotLocal => "not on this node (internalTrafficPolicy: Local)",
            Self::NamelessNode => {
                "this node has no name (--node-name), and internalTrafficPolicy is Local"
            }
            Self::Fallback => "a fallback (terminating, draining or degraded), not needed",
            Self::RemoteCluster => "in another cluster, and the service prefers its own",
            Self::OwnCluster => "in the own cluster, and the service prefers others",
            Self::LowerPriority => "backends of a better priority are there",
            Self::OtherNode => "meant for clients on other nodes",
            Self::OtherZone => "meant for clients in other zones",
        })
    }
}

/// Chooses the backends of a port of a service for the frontends of one IP family.
pub fn select<'a>(
    pool: &Pool<'a>,
    port: &ServicePort,
    family: IpAddr,
    place: &Place,
) -> Selection<'a> {
    let mut choosing = Choosing::candidates(pool, port, family, place);
    let policy = &port.policy;
    let is_local = policy.internal_traffic == InternalTraffic::Local;
    let mut without = Without::Refused;
    if is_local && !choosing.left.is_empty() {
        let reason = match place.node {
            Some(_) => Reason::NotLocal,
            None => Reason::NamelessNode,
        };
        choosing.keep(reason, |candidate| candidate.is_on(place));
        without = Without::Unreachable;
    }
    let is_active = choosing.left.iter().any(|candidate| candidate.is_active);
    if is_active {
        choosing.keep(Reason::Fallback, |candidate| candidate.is_active);
    }
    choosing.prefer_cluster(pool.service.remote);
    let priorities = choosing.left.iter().map(|it| it.backend.priority);
    if let Some(lowest) = priorities.min() {
        choosing.keep(Reason::LowerPriority, |it| it.backend.priority == lowest);
    }
    if is_active && !is_local {
        choosing.prefer_close(policy, place);
    }
    // They are in the order of their addresses.
    let targets = choosing.left.iter().map(|candidate| Target {
        address: candidate.address,
        weight: candidate.weight,
    });
    let targets: Vec<Target> = targets.collect();
    if !targets.is_empty() {
        without = Without::Refused;
    }
    Selection {
        route: Route {
            targets,
            affinity: policy.affinity,
            without,
        },
        backends: choosing.left.iter().map(|it| it.backend).collect(),
        left_out: choosing.left_out,
    }
}

/// A backend's address that is usable, at least as a fallback.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    backend: &'a Backend,
    address: SocketAddr,
    weight: NonZeroU32,
    is_active: bool,
    is_remote: bool,
}

impl Candidate<'_> {
    fn is_on(&self, place: &Place) -> bool {
        place.node.is_some() && self.backend.node == place.node
    }
}

struct Choosing<'a> {
    left: Vec<Candidate<'a>>,
    left_out: Vec<LeftOut>,
}

impl<'a> Choosing<'a> {
    /// Rules 1 and 2.
    fn candidates(pool: &Pool<'a>, port: &ServicePort, family: IpAddr, place: &Place) -> Self {
        let key = PortName {
            name: Arc::clone(&port.name),
            protocol: port.protocol,
        };
        let mut found: BTreeMap<SocketAddr, Candidate<'a>> = BTreeMap::new();
        let mut left_out = Vec::new();
        let mut known = BTreeSet::new();
        let own = pool.service.backends.iter().map(|backend| (backend, false));
        let remote = pool.remote.iter().map(|backend| (*backend, true));
        for (backend, is_remote) in own.chain(remote) {
            let Some(&number) = backend.ports.get(&key) else {
                let addresses = backend.addresses.iter();
                left_out.extend(addresses.map(|ip| out(ip, backend, Reason::NoSuchPort)));
                continue;
            };
            for &ip in &backend.addresses {
                let address = SocketAddr::new(ip, number);
                if ip.is_ipv4() != family.is_ipv4() {
                    left_out.push(out(&address, backend, Reason::OtherFamily));
                    continue;
                }
                // The service's own source knows a backend better than another cluster does.
                if !is_remote && !pool.remote.is_empty() {
                    known.insert(address);
                } else if known.contains(&address) {
                    left_out.push(out(&address, backend, Reason::Duplicate));
                    continue;
                }
                let candidate = match usable(backend, &port.policy) {
                    Ok((is_active, weight)) => Candidate {
                        backend,
                        address,
                        weight,
                        is_active,
                        is_remote,
                    },
                    Err(reason) => {
                        left_out.push(out(&address, backend, reason));
                        continue;
                    }
                };
                if let Some(other) = found.get(&address) {
                    left_out.push(out(&address, backend, Reason::Duplicate));
                    // The better one counts, and of equal ones the local one.
                    let rank = |it: &Candidate<'_>| (it.is_active, it.is_on(place));
                    if rank(&candidate) <= rank(other) {
                        continue;
                    }
                }
                found.insert(address, candidate);
            }
        }
        Self {
            left: found.into_values().collect(),
            left_out,
        }
    }

    /// Leaves the candidates that are `wanted`.
    fn keep(&mut self, reason: Reason, wanted: impl Fn(&Candidate<'a>) -> bool) {
        let left_out = &mut self.left_out;
        self.left.retain(|candidate| {
            let is_wanted = wanted(candidate);
            if !is_wanted {
                left_out.push(out(&candidate.address, candidate.backend, reason));
            }
            is_wanted
        });
    }

    /// Rule 5.
    fn prefer_cluster(&mut self, remote: RemoteBackends) {
        let (reason, wants_remote) = match remote {
            RemoteBackends::Ignored | RemoteBackends::Added => return,
            RemoteBackends::Fallback => (Reason::RemoteCluster, false),
            RemoteBackends::Preferred => (Reason::OwnCluster, true),
        };
        if self.left.iter().any(|it| it.is_remote == wants_remote) {
            self.keep(reason, |it| it.is_remote == wants_remote);
        }
    }

    /// Rule 7.
    fn prefer_close(&mut self, policy: &Policy, place: &Place) {
        let wish = policy.distribution;
        let is_done = self.keep_hinted(Reason::OtherNode, place.node.as_ref(), |backend| {
            node_hints(backend, wish)
        });
        if !is_done {
            self.keep_hinted(Reason::OtherZone, place.zone.as_ref(), |backend| {
                zone_hints(backend, wish)
            });
        }
    }

    /// Keeps the backends whose hints name our place, if all have hints and one of them names it.
    /// Returns whether that is so.
    fn keep_hinted(
        &mut self,
        reason: Reason,
        ours: Option<&Arc<str>>,
        hints: impl Fn(&'a Backend) -> &'a [Arc<str>],
    ) -> bool {
        let Some(ours) = ours else { return false };
        let (mut have_all, mut has_ours) = (true, false);
        for candidate in &self.left {
            let hints = hints(candidate.backend);
            have_all &= !hints.is_empty();
            has_ours |= hints.contains(ours);
        }
        let applies = have_all && has_ours;
        if applies {
            self.keep(reason, |it| hints(it.backend).contains(ours));
        }
        applies
    }
}

/// The nodes that a backend is meant for. Where a policy prefers the same node, a backend without hints is meant for
/// its own node. That is what the controller of Kubernetes would write into hints.
fn node_hints(backend: &Backend, wish: Option<Distribution>) -> &[Arc<str>] {
    let hints = backend.hints.as_deref();
    let hints = hints.map_or(&[][..], |hints| &hints.nodes);
    match (hints, &backend.node) {
        (hints, Some(node)) if hints.is_empty() && wish == Some(Distribution::PreferSameNode) => {
            std::slice::from_ref(node)
        }
        (hints, _) => hints,
    }
}

/// The zones that a backend is meant for. Where a policy prefers close backends, a backend without hints is
/// meant for its own zone.
fn zone_hints(backend: &Backend, wish: Option<Distribution>) -> &[Arc<str>] {
    let hints = backend.hints.as_deref();
    let hints = hints.map_or(&[][..], |hints| &hints.zones);
    match (hints, &backend.zone) {
        (hints, Some(zone)) if hints.is_empty() && wish.is_some() => std::slice::from_ref(zone),
        (hints, _) => hints,
    }
}

/// True for an active backend, false for a fallback; with its weight.
fn usable(backend: &Backend, policy: &Policy) -> Result<(bool, NonZeroU32), Reason> {
    let conditions = backend.conditions;
    let is_ready = conditions.ready || policy.publish_not_ready;
    let is_active = match (is_ready, conditions.serving, conditions.terminating) {
        (true, _, _) => true,
        (false, true, true) => false,
        (false, false, true) => return Err(Reason::Terminating),
        (false, _, false) => return Err(Reason::NotReady),
    };
    let is_active = match backend.health {
        Health::Healthy => is_active,
        Health::Degraded | Health::Draining => false,
        Health::Unhealthy => return Err(Reason::Unhealthy),
    };
    let weight = NonZeroU32::new(backend.weight).ok_or(Reason::NoWeight)?;
    Ok((is_active, weight))
}

fn out(address: &impl ToString, backend: &Backend, reason: Reason) -> LeftOut {
    LeftOut {
        address: address.to_string(),
        cluster: backend.remote_cluster.clone(),
        reason,
    }
}
