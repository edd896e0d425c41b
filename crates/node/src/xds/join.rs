//! Listeners, clusters and endpoints, joined to services.
//!
//! The three arrive in any order, and each may be missing for a while. The result depends on what is there,
//! not on the order in which it came. Each change costs what it changes: the joiner knows which addresses
//! a cluster is behind, and which clusters an endpoints resource is of.
//!
//! - A frontend belongs to the first listener, by name, that has it.
//! - A service has the name in the metadata of its cluster. If the ports of one address lead to clusters of
//!   different services, all of them belong to the service of the lowest port, because an address has one
//!   owner. No frontend is lost by that.
//! - Addresses of one service with equal ports are one entry (that is dual stack). Those with other ports are
//!   entries of their own, named `NAME@ADDRESS`.
//! - A frontend whose endpoints were asked for and did not arrive yet stays as it was.
//! - A frontend whose cluster or endpoints do not exist has no backends, and that is said.

mod ports;
mod service;

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
use ports::Port;

/// All resources of an xDS server, as services.
#[derive(Debug, Default)]
pub struct Joiner {
    listeners: BTreeMap<Arc<str>, ByAddress>,
    clusters: HashMap<Arc<str>, Arc<NodeCluster>>,
    /// The endpoints that are asked for.
    endpoints: BTreeMap<Arc<str>, Known>,
    /// For each address, the listeners that have it.
    claims: BTreeMap<IpAddr, BTreeSet<Arc<str>>>,
    /// For each cluster that a listener names, the addresses that it is behind.
    users: BTreeMap<Arc<str>, BTreeMap<IpAddr, usize>>,
    /// For each name of endpoints, the clusters that have it.
    readers: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The ports of each address.
    ports: BTreeMap<IpAddr, Vec<Arc<Port>>>,
    /// The addresses of each service.
    addresses: BTreeMap<ServiceName, BTreeSet<IpAddr>>,
    /// The entries that were told, by the service that they are of.
    told: BTreeMap<ServiceName, BTreeMap<ServiceName, Arc<Service>>>,
    problems: BTreeMap<IpAddr, BTreeSet<String>>,
    pods: Pods,
    /// Addresses that have to be looked at again.
    due: BTreeSet<IpAddr>,
    /// Endpoints that may have to be asked for, or not any more.
    asked: BTreeSet<Arc<str>>,
    has_listeners: bool,
    has_clusters: bool,
    is_listed: bool,
    failure: Option<Arc<str>>,
}

/// The chains of a listener, by address.
type ByAddress = BTreeMap<IpAddr, Vec<Chain>>;

/// The state of endpoints that are asked for.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    Pending,
    Value(Arc<NodeEndpoints>),
    Missing(Arc<str>),
}

/// The result of what was told to a [`Joiner`].
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

impl Joiner {
    /// Takes note of the pods on this node.
    pub fn pods(&mut self, pods: Pods) {
        if self.pods != pods {
            self.pods = pods;
            self.due.extend(self.claims.keys());
        }
    }

    /// Takes a listener; `None` if it does not exist.
    pub fn listener(&mut self, name: &Arc<str>, listener: Option<&NodeListener>) {
        let mut chains = ByAddress::new();
        for chain in listener.into_iter().flat_map(|listener| &listener.chains) {
            for address in &chain.addresses {
                let mut chain = chain.clone();
                chain.addresses.clear();
                chains.entry(*address).or_default().push(chain);
            }
        }
        let before = if chains.is_empty() {
            self.listeners.remove(name)
        } else {
            self.listeners.insert(Arc::clone(name), chains.clone())
        };
        let before = before.unwrap_or_default();
        let addresses: BTreeSet<&IpAddr> = before.keys().chain(chains.keys()).collect();
        for address in addresses {
            let (old, new) = (before.get(address), chains.get(address));
            if old == new {
                continue;
            }
            self.due.insert(*address);
            let claims = self.claims.entry(*address).or_default();
            if new.is_some() {
                claims.insert(Arc::clone(name));
            } else {
                claims.remove(name);
            }
            if claims.is_empty() {
                self.claims.remove(address);
            }
            for chain in new.into_iter().flatten() {
                self.used(*address, chain, true);
            }
            for chain in old.into_iter().flatten() {
                self.used(*address, chain, false);
            }
        }
    }

    /// Notes that an address uses the clusters of a chain, or does not any more.
    fn used(&mut self, address: IpAddr, chain: &Chain, is_used: bool) {
        for share in &chain.clusters {
            let name = &share.cluster;
            let users = self.users.entry(Arc::clone(name)).or_default();
            let count = users.entry(address).or_default();
            *count = if is_used {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            if *count == 0 {
                users.remove(&address);
            }
            if users.is_empty() {
                self.users.remove(name);
            }
            let cluster = self.clusters.get(name).map(Arc::clone);
            self.asked
                .extend(cluster.and_then(|cluster| eds_name(&cluster)));
        }
    }

    /// Takes a cluster; `None` if it does not exist.
    pub fn cluster(&mut self, name: &Arc<str>, cluster: Option<Arc<NodeCluster>>) {
        let now = cluster.as_deref().and_then(eds_name);
        let before = match cluster {
            Some(cluster) => self.clusters.insert(Arc::clone(name), cluster),
            None => self.clusters.remove(name),
        };
        let before = before.as_deref().and_then(eds_name);
        if let Some(endpoints) = before {
            if let Some(readers) = self.readers.get_mut(&endpoints) {
                readers.remove(name);
                if readers.is_empty() {
                    self.readers.remove(&endpoints);
                }
            }
            self.asked.insert(endpoints);
        }
        if let Some(endpoints) = now {
            let readers = self.readers.entry(Arc::clone(&endpoints)).or_default();
            readers.insert(Arc::clone(name));
            self.asked.insert(endpoints);
        }
        self.due
            .extend(self.users.get(name).into_iter().flat_map(BTreeMap::keys));
    }

    /// Takes endpoints. The error says why they do not exist.
    pub fn endpoints(&mut self, name: &Arc<str>, endpoints: Result<Arc<NodeEndpoints>, Arc<str>>) {
        let Some(known) = self.endpoints.get_mut(name) else {
            return;
        };
        let now = match endpoints {
            Ok(endpoints) => Known::Value(endpoints),
            Err(reason) => Known::Missing(reason),
        };
        if *known == now {
            return;
        }
        *known = now;
        for cluster in self.readers.get(name).into_iter().flatten() {
            let users = self.users.get(cluster).into_iter();
            self.due.extend(users.flat_map(BTreeMap::keys));
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

    /// Takes note that the server cannot be reached, for this reason; or that it can be, again.
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
        if !self.is_listed
            && self
                .endpoints
                .values()
                .any(|known| *known == Known::Pending)
        {
            return joined;
        }
        let mut names = BTreeSet::new();
        for address in std::mem::take(&mut self.due) {
            self.look_at(address, &mut names, &mut joined.problems);
        }
        for name in names {
            self.tell(&name, &mut joined.events);
        }
        if !self.is_listed {
            self.is_listed = true;
            joined.events = self.listing();
        }
        joined
    }

    /// Everything, as a listing.
    fn listing(&self) -> Vec<ServiceEvent> {
        let entries = self.told.values().flatten();
        let entries = entries.map(|(key, service)| Event::Upsert(key.clone(), Arc::clone(service)));
        let begin = [Event::Init].into_iter();
        begin.chain(entries).chain([Event::InitDone]).collect()
    }

    /// Asks for the endpoints of clusters that are in use, and for no others.
    fn ask(&mut self, joined: &mut Joined) {
        for name in std::mem::take(&mut self.asked) {
            let readers = self.readers.get(&name);
            let mut readers = readers.into_iter().flatten();
            let is_wanted = readers.any(|cluster| self.users.contains_key(cluster));
            match (is_wanted, self.endpoints.contains_key(&name)) {
                (true, false) => {
                    self.endpoints.insert(Arc::clone(&name), Known::Pending);
                    joined.watch.push(name);
                }
                (false, true) => {
                    self.endpoints.remove(&name);
                    joined.unwatch.push(name);
                }
                _ => {}
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
        let before = self.ports.remove(&address).unwrap_or_default();
        let (ports, found) = self.ports_of(address, &before);
        if let Some(name) = owner(&before) {
            if let Some(addresses) = self.addresses.get_mut(name) {
                addresses.remove(&address);
                if addresses.is_empty() {
                    self.addresses.remove(name);
                }
            }
            names.insert(name.clone());
        }
        if let Some(name) = owner(&ports) {
            let addresses = self.addresses.entry(name.clone()).or_default();
            addresses.insert(address);
            names.insert(name.clone());
            self.ports.insert(address, ports);
        }
        let known = self.problems.remove(&address).unwrap_or_default();
        problems.extend(found.difference(&known).cloned());
        if !found.is_empty() {
            self.problems.insert(address, found);
        }
    }

    /// Tells the entries of a service that are not as they were told last.
    fn tell(&mut self, name: &ServiceName, events: &mut Vec<ServiceEvent>) {
        let addresses = self.addresses.get(name).into_iter().flatten();
        let ports = addresses.filter_map(|address| Some((*address, self.ports.get(address)?)));
        let entries = service::entries(name, ports);
        let before = self.told.remove(name).unwrap_or_default();
        let gone = before.keys().filter(|key| !entries.contains_key(*key));
        events.extend(gone.map(|key| Event::Delete(key.clone())));
        for (key, service) in &entries {
            if before.get(key) != Some(service) {
                events.push(Event::Upsert(key.clone(), Arc::clone(service)));
            }
        }
        if !entries.is_empty() {
            self.told.insert(name.clone(), entries);
        }
    }
}

/// The service that an address belongs to: that of the lowest port whose cluster exists.
fn owner(ports: &[Arc<Port>]) -> Option<&ServiceName> {
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
