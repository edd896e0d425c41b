//! Objects for an API server of Kubernetes, and the source against the kernel.

use std::thread;
use std::time::{Duration, Instant};

use crowfly_testkit::KubeApi;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::metrics::{metrics_of, scrape, value_of};

const PATIENCE: Duration = Duration::from_secs(20);

/// A Service of the namespace `k8s`, at port 80 of an address.
pub(crate) fn service(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "k8s" },
        "spec": { "clusterIPs": [address], "ports": [{ "port": 80 }] },
    })
}

/// The endpoints of a service at port 8080, each with its readiness.
pub(crate) fn slice(owner: &str, endpoints: &[(&str, bool)]) -> Value {
    let endpoints = endpoints.iter().map(|(address, is_ready)| {
        json!({ "addresses": [address], "conditions": { "ready": is_ready } })
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": owner,
            "namespace": "k8s",
            "labels": { "kubernetes.io/service-name": owner },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "", "port": 8080 }],
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

/// N-43: an endpoint whose readiness flaps up to 20 times a second, while another one is ready. No connection fails, every
/// flap is in the kernel, and a connection that begins while the endpoint is not ready there does not get it.
#[test]
fn flapping_readiness_fails_no_connection() {
    const FLAPS: u64 = 60;
    let Some(lab) = Lab::new() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let api = runtime.block_on(KubeApi::start());
    let flap = |is_ready| {
        let endpoints = [("127.0.0.1", true), ("127.0.0.2", is_ready)];
        api.apply(&slice("web", &endpoints));
    };
    api.apply(&service("web", "10.96.0.10"));
    flap(true);
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 a");
    // Connections that are under way in the moment of a flap get it still, so it listens throughout.
    probe.ask("serve-tcp 127.0.0.2:8080 b");
    let url = api.url();
    let flags = [
        "--kubernetes-server",
        &url,
        "--metrics-listen",
        "127.0.0.1:0",
    ];
    let agent = lab.agent("services: []\n", &flags);
    let metrics = metrics_of(&agent);
    let line = "crowfly_node_frontend_changes_total{result=\"switched\"}";
    let switches = || value_of(&scrape(&metrics), line);
    let before = switches();
    probe.ask("fire 1000 10.96.0.10:80");
    let begin = Instant::now();
    for flaps in 1..=FLAPS {
        let is_ready = flaps % 2 == 0;
        let last = Instant::now();
        flap(is_ready);
        while switches() < before + flaps {
            assert!(last.elapsed() < PATIENCE, "{flaps}\n{}", agent.log());
            thread::sleep(Duration::from_millis(2));
        }
        if !is_ready {
            assert_eq!(probe.ask("tcp 10.96.0.10:80 20"), "a=20", "not ready");
        }
        thread::sleep((last + Duration::from_millis(50)).saturating_duration_since(Instant::now()));
    }
    let took = begin.elapsed().as_secs_f64();
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["a", "b"], "{counts:?}");
    println!("{FLAPS} flaps in {took:.1} s, {counts:?}");
    assert_eq!(switches() - before, FLAPS);
}
