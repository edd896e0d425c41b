//! Reads an EndpointSlice. Each of its endpoints is a backend.
//!
//! The backends of a slice share one list of ports, because each endpoint of a slice has all of its ports.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crowfly_names::LocalityId;
use k8s_openapi::api::discovery::v1;
use smallvec::smallvec;

use super::{Refusal, is_ours};
use crate::model::{Backend, Conditions, Health, Hints, PortName, ServiceName};

/// Names the service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The backends of a slice, and the service that they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSlice {
    /// The service, which is in the namespace of the slice.
    pub service: ServiceName,
    /// Its backends, in the order of the slice.
    pub backends: Arc<[Backend]>,
}

/// Reads an EndpointSlice; `None` if it is of no use: for another service proxy, without a service, or
/// with names instead of addresses.
///
/// # Errors
/// The field that is wrong.
pub fn read_slice(
    object: &v1::EndpointSlice,
    proxy_name: Option<&str>,
    names: &mut SharedNames,
) -> Result<Option<ReadSlice>, Refusal> {
    let labels = object.metadata.labels.as_ref();
    let owner = labels.and_then(|labels| labels.get(SERVICE_NAME));
    let owner = owner.filter(|owner| !owner.is_empty());
    let (Some(owner), true) = (owner, is_ours(&object.metadata, proxy_name)) else {
        return Ok(None);
    };
    let is_ipv4 = match object.address_type.as_str() {
        "IPv4" => true,
        "IPv6" => false,
        _ => return Ok(None),
    };
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let ports = Arc::new(ports(object, names)?);
    let mut backends = Vec::with_capacity(object.endpoints.len());
    for (index, endpoint) in object.endpoints.iter().enumerate() {
        let backend = backend(endpoint, is_ipv4, &ports, names);
        let field = format!("endpoints[{index}].addresses[0]");
        backends.push(backend.map_err(|reason| Refusal::new(&field, reason))?);
    }
    Ok(Some(ReadSlice {
        service: ServiceName::new(namespace, owner),
        backends: backends.into(),
    }))
}

/// The ports that all endpoints of a slice have. One without a name or number belongs to no service.
fn ports(
    object: &v1::EndpointSlice,
    names: &mut SharedNames,
) -> Result<BTreeMap<PortName, u16>, Refusal> {
    let mut ports = BTreeMap::new();
    for (index, port) in object.ports.iter().flatten().enumerate() {
        let wrong = |field: &str, reason| Refusal::new(&format!("ports[{index}].{field}"), reason);
        let protocol = super::protocol(port.protocol.as_deref());
        let protocol = protocol.map_err(|reason| wrong("protocol", reason))?;
        let number = port.port.filter(|number| *number != 0);
        let (Some(name), Some(number), Some(protocol)) = (&port.name, number, protocol) else {
            continue;
        };
        let number = super::port(number).map_err(|reason| wrong("port", reason))?;
        let name = names.name(name);
        ports.insert(PortName { name, protocol }, number);
    }
    Ok(ports)
}

fn backend(
    endpoint: &v1::Endpoint,
    is_ipv4: bool,
    ports: &Arc<BTreeMap<PortName, u16>>,
    names: &mut SharedNames,
) -> Result<Backend, String> {
    // All addresses of an endpoint lead to the same place, and kube-proxy takes the first too.
    let address = endpoint.addresses.first();
    let address = super::address(address.map_or("", String::as_str))?;
    if address.is_ipv4() != is_ipv4 {
        return Err(format!(
            "expected an address of the slice's addressType, got {address}"
        ));
    }
    let said = endpoint.conditions.as_ref();
    let conditions = Conditions {
        ready: said.and_then(|said| said.ready).unwrap_or(true),
        serving: said.and_then(|said| said.serving).unwrap_or(true),
        terminating: said.and_then(|said| said.terminating).unwrap_or(false),
    };
    let mut hints = Hints::default();
    if let Some(said) = &endpoint.hints {
        let zones = said.for_zones.iter().flatten();
        hints.zones = zones.map(|zone| names.name(&zone.name)).collect();
        let nodes = said.for_nodes.iter().flatten();
        hints.nodes = nodes.map(|node| names.name(&node.name)).collect();
    }
    let zone = endpoint.zone.as_deref();
    Ok(Backend {
        addresses: smallvec![address],
        ports: Arc::clone(ports),
        conditions,
        health: Health::Healthy,
        node: endpoint.node_name.as_deref().map(|node| names.name(node)),
        locality: names.locality(zone.unwrap_or_default()),
        zone: zone.map(|zone| names.name(zone)),
        remote_cluster: None,
        hints: hints.or_none(),
        weight: 1,
        priority: 0,
    })
}

/// Names that many backends have in common: nodes, zones and ports. Each is in memory once.
#[derive(Debug, Default)]
pub struct SharedNames {
    names: HashSet<Arc<str>>,
    localities: HashMap<Arc<str>, LocalityId>,
    /// The number of names at which those without users are dropped.
    limit: usize,
}

impl SharedNames {
    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        if self.names.len() >= self.limit {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.limit = 2 * self.names.len().max(512);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    /// The locality of a zone. A backend of Kubernetes says nothing else about its place.
    fn locality(&mut self, zone: &str) -> LocalityId {
        if let Some(known) = self.localities.get(zone) {
            return known.clone();
        }
        // Zones are few; if they are not, that is an attack.
        if self.localities.len() >= 1024 {
            self.localities.clear();
        }
        let locality = LocalityId::new("", zone, "");
        self.localities.insert(zone.into(), locality.clone());
        locality
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of pods that are gone would otherwise stay for ever.
    #[test]
    fn names_without_users_are_dropped() {
        let mut names = SharedNames::default();
        let kept = names.name("kept");
        for number in 0..100_000 {
            names.name(&number.to_string());
        }
        assert!(names.names.len() <= 1024, "{}", names.names.len());
        assert!(Arc::ptr_eq(&kept, &names.name("kept")));
    }
}
