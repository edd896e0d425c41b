//! The services of one name in several clusters as one service.
//!
//! A port has one name, by which its backends are found. Clusters may give a port different names. Such a port has a
//! name of its own here, and each backend has it for the port that its own cluster means.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::value::ClusterService;
use crate::model::{
    Backend, Policy, PortName, Protocol, Service, ServiceKind, ServiceName, ServicePort,
};

/// The most pairs of a backend and a port with several names. The table of services does not route a service with
/// more, unless its limit is raised.
const MOST_PAIRS: usize = 1 << 20;

/// The names of each port.
type Names = BTreeMap<(u16, Protocol), BTreeSet<Arc<str>>>;

/// Merges services of one name, in the order of their clusters.
///
/// Those that are shared count, because clusters keep the backends of the others for themselves. If none is shared, the
/// first alone is the service. With `frontends` the virtual addresses of those that count are claimed.
pub(super) fn merge(name: ServiceName, all: &[&ClusterService], frontends: bool) -> Service {
    let is_shared = all.iter().any(|service| service.is_shared);
    let counting: Vec<&ClusterService> = match is_shared {
        true => all.iter().copied().filter(|it| it.is_shared).collect(),
        false => all.iter().copied().take(1).collect(),
    };
    let addresses: BTreeSet<_> = counting.iter().flat_map(|it| &it.frontends).collect();
    let addresses = addresses.into_iter().filter(|_| frontends).copied();
    let mut names = Names::new();
    for service in &counting {
        for (port, more) in &service.ports {
            let known = names.entry(*port).or_default();
            known.extend(more.iter().cloned());
        }
    }
    let ambiguous = ambiguous(&names);
    let backends = match counting[..] {
        // Most services are of one cluster, and need no copy of its backends.
        [only] if ambiguous.is_empty() => Arc::clone(&only.backends),
        _ => {
            let backends = counting.iter().map(|service| service.backends.len());
            let is_small = ambiguous.len().saturating_mul(backends.sum()) <= MOST_PAIRS;
            let ambiguous = if is_small { &ambiguous[..] } else { &[] };
            let named = counting.iter().map(|it| named_backends(it, ambiguous));
            named.flatten().collect()
        }
    };
    let policy = Arc::new(Policy::default());
    let mut own_names: BTreeMap<_, _> = ambiguous
        .iter()
        .map(|port| (port.of, Arc::clone(&port.name.name)))
        .collect();
    let ports = names.iter().filter_map(|(of, names)| {
        Some(ServicePort {
            name: own_names.remove(of).or_else(|| names.first().cloned())?,
            port: of.0,
            protocol: of.1,
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

/// A port to which clusters give several names.
struct Ambiguous<'a> {
    of: (u16, Protocol),
    /// Its name here.
    name: PortName,
    /// The names that clusters give it.
    names: &'a BTreeSet<Arc<str>>,
}

/// The ports with several names. Each has a name of its own, which no cluster uses.
fn ambiguous(names: &Names) -> Vec<Ambiguous<'_>> {
    let several = names.iter().filter(|(_, names)| names.len() > 1);
    let mut several = several.peekable();
    if several.peek().is_none() {
        return Vec::new();
    }
    let taken: BTreeSet<&str> = names.values().flatten().map(|name| &**name).collect();
    let ambiguous = several.map(|(&of, names)| {
        let words: Vec<&str> = names.iter().map(|name| &**name).collect();
        let mut name = format!("{}:{}", words.join("|"), of.0);
        while taken.contains(&*name) {
            name.push('\'');
        }
        let name = PortName {
            name: name.into(),
            protocol: of.1,
        };
        Ambiguous { of, name, names }
    });
    ambiguous.collect()
}

/// The backends of a cluster, with their ports under the names of ambiguous ones.
fn named_backends(service: &ClusterService, ambiguous: &[Ambiguous<'_>]) -> Vec<Backend> {
    let mut backends: Vec<Backend> = service.backends.to_vec();
    if ambiguous.is_empty() {
        return backends;
    }
    // Backends with the same ports share them, before as after.
    let mut last: Option<[Arc<BTreeMap<PortName, u16>>; 2]> = None;
    for backend in &mut backends {
        let ports = match last {
            Some([before, after]) if Arc::ptr_eq(&before, &backend.ports) => [before, after],
            _ => {
                let mut ports = (*backend.ports).clone();
                let more = ambiguous.iter().filter_map(|port| {
                    Some((port.name.clone(), port.number(service, &backend.ports)?))
                });
                ports.extend(more);
                [Arc::clone(&backend.ports), Arc::new(ports)]
            }
        };
        backend.ports = Arc::clone(&ports[1]);
        last = Some(ports);
    }
    backends
}

impl Ambiguous<'_> {
    /// The number that a backend of a cluster has for this port. The cluster's own frontends say which name it has
    /// there. A cluster whose frontends do not have the port may mean each of its names.
    fn number(&self, service: &ClusterService, ports: &BTreeMap<PortName, u16>) -> Option<u16> {
        let names = service.ports.get(&self.of).unwrap_or(self.names);
        names.iter().find_map(|name| {
            let name = PortName {
                name: Arc::clone(name),
                protocol: self.of.1,
            };
            ports.get(&name).copied()
        })
    }
}
