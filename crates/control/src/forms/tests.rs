//! Tests of the snapshots of views: what they share, what they cost, and when they end.

use std::path::PathBuf;

use crowfly_model::ResourceType;
use crowfly_model::grpc::{Cluster, Endpoints, Listener};
use crowfly_source::Event;
use crowfly_source::files::Document;

use super::*;
use crate::translator::Translator;

const MESH: &str = "
services:
- { name: pay, tls: { ca: mesh, san: any }, endpoints: [{ address: '10.0.0.1:80' }] }
- { name: web, tls: { ca: mesh, san: any }, endpoints: [{ address: '10.0.0.2:80' }] }
- { name: old, fallback: [web] }
views:
- { name: canary, match: { id: { prefix: c } }, services: [{ name: pay, endpoints: [{ address: '10.0.9.9:80' }] }], hide: [old] }
";

/// A control plane without sockets.
struct World {
    translator: Translator,
    forms: Forms,
}

impl World {
    fn new(text: &str) -> Self {
        let mut world = Self {
            translator: Translator::new(false),
            forms: Forms::default(),
        };
        world.read(text);
        world
    }

    fn read(&mut self, text: &str) {
        let path = PathBuf::from("mesh.yaml");
        let event = Event::Upsert(path, Document::Text(text.into()));
        self.translator.handle([event]);
        let base = self.translator.translate();
        let base = base.unwrap_or_else(|errors| panic!("{errors}"));
        self.forms.follow(&Arc::new(base), &self.translator.views());
    }
}

fn key(view: Option<&str>, form: Form) -> FormKey {
    let view = view.map(Into::into);
    FormKey { view, form }
}

fn shared(one: &Snapshot, other: &Snapshot, url: &str, name: &str) -> bool {
    let [one, other] = [one, other].map(|of| of.of(url).unwrap().resources().get(name).unwrap());
    Arc::ptr_eq(one, other)
}

/// V-05: a view differs from the base in what it names, and shares the rest with it, in every form.
#[test]
fn a_view_shares_what_it_does_not_name() {
    let mut world = World::new(MESH);
    for form in [Form::AsIs, Form::Inline, Form::Envoy] {
        let (base, _base) = world.forms.of(&key(None, form));
        let (view, _view) = world.forms.of(&key(Some("canary"), form));
        assert!(
            !shared(&base, &view, Endpoints::TYPE_URL, "pay"),
            "{form:?}"
        );
        for (url, name) in [
            (Endpoints::TYPE_URL, "web"),
            (Cluster::TYPE_URL, "web"),
            // The cluster of the view is equal, because it gives endpoints alone.
            (Cluster::TYPE_URL, "pay"),
        ] {
            let versions = [&base, &view].map(|of| of.resource(url, name).unwrap().version.clone());
            assert_eq!(versions[0], versions[1], "{form:?}: {url} {name}");
        }
        assert!(shared(&base, &view, Cluster::TYPE_URL, "web"), "{form:?}");
        assert!(view.resource(Cluster::TYPE_URL, "old").is_none());
        assert!(view.resource(Cluster::TYPE_URL, "old/endpoints").is_none());
        assert!(view.resource(Listener::TYPE_URL, "old").is_none());
    }
}

/// V-05: after changes of the base a view still shares, in the form of Envoys, too.
#[test]
fn a_view_goes_on_sharing() {
    let mut world = World::new(MESH);
    let envoys = key(Some("canary"), Form::Envoy);
    let (_, _in_use) = world.forms.of(&envoys);
    world.read(&MESH.replace(
        "{ name: web, tls: { ca: mesh",
        "{ name: web, tls: { ca: other",
    ));
    let all = world.forms.all();
    let (base, view) = (&all[&key(None, Form::Envoy)], &all[&envoys]);
    assert!(shared(base, view, Cluster::TYPE_URL, "web"));
    let fresh = World::new(&MESH.replace(
        "{ name: web, tls: { ca: mesh",
        "{ name: web, tls: { ca: other",
    ));
    let mut fresh = fresh.forms;
    assert_eq!(**view, *fresh.of(&envoys).0);
}

/// V-06: snapshots exist while somebody uses them, and the base in their form with them.
#[test]
fn unused_snapshots_are_dropped() {
    let mut world = World::new(MESH);
    assert!(world.forms.all().is_empty());
    let (_, in_use) = world.forms.of(&key(Some("canary"), Form::Envoy));
    world.read(MESH);
    let kept = [key(None, Form::Envoy), key(Some("canary"), Form::Envoy)];
    assert!(world.forms.all().keys().eq(&kept));
    drop(in_use);
    world.read(MESH);
    assert!(world.forms.all().is_empty());
    assert!(world.forms.views.is_empty());
}

/// V-06: a view that is taken out of the files is dropped, although a client still has it.
#[test]
fn a_removed_view_is_dropped() {
    let mut world = World::new(MESH);
    let (_, _in_use) = world.forms.of(&key(Some("canary"), Form::AsIs));
    let (services, _) = MESH.split_once("views:").unwrap();
    world.read(services);
    assert!(world.forms.all().is_empty());
}

/// V-07: the views of a change are those that are made from scratch, whatever changed.
#[test]
fn a_view_that_follows_equals_a_new_one() {
    let endpoint = MESH.replace("10.0.0.1", "10.0.0.7");
    let limits = MESH.replace(
        "{ name: pay, tls",
        "{ name: pay, limits: { max_requests: 9 }, tls",
    );
    let hidden = MESH.replace("hide: [old]", "hide: [web, old]");
    let other = MESH
        .replace("10.0.9.9", "10.0.9.8")
        .replace("hide: [old]", "hide: []");
    let mut world = World::new(MESH);
    let keys = [Form::AsIs, Form::Inline, Form::Envoy, Form::Agent];
    let keys = keys.map(|form| key(Some("canary"), form));
    let _in_use = keys.each_ref().map(|key| world.forms.of(key));
    for text in [
        &endpoint, &limits, &hidden, &other, MESH, &limits, &endpoint,
    ] {
        world.read(text);
        let mut fresh = World::new(text);
        for key in &keys {
            let (followed, _) = world.forms.of(key);
            assert_eq!(*followed, *fresh.forms.of(key).0, "{key:?} of {text}");
        }
    }
}

/// V-07: a change that a view does not mention costs the view no translation.
#[test]
fn a_view_costs_what_it_mentions() {
    let mut world = World::new(MESH);
    let before = world.translator.work().definitions;
    world.read(&MESH.replace("10.0.0.2", "10.0.0.3"));
    assert_eq!(world.translator.work().definitions, before + 1, "web");
    world.read(MESH);
    let before = world.translator.work().definitions;
    world.read(&MESH.replace("10.0.0.1", "10.0.0.3"));
    assert_eq!(
        world.translator.work().definitions,
        before + 2,
        "pay, and that of the view"
    );
}
