//! An agent without maps whose source is Kubernetes, and objects for it.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of this")]

use std::time::Duration;

use crowfly_node::kubernetes::{KubernetesOptions, KubernetesSource};
use crowfly_node::model::Place;
use crowfly_node::serve::Told;
use crowfly_node::services::Services;
use crowfly_source::Status;
use crowfly_source::kubernetes::{ApiServerOptions, WatchOptions};
use crowfly_testkit::KubeApi;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::golden::table;

/// A running source, and the services that it has told.
pub struct Agent {
    pub services: Services,
    told: mpsc::Receiver<Told>,
    pub facts: tokio::sync::watch::Receiver<crowfly_node::kubernetes::NodeFacts>,
    pub failures: Vec<String>,
    task: JoinHandle<()>,
}

impl Agent {
    pub fn start(options: KubernetesOptions) -> Self {
        let source = KubernetesSource::new(options).unwrap();
        let facts = source.node_facts();
        let (sender, told) = mpsc::channel(16);
        Self {
            services: Services::new(vec!["kubernetes".into()], Place::default()),
            told,
            facts,
            failures: Vec::new(),
            task: tokio::spawn(source.run(0, sender)),
        }
    }

    /// Takes messages until the services are as expected.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(Some(told)) = timeout(left, self.told.recv()).await else {
                panic!(
                    "{what}: {} {:?} {:?}",
                    self.table(),
                    self.status(),
                    self.failures
                );
            };
            match told {
                Told::Services(source, events) => {
                    self.services.handle(source, events);
                    if let Status::Failed(reason) = self.status() {
                        self.failures.push(reason.to_string());
                    }
                }
                Told::Place(place) => {
                    self.services.move_to(place);
                }
                #[allow(unreachable_patterns, reason = "other sources say more")]
                _ => {}
            }
        }
    }

    pub fn table(&self) -> String {
        table(&self.services)
    }

    pub fn status(&self) -> Status {
        let (_, status, _) = self.services.sources().next().unwrap();
        status.clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Settings for a test's server, with short pauses.
pub fn options(api: &KubeApi) -> KubernetesOptions {
    KubernetesOptions {
        server: ApiServerOptions {
            address: Some(api.url()),
            ..ApiServerOptions::default()
        },
        watch: WatchOptions {
            shortest_pause: Duration::from_millis(20),
            ..WatchOptions::default()
        },
        ..KubernetesOptions::default()
    }
}

pub fn service(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "clusterIPs": [address], "ports": [{ "port": 80 }] },
    })
}

pub fn slice(name: &str, owner: &str, addresses: &[&str]) -> Value {
    let endpoints = addresses
        .iter()
        .map(|address| json!({ "addresses": [address] }));
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": { "kubernetes.io/service-name": owner },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "", "port": 8080 }],
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}
