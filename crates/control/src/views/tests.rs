//! Tests of the problems of views, and of the warnings about them.

use crowfly_source::Event;
use crowfly_source::files::Document;

use crate::translator::Translator;

/// The errors and warnings of a configuration.
fn said(text: &str) -> Vec<String> {
    let mut translator = Translator::new(false);
    let event = Event::Upsert("mesh.yaml".into(), Document::Text(text.into()));
    translator.handle([event]);
    match translator.translate() {
        Ok(_) => translator.warnings(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn with_views(views: &str) -> Vec<String> {
    said(&format!(
        "services: [{{ name: pay }}, {{ name: web, routes: [{{ match: {{ path: /a/b }}, to: pay }}] }}, \
         {{ name: old, fallback: [web] }}]\nviews:\n{views}"
    ))
}

/// V-02: every problem of a view is named with its place and its field.
#[test]
fn problems_of_views_name_their_places() {
    for (views, expected) in [
        (
            "- { name: a, match: { id: x } }",
            "mesh.yaml:3:3: views[0]: expected `services`, `resources` or `hide`: the view changes nothing",
        ),
        (
            "- { match: { id: x }, hide: [old] }",
            "mesh.yaml:3:3: views[0]: expected a field `name`",
        ),
        (
            "- { name: a, hide: [old] }",
            "mesh.yaml:3:3: views[0]: expected a field `match`",
        ),
        (
            "- { name: a, match: {}, hide: [old] }",
            "mesh.yaml:3:21: views[0].match: expected at least one of id, cluster, locality, metadata, client; \
             what is for all clients belongs into `services`",
        ),
        (
            "- { name: a, match: { id: [] }, hide: [old] }",
            "mesh.yaml:3:27: views[0].match.id: expected at least one entry, got none: no client could match",
        ),
        (
            "- { name: a, match: { client: proxy }, hide: [old] }",
            "mesh.yaml:3:31: views[0].match.client: expected one of envoy, grpc, node, got \"proxy\"",
        ),
        (
            "- { name: a, match: { id: x }, hidden: [old] }",
            "mesh.yaml:3:32: views[0].hidden: unknown field, expected name, match, services, resources, hide",
        ),
        (
            "- { name: a, match: { id: x }, hide: [olt] }",
            "mesh.yaml:3:39: views[0].hide[0]: expected the name of a service, got \"olt\": there is none",
        ),
        (
            "- { name: a, match: { id: x }, hide: [pay] }",
            "mesh.yaml:3:39: views[0].hide[0]: expected a service that no other one leads to, got \"pay\": `web` does",
        ),
        (
            "- { name: a, match: { id: x }, hide: [{ '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: x }] }",
            "mesh.yaml:3:39: views[0].hide[0]: expected a resource, got `x` of type \
             type.googleapis.com/envoy.config.cluster.v3.Cluster: there is none",
        ),
        (
            "- { name: a, match: { id: x }, services: [{ name: pay }, { name: pay }] }",
            "mesh.yaml:3:58: views[0].services[1]: service `pay` is in this view twice",
        ),
        (
            "- { name: a, match: { id: x }, services: [{ name: pay, endpoints: [{ address: nowhere }] }] }",
            "mesh.yaml:3:79: views[0].services[0].endpoints[0].address: expected \"ip:port\", got \"nowhere\"",
        ),
        (
            "- { name: a, match: { id: x }, services: [{ name: pay, policy: pick_first, outlier_detection: { success_rate: {} } }] }",
            "mesh.yaml:3:95: views[0].services[0].outlier_detection: expected another policy than pick_first, \
             which ignores ejections",
        ),
        (
            "- { name: a, match: { id: x }, services: [{ name: pay, routes: [{ match: { path: /a/b }, to: nobody }] }] }",
            "mesh.yaml:3:94: views[0].services[0].routes[0].to: expected the name of a service of the view, \
             got \"nobody\": there is none",
        ),
        (
            "- { name: a, match: { id: x }, services: [{ name: pay, fallback: [old] }], hide: [old] }",
            "mesh.yaml:3:67: views[0].services[0].fallback[0]: expected the name of a service of the view, \
             got \"old\": there is none",
        ),
        (
            "- { name: a, match: { id: x }, services: [{ name: web, fallback: [old] }] }",
            "mesh.yaml:3:43: views[0].services[0]: expected fallbacks of at most 16 levels in this view and no circle, \
             got a longer chain",
        ),
    ] {
        let said = with_views(views);
        assert!(
            said.iter().any(|line| line == expected),
            "{views}: {said:#?}"
        );
    }
}

/// V-03: a view that no client can have is an error, as are two views of one name.
#[test]
fn views_that_are_never_used_are_refused() {
    let said = with_views(
        "- { name: a, match: { id: { prefix: c } }, hide: [old] }\n\
         - { name: b, match: { id: c-1, cluster: x }, hide: [old] }\n\
         - { name: a, match: { id: d }, hide: [old] }",
    );
    assert_eq!(
        said,
        [
            "mesh.yaml:4:3: views[1]: never used, because view `a` comes first and is for all of its clients; \
             it is at mesh.yaml:3:3: views[0]",
            "mesh.yaml:5:3: views[2]: view `a` is defined twice; first at mesh.yaml:3:3: views[0]",
        ]
    );
}

/// V-04: services and resources that a view adds are told, and references to what it does not have.
#[test]
fn additions_and_lost_references_are_told() {
    let said = with_views(
        "- { name: a, match: { id: x }, services: [{ name: pya }] }\n\
         - { name: b, match: { id: y }, resources: [{ '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, \
         name: raw, type: EDS }] }",
    );
    assert_eq!(
        said,
        [
            "mesh.yaml:3:43: views[0].services[0]: adds service `pya`, which the base does not have",
            "mesh.yaml:4:44: views[1].resources[0]: adds type.googleapis.com/envoy.config.cluster.v3.Cluster `raw`, \
             which the base does not have",
            "view `b`: cluster `raw` refers to endpoints `raw`, which does not exist",
        ]
    );
}

/// V-02: a view is checked over the base of each change, also if the view itself did not change.
#[test]
fn a_change_of_the_base_can_break_a_view() {
    let mut translator = Translator::new(false);
    let file = |name: &str, text: &str| Event::Upsert(name.into(), Document::Text(text.into()));
    let views = "views: [{ name: v, match: { id: x }, services: [{ name: a, fallback: [b] }] }]";
    translator.handle([
        file("a.yaml", "services: [{ name: a }, { name: b }]"),
        file("v.yaml", views),
    ]);
    translator.translate().unwrap();
    translator.handle([file("a.yaml", "services: [{ name: a }]")]);
    let errors = translator.translate().unwrap_err().to_string();
    assert!(errors.contains("got \"b\": there is none"), "{errors}");
    translator.handle([file("a.yaml", "services: [{ name: a }, { name: b }]")]);
    translator.translate().unwrap();
}
