//! After any edits of files the result is that of reading all of them from scratch, and one change
//! costs one change.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::envoy::{EnvoyView, tests::naive_view};
use crate::translate::translate;
use files::Document;

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LIST: &str = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";

/// An edit of one of a few files.
#[derive(Clone, Debug)]
enum Edit {
    Write(u8, Vec<Item>),
    /// Bad in itself: no YAML, a bad service, empty, or no file that can be read.
    Break(u8, u8),
    Delete(u8),
    /// Moves the last definition of one file to the end of another.
    Move(u8, u8),
    /// Lists all files again.
    List,
}

/// A definition of a few names, so that files collide and refer to each other often.
#[derive(Clone, Debug)]
enum Item {
    Service {
        name: u8,
        port: u16,
        fallback: Vec<u8>,
        /// The services that a route leads to.
        split: Vec<u8>,
        dns: bool,
        tls: bool,
        by_resource: bool,
    },
    /// A raw aggregate, with its list inline or in a resource.
    Aggregate {
        name: u8,
        children: Vec<u8>,
        by_resource: bool,
    },
    /// A raw list of clusters.
    List { name: u8, children: Vec<u8> },
    /// A raw cluster of the name that a DNS name becomes.
    Dns,
    /// A raw cluster that gRPC clients refuse.
    Static { name: u8 },
    /// A raw listener for gRPC clients or for Envoys, with its routes inside, to some clusters.
    Listener { is_api: bool, to: Vec<u8> },
}

impl Item {
    fn text(&self) -> (bool, String) {
        let names = |all: &[u8]| {
            let all: Vec<_> = all.iter().map(|name| format!("s{name}")).collect();
            all.join(", ")
        };
        match self {
            Self::Service {
                name,
                port,
                fallback,
                split,
                dns,
                tls,
                by_resource,
            } => {
                let mut fallback = names(fallback);
                if *dns {
                    fallback = format!("{{ dns: \"example.com:443\" }}, {fallback}");
                }
                let form = if *by_resource {
                    ", fallback_as: resource"
                } else {
                    ""
                };
                let tls = if *tls {
                    ", tls: { ca: mesh, san: any }"
                } else {
                    ""
                };
                let routes = routes_to(split);
                let endpoints = format!("[{{ address: \"10.0.0.1:{port}\" }}]");
                (
                    true,
                    format!(
                        "- {{ name: s{name}, endpoints: {endpoints}, fallback: [{fallback}]{form}{tls}{routes} }}\n"
                    ),
                )
            }
            Self::Aggregate {
                name,
                children,
                by_resource,
            } => {
                let config = if *by_resource {
                    format!(
                        "\"@type\": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.AggregateClusterResource, resource_name: s{name}"
                    )
                } else {
                    format!("\"@type\": {LIST}, clusters: [{}]", names(children))
                };
                (
                    false,
                    format!(
                        "- {{ \"@type\": {CLUSTER}, name: s{name}, cluster_type: {{ typed_config: {{ {config} }} }} }}\n"
                    ),
                )
            }
            Self::List { name, children } => {
                let list = format!("\"@type\": {LIST}, clusters: [{}]", names(children));
                (
                    false,
                    format!("- {{ name: s{name}, resource: {{ {list} }} }}\n"),
                )
            }
            Self::Static { name } => (
                false,
                format!("- {{ \"@type\": {CLUSTER}, name: s{name}, type: STATIC }}\n"),
            ),
            Self::Listener { is_api, to } => (false, listener(*is_api, to)),
            Self::Dns => (
                false,
                format!("- {{ \"@type\": {CLUSTER}, name: \"dns:example.com:443\" }}\n"),
            ),
        }
    }
}

fn listener(is_api: bool, to: &[u8]) -> String {
    let package = "type.googleapis.com/envoy.extensions.filters";
    let router = format!("name: r, typed_config: {{ \"@type\": {package}.http.router.v3.Router }}");
    let routes = to
        .iter()
        .map(|to| format!("{{ match: {{ path: /{to} }}, route: {{ cluster: s{to} }} }}, "));
    let routes: String = routes.collect();
    let manager = format!(
        "\"@type\": {package}.network.http_connection_manager.v3.HttpConnectionManager, \
         http_filters: [{{ {router} }}], \
         route_config: {{ virtual_hosts: [{{ domains: [\"*\"], routes: [{routes}] }}] }}"
    );
    let how = if is_api {
        format!("api_listener: {{ api_listener: {{ {manager} }} }}")
    } else {
        format!("filter_chains: [{{ filters: [{{ name: h, typed_config: {{ {manager} }} }}] }}]")
    };
    let url = "type.googleapis.com/envoy.config.listener.v3.Listener";
    format!("- {{ \"@type\": {url}, name: l{is_api}, {how} }}\n")
}

/// The routes of a service that splits its calls; empty if it has no split.
fn routes_to(split: &[u8]) -> String {
    let mut split = split.to_vec();
    split.dedup();
    let split: Vec<_> = split.iter().map(|to| format!("s{to}: 1")).collect();
    match split.join(", ") {
        none if none.is_empty() => none,
        split => format!(", routes: [{{ split: {{ {split} }} }}]"),
    }
}

fn text_of(items: &[Item]) -> String {
    let texts: Vec<_> = items.iter().map(Item::text).collect();
    let list = |of_services: bool| -> String {
        let of = texts
            .iter()
            .filter(|(is_service, _)| *is_service == of_services);
        of.map(|(_, text)| text.as_str()).collect()
    };
    let [services, resources] = [true, false].map(list);
    let services = if services.is_empty() {
        " []\n".to_owned()
    } else {
        format!("\n{services}")
    };
    let resources = if resources.is_empty() {
        " []\n".to_owned()
    } else {
        format!("\n{resources}")
    };
    format!("services:{services}resources:{resources}")
}

fn item() -> impl Strategy<Value = Item> {
    let children = || prop::collection::vec(0..8u8, 0..3);
    // Most services have no fallbacks: with many, nearly all states have errors.
    let fallback = prop_oneof![3 => Just(Vec::new()), 1 => children()];
    let split = prop_oneof![3 => Just(Vec::new()), 1 => children()];
    let sometimes = || prop::bool::weighted(0.2);
    let service = (
        0..8u8,
        1..4u16,
        fallback,
        split,
        (sometimes(), sometimes(), sometimes()),
    );
    let service =
        service.prop_map(
            |(name, port, fallback, split, (dns, tls, by_resource))| Item::Service {
                name,
                port,
                fallback,
                split,
                dns,
                tls,
                by_resource,
            },
        );
    let aggregate = (6..9u8, children(), any::<bool>());
    let aggregate = aggregate.prop_map(|(name, children, by_resource)| Item::Aggregate {
        name,
        children,
        by_resource,
    });
    let list = (6..9u8, children()).prop_map(|(name, children)| Item::List { name, children });
    let refused = (6..9u8).prop_map(|name| Item::Static { name });
    let listener = (any::<bool>(), prop::collection::vec(4..9u8, 0..3))
        .prop_map(|(is_api, to)| Item::Listener { is_api, to });
    prop_oneof![12 => service, 2 => aggregate, 2 => list, 1 => Just(Item::Dns), 1 => refused, 2 => listener]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        8 => (0..4u8, prop::collection::vec(item(), 0..3)).prop_map(|(file, items)| Edit::Write(file, items)),
        1 => (0..4u8, 0..4u8).prop_map(|(file, how)| Edit::Break(file, how)),
        2 => (0..4u8).prop_map(Edit::Delete),
        2 => (0..4u8, 0..4u8).prop_map(|(from, to)| Edit::Move(from, to)),
        1 => Just(Edit::List),
    ]
}

/// The files as they are, and the events that tell of an edit.
#[derive(Default)]
struct Disk {
    items: BTreeMap<u8, Vec<Item>>,
    documents: BTreeMap<PathBuf, Document>,
}

type Events = Vec<Event<PathBuf, Document>>;

impl Disk {
    fn edit(&mut self, edit: &Edit) -> Events {
        match edit {
            Edit::Write(file, items) => vec![self.write(*file, items.clone())],
            Edit::Break(file, how) => {
                let document = match how {
                    0 => Document::Text("services: [".into()),
                    1 => Document::Text("services: [{ name: s1, colour: red }]".into()),
                    2 => Document::Text("".into()),
                    _ => Document::Unreadable("cannot be read: it is locked".into()),
                };
                vec![self.set(*file, document)]
            }
            Edit::Delete(file) => {
                self.items.remove(file);
                self.documents.remove(&path(*file));
                vec![Event::Delete(path(*file))]
            }
            Edit::Move(from, to) => {
                let mut old = self.items.get(from).cloned().unwrap_or_default();
                let Some(moved) = old.pop() else {
                    return Vec::new();
                };
                let first = self.write(*from, old);
                let mut new = self.items.get(to).cloned().unwrap_or_default();
                new.push(moved);
                vec![first, self.write(*to, new)]
            }
            Edit::List => {
                let all = self.documents.clone().into_iter();
                let all = all.map(|(path, document)| Event::Upsert(path, document));
                [Event::Init]
                    .into_iter()
                    .chain(all)
                    .chain([Event::InitDone])
                    .collect()
            }
        }
    }

    fn write(&mut self, file: u8, items: Vec<Item>) -> Event<PathBuf, Document> {
        let text = Document::Text(text_of(&items).into());
        self.items.insert(file, items);
        self.set(file, text)
    }

    fn set(&mut self, file: u8, document: Document) -> Event<PathBuf, Document> {
        self.documents.insert(path(file), document.clone());
        Event::Upsert(path(file), document)
    }

    /// Reads, checks and translates all files, with no memory of the past.
    fn read_from_scratch(&self) -> Result<Snapshot, ConfigErrors> {
        let mut catalog = Catalog::default();
        let all = self.documents.clone().into_iter();
        catalog.handle(all.map(|(path, document)| Event::Upsert(path, document)));
        catalog.check()?;
        translate(&catalog)
    }
}

fn path(file: u8) -> PathBuf {
    format!("file-{file}.yaml").into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn following_edits_ends_where_reading_from_scratch_does(
        edits in prop::collection::vec(edit(), 1..25),
    ) {
        let mut disk = Disk::default();
        let mut translator = Translator::new(false);
        let mut envoy = EnvoyView::default();
        let mut last_good = Snapshot::default();
        for (step, edit) in edits.iter().enumerate() {
            let events = disk.edit(edit);
            translator.handle(events);
            let expected = disk.read_from_scratch();
            let result = translator.translate();
            prop_assert_eq!(&result, &expected, "at {}: {:?}", step, edit);
            let Ok(snapshot) = result else { continue };
            let versions = |of: &Snapshot| {
                of.types().map(|(url, of)| (url.to_owned(), of.version().to_owned())).collect::<Vec<_>>()
            };
            prop_assert_eq!(versions(&snapshot), versions(&expected?));
            // The names that are reported as changed are exactly those that changed.
            let told = crate::Changes::between(&last_good, &snapshot);
            let compared = crate::Changes::between(&last_good, &disk.read_from_scratch()?);
            prop_assert_eq!(told, compared);
            prop_assert_eq!(&*envoy.follow(&Arc::new(snapshot.clone()), &Snapshot::default()), &naive_view(&snapshot));
            let mut warned: Vec<_> = crate::references::dangling(&snapshot);
            warned.sort();
            let warned: Vec<_> = warned.iter().map(ToString::to_string).collect();
            prop_assert_eq!(translator.warnings(), warned);
            last_good = snapshot;
        }
    }
}

fn services(count: usize, port: u16) -> String {
    let service = |i: usize| {
        let port = if i == count / 2 { port } else { 80 };
        format!(
            "- {{ name: s{i:04}, endpoints: [{{ address: \"10.0.0.1:{port}\" }}], fallback: [] }}\n"
        )
    };
    (0..count).map(service).collect()
}

fn text(text: &str) -> Document {
    Document::Text(text.into())
}

/// Tells files, and returns the work of the last batch and what the view of Envoys looked at for it.
fn work_of(batches: [Events; 2]) -> (Work, usize) {
    let mut translator = Translator::new(false);
    let mut envoy = EnvoyView::default();
    let mut counts = Vec::new();
    for events in batches {
        translator.handle(events);
        let snapshot = translator.translate().unwrap();
        envoy.follow(&Arc::new(snapshot), &Snapshot::default());
        counts.push((translator.work(), envoy.looked_at()));
    }
    let [(before, seen_before), (after, seen_after)] = counts[..] else {
        unreachable!()
    };
    let work = Work {
        files: after.files - before.files,
        definitions: after.definitions - before.definitions,
        resources: after.resources - before.resources,
        replaced: after.replaced - before.replaced,
    };
    (work, seen_after - seen_before)
}

/// A service has four resources, of which one changes with its endpoints.
const ONE_SERVICE: Work = Work {
    files: 1,
    definitions: 1,
    resources: 4,
    replaced: 4,
};

/// The file is read whole, and then compared service by service.
#[test]
fn one_changed_endpoint_in_one_large_file_is_one_translation() {
    let file = |port| {
        let all = format!("services:\n{}", services(2_000, port));
        vec![Event::Upsert("mesh.yaml".into(), text(&all))]
    };
    assert_eq!(work_of([file(80), file(81)]), (ONE_SERVICE, 1));
}

#[test]
fn one_changed_endpoint_in_many_files_is_one_file_and_one_translation() {
    let files = services(2_000, 80);
    let files = files.lines().enumerate().map(|(i, service)| {
        let all = format!("services:\n{service}\n");
        Event::Upsert(format!("{i:04}.yaml").into(), text(&all))
    });
    let changed = "services: [{ name: s0700, endpoints: [{ address: \"10.0.0.9:80\" }] }]";
    let changed = vec![Event::Upsert("0700.yaml".into(), text(changed))];
    assert_eq!(work_of([files.collect(), changed]), (ONE_SERVICE, 1));
}

/// All services fall back to one; when its endpoints change, that is no matter of theirs.
#[test]
fn a_change_of_a_common_fallback_is_one_translation() {
    let common = |port| {
        let service = format!(
            "services: [{{ name: common, endpoints: [{{ address: \"10.0.0.1:{port}\" }}] }}]"
        );
        Event::Upsert("common.yaml".into(), text(&service))
    };
    let users = services(500, 80).replace("fallback: []", "fallback: [common]");
    let users = Event::Upsert("users.yaml".into(), text(&format!("services:\n{users}")));
    let batches = [vec![common(80), users], vec![common(81)]];
    assert_eq!(work_of(batches), (ONE_SERVICE, 1));
}

/// A route to a service is a name, so that a change of the service is no matter of the route's.
#[test]
fn a_change_of_a_common_target_is_one_translation() {
    let common = |port| {
        let service = format!(
            "services: [{{ name: common, endpoints: [{{ address: \"10.0.0.1:{port}\" }}] }}]"
        );
        Event::Upsert("common.yaml".into(), text(&service))
    };
    let users = services(500, 80).replace("fallback: []", "routes: [{ to: common }]");
    let users = Event::Upsert("users.yaml".into(), text(&format!("services:\n{users}")));
    let batches = [vec![common(80), users], vec![common(81)]];
    assert_eq!(work_of(batches), (ONE_SERVICE, 1));
}

/// The target of a route goes and comes back; what is wrong in between is said at the route.
#[test]
fn a_route_is_checked_again_when_its_target_goes_or_comes() {
    let file = |name: &str, of: &str| Event::Upsert(name.into(), text(of));
    let mut translator = Translator::new(false);
    translator.handle([
        file("a.yaml", "services: [{ name: a, routes: [{ to: b }] }]"),
        file("b.yaml", "services: [{ name: b }]"),
    ]);
    let before = translator.translate().unwrap();
    translator.handle([Event::Delete("b.yaml".into())]);
    insta::assert_snapshot!(translator.translate().unwrap_err(), @r#"a.yaml:1:38: services[0].routes[0].to: expected the name of a service, got "b": there is none"#);
    translator.handle([file("c.yaml", "services: [{ name: b }]")]);
    assert_eq!(translator.translate().unwrap(), before);
}
