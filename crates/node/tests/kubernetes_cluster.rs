//! Kubernetes as a source, against each server that can be had: the test's own, and the cluster of
//! `CROWFLY_TEST_KUBECONFIG`, which `kubectl` writes to.
//!
//! On a real cluster each test has a namespace of its own, which goes with it. Faults cannot be asked of a real cluster:
//! the tests with 410, 429, disconnects, expired tokens and garbled events are in `kubernetes_api.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;
mod kubernetes_agent;

use std::cell::RefCell;
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crowfly_node::kubernetes::KubernetesOptions;
use crowfly_source::Status;
use crowfly_testkit::KubeApi;
use serde_json::{Value, json};

use kubernetes_agent::{Agent, options};
use tokio::time::sleep;

/// N-23, N-24, N-25: what happens to objects is told as it happens, by pages and by streaming lists.
#[tokio::test]
async fn the_life_of_a_service_is_told() {
    for server in Server::all().await {
        for is_streaming in [false, true] {
            let mut options = server.options();
            options.watch.page_size = 2;
            options.watch.streaming_lists = is_streaming;
            let mut agent = server.agent(options).await;
            server.apply(server.service("web"));
            agent.refuses(&server, "web").await;
            server.apply(slice("web-1", "web", &["10.244.255.1"]));
            agent.has(&server, "web", &["10.244.255.1"]).await;
            server.apply(slice("web-1", "web", &["10.244.255.1", "10.244.255.2"]));
            let both = ["10.244.255.1", "10.244.255.2"];
            agent.has(&server, "web", &both).await;
            server.apply(slice("web-1", "web", &["10.244.255.2"]));
            agent.has(&server, "web", &["10.244.255.2"]).await;
            server.delete("services", "web");
            agent.lacks(&server, "web").await;
            server.delete("endpointslices", "web-1");
        }
    }
}

/// N-17, N-18: a slice may come before its service, or after it. N-27: a service may come back.
#[tokio::test]
async fn services_and_slices_come_in_either_order() {
    for server in Server::all().await {
        let mut agent = server.agent(server.options()).await;
        server.apply(slice("early-1", "early", &["10.244.255.1"]));
        server.apply(server.service("late"));
        agent.refuses(&server, "late").await;
        server.apply(server.service("early"));
        agent.has(&server, "early", &["10.244.255.1"]).await;
        server.apply(slice("late-1", "late", &["10.244.255.2"]));
        agent.has(&server, "late", &["10.244.255.2"]).await;
        server.delete("services", "early");
        agent.lacks(&server, "early").await;
        // A real cluster may have collected the slice together with its service.
        server.apply(server.service("early"));
        server.apply(slice("early-1", "early", &["10.244.255.3"]));
        agent.has(&server, "early", &["10.244.255.3"]).await;
    }
}

/// N-14: the slices of a service are one, and a backend may move from one to another.
#[tokio::test]
async fn slices_are_merged() {
    for server in Server::all().await {
        server.apply(server.service("web"));
        server.apply(slice("web-1", "web", &["10.244.255.1", "10.244.255.2"]));
        server.apply(slice("web-2", "web", &["10.244.255.3"]));
        // They are there before the agent: this is its listing.
        let mut agent = server.agent(server.options()).await;
        let all = ["10.244.255.1", "10.244.255.2", "10.244.255.3"];
        agent.has(&server, "web", &all).await;
        server.apply(slice("web-2", "web", &["10.244.255.2", "10.244.255.3"]));
        server.apply(slice("web-1", "web", &["10.244.255.1"]));
        server.apply(slice("web-3", "web", &["10.244.255.4"]));
        let more = [all.as_slice(), &["10.244.255.4"]].concat();
        agent.has(&server, "web", &more).await;
        server.delete("endpointslices", "web-2");
        agent
            .has(&server, "web", &["10.244.255.1", "10.244.255.4"])
            .await;
    }
}

/// N-16: a backend that moves from one slice to another is routed in every moment, if both changes come within the time of
/// a batch. Here it leaves the one before it is in the other.
#[tokio::test]
async fn a_backend_moves_between_slices_without_a_gap() {
    for server in Server::all().await {
        server.apply(server.service("web"));
        server.apply(slice("web-1", "web", &["10.244.255.1", "10.244.255.2"]));
        server.apply(slice("web-2", "web", &["10.244.255.3"]));
        let mut options = server.options();
        // `kubectl` takes a moment.
        options.batch = Duration::from_secs(3);
        let mut agent = server.agent(options).await;
        let before = ["10.244.255.1", "10.244.255.2", "10.244.255.3"];
        agent.has(&server, "web", &before).await;
        server.apply(slice("web-1", "web", &["10.244.255.1"]));
        // The two changes must not be one for the reader of the watch.
        sleep(Duration::from_millis(200)).await;
        let all = ["10.244.255.2", "10.244.255.3", "10.244.255.4"];
        server.apply(slice("web-2", "web", &all));
        let seen = RefCell::new(Vec::new());
        agent
            .until("the end of the move", |agent| {
                let backends = agent.backends_of(&server, "web").unwrap_or_default();
                let is_over = backends.contains(&"10.244.255.4:8080".to_owned());
                seen.borrow_mut().push(backends);
                is_over
            })
            .await;
        for backends in seen.into_inner() {
            let moving = "10.244.255.2:8080".to_owned();
            assert!(backends.contains(&moving), "{backends:?}");
        }
    }
}

/// N-37, N-40, N-41: endpoints that are not ready get nothing, and terminating ones serve while there is no other.
#[tokio::test]
async fn conditions_are_followed() {
    for server in Server::all().await {
        let mut agent = server.agent(server.options()).await;
        server.apply(server.service("web"));
        let with = |first: Value| {
            let mut slice = slice("web-1", "web", &["10.244.255.1", "10.244.255.2"]);
            slice["endpoints"][0]["conditions"] = first;
            slice
        };
        server.apply(with(json!({ "ready": true })));
        let both = ["10.244.255.1", "10.244.255.2"];
        agent.has(&server, "web", &both).await;
        server.apply(with(json!({ "ready": false })));
        agent.has(&server, "web", &["10.244.255.2"]).await;
        let terminating = json!({ "ready": false, "serving": true, "terminating": true });
        let mut last = with(terminating);
        last["endpoints"][1]["conditions"] = json!({ "ready": false });
        server.apply(last);
        agent.has(&server, "web", &["10.244.255.1"]).await;
        server.apply(with(
            json!({ "ready": false, "serving": false, "terminating": true }),
        ));
        agent.has(&server, "web", &["10.244.255.2"]).await;
    }
}

/// N-31, N-32, N-33: headless services, external names and services of another proxy are not routed.
#[tokio::test]
async fn services_without_frontends_are_left_alone() {
    for server in Server::all().await {
        let mut agent = server.agent(server.options()).await;
        let mut headless = server.service("headless");
        headless["spec"]["clusterIP"] = "None".into();
        headless["spec"]["clusterIPs"] = json!(["None"]);
        let mut external = server.service("external");
        external["spec"] = json!({ "type": "ExternalName", "externalName": "example.com" });
        let mut foreign = server.service("foreign");
        let label = "service.kubernetes.io/service-proxy-name";
        foreign["metadata"]["labels"] = json!({ label: "another" });
        for object in [headless, external, foreign] {
            server.apply(object);
        }
        // Services are told in order. So an agent that has `web` has heard of the three above.
        server.apply(server.service("web"));
        server.apply(slice("web-1", "web", &["10.244.255.1"]));
        agent.has(&server, "web", &["10.244.255.1"]).await;
        for name in ["headless", "external", "foreign"] {
            agent.lacks(&server, name).await;
        }
        // The label may go, and come back.
        let ours = server.service("foreign");
        server.replace(ours);
        agent.refuses(&server, "foreign").await;
    }
}

/// An API server.
enum Server {
    Test(KubeApi),
    Real(Cluster),
}

/// A namespace of a test's own on a real cluster.
struct Cluster {
    kubeconfig: PathBuf,
    namespace: String,
}

impl Server {
    /// The test's own, and the real one if there is one.
    async fn all() -> Vec<Self> {
        let mut all = vec![Self::Test(KubeApi::start().await)];
        match env::var_os("CROWFLY_TEST_KUBECONFIG") {
            Some(kubeconfig) => all.push(Self::Real(Cluster::new(kubeconfig.into()))),
            // Not `eprintln`: the harness hides that of a test that passes.
            None => drop(writeln!(
                io::stderr(),
                "left out: CROWFLY_TEST_KUBECONFIG names no kubeconfig of a cluster"
            )),
        }
        all
    }

    fn options(&self) -> KubernetesOptions {
        match self {
            Self::Test(api) => options(api),
            Self::Real(cluster) => {
                let mut options = KubernetesOptions::default();
                options.server.kubeconfig = Some(cluster.kubeconfig.clone());
                options
            }
        }
    }

    /// An agent that has listed all services.
    async fn agent(&self, options: KubernetesOptions) -> Agent {
        let mut agent = Agent::start(options);
        agent
            .until("the listing", |agent| agent.status() == Status::Synced)
            .await;
        agent
    }

    fn namespace(&self) -> &str {
        match self {
            Self::Test(_) => "shop",
            Self::Real(cluster) => &cluster.namespace,
        }
    }

    /// A service. A real server gives it an address by itself.
    fn service(&self, name: &str) -> Value {
        let mut service = kubernetes_agent::service(name, "");
        service["spec"] = json!({ "ports": [{ "port": 80 }] });
        if let Self::Test(_) = self {
            let last = name.bytes().fold(0_u8, u8::wrapping_add);
            service["spec"]["clusterIPs"] = json!([format!("10.96.7.{last}")]);
        }
        service
    }

    fn apply(&self, mut object: Value) {
        match self {
            Self::Test(api) => api.apply(&object),
            Self::Real(cluster) => {
                object["metadata"]["namespace"] = cluster.namespace.as_str().into();
                cluster.kubectl(&["apply", "-f", "-"], Some(&object));
            }
        }
    }

    /// Applies an object with all its labels: those that it had before, and has not any more, go.
    fn replace(&self, mut object: Value) {
        match self {
            Self::Test(api) => api.apply(&object),
            Self::Real(cluster) => {
                object["metadata"]["namespace"] = cluster.namespace.as_str().into();
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                let label = "service.kubernetes.io/service-proxy-name-";
                cluster.kubectl(&["label", "service", &name, label], None);
            }
        }
    }

    fn delete(&self, resource: &str, name: &str) {
        match self {
            Self::Test(api) => api.delete(resource, self.namespace(), name),
            Self::Real(cluster) => {
                let arguments = ["delete", resource, name, "--ignore-not-found"];
                cluster.kubectl(&arguments, None);
            }
        }
    }
}

impl Cluster {
    fn new(kubeconfig: PathBuf) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cluster = Self {
            kubeconfig,
            namespace: format!("crowfly-test-{}-{number}", std::process::id()),
        };
        let namespace = cluster.namespace.clone();
        cluster.kubectl(&["create", "namespace", &namespace], None);
        cluster
    }

    fn kubectl(&self, arguments: &[&str], input: Option<&Value>) {
        let mut kubectl = Command::new("kubectl");
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig);
        kubectl
            .args(["--namespace", &self.namespace])
            .args(arguments);
        let mut child = kubectl.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.map(Value::to_string).unwrap_or_default();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success(), "kubectl {arguments:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let namespace = self.namespace.clone();
        self.kubectl(&["delete", "namespace", &namespace, "--wait=false"], None);
    }
}

impl Agent {
    /// Waits until a service has these backends.
    async fn has(&mut self, server: &Server, name: &str, backends: &[&str]) {
        let backends = backends.iter().map(|backend| format!("{backend}:8080"));
        let expected = Some(backends.collect());
        let what = format!("{name} has {expected:?}");
        self.until(&what, |agent| agent.backends_of(server, name) == expected)
            .await;
    }

    /// Waits until a service is routed, and has no backend.
    async fn refuses(&mut self, server: &Server, name: &str) {
        self.has(server, name, &[]).await;
    }

    async fn lacks(&mut self, server: &Server, name: &str) {
        let what = format!("no {name}");
        self.until(&what, |agent| agent.backends_of(server, name).is_none())
            .await;
    }

    /// The backends of a service; `None` if it is not routed.
    fn backends_of(&self, server: &Server, name: &str) -> Option<Vec<String>> {
        let name = format!("{}/{name}", server.namespace());
        let mut routes = self.services.routes().iter();
        let (_, route) = routes.find(|(frontend, _)| {
            let owner = self.services.owner(frontend);
            owner.is_some_and(|owner| owner.service.name.to_string() == name)
        })?;
        let targets = route.targets.iter();
        Some(targets.map(|target| target.address.to_string()).collect())
    }
}

fn slice(name: &str, owner: &str, addresses: &[&str]) -> Value {
    kubernetes_agent::slice(name, owner, addresses)
}
