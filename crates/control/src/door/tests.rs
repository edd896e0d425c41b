//! Tests of the resources that are refused because gRPC clients would refuse them, and of those
//! that are served all the same.

use crowfly_source::Event;
use crowfly_source::files::Document;

use crate::translator::Translator;

const API: &str = r#"
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: web
  api_listener:
    api_listener:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      rds: { route_config_name: web, config_source: { ads: {} } }
      http_filters:
      - { name: router, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }
"#;

const ROUTES: &str = r#"
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: web
  virtual_hosts: [{ domains: ["*"], routes: [{ match: { prefix: "" }, route: { cluster: c } }] }]
"#;

const STATIC: &str = r#"
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: c
  type: STATIC
"#;

fn file(path: &str, text: &str) -> Event<std::path::PathBuf, Document> {
    Event::Upsert(path.into(), Document::Text(text.into()))
}

/// The errors of a configuration, or its warnings.
fn said(texts: &[&str]) -> Result<Vec<String>, String> {
    let mut translator = Translator::new(false);
    translator.handle([file("mesh.yaml", &texts.concat())]);
    match translator.translate() {
        Ok(_) => Ok(translator.warnings()),
        Err(errors) => Err(errors.to_string()),
    }
}

const REFUSED: &str = "mesh.yaml:17:9: resources[2].type: a gRPC client refuses this cluster, which xds:///web leads \
    to: expected EDS or LOGICAL_DNS, got STATIC";

/// K-01: a cluster that gRPC clients refuse is an error if an API listener leads to it. The error
/// has its place and the words of the client.
#[test]
fn clients_would_refuse_it() {
    assert_eq!(
        said(&["resources:", API, ROUTES, STATIC]),
        Err(REFUSED.to_owned())
    );
}

/// K-01: inline routes lead to clusters, too.
#[test]
fn inline_routes_lead_to_clusters() {
    let inline = "route_config: { virtual_hosts: [{ domains: [\"*\"], routes: \
        [{ match: { prefix: \"\" }, route: { cluster: c } }] }] }";
    let rds = "rds: { route_config_name: web, config_source: { ads: {} } }";
    let api = API.replace(rds, inline);
    assert_ne!(api, API);
    let errors = said(&["resources:", &api, STATIC]).unwrap_err();
    assert!(
        errors.starts_with("mesh.yaml:13:9: resources[1].type: a gRPC client"),
        "{errors}"
    );
}

/// K-03: what no API listener leads to is for other clients.
#[test]
fn other_clients_accept_it() {
    assert_eq!(said(&["resources:", STATIC]), Ok(Vec::new()));
    assert_eq!(said(&["resources:", ROUTES, STATIC]), Ok(Vec::new()));
    let envoy = API
        .replace(
            "  api_listener:\n    api_listener:",
            "  filter_chains:\n  - filters: [{ name: http, typed_config:",
        )
        .replace("HttpConnectionManager\n", "HttpConnectionManager,\n")
        .replace(
            "config_source: { ads: {} } }\n",
            "config_source: { ads: {} } } }}]\n",
        );
    let (envoy, _) = envoy.split_once("      http_filters").unwrap();
    let envoy = envoy.replace(
        "typed_config:\n      \"@type\"",
        "typed_config: {\n      \"@type\"",
    );
    assert_eq!(
        said(&["resources:", &envoy, ROUTES, STATIC]),
        Ok(Vec::new())
    );
}

/// K-04: a mark on the resource serves it all the same, and a warning says so. So does the setting for all.
#[test]
fn force_serves_it() {
    let forced = "\n- name: c\n  force: true\n  resource:\n    \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n    name: c\n    type: STATIC\n";
    let warnings = said(&["resources:", API, ROUTES, forced]).unwrap();
    assert_eq!(
        warnings,
        [
            "mesh.yaml:20:11: resources[2].resource.type: a gRPC client refuses this cluster, which xds:///web leads to: \
          expected EDS or LOGICAL_DNS, got STATIC; it is served by force"
        ]
    );
    let errors = said(&["resources:", API, ROUTES, &forced.replace("true", "false")]).unwrap_err();
    assert!(
        errors.starts_with("mesh.yaml:20:11: resources[2].resource.type: "),
        "{errors}"
    );

    let mut translator = Translator::new(false).forced(true);
    translator.handle([file(
        "mesh.yaml",
        &["resources:", API, ROUTES, STATIC].concat(),
    )]);
    let snapshot = translator.translate().unwrap();
    let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    assert!(!snapshot.resource(url, "c").unwrap().wrapped);
    assert_eq!(
        translator.warnings(),
        [format!("{REFUSED}; it is served by force")]
    );
}

/// K-05: the clients of a view are sent nothing that they refuse, whether the view has it or leads to it. A view
/// that is for Envoys alone may have it.
#[test]
fn views_are_checked() {
    let good = STATIC.replace(
        "type: STATIC",
        "type: EDS\n  eds_cluster_config: { eds_config: { ads: {} } }",
    );
    let endpoints = "\n- { \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: c }\n";
    let view = |conditions: &str, resources: &str| {
        let resources = resources.replace('\n', "\n    ");
        format!("\nviews:\n  - name: v\n    match: {{ {conditions} }}\n    resources:{resources}\n")
    };
    let base = ["resources:", API, ROUTES, &good, endpoints].concat();
    assert_eq!(said(&[&base]), Ok(Vec::new()));
    let errors = said(&[&base, &view("id: x", STATIC)]).unwrap_err();
    assert!(
        errors.contains("views[0].resources[0].type: a gRPC client refuses this cluster, which xds:///web leads to: "),
        "{errors}"
    );
    assert_eq!(
        said(&[&base, &view("id: x, client: [envoy, node]", STATIC)]),
        Ok(Vec::new())
    );

    let base = ["resources:", ROUTES, STATIC].concat();
    assert_eq!(said(&[&base]), Ok(Vec::new()));
    let errors = said(&[&base, &view("id: x", API)]).unwrap_err();
    assert_eq!(
        errors,
        "mesh.yaml:8:9: resources[1].type: a gRPC client refuses this cluster, which xds:///web leads to in view `v`: \
         expected EDS or LOGICAL_DNS, got STATIC"
    );
}

/// K-06: a bad resource becomes reachable and unreachable as other files change, and the last error goes when it is mended.
#[test]
fn a_change_elsewhere_opens_and_closes_the_way() {
    let of = |text: &str| format!("resources:{text}");
    let mut translator = Translator::new(false);
    translator.handle([file("a.yaml", &of(API)), file("c.yaml", &of(STATIC))]);
    assert!(translator.translate().is_ok());
    translator.handle([file("b.yaml", &of(ROUTES))]);
    let errors = translator.translate().unwrap_err().to_string();
    assert!(
        errors.starts_with("c.yaml:4:9: resources[0].type: "),
        "{errors}"
    );
    translator.handle([]);
    assert!(translator.translate().is_err(), "it is still bad");
    translator.handle([file("a.yaml", "resources: []")]);
    assert!(translator.translate().is_ok());
}

/// K-06: ways are walked only if references or refusals change.
#[test]
fn a_change_of_endpoints_walks_no_way() {
    let mut translator = Translator::new(false);
    let services = |port: u16| {
        let text =
            format!("services: [{{ name: a, endpoints: [{{ address: '10.0.0.1:{port}' }}] }}]");
        file("services.yaml", &text)
    };
    let others = format!("resources:{STATIC}");
    translator.handle([services(1), file("others.yaml", &others)]);
    translator.translate().unwrap();
    assert_eq!(translator.door_walks(), 1);
    translator.handle([services(2)]);
    translator.translate().unwrap();
    assert_eq!(translator.door_walks(), 1);
}
