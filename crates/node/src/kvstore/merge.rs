//! The services of one name in several clusters as one service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::value::ClusterService;
use crate::model::{
    Backend, Policy, PortName, Protocol, Service, ServiceKind, ServiceName, ServicePort,
};

/// Merges services of one name, in the order of their clusters.
///
/// If one of them is shared, those that are not do not count, because their clusters keep their backends
/// for themselves. With `frontends` the virtual addresses of all clusters are claimed.
pub(super) fn merge(name: ServiceName, all: &[&ClusterService], frontends: bool) -> Service {
    let is_shared = all.iter().any(|service| service.is_shared);
    let counting = || {
        let all = all.iter().copied();
        all.filter(|service| service.is_shared == is_shared)
    };
    let addresses: BTreeSet<_> = counting().flat_map(|service| &service.frontends).collect();
    let addresses = addresses.into_iter().filter(|_| frontends).copied();
    let mut names: BTreeMap<(u16, Protocol), BTreeSet<Arc<str>>> = BTreeMap::new();
    for service in counting() {
        for (port, more) in &service.ports {
            let known = names.entry(*port).or_default();
            known.extend(more.iter().cloned());
        }
    }
    let has_plain_names = names.values().all(|names| names.len() == 1);
    let mut few = counting();
    let backends = match (few.next(), few.next()) {
        // Most services are of one cluster, and need no copy of its backends.
        (Some(only), None) if has_plain_names => Arc::clone(&only.backends),
        _ => {
            let backends = counting().flat_map(|service| service.backends.iter());
            backends
                .map(|backend| with_first_names(backend, &names))
                .collect()
        }
    };
    let policy = Arc::new(Policy::default());
    let ports = names.iter().filter_map(|(&(port, protocol), names)| {
        Some(ServicePort {
            name: Arc::clone(names.first()?),
            port,
            protocol,
            policy: Arc::clone(&policy),
            reported_as: None,
        })
    });
    Service {
        ports: ports.collect(),
        backends,
        shared: is_shared,
        ..Service::new(name, ServiceKind::ClusterIp(addresses.collect()))
    }
}

/// A port with several names is found by the first of them, because a frontend has one. So a backend that
/// has another one gets the first one too.
fn with_first_names(
    backend: &Backend,
    names: &BTreeMap<(u16, Protocol), BTreeSet<Arc<str>>>,
) -> Backend {
    let mut backend = backend.clone();
    for (&(_, protocol), names) in names {
        let mut names = names.iter().map(|name| PortName {
            name: Arc::clone(name),
            protocol,
        });
        let Some(first) = names.next() else { continue };
        if backend.ports.contains_key(&first) {
            continue;
        }
        let number = names.find_map(|name| backend.ports.get(&name).copied());
        if let Some(number) = number {
            Arc::make_mut(&mut backend.ports).insert(first, number);
        }
    }
    backend
}
