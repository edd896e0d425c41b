//! Situations as files that a reviewer can read: the services of each source in, the table and the maps out.
//!
//! A file begins with the node's place in a comment (`# node=a zone=x`). Then come the services as
//! `crowfly node` reads them, each source after a line `--- source NAME`, the one that wins first. A file
//! without such a line has one source. The table follows a line `--- table`. The maps follow a line `--- maps`, in
//! files that have one. Both are kept by `CROWFLY_REGENERATE=1 cargo test -p crowfly-node`.

#![allow(
    dead_code,
    reason = "not every test that has this module needs all of it"
)]

mod maps;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crowfly_node::file;
use crowfly_node::model::Place;
use crowfly_node::select::Without;
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_source::Event;

const TABLE: &str = "\n--- table\n";
const MAPS: &str = "--- maps\n";
const SOURCE: &str = "--- source ";

/// A situation, as a golden file describes it.
pub(crate) struct Situation {
    place: Place,
    /// The name and the services of each source.
    sources: Vec<(Arc<str>, String)>,
}

impl Situation {
    pub(crate) fn read(name: &str) -> Self {
        let (input, _) = read(name);
        Self::parse(&input)
    }

    fn parse(input: &str) -> Self {
        let first = input.lines().next().unwrap_or_default();
        let said = |key: &str| {
            let mut words = first.trim_start_matches('#').split_whitespace();
            words.find_map(|word| Some(Arc::from(word.strip_prefix(key)?.strip_prefix('=')?)))
        };
        let mut sources: Vec<(Arc<str>, String)> = Vec::new();
        for line in input.lines() {
            if let Some(name) = line.strip_prefix(SOURCE) {
                sources.push((name.into(), String::new()));
            } else if let Some((_, text)) = sources.last_mut() {
                writeln!(text, "{line}").unwrap();
            }
        }
        if sources.is_empty() {
            sources.push(("file".into(), input.to_owned()));
        }
        Self {
            place: Place {
                node: said("node"),
                zone: said("zone"),
            },
            sources,
        }
    }

    /// Turns the order of the sources around.
    pub(crate) fn reverse(&mut self) {
        self.sources.reverse();
    }

    /// The services, after every source has listed them; the source that wins came last.
    pub(crate) fn services(&self) -> Services {
        let names = self.sources.iter().map(|(name, _)| Arc::clone(name));
        let mut services = Services::new(names.collect(), self.place.clone());
        for (rank, (_, text)) in self.sources.iter().enumerate().rev() {
            services.handle(rank, listed(text));
        }
        services
    }
}

/// The events of a source that lists these services.
pub(crate) fn listed(yaml: &str) -> Vec<ServiceEvent> {
    let read = file::read("test.yaml".as_ref(), yaml).unwrap_or_else(|errors| panic!("{errors}"));
    let events = read.into_iter().map(|service| {
        let name = service.name.clone();
        ServiceEvent::Upsert(name, Arc::new(service))
    });
    let events = [Event::Init].into_iter().chain(events);
    events.chain([Event::InitDone]).collect()
}

/// Compares the table of a file, and its maps if it has some, with what follows from its services.
pub(crate) fn check(name: &str) {
    let (input, expected) = read(name);
    let services = Situation::parse(&input).services();
    let table = table(&services) + &maps_like(&expected, &services);
    if std::env::var_os("CROWFLY_REGENERATE").is_some() {
        return fs::write(path(name), format!("{}{TABLE}{table}", input.trim_end())).unwrap();
    }
    assert_eq!(table, expected, "{name}");
}

/// The maps that follow from services, if the expected text has maps.
pub(crate) fn maps_like(expected: &str, services: &Services) -> String {
    let has_maps = expected.contains(&format!("\n{MAPS}"));
    if has_maps {
        format!("{MAPS}{}", maps::maps(services))
    } else {
        String::new()
    }
}

/// A line for a frontend, then for services that it shadows, for backends in use, and for those that
/// are out.
pub(crate) fn table(services: &Services) -> String {
    let sources = services.sources().count();
    let mut text = String::new();
    for (frontend, route) in services.routes() {
        let owner = services.owner(frontend).unwrap();
        write!(text, "{frontend} {}", owner.service.name).unwrap();
        if sources > 1 {
            write!(text, " from {}", owner.source).unwrap();
        }
        if let Some(timeout) = route.affinity {
            write!(text, " affinity={}s", timeout.as_secs()).unwrap();
        }
        text.push('\n');
        for shadowed in owner.shadowed {
            let (name, source) = (shadowed.service, shadowed.source);
            writeln!(text, "  shadows {name} from {source}: {}", shadowed.reason).unwrap();
        }
        let selection = services.selection(frontend).unwrap();
        for (target, backend) in route.targets.iter().zip(&selection.backends) {
            let cluster = backend.remote_cluster.as_deref();
            let cluster = cluster.map_or_else(String::new, |name| format!(" in cluster {name}"));
            let (address, weight) = (target.address, target.weight);
            writeln!(text, "  -> {address} weight {weight}{cluster}").unwrap();
        }
        if route.targets.is_empty() {
            writeln!(text, "  -> {}", error(route.without)).unwrap();
        }
        for left in selection.left_out {
            writeln!(text, "  x  {}: {}", left.address, left.reason).unwrap();
        }
    }
    text
}

/// The error that a connection without a backend has.
fn error(without: Without) -> &'static str {
    match without {
        Without::Refused => "ECONNREFUSED",
        Without::Unreachable => "EHOSTUNREACH",
    }
}

fn read(name: &str) -> (String, String) {
    let text = fs::read_to_string(path(name)).unwrap();
    let (input, table) = text.split_once(TABLE).unwrap_or((&text, ""));
    (input.to_owned(), table.to_owned())
}

fn path(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join(format!("{name}.yaml"))
}
