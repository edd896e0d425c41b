//! The host names of endpoints, by leaf cluster and address.
//!
//! Host names are kept apart from the balancer, because balancing does not depend on them. Calls
//! use them as `:authority` (gRFC A81), and connections may use them for TLS (gRFC A101). An
//! address belongs to one endpoint of a cluster at most, so the address is enough to find the name.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_model::grpc::Endpoints;

use crate::authority::CallAuthority;

/// The host names of the endpoints of a channel. Clusters without any take no room.
#[derive(Debug, Default)]
pub(crate) struct Hostnames {
    clusters: BTreeMap<Arc<str>, ByAddress>,
}

type ByAddress = HashMap<SocketAddr, Arc<CallAuthority>>;

impl Hostnames {
    /// The host name of the endpoint of a leaf cluster that has this address.
    pub(crate) fn find(&self, cluster: &str, address: SocketAddr) -> Option<&Arc<CallAuthority>> {
        self.clusters.get(cluster)?.get(&address)
    }

    /// Takes the endpoints of a leaf cluster. Returns whether any name changed.
    pub(crate) fn set(&mut self, cluster: &Arc<str>, endpoints: Option<&Endpoints>) -> bool {
        let new = endpoints.map(by_address).unwrap_or_default();
        let is_changed = match self.clusters.get(cluster) {
            Some(known) => *known != new,
            None => !new.is_empty(),
        };
        if new.is_empty() {
            self.clusters.remove(cluster);
        } else if is_changed {
            self.clusters.insert(Arc::clone(cluster), new);
        }
        is_changed
    }

    /// Forgets clusters that are no longer in use.
    pub(crate) fn retain(&mut self, in_use: impl Fn(&str) -> bool) {
        self.clusters.retain(|cluster, _| in_use(cluster));
    }
}

fn by_address(endpoints: &Endpoints) -> ByAddress {
    let localities = endpoints.priorities.iter().flatten();
    let endpoints = localities.flat_map(|locality| &locality.endpoints);
    let mut found = ByAddress::new();
    for endpoint in endpoints {
        let name = endpoint.hostname.as_deref();
        if let Some(name) = name.and_then(CallAuthority::of_hostname) {
            let name = Arc::new(name);
            let addresses = endpoint.addresses.iter();
            found.extend(addresses.map(|address| (*address, Arc::clone(&name))));
        }
    }
    found
}
