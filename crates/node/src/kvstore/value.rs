//! The values of a ClusterMesh: JSON, and its mistakes.
//!
//! Unknown fields are left aside, because later versions of Cilium add some. An absent map may also be
//! `null`, because that is how Go writes an empty one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crowfly_names::LocalityId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use smallvec::smallvec;

use super::keys::{check_cluster_name, shortened};
use crate::model::{
    Backend, Conditions, Health, Hints, PortName, Protocol, is_of_one_host, may_be_cluster_ip,
};

/// The largest value that is read. etcd's own limit is 1.5 MiB unless it is raised.
const MAX_VALUE: usize = 2 << 20;

/// The largest id of a cluster, unless the mesh was set up for more clusters.
const MAX_ID: u32 = 255;

/// The largest id of a cluster in a mesh for more clusters.
const MAX_ID_OF_LARGE_MESH: u32 = 511;

/// The configuration of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterConfig {
    pub(super) id: u32,
    /// True if a canary says when the services are complete.
    pub(super) has_canaries: bool,
    /// True if the keys are a copy of those in the cluster's own etcd.
    pub(super) is_cached: bool,
    /// True if the cluster also writes EndpointSlices, which are not read here.
    pub(super) has_endpoint_slices: bool,
}

/// A service of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterService {
    /// The virtual addresses that the service has in its own cluster.
    pub(super) frontends: Vec<IpAddr>,
    /// The names of each of its ports: one port may have several.
    pub(super) ports: BTreeMap<(u16, Protocol), BTreeSet<Arc<str>>>,
    pub(super) backends: Arc<[Backend]>,
    /// True if other clusters may use the backends.
    pub(super) is_shared: bool,
    /// True if ports of a protocol that is not routed are left out.
    pub(super) has_sctp: bool,
}

#[derive(Deserialize)]
struct ConfigValue {
    id: u32,
    #[serde(default)]
    capabilities: Option<Capabilities>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Capabilities {
    synced_canaries: bool,
    cached: bool,
    max_connected_clusters: Option<u32>,
    endpoint_slices_export_mode: Option<String>,
}

#[derive(Deserialize)]
struct ServiceValue {
    cluster: String,
    namespace: String,
    name: String,
    #[serde(default)]
    frontends: Addresses,
    #[serde(default)]
    backends: Addresses,
    #[serde(default)]
    zones: Option<BTreeMap<String, ZoneValue>>,
    #[serde(default)]
    shared: bool,
    #[serde(rename = "clusterID")]
    cluster_id: u32,
}

/// The ports of each address, by name.
type Addresses = Option<BTreeMap<String, Option<BTreeMap<String, PortValue>>>>;

#[derive(Deserialize)]
struct PortValue {
    #[serde(rename = "Protocol", alias = "protocol")]
    protocol: String,
    #[serde(rename = "Port", alias = "port")]
    port: u32,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ZoneValue {
    zone: String,
    for_zones: Option<Vec<ForZone>>,
}

#[derive(Deserialize)]
struct ForZone {
    name: String,
}

impl ClusterConfig {
    /// Reads the configuration of the cluster of this name.
    pub(super) fn read(cluster: &str, value: &[u8]) -> Result<Self, String> {
        check_cluster_name(cluster)?;
        let ConfigValue { id, capabilities } = from_json(value)?;
        let capabilities = capabilities.unwrap_or_default();
        let last = match capabilities.max_connected_clusters {
            Some(MAX_ID_OF_LARGE_MESH) => MAX_ID_OF_LARGE_MESH,
            _ => MAX_ID,
        };
        if !(1..=last).contains(&id) {
            return Err(format!("id: expected 1 to {last}, got {id}"));
        }
        let mode = capabilities.endpoint_slices_export_mode;
        Ok(Self {
            id,
            has_canaries: capabilities.synced_canaries,
            is_cached: capabilities.cached,
            has_endpoint_slices: mode.is_some_and(|mode| mode.contains("slices")),
        })
    }
}

impl ClusterService {
    /// Reads the service at the key `NAMESPACE/NAME` of a cluster.
    pub(super) fn read(
        cluster: &Arc<str>,
        id: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<Self, String> {
        let service: ServiceValue = from_json(value)?;
        for (field, text) in [
            ("cluster", &service.cluster),
            ("namespace", &service.namespace),
            ("name", &service.name),
        ] {
            if text.is_empty() || text.contains('/') {
                let text = shortened(text);
                return Err(format!(
                    "{field}: expected a name without `/`, got {text:?}"
                ));
            }
        }
        let found = format!("{}/{}/{}", service.cluster, service.namespace, service.name);
        let expected = [cluster.as_bytes(), b"/", key].concat();
        if found.as_bytes() != expected {
            let found = shortened(&found);
            return Err(format!("the value is of {found}, which is another service"));
        }
        if service.cluster_id != id {
            let found = service.cluster_id;
            return Err(format!(
                "clusterID: expected {id}, as in the cluster's configuration, got {found}"
            ));
        }
        service.check(cluster)
    }
}

impl ServiceValue {
    fn check(self, cluster: &Arc<str>) -> Result<ClusterService, String> {
        let mut has_sctp = false;
        let mut frontends = Vec::new();
        let mut numbers: BTreeMap<_, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (address, ports) in self.frontends.unwrap_or_default() {
            let field = format!("frontends[{:?}]", shortened(&address));
            let address = parse_address(&field, &address)?;
            if !may_be_cluster_ip(address) {
                return Err(format!("{field}: it cannot be a ClusterIP"));
            }
            frontends.push(address);
            for (name, number) in read_ports(&field, ports, &mut has_sctp)? {
                let names = numbers.entry((number, name.protocol)).or_default();
                names.insert(name.name);
            }
        }
        let mut zones = BTreeMap::new();
        for (address, zone) in self.zones.unwrap_or_default() {
            let field = format!("zones[{:?}]", shortened(&address));
            zones.insert(parse_address(&field, &address)?, zone);
        }
        let mut backends: Vec<Backend> = Vec::new();
        for (address, ports) in self.backends.unwrap_or_default() {
            let field = format!("backends[{:?}]", shortened(&address));
            let address = parse_address(&field, &address)?;
            let ports = read_ports(&field, ports, &mut has_sctp)?;
            let zone = zones.remove(&address).unwrap_or_default();
            let mut backend = backend(cluster, address, ports, zone);
            if let Some(last) = backends.last() {
                backend.share_with(last);
            }
            backends.push(backend);
        }
        Ok(ClusterService {
            frontends,
            ports: numbers,
            backends: backends.into(),
            is_shared: self.shared,
            has_sctp,
        })
    }
}

/// A backend of another cluster. The mesh exports those alone that are ready or serve, and tells neither
/// node nor weight.
fn backend(
    cluster: &Arc<str>,
    address: IpAddr,
    ports: BTreeMap<PortName, u16>,
    zone: ZoneValue,
) -> Backend {
    let for_zones = zone.for_zones.unwrap_or_default().into_iter();
    Backend {
        addresses: smallvec![address],
        ports: Arc::new(ports),
        conditions: Conditions::default(),
        health: Health::Healthy,
        node: None,
        locality: match zone.zone.as_str() {
            "" => LocalityId::default(),
            zone => LocalityId::new("", zone, ""),
        },
        zone: (!zone.zone.is_empty()).then(|| zone.zone.into()),
        remote_cluster: Some(Arc::clone(cluster)),
        hints: Hints {
            zones: for_zones.map(|zone| zone.name.into()).collect(),
            nodes: Vec::new(),
        }
        .or_none(),
        weight: 1,
        priority: 0,
    }
}

fn read_ports(
    field: &str,
    ports: Option<BTreeMap<String, PortValue>>,
    has_sctp: &mut bool,
) -> Result<BTreeMap<PortName, u16>, String> {
    let mut read = BTreeMap::new();
    for (name, PortValue { protocol, port }) in ports.unwrap_or_default() {
        let place = || format!("{field}[{:?}]", shortened(&name));
        let protocol = match protocol.to_ascii_uppercase().as_str() {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => {
                *has_sctp = true;
                continue;
            }
            _ => {
                let (place, found) = (place(), shortened(&protocol));
                return Err(format!("{place}: expected TCP, UDP or SCTP, got {found:?}"));
            }
        };
        let number = u16::try_from(port).ok().filter(|number| *number > 0);
        let number =
            number.ok_or_else(|| format!("{}: expected 1 to 65535, got {port}", place()))?;
        let name = PortName {
            name: name.into(),
            protocol,
        };
        read.insert(name, number);
    }
    Ok(read)
}

fn parse_address(field: &str, text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text
        .parse()
        .map_err(|_| format!("{field}: expected an IP address without a zone"))?;
    if !is_of_one_host(address) {
        return Err(format!("{field}: it is no address of a service or backend"));
    }
    Ok(address)
}

fn from_json<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    if value.len() > MAX_VALUE {
        let found = value.len();
        return Err(format!(
            "the value has {found} bytes, at most {MAX_VALUE} are read"
        ));
    }
    serde_json::from_slice(value).map_err(|error| shortened(&error.to_string()))
}
