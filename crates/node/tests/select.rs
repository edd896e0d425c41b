//! Selection, as files that a reviewer can read: the services in, the table out.
//!
//! Each file of `tests/select` is one situation: YAML as `crowfly node` reads it, with the node's place
//! in a first comment (`# node=a zone=x`), then `---` and the table that follows from it. The table is
//! kept by `CROWFLY_REGENERATE=1 cargo test -p crowfly-node --test select`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crowfly_node::file;
use crowfly_node::model::Place;
use crowfly_node::select::Without;
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_source::Event;

const LINE: &str = "\n--- table\n";

/// N-05, N-07: each family reaches the endpoints of its family alone.
#[test]
fn families_are_apart() {
    golden("dual_stack");
}

/// N-09, N-10, N-11, N-12, N-13: ports find each other by name and protocol.
#[test]
fn ports_find_each_other_by_name_and_protocol() {
    golden("ports");
}

/// N-14, N-15, N-16: entries of one backend are one backend, and the better entry counts.
#[test]
fn one_backend_counts_once() {
    golden("duplicates");
}

/// N-22, N-37, N-38, N-39, N-40, N-41: ready ones, then terminating ones that serve, then nothing.
#[test]
fn readiness_decides() {
    golden("readiness");
}

/// N-31, N-32: headless services and external names have no frontends.
#[test]
fn services_without_a_cluster_ip_are_skipped() {
    golden("skipped");
}

/// N-51, N-52: a service may insist on this node.
#[test]
fn internal_traffic_stays_on_the_node() {
    golden("internal_traffic");
}

/// N-53, N-54, N-55: close backends are preferred, if all of them say where they are.
#[test]
fn close_backends_are_preferred() {
    golden("topology");
}

/// N-64, N-65: health, weights and priorities of xDS.
#[test]
fn health_weights_and_priorities() {
    golden("xds");
}

/// N-56: the table follows a node whose zone changes.
#[test]
fn a_node_may_move() {
    let (yaml, _) = read("topology");
    let mut services = services(&yaml, Place::default());
    let at = |zone: &str| Place {
        node: None,
        zone: Some(zone.into()),
    };
    let a = services.move_to(at("a"));
    assert!(!a.is_empty());
    let of_a = table(&services);
    assert!(!services.move_to(at("b")).is_empty());
    assert_ne!(table(&services), of_a);
    services.move_to(at("a"));
    assert_eq!(table(&services), of_a);
    assert_eq!(services.move_to(at("a")), [], "nothing changed");
}

fn golden(name: &str) {
    let (yaml, expected) = read(name);
    let first = yaml.lines().next().unwrap_or_default();
    let said = |key: &str| {
        let mut words = first.trim_start_matches('#').split_whitespace();
        words.find_map(|word| Some(Arc::from(word.strip_prefix(key)?.strip_prefix('=')?)))
    };
    let place = Place {
        node: said("node"),
        zone: said("zone"),
    };
    let table = table(&services(&yaml, place));
    if std::env::var_os("CROWFLY_REGENERATE").is_some() {
        return fs::write(path(name), format!("{}{LINE}{table}", yaml.trim_end())).unwrap();
    }
    assert_eq!(table, expected, "{name}");
}

fn read(name: &str) -> (String, String) {
    let text = fs::read_to_string(path(name)).unwrap();
    let (yaml, table) = text.split_once(LINE).unwrap_or((&text, ""));
    (yaml.to_owned(), table.to_owned())
}

fn path(name: &str) -> std::path::PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/select");
    tests.join(format!("{name}.yaml"))
}

fn services(yaml: &str, place: Place) -> Services {
    let mut services = Services::new(vec!["file".into()], place);
    let read = file::read("test.yaml".as_ref(), yaml).unwrap_or_else(|errors| panic!("{errors}"));
    let events = read.into_iter().map(|service| {
        let name = service.name.clone();
        ServiceEvent::Upsert(name, Arc::new(service))
    });
    let events = [Event::Init].into_iter().chain(events);
    services.handle(0, events.chain([Event::InitDone]).collect());
    services
}

/// One line for a frontend, one for each backend in use, one for each that is out.
fn table(services: &Services) -> String {
    let mut text = String::new();
    for (frontend, route) in services.routes() {
        let owner = services.owner(frontend).unwrap();
        write!(text, "{frontend} {}", owner.service.name).unwrap();
        if let Some(timeout) = route.affinity {
            write!(text, " affinity={}s", timeout.as_secs()).unwrap();
        }
        text.push('\n');
        for target in &route.targets {
            writeln!(text, "  -> {} weight {}", target.address, target.weight).unwrap();
        }
        if route.targets.is_empty() {
            let error = match route.without {
                Without::Refused => "ECONNREFUSED",
                Without::Unreachable => "EHOSTUNREACH",
            };
            writeln!(text, "  -> {error}").unwrap();
        }
        for left in services.selection(frontend).unwrap().left_out {
            writeln!(text, "  x  {}: {}", left.address, left.reason).unwrap();
        }
    }
    text
}
