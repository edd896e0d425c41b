//! The state of each cluster, endpoints resource, address and service that the joiner knows.
//!
//! Lists begin with room for one. Nearly always a cluster is behind one address, an address has one port, and a
//! service has one entry.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::cluster::NodeCluster;
use super::super::endpoints::NodeEndpoints;
use super::ports::Port;
use crate::model::Service;

/// A cluster that exists, or that a listener names.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    pub(super) cluster: Option<Arc<NodeCluster>>,
    /// The addresses that it is behind, in order, with the number of chains.
    users: SmallVec<[(IpAddr, u32); 1]>,
}

impl ClusterState {
    /// Notes that a chain of an address uses it, or does not any more.
    pub(super) fn used(&mut self, address: IpAddr, is_used: bool) {
        let found = self.users.binary_search_by_key(&address, |(user, _)| *user);
        match (found, is_used) {
            (Ok(place), true) => self.users[place].1 += 1,
            (Err(place), true) => self.users.insert(place, (address, 1)),
            (Ok(place), false) if self.users[place].1 > 1 => self.users[place].1 -= 1,
            (Ok(place), false) => {
                self.users.remove(place);
            }
            (Err(_), false) => {}
        }
    }

    /// The addresses that it is behind.
    pub(super) fn users(&self) -> impl Iterator<Item = &IpAddr> {
        self.users.iter().map(|(address, _)| address)
    }

    pub(super) fn is_used(&self) -> bool {
        !self.users.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cluster.is_none() && !self.is_used()
    }
}

/// Endpoints that a cluster names.
#[derive(Debug, Default)]
pub(super) struct EndpointsState {
    /// `None` if they are not asked for.
    pub(super) known: Option<Known>,
    /// The clusters that have them, in order.
    pub(super) readers: SmallVec<[Arc<str>; 1]>,
}

/// The state of endpoints that are asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    Pending,
    Value(Arc<NodeEndpoints>),
    Missing(Arc<str>),
}

impl EndpointsState {
    /// Takes note of a cluster that has them.
    pub(super) fn read_by(&mut self, cluster: &Arc<str>) {
        if let Err(place) = self.readers.binary_search(cluster) {
            self.readers.insert(place, Arc::clone(cluster));
        }
    }

    /// Takes note of a cluster that has them no more.
    pub(super) fn left(&mut self, cluster: &Arc<str>) {
        if let Ok(place) = self.readers.binary_search(cluster) {
            self.readers.remove(place);
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.known == Some(Known::Pending)
    }
}

/// An address that a listener has.
#[derive(Debug, Default)]
pub(super) struct AddressState {
    /// The chains that have it, in order: the name of the listener, and the place in it.
    pub(super) claims: SmallVec<[(Arc<str>, u32); 1]>,
    pub(super) ports: Box<[Port]>,
}

impl AddressState {
    /// Takes the chains of a listener that have the address now.
    pub(super) fn claim(&mut self, listener: &Arc<str>, places: impl Iterator<Item = u32>) {
        self.claims.retain(|(name, _)| name != listener);
        for place in places {
            self.claims.push((Arc::clone(listener), place));
        }
        self.claims.sort_unstable();
        self.claims.shrink_to_fit();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.ports.is_empty()
    }
}

/// A service that an address belongs to.
#[derive(Debug, Default)]
pub(super) struct ServiceState {
    /// Its addresses, in order.
    pub(super) addresses: SmallVec<[IpAddr; 1]>,
    /// The entries that were told.
    pub(super) told: SmallVec<[Arc<Service>; 1]>,
}

impl ServiceState {
    pub(super) fn join(&mut self, address: IpAddr) {
        if let Err(place) = self.addresses.binary_search(&address) {
            self.addresses.insert(place, address);
        }
    }

    pub(super) fn leave(&mut self, address: IpAddr) {
        if let Ok(place) = self.addresses.binary_search(&address) {
            self.addresses.remove(place);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.told.is_empty()
    }
}
