//! Kubernetes with many services: memory, and what one change costs. A process of its own, because it
//! measures its memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use crowfly_node::kubernetes::Joiner;
use crowfly_source::Event;
use crowfly_source::kubernetes::{Object, ObjectKey, Seen};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

const SERVICES: usize = 10_000;
const ENDPOINTS: usize = 10;

/// The agent has 100 MB for 10,000 services with 10 backends each, and not all of it is for this source.
#[test]
fn ten_thousand_services_fit_into_memory() {
    let before = resident();
    let begin = Instant::now();
    let mut joiner = Joiner::new(None);
    joiner.see_service(Seen::Event(Event::Init));
    joiner.see_slice(Seen::Event(Event::Init));
    for number in 0..SERVICES {
        joiner.see_service(service(number));
        joiner.see_slice(slice(number, 0));
    }
    joiner.see_service(Seen::Event(Event::InitDone));
    joiner.see_slice(Seen::Event(Event::InitDone));
    let told = joiner.take();
    assert_eq!(told.len(), SERVICES + 2);
    let (all, memory) = (begin.elapsed(), resident() - before);
    drop(told);

    let changes = 1000;
    let begin = Instant::now();
    for number in 0..changes {
        joiner.see_slice(slice(number, 1));
        assert_eq!(joiner.take().len(), 1);
    }
    let one = begin.elapsed() / u32::try_from(changes).unwrap();
    eprintln!(
        "{SERVICES} services x {ENDPOINTS} backends: {all:?} in all, {} MiB; one change {one:?}",
        memory >> 20
    );
    assert!(memory < 85 << 20, "{} MiB", memory >> 20);
}

fn service(number: usize) -> Seen<Service> {
    let (high, low) = (number / 250, number % 250 + 1);
    let object = json!({
        "metadata": { "name": format!("service-{number}"), "namespace": "shop" },
        "spec": {
            "clusterIPs": [format!("10.96.{high}.{low}")],
            "ports": [{ "name": "http", "port": 80 }],
        },
    });
    let object: Service = serde_json::from_value(object).unwrap();
    let key = ObjectKey::new("shop", &format!("service-{number}"));
    Seen::Event(Event::Upsert(key, Object::Valid(Arc::new(object))))
}

fn slice(number: usize, version: usize) -> Seen<EndpointSlice> {
    let endpoints = (0..ENDPOINTS).map(|nth| {
        let at = number * ENDPOINTS + nth;
        let (high, middle, low) = (at >> 16, at >> 8 & 255, at & 255);
        json!({
            "addresses": [format!("10.{}.{middle}.{low}", 128 + high)],
            "conditions": { "ready": nth != 0 || version == 0, "serving": true, "terminating": false },
            "nodeName": format!("node-{}", at % 500),
            "zone": format!("zone-{}", at % 3),
            "hints": { "forZones": [{ "name": format!("zone-{}", at % 3) }] },
        })
    });
    let name = format!("service-{number}-abcde");
    let object = json!({
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": { "kubernetes.io/service-name": format!("service-{number}") },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 8080 }],
        "endpoints": endpoints.collect::<Vec<_>>(),
    });
    let object: EndpointSlice = serde_json::from_value(object).unwrap();
    let key = ObjectKey::new("shop", &name);
    Seen::Event(Event::Upsert(key, Object::Valid(Arc::new(object))))
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}
