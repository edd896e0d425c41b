//! `crowfly inspect` shows the resource that a client refused, the reason, and the version in use
//! instead.
//!
//! Our client, gRPC C-core and an Envoy are inspected, because each reports a refusal in another
//! form.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crowfly::{Bootstrap, Channel};
use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::process::{PATIENCE, Process};
use crowfly_e2e::product::{Backend, Config, Control};
use crowfly_e2e::resources::{self, CLUSTER, LISTENER};
use crowfly_e2e::{peers, rpc};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::CROWFLY;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/py/csds_client.py");
/// The service of these tests alone, because all clients of the process are in one CSDS.
const NAME: &str = "inspected";
const TARGET: &str = "xds:///inspected";
/// The time between two looks, because no event tells that a client has refused something.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// S14-02: our own client shows a refused update beside the version in use, and goes on with the
/// latter.
#[tokio::test(flavor = "multi_thread")]
async fn our_client_shows_what_it_refused_and_what_it_uses() {
    let backend = CROWFLY.backend("b1");
    let control = CROWFLY.control_forced(&config(&backend, "ROUND_ROBIN"));
    let bootstrap = Bootstrap::builder(&control.address.to_string())
        .unwrap()
        .node_id("ours")
        .build();
    let channel = Channel::builder(TARGET)
        .bootstrap(bootstrap)
        .build()
        .unwrap();
    rpc::until_served_by(&channel, &["b1"]).await;
    let address = serve_csds().await;

    let refused = tokio::task::spawn_blocking(move || {
        let peer = ["--csds", &address.to_string()];
        let of_ours = |client: &Value| client["scope"] == TARGET;
        let refused = refused_cluster(peer, of_ours, &control, &backend);
        // Its text has the path of the field.
        assert!(
            refused.details.contains("cluster inspected: invalid"),
            "{refused:?}"
        );
        assert!(refused.details.contains("lb_policy"), "{refused:?}");
        refused.assert_in_text(&inspect(peer, "text"), "Cluster");
        let yaml = inspect(peer, "yaml");
        assert!(yaml.contains("eds_cluster_config:"), "{yaml}");
        (control, backend)
    });
    let _processes = refused.await.unwrap();
    rpc::until_served_by(&channel, &["b1"]).await;
}

/// S14-02: a C-core client shows a refused update beside the version in use, by gRPC's own CSDS.
#[test]
fn a_c_core_client_shows_what_it_refused_and_what_it_uses() {
    let Some(python) = peers::python() else {
        return;
    };
    let backend = CROWFLY.backend("b1");
    let control = CROWFLY.control_forced(&config(&backend, "ROUND_ROBIN"));
    let bootstrap = json!({
        "xds_servers": [{
            "server_uri": control.address.to_string(),
            "channel_creds": [{ "type": "insecure" }],
        }],
        "node": { "id": "c-core", "cluster": "e2e" },
    });
    let mut command = Command::new(python);
    command
        .args([SCRIPT, TARGET])
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap.to_string())
        .env_remove("GRPC_XDS_BOOTSTRAP")
        .env("no_grpc_proxy", "127.0.0.1");
    let client = Process::start("C-core client with CSDS", command);
    let port = client.wait_for("port", |line| {
        serde_json::from_str::<Value>(line).ok()?["port"].as_u64()
    });
    let address = format!("127.0.0.1:{port}");
    let peer = ["--csds", &address];
    let is_it = |client: &Value| client["node"]["id"] == "c-core";
    let refused = refused_cluster(peer, is_it, &control, &backend);
    assert!(refused.details.contains("LB policy"), "{refused:?}");
    refused.assert_in_text(&inspect(peer, "text"), "Cluster");
    let yaml = inspect(peer, "yaml");
    assert!(yaml.contains("eds_cluster_config:"), "{yaml}");
}

/// S14-02: an Envoy shows a refused update beside the version in use, by its admin port.
#[test]
fn an_envoy_shows_what_it_refused_and_what_it_uses() {
    let Some(program) = peers::envoy() else {
        return;
    };
    let backend = CROWFLY.backend("b1");
    let config = |listener| {
        let routes = resources::routes(NAME, "svc");
        Config::service("svc", &[&backend]).with_resources([listener, routes])
    };
    let control = CROWFLY.control(&config(resources::http2_listener(NAME)));
    let envoy = Envoy::start(program, control.address);
    envoy.listener(NAME);
    let address = envoy.admin().to_string();
    let peer = ["--envoy", &address];
    let any = |_: &Value| true;
    let good = until(peer, any, LISTENER, NAME, "ACKED");
    // What the version in use leads to is there as well.
    for (type_url, name) in [
        (resources::ROUTES, NAME),
        (CLUSTER, "svc"),
        (resources::ENDPOINTS, "svc"),
    ] {
        until(peer, any, type_url, name, "ACKED");
    }

    let mut bad = resources::http2_listener(NAME);
    let filters = &mut bad["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"];
    filters[0]["typed_config"] = json!({
        "@type": "type.googleapis.com/envoy.config.core.v3.RuntimeUInt32",
        "default_value": 7,
    });
    control.configure(&config(bad));
    let nacked = until(peer, any, LISTENER, NAME, "NACKED");
    let refused = Refused::new(&good, &nacked);
    let reason = "Didn't find a registered implementation for 'router'";
    assert!(refused.details.contains(reason), "{refused:?}");
    refused.assert_in_text(&inspect(peer, "text"), "Listener");
    let yaml = inspect(peer, "yaml");
    assert!(yaml.contains("route_config_name: inspected"), "{yaml}");
}

/// Waits until a client has the cluster, replaces that by one that no gRPC client can use, and
/// waits for the refusal.
fn refused_cluster(
    peer: [&str; 2],
    client: impl Fn(&Value) -> bool,
    control: &Control,
    backend: &Backend,
) -> Refused {
    let good = until(peer, &client, CLUSTER, NAME, "ACKED");
    control.configure(&config(backend, "CLUSTER_PROVIDED"));
    let nacked = until(peer, &client, CLUSTER, NAME, "NACKED");
    let refused = Refused::new(&good, &nacked);
    let rejected = nacked["error"]["version"].as_str().unwrap();
    assert_ne!(rejected, refused.in_use);
    // The other resources stay accepted.
    let listener = until(peer, &client, LISTENER, NAME, "ACKED");
    assert_eq!(listener["error"], Value::Null);
    refused
}

/// The fields of a refused resource in `inspect`.
#[derive(Debug)]
struct Refused {
    in_use: String,
    details: String,
}

impl Refused {
    /// The version in use is the one from before the refusal.
    fn new(good: &Value, nacked: &Value) -> Self {
        assert_eq!(good["error"], Value::Null);
        assert_eq!(nacked["version"], good["version"]);
        assert_eq!(nacked["updated"], good["updated"]);
        assert!(nacked["error"]["at"].is_string(), "{nacked}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            in_use: text(&nacked["version"]),
            details: text(&nacked["error"]["details"]),
        }
    }

    /// Checks that the text has the same as the JSON: the row, and the reason below it.
    fn assert_in_text(&self, text: &str, kind: &str) {
        let row = [kind, NAME, "NACKED", &self.in_use];
        let mut lines = text.lines();
        let found = lines.find(|line| line.split_whitespace().take(4).eq(row));
        assert!(found.is_some(), "no row {row:?} in\n{text}");
        let reason = lines.next().unwrap_or_default();
        let in_use = format!("version {} still in use: ", self.in_use);
        let details = self.details.lines().next().unwrap();
        assert!(reason.contains("rejected"), "{text}");
        assert!(
            reason.contains(&in_use) && reason.contains(details),
            "{text}"
        );
    }
}

/// The service, with a cluster of this policy.
fn config(backend: &Backend, lb_policy: &str) -> Config {
    let mut cluster = resources::cluster(NAME);
    cluster["lb_policy"] = json!(lb_policy);
    Config::service("other", &[backend]).with_resources([
        resources::api_listener(NAME),
        resources::routes(NAME, NAME),
        cluster,
        resources::endpoints(NAME, &[backend.address]),
    ])
}

/// The resource as `inspect` shows it, once it is in this state.
fn until(
    peer: [&str; 2],
    client: impl Fn(&Value) -> bool,
    type_url: &str,
    name: &str,
    state: &str,
) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = inspect(peer, "json");
        let view: Value = serde_json::from_str(&text).unwrap();
        let clients = view["clients"].as_array().unwrap().iter();
        let resources = clients
            .filter(|one| client(one))
            .flat_map(|one| one["resources"].as_array().unwrap());
        let mut found = resources.filter(|one| {
            one["type_url"] == type_url && one["name"] == name && one["state"] == state
        });
        if let Some(found) = found.next() {
            return found.clone();
        }
        assert!(
            Instant::now() < deadline,
            "no {type_url} {name} in state {state} within {PATIENCE:?}: {text}"
        );
        thread::sleep(LOOK_AGAIN);
    }
}

/// The output of `crowfly inspect`.
fn inspect(peer: [&str; 2], format: &str) -> String {
    let mut command = Command::new(CROWFLY.program);
    command.arg("inspect").args(peer).args(["-o", format]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Serves the CSDS of this process.
async fn serve_csds() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(crowfly_client::csds_service());
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}
