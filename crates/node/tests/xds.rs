//! The mapping of xDS resources, as files that a reviewer can read: the resources in, the table and the maps out.
//!
//! Each file of `tests/xds` is one situation: `resources` as `crowfly control` reads them, with the node's place
//! in a first comment (`# node=a zone=x pods=10.244.1.0/24`), then `--- table` and what follows from them. In some
//! files the maps follow after `--- maps`. Both are kept by `CROWFLY_REGENERATE=1 cargo test -p crowfly-node --test xds`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod golden;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crowfly_control::source::{Event, files::Document};
use crowfly_control::{Catalog, translate};
use crowfly_model::ResourceType;
use crowfly_node::model::Place;
use crowfly_node::services::Services;
use crowfly_node::xds::{Mapping, NodeCluster, NodeEndpoints, NodeListener, Pods, ResourceJoiner};
use crowfly_xds::Snapshot;
use golden::{maps_like, table};

const LINE: &str = "\n--- table\n";

/// N-61, N-68: a resource that cannot be honoured is refused with the path of each field, and the rest is
/// applied.
#[test]
fn resources_that_cannot_be_honoured_are_refused_by_field() {
    situation("refused");
}

/// N-63, N-64, N-65: weights, health and priorities of endpoints.
#[test]
fn weights_health_and_priorities_of_endpoints() {
    situation("endpoints");
}

/// CFP-30235: addresses, ports, names and namespaces, with every frontend of an address.
#[test]
fn frontends_and_names() {
    situation("frontends");
}

/// N-67: UDP by the metadata of the cluster, and by a UDP listener.
#[test]
fn udp_by_metadata_and_by_listener() {
    situation("udp");
}

/// N-69: session affinity, its timeouts, and traffic policies.
#[test]
fn affinity_and_traffic_policies() {
    situation("policies");
}

/// CFP-30235: what a proxy would do to choose an endpoint, and the agent does not, is logged.
#[test]
fn wishes_without_effect_are_logged() {
    situation("no_effect");
}

/// CFP-30235, NodeName: by the endpoint, by the locality, by the addresses of pods, or not known.
#[test]
fn the_node_of_an_endpoint() {
    situation("nodes");
}

/// CFP-30235: a cluster or endpoints that are missing leave a frontend without backends, and that is said.
#[test]
fn what_is_missing_is_said() {
    situation("missing");
}

/// The example of `docs/xds-mapping.md` is served as the page says.
#[test]
fn the_example_of_the_page_is_served() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/xds-mapping.md");
    let page = fs::read_to_string(page).unwrap();
    let block = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    assert_eq!(report(&block("yaml")).0, block("text"));
}

fn situation(name: &str) {
    let (yaml, expected) = read(name);
    let (mut report, services) = report(&yaml);
    report += &maps_like(&expected, &services);
    if std::env::var_os("CROWFLY_REGENERATE").is_some() {
        return fs::write(path(name), format!("{}{LINE}{report}", yaml.trim_end())).unwrap();
    }
    assert_eq!(report, expected, "{name}");
}

fn read(name: &str) -> (String, String) {
    let text = fs::read_to_string(path(name)).unwrap();
    let (yaml, table) = text.split_once(LINE).unwrap_or((&text, ""));
    (yaml.to_owned(), table.to_owned())
}

fn path(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xds");
    tests.join(format!("{name}.yaml"))
}

/// All that follows from resources: errors, fields without effect, problems, and the table.
fn report(yaml: &str) -> (String, Services) {
    let first = yaml.lines().next().unwrap_or_default();
    let said = |key: &str| {
        let mut words = first.trim_start_matches('#').split_whitespace();
        words.find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
    };
    let place = Place {
        node: said("node").map(Arc::from),
        zone: said("zone").map(Arc::from),
    };
    let mapping = Mapping::default();
    let mut report = String::new();
    let mut joiner = ResourceJoiner::default();
    let pods = said("pods").map(|pods| pods.parse().unwrap());
    joiner.pods(Pods {
        node: place.node.clone(),
        cidrs: pods.into_iter().collect(),
    });
    let snapshot = snapshot(yaml);
    for (name, listener) in read_all::<NodeListener>(&snapshot, &mapping, &mut report) {
        joiner.listener(&name, Some(Arc::new(listener)));
    }
    for (name, cluster) in read_all::<NodeCluster>(&snapshot, &mapping, &mut report) {
        joiner.cluster(&name, Some(Arc::new(cluster)));
    }
    joiner.listeners_listed();
    joiner.clusters_listed();
    let asked = joiner.poll();
    let endpoints = read_all::<NodeEndpoints>(&snapshot, &mapping, &mut report);
    let mut endpoints: Vec<_> = endpoints
        .into_iter()
        .map(|(n, e)| (n, Arc::new(e)))
        .collect();
    for name in asked.watch {
        let found = endpoints.iter().position(|(known, _)| *known == name);
        match found.map(|found| endpoints.remove(found).1) {
            Some(endpoints) => joiner.endpoints(&name, Ok(endpoints)),
            None => joiner.endpoints(&name, Err("the server has none".into())),
        }
    }
    let mut joined = joiner.poll();
    joined.problems.extend(asked.problems);
    joined.events.extend(asked.events);
    for problem in joined.problems {
        writeln!(report, "problem: {problem}").unwrap();
    }
    let mut services = Services::new(vec!["xds".into()], place);
    services.handle(0, joined.events);
    assert!(services.has_synced());
    report += &table(&services);
    report += &reported(&services);
    (report, services)
}

fn snapshot(yaml: &str) -> Snapshot {
    let mut catalog = Catalog::default();
    catalog.handle([Event::Upsert(
        "test.yaml".into(),
        Document::Text(yaml.into()),
    )]);
    catalog.check().unwrap_or_else(|errors| panic!("{errors}"));
    translate(&catalog).unwrap_or_else(|errors| panic!("{errors}"))
}

fn read_all<R: ResourceType<Context = Mapping>>(
    snapshot: &Snapshot,
    mapping: &Mapping,
    report: &mut String,
) -> Vec<(Arc<str>, R::Parsed)> {
    let mut read = Vec::new();
    let resources = snapshot.of(R::TYPE_URL);
    for (name, resource) in resources.into_iter().flat_map(|of| of.resources()) {
        match R::parse(&resource.any.value, mapping).value {
            Ok(parsed) => {
                for wish in R::unsupported(&parsed) {
                    writeln!(report, "no effect: {} {name}: {wish}", R::NOUN).unwrap();
                }
                read.push((Arc::clone(name), parsed));
            }
            Err(errors) => {
                writeln!(report, "refused: {} {name}:", R::NOUN).unwrap();
                for error in errors.iter() {
                    writeln!(report, "  {error}").unwrap();
                }
            }
        }
    }
    read
}

/// The clusters that load is reported for.
fn reported(services: &Services) -> String {
    let mut text = String::new();
    for frontend in services.routes().keys() {
        let port = services.owner(frontend).unwrap().port;
        if let Some(reported) = &port.reported_as {
            let endpoints = reported.eds_service.as_deref().unwrap_or("-");
            writeln!(
                text,
                "{frontend} reported as {} ({endpoints})",
                reported.cluster
            )
            .unwrap();
        }
    }
    text
}
