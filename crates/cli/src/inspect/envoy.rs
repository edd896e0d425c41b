//! Reads the configuration dump of an Envoy's admin port.
//!
//! Envoy keeps the reason of a refusal for listeners only. A refused cluster shows the version in
//! use, and no error.

use serde_json::Value;

use super::{
    Address, InspectError,
    view::{Client, Failure, Node, Resource, View, non_empty},
};
use crate::http::{self, PageError};

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// A list of a dump in which each item is one resource.
struct Section {
    dump: &'static str,
    list: &'static str,
    /// The field of an item with the resource itself, and the field of that with its name.
    message: &'static str,
    name: &'static str,
    type_url: &'static str,
    state: &'static str,
}

const SECTIONS: [Section; 5] = [
    Section {
        dump: "ClustersConfigDump",
        list: "dynamic_active_clusters",
        message: "cluster",
        name: "name",
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        state: "ACKED",
    },
    Section {
        dump: "ClustersConfigDump",
        list: "dynamic_warming_clusters",
        message: "cluster",
        name: "name",
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        state: "WARMING",
    },
    Section {
        dump: "RoutesConfigDump",
        list: "dynamic_route_configs",
        message: "route_config",
        name: "name",
        type_url: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        state: "ACKED",
    },
    Section {
        dump: "EndpointsConfigDump",
        list: "dynamic_endpoint_configs",
        message: "endpoint_config",
        name: "cluster_name",
        type_url: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        state: "ACKED",
    },
    Section {
        dump: "SecretsConfigDump",
        list: "dynamic_active_secrets",
        message: "secret",
        name: "name",
        type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        state: "ACKED",
    },
];

/// The states of a listener, and their names in the view.
const STAGES: [(&str, &str); 3] = [
    ("active_state", "ACKED"),
    ("warming_state", "WARMING"),
    ("draining_state", "DRAINING"),
];

/// Reads the admin port at `address`. With `whole`, the answer has the content of every resource.
pub(super) async fn read(address: &Address, whole: bool) -> Result<View, InspectError> {
    let not_envoy = |found: String| InspectError::NotEnvoy {
        address: address.clone(),
        found,
    };
    let page = http::get(address, "/config_dump?include_eds").await;
    let page = page.map_err(|error| match error {
        PageError::Connect(error) => InspectError::Connect {
            address: address.clone(),
            cause: error.to_string(),
        },
        PageError::Read(cause) => InspectError::Read {
            address: address.clone(),
            cause,
        },
        PageError::Absent { status, .. } => not_envoy(format!("it answers {status}")),
        PageError::Answer(found) => not_envoy(found),
    })?;
    let page: Value = serde_json::from_slice(&page)
        .map_err(|error| not_envoy(format!("/config_dump is not JSON: {error}")))?;
    let configs = page["configs"].as_array();
    let configs = configs.ok_or_else(|| not_envoy("/config_dump has no `configs`".to_owned()))?;
    let dumps = configs.iter().flat_map(|dump| resources(dump, whole));
    let mut client = Client {
        scope: format!("Envoy {address}"),
        node: node(configs),
        resources: dumps.collect(),
    };
    client.sort();
    Ok(View {
        clients: vec![client],
    })
}

/// The dynamic resources of one dump, in proto JSON.
pub(super) fn resources(dump: &Value, whole: bool) -> Vec<Resource> {
    let kind = dump["@type"].as_str().unwrap_or_default();
    let kind = kind.rsplit('.').next().unwrap_or_default();
    if kind == "ListenersConfigDump" {
        return listeners(dump, whole);
    }
    let mut found = Vec::new();
    for section in SECTIONS.iter().filter(|section| section.dump == kind) {
        let items = list(dump, section.list).iter();
        found.extend(items.map(|item| section.resource(item, whole)));
    }
    found
}

impl Section {
    fn resource(&self, item: &Value, whole: bool) -> Resource {
        let message = &item[self.message];
        let name = [&message[self.name], &item["name"]];
        let name = name.into_iter().find_map(Value::as_str);
        let mut resource = Resource {
            name: name.unwrap_or_default().to_owned(),
            state: self.state.to_owned(),
            ..staged(item, self.type_url, message, whole)
        };
        if let Some(state) = status(item) {
            state.clone_into(&mut resource.state);
        }
        if let Some(error) = failure(item) {
            refuse(&mut resource, error);
        }
        resource
    }
}

fn listeners(dump: &Value, whole: bool) -> Vec<Resource> {
    let mut found: Vec<Resource> = Vec::new();
    for item in list(dump, "dynamic_listeners") {
        let refused = &item["error_state"]["failed_configuration"]["name"];
        let name = [&item["name"], refused].into_iter().find_map(Value::as_str);
        let name = name.unwrap_or_default();
        for (stage, state) in STAGES {
            let item = &item[stage];
            if item.is_object() {
                found.push(Resource {
                    name: name.to_owned(),
                    state: state.to_owned(),
                    ..staged(item, LISTENER, &item["listener"], whole)
                });
            }
        }
        // Envoy lists some errors a second time, without the name. One error of a listener is
        // enough.
        let Some(error) = failure(item) else { continue };
        match found.iter_mut().find(|known| known.name == name) {
            Some(known) if known.error.is_some() => {}
            Some(known) => refuse(known, error),
            None => {
                let mut resource = Resource {
                    name: name.to_owned(),
                    ..staged(&Value::Null, LISTENER, &Value::Null, whole)
                };
                refuse(&mut resource, error);
                found.push(resource);
            }
        }
    }
    found
}

/// The fields that every item of a dump has: version, time and content. The caller adds name and
/// state.
fn staged(item: &Value, type_url: &str, message: &Value, whole: bool) -> Resource {
    Resource {
        type_url: type_url.to_owned(),
        name: String::new(),
        state: String::new(),
        version: item["version_info"].as_str().and_then(non_empty),
        updated: time(&item["last_updated"]),
        error: None,
        config: (whole && !message.is_null()).then(|| message.clone()),
    }
}

fn refuse(resource: &mut Resource, error: Failure) {
    "NACKED".clone_into(&mut resource.state);
    resource.error = Some(error);
}

fn failure(item: &Value) -> Option<Failure> {
    let error = item["error_state"].as_object()?;
    let text = |field: &str| error.get(field).and_then(Value::as_str).unwrap_or_default();
    Some(Failure {
        version: non_empty(text("version_info")),
        at: error.get("last_update_attempt").and_then(time),
        details: text("details").to_owned(),
    })
}

fn status(item: &Value) -> Option<&str> {
    let status = item["client_status"].as_str();
    status.filter(|status| *status != "UNKNOWN")
}

fn node(configs: &[Value]) -> Node {
    let mut nodes = configs.iter().map(|config| &config["bootstrap"]["node"]);
    let node = nodes.find(|node| node.is_object());
    let text = |field: &str| {
        let text = node.and_then(|node| node[field].as_str());
        text.unwrap_or_default().to_owned()
    };
    Node {
        id: text("id"),
        cluster: text("cluster"),
    }
}

fn list<'a>(dump: &'a Value, field: &str) -> &'a [Value] {
    dump[field].as_array().map_or(&[], Vec::as_slice)
}

fn time(value: &Value) -> Option<std::time::SystemTime> {
    humantime::parse_rfc3339(value.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Envoy lists a refused update twice, the second time without a name.
    #[test]
    fn a_refused_listener_is_shown_once_with_the_version_in_use() {
        let error = json!({
            "failed_configuration": { "name": "in" },
            "details": "no such filter",
        });
        let dump = json!({
            "@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump",
            "dynamic_listeners": [
                {
                    "name": "in",
                    "active_state": { "version_info": "1", "listener": { "name": "in" } },
                    "error_state": error,
                },
                { "error_state": error },
                { "name": "new", "warming_state": { "version_info": "2" } },
                { "error_state": { "failed_configuration": { "name": "bad" }, "details": "x" } },
            ],
        });
        let found = resources(&dump, false);
        let rows: Vec<_> = found
            .iter()
            .map(|one| (&*one.name, &*one.state, one.version.as_deref()))
            .collect();
        let expected = [
            ("in", "NACKED", Some("1")),
            ("new", "WARMING", Some("2")),
            ("bad", "NACKED", None),
        ];
        assert_eq!(rows, expected);
        let details = found.iter().map(|one| one.error.as_ref());
        let details: Vec<_> = details
            .map(|error| error.map(|error| &*error.details))
            .collect();
        assert_eq!(details, [Some("no such filter"), None, Some("x")]);
    }

    #[test]
    fn clusters_routes_and_endpoints_have_their_names_and_content() {
        let dump = |kind: &str, list: &str, message: &str, name: &str| {
            json!({
                "@type": format!("type.googleapis.com/envoy.admin.v3.{kind}"),
                list: [{
                    "version_info": "1",
                    "last_updated": "2026-01-02T03:04:05.006Z",
                    message: { name: "n" },
                }],
            })
        };
        for section in SECTIONS {
            let dump = dump(section.dump, section.list, section.message, section.name);
            let found = resources(&dump, true);
            let expected = Resource {
                type_url: section.type_url.to_owned(),
                name: "n".to_owned(),
                state: section.state.to_owned(),
                version: Some("1".to_owned()),
                updated: humantime::parse_rfc3339("2026-01-02T03:04:05.006Z").ok(),
                error: None,
                config: Some(json!({ section.name: "n" })),
            };
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn a_dump_of_another_shape_is_no_panic() {
        for dump in [json!(null), json!([]), json!({ "@type": 7 })] {
            assert_eq!(resources(&dump, true), []);
        }
        let dump = json!({
            "@type": "x.ListenersConfigDump",
            "dynamic_listeners": [null, 1, { "error_state": {} }],
        });
        assert_eq!(resources(&dump, true).len(), 1);
    }
}
