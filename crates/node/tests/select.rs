//! Selection, as files that a reviewer can read: the services in, the table and the maps out.
//!
//! Each file of `tests/select` is one situation: YAML as `crowfly node` reads it, with the node's place
//! in a first comment (`# node=a zone=x`), then `--- table` and the table that follows from it. In some files the
//! maps follow after `--- maps`. Both are kept by `CROWFLY_REGENERATE=1 cargo test -p crowfly-node --test select`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use crowfly_node::model::Place;
use golden::{Situation, check, table};

/// N-05, N-07: each family reaches the endpoints of its family alone.
#[test]
fn families_are_apart() {
    check("select/dual_stack");
}

/// N-09, N-10, N-11, N-12, N-13: ports find each other by name and protocol.
#[test]
fn ports_find_each_other_by_name_and_protocol() {
    check("select/ports");
}

/// N-14, N-15, N-16: entries of one backend are one backend, and the better entry counts.
#[test]
fn one_backend_counts_once() {
    check("select/duplicates");
}

/// N-22, N-37, N-38, N-39, N-40, N-41: ready ones, then terminating ones that serve, then nothing.
#[test]
fn readiness_decides() {
    check("select/readiness");
}

/// N-31, N-32: headless services and external names have no frontends.
#[test]
fn services_without_a_cluster_ip_are_skipped() {
    check("select/skipped");
}

/// N-51, N-52: a service may insist on this node.
#[test]
fn internal_traffic_stays_on_the_node() {
    check("select/internal_traffic");
}

/// N-51, N-55: a node that was given no name has no local endpoints.
#[test]
fn a_node_without_a_name_is_nowhere() {
    check("select/nameless");
}

/// N-53, N-54, N-55: close backends are preferred, if all of them say where they are.
#[test]
fn close_backends_are_preferred() {
    check("select/topology");
}

/// N-64, N-65: health, weights and priorities of xDS.
#[test]
fn health_weights_and_priorities() {
    check("select/xds");
}

/// N-56: the table follows a node whose zone changes.
#[test]
fn a_node_may_move() {
    let mut services = Situation::read("select/topology").services();
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
