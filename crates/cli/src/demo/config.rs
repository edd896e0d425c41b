//! The configuration file of the control plane, in two versions: one that is good, and one that
//! clients must refuse.
//!
//! The second shows that a refused configuration disturbs no call.

use std::{
    fmt::Write,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{SERVICE, state::Zone};

const TYPE_PREFIX: &str = "type.googleapis.com";

/// The path of the file. Each version replaces the whole file by a rename, so that the control plane
/// never reads a part of one.
#[derive(Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
}

impl ConfigFile {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            path: directory.join("mesh.yaml"),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn replace(&self, text: &str) -> io::Result<()> {
        let next = self.path.with_extension("next");
        fs::write(&next, text)?;
        fs::rename(next, &self.path)
    }
}

/// The configuration that an operator would write.
pub(super) fn good(zones: &[Zone]) -> String {
    let mut yaml = format!("services:\n- name: {SERVICE}\n  localities:\n");
    for zone in zones {
        let Zone {
            name,
            weight,
            backends,
        } = zone;
        let addresses: Vec<_> = backends
            .iter()
            .map(|backend| format!("{{ address: \"{}\" }}", backend.addr))
            .collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            yaml,
            "  - {{ region: local, zone: {name}, weight: {weight}, endpoints: [{}] }}",
            addresses.join(", ")
        );
    }
    yaml
}

/// The service as raw resources, with one mistake: the first endpoint has weight 0, which gRPC refuses (gRFC A42). The
/// resources are raw, because `crowfly control` has no such weights in services. The control plane would refuse the
/// endpoints, so they are forced.
pub(super) fn bad(zones: &[Zone]) -> String {
    let endpoints = json!({ "name": SERVICE, "force": true, "resource": endpoints(zones) });
    let resources = [listener(), routes(), cluster(), endpoints];
    json!({ "resources": resources }).to_string()
}

fn listener() -> Value {
    let http = "envoy.extensions.filters";
    json!({
        "@type": format!("{TYPE_PREFIX}/envoy.config.listener.v3.Listener"),
        "name": SERVICE,
        "api_listener": { "api_listener": {
            "@type": format!(
                "{TYPE_PREFIX}/{http}.network.http_connection_manager.v3.HttpConnectionManager"
            ),
            "rds": { "config_source": { "ads": {} }, "route_config_name": SERVICE },
            "http_filters": [{
                "name": "router",
                "typed_config": { "@type": format!("{TYPE_PREFIX}/{http}.http.router.v3.Router") },
            }],
        } },
    })
}

fn routes() -> Value {
    json!({
        "@type": format!("{TYPE_PREFIX}/envoy.config.route.v3.RouteConfiguration"),
        "name": SERVICE,
        "virtual_hosts": [{
            "name": SERVICE,
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": SERVICE } }],
        }],
    })
}

fn cluster() -> Value {
    json!({
        "@type": format!("{TYPE_PREFIX}/envoy.config.cluster.v3.Cluster"),
        "name": SERVICE,
        "type": "EDS",
        "eds_cluster_config": { "eds_config": { "ads": {} } },
    })
}

fn endpoints(zones: &[Zone]) -> Value {
    let first = zones
        .first()
        .and_then(|zone| zone.backends.first())
        .map(|first| first.addr);
    let endpoint = |addr: SocketAddr| {
        let address =
            json!({ "socket_address": { "address": addr.ip(), "port_value": addr.port() } });
        let weight = u32::from(Some(addr) != first);
        json!({ "endpoint": { "address": address }, "load_balancing_weight": weight })
    };
    let locality = |zone: &Zone| {
        let endpoints: Vec<_> = zone
            .backends
            .iter()
            .map(|backend| endpoint(backend.addr))
            .collect();
        json!({
            "locality": { "region": "local", "zone": zone.name },
            "load_balancing_weight": zone.weight,
            "lb_endpoints": endpoints,
        })
    };
    json!({
        "@type": format!("{TYPE_PREFIX}/envoy.config.endpoint.v3.ClusterLoadAssignment"),
        "cluster_name": SERVICE,
        "endpoints": zones.iter().map(locality).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use crowfly_control::{Catalog, ConfigFile as Source, translate};

    use super::*;
    use crate::demo::state::{BackendView, Status};

    fn zones() -> Vec<Zone> {
        let addr = "127.0.0.1:1234".parse().unwrap();
        let backend = BackendView {
            name: "a1",
            addr,
            status: Status::Up,
        };
        vec![Zone {
            name: "a",
            weight: 3,
            backends: vec![backend],
        }]
    }

    /// The names of all resources that a control plane would serve.
    fn served(text: String) -> Vec<(String, Vec<String>)> {
        let file = Source {
            path: "mesh.yaml".into(),
            text,
        };
        let snapshot = translate(&Catalog::read(&[file]).unwrap()).unwrap();
        let mut served = Vec::new();
        for (type_url, of) in snapshot.types() {
            served.push((
                type_url.to_owned(),
                of.resources().keys().map(ToString::to_string).collect(),
            ));
        }
        served
    }

    #[test]
    fn the_bad_configuration_serves_the_same_names_as_the_good_one() {
        let good = served(good(&zones()));
        assert_eq!(good.len(), 4, "{good:?}");
        assert_eq!(served(bad(&zones())), good);
    }
}
