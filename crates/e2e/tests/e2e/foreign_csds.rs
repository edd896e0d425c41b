//! The CSDS of the control plane, read by gRPC C-core with the messages of xds-protos.
//!
//! Tools of other projects read CSDS, so a reader of ours alone would prove little.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crowfly_e2e::c_core::{CCoreClient, bootstrap_of};
use crowfly_e2e::credentials::Credentials;
use crowfly_e2e::envoy::Envoy;
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::product::{Backend, Config, Control};
use crowfly_e2e::resources::{self, CLUSTER, ENDPOINTS, LISTENER, ROUTES};
use crowfly_e2e::{peers, rpc};
use serde_json::{Value, json};

use crate::{CROWFLY, channel};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/py/csds_reader.py");
const SERVICE: &str = "svc";
/// The time between two looks, because no event tells that a client has answered.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// F-09, F-10: the reader sees all clients, and the accepted resources of each. The refused one has
/// its reason, and the version that stays in use. `crowfly clients` shows the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_reader_sees_who_has_what() {
    let (Some(python), Some(envoy)) = (peers::python(), peers::envoy()) else {
        return;
    };
    let backend = CROWFLY.backend("b1");
    let control = CROWFLY.control_forced(&config(&backend, "ROUND_ROBIN"));
    let node = json!({ "id": "c-core", "cluster": "e2e" });
    let bootstrap = bootstrap_of(control.address, &node, &Credentials::insecure());
    let mut c_core = CCoreClient::start_as(python, "xds:///svc", &bootstrap);
    c_core.until_served_by(&["b1"]);
    let ours = channel(control.address);
    rpc::until_served_by(&ours, &["b1"]).await;
    let envoy = Envoy::start(envoy, control.address);
    envoy.until_cluster(SERVICE, |_| true);

    let reader = Reader { python, control };
    let before = reader.until(None, |clients| {
        clients.len() == 3 && clients.iter().all(|of| is_in_sync(of, 2))
    });
    let agents = before
        .iter()
        .map(|of| (text(&of["node"]), text(&of["agent"])));
    let mut agents: Vec<_> = agents.collect();
    agents.sort_unstable();
    assert_eq!(agents[0], ("c-core", "gRPC C-core linux Python"));
    assert_eq!(agents[1..], [("e2e", "crowfly"), ("envoy", "envoy")]);

    let [good] = &reader.until(Some("c-core"), |_| true)[..] else {
        panic!("one client has the id");
    };
    for url in [LISTENER, ROUTES, CLUSTER, ENDPOINTS] {
        let of = resource(good, url);
        assert_eq!(
            (&of["config_status"], &of["client_status"]),
            (&json!("SYNCED"), &json!("ACKED")),
            "{of}"
        );
        assert_eq!(
            (&of["name"], &of["error"]),
            (&json!(SERVICE), &Value::Null),
            "{of}"
        );
        assert_eq!(of["has_config"], json!(true), "{of}");
    }
    reader.assert_clients_agree(good);

    reader
        .control
        .configure(&config(&backend, "CLUSTER_PROVIDED"));
    let is_refused = |of: &Value| resource(of, CLUSTER)["config_status"] == "ERROR";
    let refusing = reader.until(Some("c-core"), |clients| clients.iter().all(is_refused));
    let refused = resource(&refusing[0], CLUSTER);
    assert_eq!(refused["client_status"], "NACKED");
    assert_eq!(
        refused["version"],
        resource(good, CLUSTER)["version"],
        "it is still in use"
    );
    assert_ne!(refused["error"]["version"], refused["version"]);
    assert!(
        text(&refused["error"]["details"]).contains("LB policy"),
        "{refused}"
    );
    for url in [LISTENER, ROUTES, ENDPOINTS] {
        assert_eq!(resource(&refusing[0], url), resource(good, url));
    }
    reader.assert_clients_agree(&refusing[0]);
    c_core.until_served_by(&["b1"]);
}

/// The reader, and the control plane that it reads.
struct Reader {
    python: &'static Path,
    control: Control,
}

impl Reader {
    /// The clients with a node id, or all, once they are as expected by both methods of CSDS.
    fn until(&self, node: Option<&str>, expected: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut read = self.read(node);
            let clients = read["fetched"].as_array().unwrap();
            // They differ if a client answers in between.
            if expected(clients) && read["streamed"] == read["fetched"] {
                return std::mem::take(read["fetched"].as_array_mut().unwrap());
            }
            assert!(Instant::now() < deadline, "{read:#}");
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn read(&self, node: Option<&str>) -> Value {
        let mut command = Command::new(self.python);
        command
            .args([SCRIPT, &self.control.address.to_string()])
            .args(node)
            .env("no_grpc_proxy", "127.0.0.1");
        output(command)
    }

    /// Checks that `crowfly clients` shows the resources of a client as the reader does.
    fn assert_clients_agree(&self, client: &Value) {
        let mut command = Command::new(CROWFLY.program);
        let admin = self.control.admin.to_string();
        command.args([
            "clients",
            text(&client["node"]),
            "--admin",
            &admin,
            "--json",
        ]);
        let page = output(command);
        let ours = page["clients"][0]["resources"].as_array().unwrap();
        let theirs = client["resources"].as_array().unwrap();
        assert_eq!(ours.len(), theirs.len(), "{page:#}");
        for of in theirs {
            let is_it =
                |one: &&Value| one["type_url"] == of["type_url"] && one["name"] == of["name"];
            let one = ours.iter().find(is_it).unwrap();
            let state = text(&one["state"]).to_uppercase();
            assert_eq!(
                (state.as_str(), &one["acked_version"]),
                (text(&of["client_status"]), &of["version"])
            );
            let nack = &one["nack"];
            assert_eq!(
                [&nack["version"], &nack["message"]],
                [&of["error"]["version"], &of["error"]["details"]]
            );
        }
    }
}

/// The service, with a cluster of this policy.
fn config(backend: &Backend, lb_policy: &str) -> Config {
    let mut cluster = resources::http2_cluster(SERVICE);
    cluster["lb_policy"] = json!(lb_policy);
    Config::default().with_resources([
        resources::api_listener(SERVICE),
        resources::routes(SERVICE, SERVICE),
        cluster,
        resources::endpoints(SERVICE, &[backend.address]),
    ])
}

/// True if a client has accepted all it wants, and at least `count` resources.
fn is_in_sync(client: &Value, count: usize) -> bool {
    let resources = client["resources"].as_array().unwrap();
    resources.len() >= count && resources.iter().all(|of| of["config_status"] == "SYNCED")
}

/// The only resource of a type that a client has.
fn resource<'a>(client: &'a Value, type_url: &str) -> &'a Value {
    let resources = client["resources"].as_array().unwrap().iter();
    let mut found = resources.filter(|of| of["type_url"] == type_url);
    match (found.next(), found.next()) {
        (Some(of), None) => of,
        _ => panic!("one {type_url} in {client:#}"),
    }
}

/// The JSON that a command prints.
fn output(mut command: Command) -> Value {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
