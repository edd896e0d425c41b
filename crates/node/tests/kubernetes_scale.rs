//! Kubernetes with many services: memory, and the cost of one change. A process of its own, because it
//! counts what is allocated.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

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

/// The agent has 100 MB for 10,000 services with 10 backends each, and not all of it is for this source. Memory is
/// what is allocated, because what is resident depends on the machine and its load.
#[test]
fn ten_thousand_services_fit_into_memory() {
    let begin = Instant::now();
    let mut joiner = Joiner::new(None);
    let mut told = Vec::new();
    let memory = allocation_counter::measure(|| {
        joiner.see_service(Seen::Event(Event::Init));
        joiner.see_slice(Seen::Event(Event::Init));
        for number in 0..SERVICES {
            joiner.see_service(service(number));
            joiner.see_slice(slice(number, 0));
        }
        joiner.see_service(Seen::Event(Event::InitDone));
        joiner.see_slice(Seen::Event(Event::InitDone));
        told = joiner.take();
    });
    assert_eq!(told.len(), SERVICES + 2);
    let all = begin.elapsed();
    drop(told);

    let changes = 1000;
    let begin = Instant::now();
    for number in 0..changes {
        joiner.see_slice(slice(number, 1));
        assert_eq!(joiner.take().len(), 1);
    }
    let one = begin.elapsed() / u32::try_from(changes).unwrap();
    let [live, peak] = [
        memory.bytes_current,
        i64::try_from(memory.bytes_max).unwrap(),
    ]
    .map(|bytes| bytes >> 20);
    eprintln!(
        "{SERVICES} services x {ENDPOINTS} backends: {all:?} in all, {live} MiB (peak {peak} MiB); one change {one:?}"
    );
    assert!(live < 50, "{live} MiB");
    assert!(peak < 60, "{peak} MiB");
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
