//! Listeners, clusters and endpoints, joined to services.
//!
//! The three arrive in any order, and each may be missing for a while. The result depends on what is there,
//! not on the order in which it came. Each change costs what it changes: the joiner knows which addresses
//! a cluster is behind, and which clusters an endpoints resource is of.
//!
//! - A frontend belongs to the first listener, by name, that has it.
//! - A service has the name in the metadata of its cluster. The ports of one address may lead to clusters of different
//!   services. Then all ports belong to the service of the lowest port, because an address has one owner. No frontend
//!   is lost by that.
//! - Addresses of one service with equal ports are one entry (that is dual stack). Those with other ports are
//!   entries of their own, named `NAME@ADDRESS`.
//! - A frontend whose endpoints were asked for and did not arrive yet stays as it was.
//! - A frontend whose cluster or endpoints do not exist has no backends, and that is said.

mod interner;
mod policy;
mod ports;
mod service;
mod state;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crowfly_source::Event;

use super::chain::Chain;
use super::cluster::{EndpointsFrom, NodeCluster};
use super::endpoints::NodeEndpoints;
use super::listener::NodeListener;
use super::mapping::Pods;
use crate::model::{Service, ServiceName};
use crate::services::ServiceEvent;
use interner::Common;
use ports::Port;
use state::{AddressState, ClusterState, EndpointsState, Known, ServiceState};

/// All resources of an xDS server, as services.
///
/// It shares resources with the cache of the client, and has nothing twice, because there are very many.
#[derive(Debug, Default)]
pub struct ResourceJoiner {
    listeners: HashMap<Arc<str>, Arc<NodeListener>>,
    /// Clusters that exist, or that a listener names.
    clusters: HashMap<Arc<str>, ClusterState>,
    /// Endpoints that a cluster names.
    endpoints: HashMap<Arc<str>, EndpointsState>,
    addresses: HashMap<IpAddr, AddressState>,
    services: BTreeMap<ServiceName, ServiceState>,
    problems: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Services with too many endpoints. Each is a problem that is told once.
    too_large: BTreeSet<ServiceName>,
    pods: Pods,
    common: Common,
    /// Addresses whose ports have to be worked out again.
    due: BTreeSet<IpAddr>,
    /// Endpoints whose users have changed, so that it must be decided again whether they are asked for.
    asked: BTreeSet<Arc<str>>,
    has_listeners: bool,
    has_clusters: bool,
    is_listed: bool,
    failure: Option<Arc<str>>,
}

/// The result of what was told to a [`ResourceJoiner`].
#[derive(Debug, Default, PartialEq)]
pub struct Joined {
    /// Events for the table of services. They belong together.
    pub events: Vec<ServiceEvent>,
    /// Endpoints to ask for.
    pub watch: Vec<Arc<str>>,
    /// Endpoints that are needed no more.
    pub unwatch: Vec<Arc<str>>,
    /// New problems, as sentences.
    pub problems: Vec<String>,
}

impl ResourceJoiner {
    /// Takes note of the pods on this node.
    pub fn pods(&mut self, pods: Pods) {
        if self.pods != pods {
            self.pods = pods;
            self.due.extend(self.addresses.keys());
        }
    }

    /// Takes a listener; `None` if it does not exist.
    pub fn listener(&mut self, name: &Arc<str>, listener: Option<Arc<NodeListener>>) {
        let now = listener.clone();
        let before = match listener {
            Some(listener) => self.listeners.insert(Arc::clone(name), listener),
            None => self.listeners.remove(name),
        };
        let (before, now) = (by_address(before.as_deref()), by_address(now.as_deref()));
        let addresses: BTreeSet<IpAddr> = before.keys().chain(now.keys()).copied().collect();
        for address in addresses {
            let [before, now] = [&before, &now].map(|chains| chains.get(&address));
            let [before, now] = [before, now].map(|chains| chains.map_or(&[][..], Vec::as_slice));
            let state = self.addresses.entry(address).or_default();
            // Even chains that are the same may have other places now.
            state.claim(name, now.iter().map(|(place, _)| *place));
            if state.is_empty() {
                self.addresses.remove(&address);
            }
            let (before, now) = (before.iter(), now.iter());
            let mut pairs = before.clone().zip(now.clone());
            if before.len() == now.len() && pairs.all(|((_, old), (_, new))| old.is_like(new)) {
                continue;
            }
            self.due.insert(address);
            for (_, chain) in now {
                self.used(address, chain, true);
            }
            for (_, chain) in before {
                self.used(address, chain, false);
            }
        }
    }

    /// Notes that an address uses the clusters of a chain, or does not any more.
    fn used(&mut self, address: IpAddr, chain: &Chain, is_used: bool) {
        for share in &chain.clusters {
            let name = &share.cluster;
            let state = self.clusters.entry(Arc::clone(name)).or_default();
            state.used(address, is_used);
            let endpoints = state.cluster.as_deref().and_then(eds_name);
            if state.is_empty() {
                self.clusters.remove(name);
            }
            self.asked.extend(endpoints);
        }
    }

    /// Takes a cluster; `None` if it does not exist.
    pub fn cluster(&mut self, name: &Arc<str>, cluster: Option<Arc<NodeCluster>>) {
        let now = cluster.as_deref().and_then(eds_name);
        let state = self.clusters.entry(Arc::clone(name)).or_default();
        let before = std::mem::replace(&mut state.cluster, cluster);
        self.due.extend(state.users());
        if state.is_empty() {
            self.clusters.remove(name);
        }
        if let Some(endpoints) = before.as_deref().and_then(eds_name) {
            if let Some(state) = self.endpoints.get_mut(&endpoints) {
                state.left(name);
            }
            self.asked.insert(endpoints);
        }
        if let Some(endpoints) = now {
            let state = self.endpoints.entry(Arc::clone(&endpoints)).or_default();
            state.read_by(name);
            self.asked.insert(endpoints);
        }
    }

    /// Takes endpoints. The error says why they do not exist.
    pub fn endpoints(&mut self, name: &Arc<str>, endpoints: Result<Arc<NodeEndpoints>, Arc<str>>) {
        let state = self.endpoints.get_mut(name);
        let Some(state) = state.filter(|state| state.known.is_some()) else {
            return;
        };
        let now = Some(match endpoints {
            Ok(endpoints) => Known::Value(endpoints),
            Err(reason) => Known::Missing(reason),
        });
        if state.known == now {
            return;
        }
        state.known = now;
        for cluster in &state.readers {
            let cluster = self.clusters.get(cluster).into_iter();
            self.due.extend(cluster.flat_map(ClusterState::users));
        }
    }

    /// Takes note that all listeners were told.
    pub fn listeners_listed(&mut self) {
        self.has_listeners = true;
    }

    /// Takes note that all clusters were told.
    pub fn clusters_listed(&mut self) {
        self.has_clusters = true;
    }

    /// Takes note that the server cannot be reached, with the reason. `None` means that it can be reached again.
    pub fn reach(&mut self, failure: Option<Arc<str>>) -> Vec<ServiceEvent> {
        if self.failure == failure {
            return Vec::new();
        }
        self.failure = failure;
        match &self.failure {
            Some(reason) => vec![Event::Failed(Arc::clone(reason))],
            // A listing ends the failure.
            None if self.is_listed => self.listing(),
            None => Vec::new(),
        }
    }

    /// Works out what follows from all that was told since the last call.
    pub fn poll(&mut self) -> Joined {
        let mut joined = Joined::default();
        self.ask(&mut joined);
        if !self.has_listeners || !self.has_clusters {
            return joined;
        }
        if !self.is_listed && self.endpoints.values().any(EndpointsState::is_pending) {
            return joined;
        }
        let mut names = BTreeSet::new();
        for address in std::mem::take(&mut self.due) {
            self.look_at(address, &mut names, &mut joined.problems);
        }
        for name in names {
            if self.is_too_large(&name) {
                if self.too_large.insert(name.clone()) {
                    joined.problems.push(format!(
                        "service {name}: its ports have too many endpoints, and it is as it was"
                    ));
                }
                continue;
            }
            self.too_large.remove(&name);
            self.tell(&name, &mut joined.events);
        }
        if !self.is_listed {
            self.is_listed = true;
            joined.events = self.listing();
        }
        joined
    }

    /// All services, as a listing.
    fn listing(&self) -> Vec<ServiceEvent> {
        let entries = self.services.values().flat_map(|state| &state.told);
        let entries =
            entries.map(|service| Event::Upsert(service.name.clone(), Arc::clone(service)));
        let begin = [Event::Init].into_iter();
        begin.chain(entries).chain([Event::InitDone]).collect()
    }

    /// Asks for the endpoints of clusters that are in use, and for no others.
    fn ask(&mut self, joined: &mut Joined) {
        for name in std::mem::take(&mut self.asked) {
            let Some(state) = self.endpoints.get_mut(&name) else {
                continue;
            };
            let is_used = |cluster: &Arc<str>| {
                let cluster = self.clusters.get(cluster);
                cluster.is_some_and(ClusterState::is_used)
            };
            let is_wanted = state.readers.iter().any(is_used);
            if is_wanted && state.known.is_none() {
                state.known = Some(Known::Pending);
                joined.watch.push(Arc::clone(&name));
            }
            if !is_wanted && state.known.take().is_some() {
                joined.unwatch.push(Arc::clone(&name));
            }
            if state.readers.is_empty() {
                self.endpoints.remove(&name);
            }
        }
    }

    /// Works out the ports of an address. Adds the services that this concerns.
    fn look_at(
        &mut self,
        address: IpAddr,
        names: &mut BTreeSet<ServiceName>,
        problems: &mut Vec<String>,
    ) {
        let state = self.addresses.get_mut(&address);
        let before = state.map_or_else(Box::default, |state| std::mem::take(&mut state.ports));
        let (mut ports, found) = self.ports_of(address, &before);
        for port in &mut ports {
            port.policy = self.common.policies.share(Arc::clone(&port.policy));
        }
        if let Some(name) = owner(&before) {
            if let Some(service) = self.services.get_mut(name) {
                service.leave(address);
            }
            names.insert(name.clone());
        }
        if let Some(name) = owner(&ports) {
            let service = self.services.entry(name.clone()).or_default();
            service.join(address);
            names.insert(name.clone());
        }
        if let Some(state) = self.addresses.get_mut(&address) {
            state.ports = ports.into();
            if state.is_empty() {
                self.addresses.remove(&address);
            }
        }
        let known = self.problems.remove(&address).unwrap_or_default();
        problems.extend(found.difference(&known).cloned());
        if !found.is_empty() {
            self.problems.insert(address, found);
        }
    }

    fn is_too_large(&self, name: &ServiceName) -> bool {
        let state = self.services.get(name).into_iter();
        let addresses = state.flat_map(|state| &state.addresses);
        let ports = addresses.filter_map(|address| Some(&*self.addresses.get(address)?.ports));
        service::is_too_large(ports)
    }

    /// Tells the entries of a service that are not as they were told last.
    fn tell(&mut self, name: &ServiceName, events: &mut Vec<ServiceEvent>) {
        let Some(state) = self.services.get_mut(name) else {
            return;
        };
        let ports = state.addresses.iter().filter_map(|address| {
            let ports = &self.addresses.get(address)?.ports;
            Some((*address, &**ports))
        });
        let entries = service::entries(name, ports, &self.pods, &mut self.common);
        let before = std::mem::take(&mut state.told);
        let gone = before
            .iter()
            .filter(|it| named(&entries, &it.name).is_none());
        events.extend(gone.map(|service| Event::Delete(service.name.clone())));
        for service in &entries {
            if named(&before, &service.name) != Some(service) {
                events.push(Event::Upsert(service.name.clone(), Arc::clone(service)));
            }
        }
        state.told = entries;
        if state.is_empty() {
            self.services.remove(name);
        }
    }
}

/// The entry of a name, among entries in the order of their names.
fn named<'a>(entries: &'a [Arc<Service>], name: &ServiceName) -> Option<&'a Arc<Service>> {
    let found = entries.binary_search_by(|entry| entry.name.cmp(name));
    entries.get(found.ok()?)
}

/// The chains of a listener by address, with their places in it.
fn by_address(listener: Option<&NodeListener>) -> BTreeMap<IpAddr, Vec<(u32, &Chain)>> {
    let mut chains: BTreeMap<IpAddr, Vec<(u32, &Chain)>> = BTreeMap::new();
    let all = listener.map(|listener| &listener.chains);
    for (place, chain) in (0..).zip(all.into_iter().flatten()) {
        for address in &chain.addresses {
            chains.entry(*address).or_default().push((place, chain));
        }
    }
    chains
}

/// The service that an address belongs to: that of the lowest port whose cluster exists.
fn owner(ports: &[Port]) -> Option<&ServiceName> {
    let known = ports.iter().find(|port| port.has_cluster);
    known.or_else(|| ports.first()).map(|port| &port.service)
}

/// The name of a cluster's endpoints, if they are a resource.
fn eds_name(cluster: &NodeCluster) -> Option<Arc<str>> {
    match &cluster.endpoints {
        EndpointsFrom::Eds(name) => Some(Arc::clone(name)),
        EndpointsFrom::Inline(_) => None,
    }
}
