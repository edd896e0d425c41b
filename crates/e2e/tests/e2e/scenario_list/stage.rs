//! The control plane, the backends and the client of one run of the list.
//!
//! The scenarios share them, because their start would be most of the time.

use std::fmt::Write;

use crowfly_e2e::product::{Backend, Control};
use crowfly_e2e::{admin, resources};
use crowfly_testkit::Reserved;
use serde_json::{Value, json};

use super::kind::Kind;
use super::peer::{self, Outcome, Peer};
use crate::CROWFLY;

/// The listener of Envoys, and its routes.
pub(super) const INGRESS: &str = "ingress";

/// The service that is there from the start.
pub(super) const FIRST: &str = "first";

/// The processes of one run.
pub(super) struct Stage {
    pub(super) kind: Kind,
    pub(super) peer: Box<dyn Peer>,
    pub(super) control: Control,
    /// The address of the control plane, which it keeps after a restart.
    place: Reserved,
    /// Backends that answer as `b1`, `b2` and `b3`.
    pub(super) backends: [Backend; 3],
}

impl Stage {
    /// `None` if the client is not installed.
    pub(super) fn start(kind: Kind) -> Option<Self> {
        let backends = ["b1", "b2", "b3"].map(|name| CROWFLY.backend(name));
        let endpoints: Vec<_> = backends.iter().map(endpoint).collect();
        let mesh = Mesh::of([json!({ "name": FIRST, "endpoints": endpoints })]);
        let place = Reserved::new();
        let control = start_control(&place, &mesh);
        let peer = peer::start(kind, kind.node(), control.address)?;
        Some(Self {
            kind,
            peer,
            control,
            place,
            backends,
        })
    }

    /// Replaces what the control plane serves.
    pub(super) fn serve(&self, mesh: &Mesh) {
        self.control.configure_with(&mesh.to_yaml());
    }

    /// Calls until a whole round is answered by exactly these backends. Earlier calls may fail.
    pub(super) fn settle(&mut self, service: &str, names: &[&str]) {
        peer::settle(self.peer.as_mut(), service, names);
    }

    /// Calls until a call is answered. Earlier calls may fail. Returns the outcomes of all calls.
    pub(super) fn until_answered(&mut self, service: &str) -> Vec<Outcome> {
        peer::until_answered(self.peer.as_mut(), service)
    }

    /// The client, the control plane and its place, for what happens to them at the same time.
    pub(super) fn parts(&mut self) -> (&mut dyn Peer, &mut Control, &Reserved) {
        (self.peer.as_mut(), &mut self.control, &self.place)
    }

    /// Checks that the client accepts everything it was sent on streams that are open.
    pub(super) fn assert_nothing_refused(&self) {
        let page = admin::page(self.control.admin, "/clients");
        for client in clients_of(&page, self.kind.node()) {
            for (url, of) in client["types"].as_object().unwrap() {
                assert_eq!(of["last_nack"], Value::Null, "{url}: {of}");
            }
        }
    }
}

/// Kills the control plane, and starts it in the same place with something else to serve.
pub(super) fn restart(control: &mut Control, place: &Reserved, mesh: &Mesh) {
    control.process.kill();
    *control = start_control(place, mesh);
}

fn start_control(place: &Reserved, mesh: &Mesh) -> Control {
    let flags = ["--load-report-interval", "1s"];
    CROWFLY.control_with(&place.address.to_string(), &mesh.to_yaml(), &flags)
}

/// The streams of a node on the page `/clients`.
pub(super) fn clients_of<'a>(page: &'a Value, node: &str) -> Vec<&'a Value> {
    let clients = page["clients"].as_array().unwrap();
    let of_node = |client: &&Value| client["node"]["id"] == node;
    clients.iter().filter(of_node).collect()
}

pub(super) fn endpoint(backend: &Backend) -> Value {
    json!({ "address": backend.address })
}

/// An endpoint that the control plane says is unhealthy, or not.
pub(super) fn endpoint_with(health: &str, backend: &Backend) -> Value {
    json!({ "address": backend.address, "health": health })
}

/// A configuration of the control plane.
#[derive(Default)]
pub(super) struct Mesh {
    pub(super) services: Vec<Value>,
    pub(super) views: Vec<Value>,
}

impl Mesh {
    pub(super) fn of(services: impl IntoIterator<Item = Value>) -> Self {
        Self {
            services: services.into_iter().collect(),
            views: Vec::new(),
        }
    }

    /// The services, and a listener by which an Envoy leads to each of them by its name.
    pub(super) fn to_yaml(&self) -> String {
        let names = self.services.iter().map(|service| &service["name"]);
        let hosts: Vec<_> = names.map(|name| (name, name)).collect();
        let ingress = [resources::http2_listener(INGRESS), routes_by_host(&hosts)];
        let mut yaml = String::new();
        // JSON is YAML, and writing to a string cannot fail.
        let _ = writeln!(yaml, "services: {}", json!(self.services));
        let _ = writeln!(yaml, "views: {}", json!(self.views));
        let _ = writeln!(yaml, "resources: {}", json!(ingress));
        yaml
    }
}

/// The routes of Envoys: calls with a host go to a cluster.
pub(super) fn routes_by_host(hosts: &[(&Value, &Value)]) -> Value {
    let host = |(host, cluster): &(&Value, &Value)| {
        json!({
            "name": host,
            "domains": [host],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": cluster } }],
        })
    };
    let hosts: Vec<_> = hosts.iter().map(host).collect();
    json!({ "@type": resources::ROUTES, "name": INGRESS, "virtual_hosts": hosts })
}
