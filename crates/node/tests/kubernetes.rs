//! Kubernetes objects, as files that a reviewer can read: the YAML of `kubectl get -o yaml`, and
//! the table that follows from it. Other tests change the order in which objects come.
//!
//! Each file of `tests/kubernetes` is one situation, with the node's place in a first comment. The table
//! is kept by `CROWFLY_REGENERATE=1 cargo test -p crowfly-node --test kubernetes`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crowfly_node::kubernetes::{Joiner, Refused};
use crowfly_node::model::{Place, Service, ServiceName};
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_source::kubernetes::{Object, ObjectKey, Seen};
use crowfly_source::{Event, Status};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use proptest::prelude::*;
use serde_json::Value;

use golden::table;

const LINE: &str = "\n--- table\n";

/// N-07, N-31, N-32, N-33: each kind of Service, and those that have no frontend.
#[test]
fn services_have_frontends_for_their_cluster_ips_alone() {
    check("services");
}

/// N-11, N-14, N-15, N-34, N-35, N-36: slices find their service by a label, in their namespace.
#[test]
fn slices_find_their_service() {
    check("slices");
}

/// N-37, N-38, N-39, N-40, N-41: conditions of real objects.
#[test]
fn conditions_decide() {
    check("conditions");
}

/// N-51, N-53, N-54, N-55: hints of real objects, and policies.
#[test]
fn hints_and_policies_decide() {
    check("topology");
}

/// N-17, N-18: a slice may come before its service, or after it.
#[test]
fn the_two_kinds_may_come_in_either_order() {
    let (web, slice) = (
        service("web", "10.96.0.1"),
        slice("web-1", "web", &["10.244.0.1"]),
    );
    let mut first = Cluster::synced();
    first.see(Said::upsert(&web));
    first.see(Said::upsert(&slice));
    let mut second = Cluster::synced();
    second.see(Said::upsert(&slice));
    assert_eq!(table(&second.services), "", "a slice alone is no service");
    second.see(Said::upsert(&web));
    let expected = "10.96.0.1:80/TCP shop/web\n  -> 10.244.0.1:8080 weight 1\n";
    assert_eq!(table(&first.services), expected);
    assert_eq!(table(&second.services), expected);
}

/// A service without its slices would refuse connections that have a backend.
#[test]
fn nothing_is_told_before_both_kinds_are_listed() {
    let mut cluster = Cluster::new();
    let (web, slice) = (
        service("web", "10.96.0.1"),
        slice("web-1", "web", &["10.244.0.1"]),
    );
    cluster.joiner.see_service(Seen::Event(Event::Init));
    cluster.see(Said::upsert(&web));
    cluster.joiner.see_service(Seen::Event(Event::InitDone));
    cluster.joiner.see_slice(Seen::Event(Event::Init));
    cluster.see(Said::upsert(&slice));
    assert_eq!(cluster.joiner.take(), []);
    cluster.joiner.see_slice(Seen::Event(Event::InitDone));
    let told = cluster.joiner.take();
    let [Event::Init, Event::Upsert(name, service), Event::InitDone] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(name.to_string(), "shop/web");
    assert_eq!(service.backends.len(), 1);
}

/// N-16: a backend that moves to another slice is never missing, if both slices come together.
#[test]
fn a_backend_may_move_between_slices() {
    let mut cluster = Cluster::synced();
    cluster.see(Said::upsert(&service("web", "10.96.0.1")));
    cluster.see(Said::upsert(&slice(
        "web-1",
        "web",
        &["10.244.0.1", "10.244.0.2"],
    )));
    cluster.note(Said::upsert(&slice("web-1", "web", &["10.244.0.1"])));
    cluster.note(Said::upsert(&slice("web-2", "web", &["10.244.0.2"])));
    let told = cluster.joiner.take();
    assert_eq!(told, [], "the service has the backends that it had");
}

/// N-26: a ClusterIP that is used again belongs to its new service, in either order of events.
#[test]
fn a_cluster_ip_may_be_used_again() {
    for is_new_first in [false, true] {
        for (old, new) in [("a", "b"), ("b", "a")] {
            let mut cluster = Cluster::synced();
            cluster.see(Said::upsert(&service(old, "10.96.0.1")));
            cluster.see(Said::upsert(&slice("old-1", old, &["10.244.0.1"])));
            cluster.see(Said::upsert(&slice("new-1", new, &["10.244.0.2"])));
            let mut events = [
                Said::delete("Service", old),
                Said::upsert(&service(new, "10.96.0.1")),
                Said::delete("EndpointSlice", "old-1"),
            ];
            if is_new_first {
                events.swap(0, 1);
            }
            for event in events {
                cluster.see(event);
            }
            let expected = format!("10.96.0.1:80/TCP shop/{new}\n  -> 10.244.0.2:8080 weight 1\n");
            assert_eq!(table(&cluster.services), expected, "{old} {is_new_first}");
        }
    }
}

/// N-27, N-28: a service that comes back with its address, and one whose port changes.
#[test]
fn services_come_back_and_change_their_ports() {
    let mut cluster = Cluster::synced();
    let web = service("web", "10.96.0.1");
    cluster.see(Said::upsert(&web));
    cluster.see(Said::upsert(&slice("web-1", "web", &["10.244.0.1"])));
    let before = table(&cluster.services);
    cluster.see(Said::delete("Service", "web"));
    assert_eq!(table(&cluster.services), "");
    cluster.see(Said::upsert(&web));
    assert_eq!(
        table(&cluster.services),
        before,
        "the slice was there all the time"
    );
    let mut moved = web;
    moved["spec"]["ports"][0]["port"] = 8000.into();
    cluster.see(Said::upsert(&moved));
    assert_eq!(
        table(&cluster.services),
        before.replace(":80/TCP", ":8000/TCP")
    );
}

/// N-29, N-30, N-33: a service that becomes one without a frontend, and back.
#[test]
fn services_lose_their_frontends_and_get_them_back() {
    let web = service("web", "10.96.0.1");
    let mut external = web.clone();
    external["spec"]["type"] = "ExternalName".into();
    let labelled = |label: &str| {
        let mut labelled = web.clone();
        labelled["metadata"]["labels"][label] = "x".into();
        labelled
    };
    let headless = labelled("service.kubernetes.io/headless");
    let of_another_proxy = labelled("service.kubernetes.io/service-proxy-name");
    for without in [external, headless, of_another_proxy] {
        let mut cluster = Cluster::synced();
        cluster.see(Said::upsert(&web));
        cluster.see(Said::upsert(&slice("web-1", "web", &["10.244.0.1"])));
        let before = table(&cluster.services);
        cluster.see(Said::upsert(&without));
        assert_eq!(table(&cluster.services), "", "{without}");
        cluster.see(Said::upsert(&web));
        assert_eq!(table(&cluster.services), before, "{without}");
    }
}

/// N-33: an agent with a proxy name of its own takes the services with that name alone.
#[test]
fn an_agent_may_have_a_proxy_name() {
    let mut cluster = Cluster::new();
    cluster.joiner = Joiner::new(Some("crowfly".into()));
    cluster.sync();
    let mut ours = service("ours", "10.96.0.1");
    ours["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"] = "crowfly".into();
    cluster.see(Said::upsert(&ours));
    cluster.see(Said::upsert(&service("theirs", "10.96.0.2")));
    let expected = "10.96.0.1:80/TCP shop/ours\n  -> ECONNREFUSED\n";
    assert_eq!(table(&cluster.services), expected);
}

/// Objects without an end do not fill the memory. Those beyond the room are refused and counted,
/// and the others serve. Room that becomes free is used.
#[test]
fn there_is_room_for_so_many_objects() {
    let mut cluster = Cluster::new();
    cluster.joiner = Joiner::new(None).with_room(2);
    cluster.sync();
    for number in 1..=4 {
        let address = format!("10.96.0.{number}");
        cluster.see(Said::upsert(&service(&format!("s{number}"), &address)));
        let name = format!("s{number}-1");
        cluster.see(Said::upsert(&slice(&name, "s1", &[&address])));
    }
    let names = |cluster: &Cluster| -> Vec<String> {
        cluster.known.keys().map(ToString::to_string).collect()
    };
    assert_eq!(names(&cluster), ["shop/s1", "shop/s2"]);
    let refused = cluster.joiner.refused();
    assert_eq!((refused.services, refused.slices), (2, 2));
    // A known one may change.
    cluster.see(Said::upsert(&service("s2", "10.96.0.9")));
    assert!(table(&cluster.services).contains("10.96.0.9:80/TCP shop/s2"));
    cluster.see(Said::delete("Service", "s1"));
    cluster.see(Said::upsert(&service("s3", "10.96.0.3")));
    assert_eq!(names(&cluster), ["shop/s2", "shop/s3"]);
}

/// N-58: a source that fails keeps its services. A listing then deletes what is gone meanwhile.
#[test]
fn a_failure_keeps_services_and_a_listing_deletes_orphans() {
    let mut cluster = Cluster::synced();
    for name in ["kept", "gone"] {
        let address = if name == "kept" {
            "10.96.0.1"
        } else {
            "10.96.0.2"
        };
        cluster.see(Said::upsert(&service(name, address)));
    }
    let before = table(&cluster.services);
    cluster
        .joiner
        .see_service(Seen::Event(Event::Failed("no route".into())));
    cluster.take();
    assert_eq!(cluster.status(), Status::Failed("no route".into()));
    assert_eq!(table(&cluster.services), before);
    cluster.joiner.see_service(Seen::Event(Event::Init));
    cluster.see(Said::upsert(&service("kept", "10.96.0.1")));
    assert_eq!(
        table(&cluster.services),
        before,
        "a listing that is not complete says nothing"
    );
    cluster.joiner.see_service(Seen::Event(Event::InitDone));
    cluster.take();
    assert_eq!(cluster.status(), Status::Synced);
    assert_eq!(
        table(&cluster.services),
        "10.96.0.1:80/TCP shop/kept\n  -> ECONNREFUSED\n"
    );
}

/// N-58: a watch that goes on where it was cut off needs no listing, and the source is well again.
#[test]
fn a_watch_that_goes_on_is_no_failure_any_more() {
    let mut cluster = Cluster::synced();
    cluster.see(Said::upsert(&service("web", "10.96.0.1")));
    let before = table(&cluster.services);
    cluster
        .joiner
        .see_slice(Seen::Event(Event::Failed("reset".into())));
    cluster
        .joiner
        .see_service(Seen::Event(Event::Failed("reset".into())));
    cluster.take();
    cluster.joiner.see_service(Seen::Resumed);
    cluster.take();
    assert_eq!(
        cluster.status(),
        Status::Failed("reset".into()),
        "slices are cut off"
    );
    cluster.joiner.see_slice(Seen::Resumed);
    cluster.take();
    assert_eq!(cluster.status(), Status::Synced);
    assert_eq!(table(&cluster.services), before);
}

/// A malformed object is refused by name and counted; its last good version serves on.
#[test]
fn a_malformed_object_leaves_the_last_good_version() {
    let mut cluster = Cluster::synced();
    let web = service("web", "10.96.0.1");
    cluster.see(Said::upsert(&web));
    cluster.see(Said::upsert(&slice("web-1", "web", &["10.244.0.1"])));
    let before = table(&cluster.services);
    let mut wrong = web;
    wrong["spec"]["clusterIPs"] = serde_json::json!(["10.96.0.300"]);
    cluster.see(Said::upsert(&wrong));
    cluster.see(Said::upsert(&slice(
        "web-1",
        "web",
        &["10.244.0.1", "nowhere"],
    )));
    let key = ObjectKey::new("shop", "web-1");
    let malformed = Event::Upsert(key, Object::Malformed("no slice".into()));
    cluster.joiner.see_slice(Seen::Event(malformed));
    cluster.take();
    assert_eq!(table(&cluster.services), before);
    assert_eq!(
        cluster.joiner.refused(),
        Refused {
            services: 1,
            slices: 2
        }
    );

    // A listing that has it malformed does not take it away either.
    cluster.joiner.see_service(Seen::Event(Event::Init));
    cluster.see(Said::upsert(&wrong));
    cluster.see(Said::upsert(&service("other", "10.96.0.2")));
    cluster.joiner.see_service(Seen::Event(Event::InitDone));
    cluster.take();
    let other = "10.96.0.2:80/TCP shop/other\n  -> ECONNREFUSED\n";
    assert_eq!(table(&cluster.services), format!("{before}{other}"));
}

/// One change costs what it changes: the others are not told again.
#[test]
fn one_change_tells_one_service() {
    let mut cluster = Cluster::synced();
    for number in 1..=50 {
        let name = format!("s{number}");
        cluster.see(Said::upsert(&service(&name, &format!("10.96.0.{number}"))));
        cluster.see(Said::upsert(&slice(&name, &name, &["10.244.0.1"])));
    }
    cluster.note(Said::upsert(&slice("s7", "s7", &["10.244.0.2"])));
    let told = cluster.joiner.take();
    assert!(
        matches!(told.as_slice(), [Event::Upsert(name, _)] if &*name.name == "s7"),
        "{told:?}"
    );
    cluster.note(Said::upsert(&slice("s7", "s7", &["10.244.0.2"])));
    assert_eq!(cluster.joiner.take(), [], "nothing has changed");
}

/// The annotation by which xDS may route a service of Kubernetes.
#[test]
fn an_annotation_names_the_preferred_source() {
    let mut web = service("web", "10.96.0.1");
    web["metadata"]["annotations"]["crowfly.io/source"] = "xds".into();
    let mut cluster = Cluster::synced();
    cluster.note(Said::upsert(&web));
    let told = cluster.joiner.take();
    let [Event::Upsert(_, service)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(service.preferred_source.as_deref(), Some("xds"));
}

proptest! {
    /// N-17, N-18, N-26: any order of events ends in the same services as reading the final objects.
    #[test]
    fn any_order_of_events_ends_in_the_final_objects(
        events in proptest::collection::vec(any_event(), 0..60),
        takes in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let mut cluster = Cluster::synced();
        let mut objects = BTreeMap::new();
        for (event, take) in events.into_iter().zip(takes) {
            if let Said::Upsert(kind, _, object) = &event {
                objects.insert((*kind, event.name()), object.clone());
            } else if let Said::Delete(kind, _) = &event {
                objects.remove(&(*kind, event.name()));
            }
            cluster.note(event);
            if take {
                cluster.take();
            }
        }
        cluster.take();

        let mut fresh = Cluster::new();
        fresh.joiner.see_service(Seen::Event(Event::Init));
        fresh.joiner.see_slice(Seen::Event(Event::Init));
        for object in objects.values() {
            fresh.note(Said::upsert(object));
        }
        fresh.joiner.see_slice(Seen::Event(Event::InitDone));
        fresh.joiner.see_service(Seen::Event(Event::InitDone));
        fresh.take();
        prop_assert_eq!(&cluster.known, &fresh.known);
        prop_assert_eq!(table(&cluster.services), table(&fresh.services));
    }
}

/// Few names and addresses, so that they collide.
fn any_event() -> impl Strategy<Value = Said> {
    let names = || prop::sample::select(vec!["a", "b", "c"]);
    let services = (names(), 0..3_u8, any::<bool>()).prop_map(|(name, address, is_external)| {
        let mut service = service(name, &format!("10.96.0.{}", address + 1));
        if is_external && address == 0 {
            service["spec"]["type"] = "ExternalName".into();
        }
        Said::upsert(&service)
    });
    let slices = (names(), names(), proptest::collection::vec(1..5_u8, 0..3));
    let slices = slices.prop_map(|(name, owner, hosts)| {
        let hosts: Vec<String> = hosts
            .iter()
            .map(|host| format!("10.244.0.{host}"))
            .collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        Said::upsert(&slice(name, owner, &hosts))
    });
    let kinds = prop::sample::select(vec!["Service", "EndpointSlice"]);
    let deletes = (kinds, names()).prop_map(|(kind, name)| Said::delete(kind, name));
    prop_oneof![2 => services, 2 => slices, 1 => deletes]
}

/// A word about an object.
#[derive(Clone, Debug)]
enum Said {
    Upsert(&'static str, ObjectKey, Value),
    Delete(&'static str, ObjectKey),
}

impl Said {
    fn upsert(object: &Value) -> Self {
        let text = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let kind = match object["kind"].as_str() {
            Some("Service") => "Service",
            Some("EndpointSlice") => "EndpointSlice",
            other => panic!("{other:?}"),
        };
        Self::Upsert(
            kind,
            ObjectKey::new(&text("namespace"), &text("name")),
            object.clone(),
        )
    }

    fn delete(kind: &'static str, name: &str) -> Self {
        Self::Delete(kind, ObjectKey::new("shop", name))
    }

    fn name(&self) -> ObjectKey {
        let (Self::Upsert(_, key, _) | Self::Delete(_, key)) = self;
        key.clone()
    }
}

/// A joiner, with the services that it has told.
struct Cluster {
    joiner: Joiner,
    services: Services,
    known: BTreeMap<ServiceName, Arc<Service>>,
}

impl Cluster {
    fn new() -> Self {
        Self::at(Place::default())
    }

    fn at(place: Place) -> Self {
        Self {
            joiner: Joiner::new(None),
            services: Services::new(vec!["kubernetes".into()], place),
            known: BTreeMap::new(),
        }
    }

    /// An empty cluster that was listed.
    fn synced() -> Self {
        let mut cluster = Self::new();
        cluster.sync();
        cluster
    }

    fn sync(&mut self) {
        for event in [Event::Init, Event::InitDone] {
            self.joiner.see_service(Seen::Event(event));
        }
        for event in [Event::Init, Event::InitDone] {
            self.joiner.see_slice(Seen::Event(event));
        }
        self.take();
    }

    fn see(&mut self, said: Said) {
        self.note(said);
        self.take();
    }

    fn note(&mut self, said: Said) {
        match said {
            Said::Upsert("Service", key, object) => {
                let object: core::Service = serde_json::from_value(object).unwrap();
                let event = Event::Upsert(key, Object::Valid(Arc::new(object)));
                self.joiner.see_service(Seen::Event(event));
            }
            Said::Upsert(_, key, object) => {
                let object: discovery::EndpointSlice = serde_json::from_value(object).unwrap();
                let event = Event::Upsert(key, Object::Valid(Arc::new(object)));
                self.joiner.see_slice(Seen::Event(event));
            }
            Said::Delete("Service", key) => {
                self.joiner.see_service(Seen::Event(Event::Delete(key)));
            }
            Said::Delete(_, key) => self.joiner.see_slice(Seen::Event(Event::Delete(key))),
        }
    }

    fn take(&mut self) {
        let events = self.joiner.take();
        for event in &events {
            match event {
                ServiceEvent::Upsert(name, service) => {
                    self.known.insert(name.clone(), Arc::clone(service));
                }
                ServiceEvent::Delete(name) => {
                    self.known.remove(name);
                }
                _ => {}
            }
        }
        self.services.handle(0, events);
    }

    fn status(&self) -> Status {
        let (_, status, _) = self.services.sources().next().unwrap();
        status.clone()
    }
}

fn service(name: &str, address: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "clusterIPs": [address], "ports": [{ "port": 80 }] },
    })
}

fn slice(name: &str, owner: &str, addresses: &[&str]) -> Value {
    let endpoints = addresses.iter();
    let endpoints = endpoints.map(|address| serde_json::json!({ "addresses": [address] }));
    serde_json::json!({
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

fn check(name: &str) {
    let path = path(name);
    let text = fs::read_to_string(&path).unwrap();
    let (yaml, expected) = text.split_once(LINE).unwrap_or((&text, ""));
    let first = yaml.lines().next().unwrap_or_default();
    let said = |key: &str| {
        let mut words = first.trim_start_matches('#').split_whitespace();
        words.find_map(|word| Some(Arc::from(word.strip_prefix(key)?.strip_prefix('=')?)))
    };
    let mut cluster = Cluster::at(Place {
        node: said("node"),
        zone: said("zone"),
    });
    cluster.sync();
    for document in yaml.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        cluster.note(Said::upsert(&object));
    }
    cluster.take();
    assert_eq!(cluster.joiner.refused(), Refused::default());
    let table = table(&cluster.services);
    if std::env::var_os("CROWFLY_REGENERATE").is_some() {
        return fs::write(path, format!("{}{LINE}{table}", yaml.trim_end())).unwrap();
    }
    assert_eq!(table, expected, "{name}");
}

fn path(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes");
    tests.join(format!("{name}.yaml"))
}
