//! The entries of a service: its addresses, grouped by their ports.
//!
//! The model has one list of ports for all addresses of a service, but xDS says ports for each address. So addresses with
//! other ports are entries of their own.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::chain::ClusterShare;
use super::super::mapping::Pods;
use super::interner::Common;
use super::ports::{BackendAt, Port};
use crate::model::{
    Backend, Conditions, PortName, Protocol, Service, ServiceKind, ServiceName, ServicePort,
};

/// The most endpoints of a service, counted for each of its addresses and for each port with other clusters.
///
/// Each is a backend of the service, and a server may let many ports lead to the same endpoints by clusters of their
/// own. So they are counted before they are copied.
const MOST_ENDPOINTS: usize = 1 << 20;

/// True if a service has too many endpoints to be told.
pub(super) fn is_too_large<'a>(addresses: impl Iterator<Item = &'a [Port]>) -> bool {
    let ports = addresses.flat_map(|ports| distinct(ports).into_iter());
    let mut room = MOST_ENDPOINTS;
    for port in ports {
        for addresses in port.endpoints() {
            let Some(left) = room.checked_sub(addresses) else {
                return true;
            };
            room = left;
        }
    }
    false
}

/// The ports without those that have the backends of another one.
fn distinct(ports: &[Port]) -> Vec<&Port> {
    let mut known: BTreeMap<(Protocol, &[ClusterShare]), &Port> = BTreeMap::new();
    let mut distinct = Vec::new();
    for port in ports {
        match known.entry((port.protocol, &*port.clusters)) {
            Entry::Vacant(place) => {
                place.insert(port);
            }
            Entry::Occupied(first) if first.get().has_backends_of(port) => continue,
            Entry::Occupied(_) => {}
        }
        distinct.push(port);
    }
    distinct
}

/// The entries of a service, in the order of their names.
pub(super) fn entries<'a>(
    name: &ServiceName,
    addresses: impl Iterator<Item = (IpAddr, &'a [Port])>,
    pods: &Pods,
    common: &mut Common,
) -> SmallVec<[Arc<Service>; 1]> {
    let mut groups: Vec<(&[Port], Vec<IpAddr>)> = Vec::new();
    for (address, ports) in addresses {
        match groups.iter_mut().find(|(known, _)| *known == ports) {
            Some((_, addresses)) => addresses.push(address),
            None => groups.push((ports, vec![address])),
        }
    }
    let entries = groups.into_iter().enumerate();
    let entries = entries.map(|(nth, (ports, addresses))| {
        let key = key(name, nth, addresses.first());
        Arc::new(service(key, addresses, ports, pods, common))
    });
    let mut entries: SmallVec<[Arc<Service>; 1]> = entries.collect();
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    entries
}

/// The name of an entry. Only the first has the name of the service, and only if that has no `@`. So the
/// entries of different services have different names.
fn key(name: &ServiceName, nth: usize, address: Option<&IpAddr>) -> ServiceName {
    match address {
        Some(address) if nth > 0 || name.name.contains('@') => ServiceName {
            namespace: Arc::clone(&name.namespace),
            name: format!("{}@{address}", name.name).into(),
        },
        _ => name.clone(),
    }
}

fn service(
    name: ServiceName,
    mut addresses: Vec<IpAddr>,
    ports: &[Port],
    pods: &Pods,
    common: &mut Common,
) -> Service {
    addresses.shrink_to_fit();
    let names = names(ports);
    let distinct = distinct(ports);
    let of_ports: Vec<_> = distinct.iter().map(|port| port.backends(pods)).collect();
    // Backends of two ports that differ in nothing but the port are one.
    let mut order: Vec<&BackendAt> = Vec::new();
    let mut served: BTreeMap<&BackendAt, BTreeMap<PortName, u16>> = BTreeMap::new();
    let mut more: Vec<Backend> = Vec::new();
    for (port, of_port) in distinct.iter().zip(&of_ports) {
        let name = &names[&(port.protocol, &*port.clusters)];
        let key = PortName {
            name: Arc::clone(name),
            protocol: port.protocol,
        };
        for backend in of_port {
            let known = served.entry(&backend.at).or_insert_with(|| {
                order.push(&backend.at);
                BTreeMap::new()
            });
            match known.get(&key) {
                None => {
                    known.insert(key.clone(), backend.port);
                }
                Some(port) if *port == backend.port => {}
                // The same address serves the port of the service by two ports of its own.
                Some(_) => {
                    let ports = BTreeMap::from([(key.clone(), backend.port)]);
                    more.push(to_backend(&backend.at, common.ports.share(ports.into())));
                }
            }
        }
    }
    let backends = order.into_iter().map(|at| {
        let ports = served.remove(at).unwrap_or_default();
        to_backend(at, common.ports.share(ports.into()))
    });
    let mut backends: Vec<Backend> = backends.chain(more).collect();
    for nth in 1..backends.len() {
        let (before, rest) = backends.split_at_mut(nth);
        if let (Some(last), Some(next)) = (before.last(), rest.first_mut()) {
            next.share_with(last);
        }
    }
    let service_ports = ports.iter().map(|port| ServicePort {
        name: Arc::clone(&names[&(port.protocol, &*port.clusters)]),
        port: port.port,
        protocol: port.protocol,
        policy: Arc::clone(&port.policy),
        reported_as: port.reported_as.clone(),
    });
    Service {
        ports: service_ports.collect(),
        backends: backends.into(),
        ..Service::new(name, ServiceKind::ClusterIp(addresses))
    }
}

fn to_backend(at: &BackendAt, ports: Arc<BTreeMap<PortName, u16>>) -> Backend {
    let zone = at.locality.zone();
    Backend {
        addresses: at.addresses.clone(),
        ports,
        conditions: Conditions::default(),
        health: at.health(),
        node: at.node.clone(),
        zone: (!zone.is_empty()).then(|| zone.into()),
        locality: at.locality.clone(),
        remote_cluster: None,
        hints: None,
        weight: at.weight,
        priority: at.priority,
    }
}

/// The names of ports, by protocol and clusters. Backends are found by them, so ports with other clusters need
/// other names, although their clusters may give them the same.
fn names(ports: &[Port]) -> BTreeMap<(Protocol, &[ClusterShare]), Arc<str>> {
    let mut names = BTreeMap::new();
    let mut taken: BTreeSet<(Protocol, Arc<str>)> = BTreeSet::new();
    for port in ports {
        names
            .entry((port.protocol, &*port.clusters))
            .or_insert_with(|| {
                let mut name = Arc::clone(&port.name);
                while !taken.insert((port.protocol, Arc::clone(&name))) {
                    name = match &*name {
                        "" => port.port.to_string().into(),
                        name => format!("{name}:{}", port.port).into(),
                    };
                }
                name
            });
    }
    names
}
