//! Names of the new style (`xdstp:`, xRFC TP1, gRFC A47), from a file to a stream. A name has many spellings, and the
//! control plane knows it by each.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod support;

use crowfly_control::source::Event;
use crowfly_control::source::files::Document;
use crowfly_control::{Catalog, ConfigFile, Severity, Translator, check_text};
use support::delta::{DeltaClient, subscribe};
use support::{AdsClient, CLUSTER, ENDPOINTS, LISTENER, get, plane};

const LISTENER_NAME: &str = "xdstp://mesh/envoy.config.listener.v3.Listener/web?zone=1&env=prod";
const CLUSTER_NAME: &str = "xdstp://mesh/envoy.config.cluster.v3.Cluster/web?zone=1&env=prod";
const ENDPOINTS_NAME: &str =
    "xdstp://mesh/envoy.config.endpoint.v3.ClusterLoadAssignment/web?zone=1&env=prod";

/// The other spelling of a name.
fn other(name: &str) -> String {
    name.replace("zone=1&env=prod", "env=prod&zone=1")
}

/// A listener, its cluster of this kind, and its endpoints. Each names the next one by the other spelling.
fn config(kind: &str) -> String {
    let (cluster, endpoints) = (other(CLUSTER_NAME), other(ENDPOINTS_NAME));
    format!(
        r#"
resources:
- "@type": {LISTENER}
  name: {LISTENER_NAME}
  api_listener:
    api_listener:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      route_config:
        virtual_hosts: [{{ name: web, domains: ["*"], routes: [{{ match: {{ prefix: "" }}, route: {{ cluster: "{cluster}" }} }}] }}]
      http_filters:
      - {{ name: router, typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }} }}
- "@type": {CLUSTER}
  name: {CLUSTER_NAME}
  type: {kind}
  eds_cluster_config: {{ service_name: "{endpoints}", eds_config: {{ ads: {{}} }} }}
- "@type": {ENDPOINTS}
  cluster_name: {ENDPOINTS_NAME}
"#
    )
}

/// S1-36: a client is served the resource of a name in whatever spelling the file and the client write it, by both
/// protocols. The page of the snapshot finds it, too.
#[tokio::test]
async fn every_spelling_is_served() {
    let plane = plane(&config("EDS")).await;
    for (type_url, name) in [
        (LISTENER, LISTENER_NAME),
        (CLUSTER, CLUSTER_NAME),
        (ENDPOINTS, ENDPOINTS_NAME),
    ] {
        let canonical = other(name);
        for name in [name.to_owned(), canonical.clone()] {
            let mut client = AdsClient::open(plane.listen_addr()).await;
            client.subscribe("gRPC Test", type_url, &[&name]).await;
            let response = client.next().await;
            assert_eq!(response.resources.len(), 1, "{name}");

            let mut client = DeltaClient::open(plane.listen_addr()).await;
            client
                .send(subscribe("gRPC Test", type_url, &[&name]))
                .await;
            let response = client.next().await;
            let served: Vec<_> = response.resources.iter().map(|of| &of.name).collect();
            assert_eq!(served, [&canonical]);

            let page = format!(
                "/snapshot?name={}",
                name.replace('&', "%26").replace('?', "%3F")
            );
            let (status, text) = get(plane.admin_addr().unwrap(), &page).await;
            assert_eq!(status, 200, "{text}");
        }
    }
}

/// S1-36: references find a name in any spelling, so that nothing is said to be missing, and a cluster that gRPC
/// clients refuse is refused here.
#[test]
fn references_find_every_spelling() {
    let checked = check_text("mesh.yaml".as_ref(), &config("EDS"), false).unwrap();
    assert_eq!(checked.warnings(), []);
    assert_eq!(checked.counts().for_grpc, 3);
    assert_eq!(checked.refused_by_grpc(), []);

    let checked = check_text("mesh.yaml".as_ref(), &config("STATIC"), false).unwrap();
    let refused = checked.refused_by_grpc();
    let severities: Vec<_> = refused.iter().map(|of| of.severity).collect();
    assert_eq!(severities, [Severity::Error], "{refused:?}");
}

/// S1-36: two spellings are one name, which may be defined once. Else the last one would be served, and the removal of
/// one would remove both.
#[test]
fn two_spellings_are_one_name() {
    let cluster =
        |name: &str| format!("resources:\n- {{ '@type': {CLUSTER}, name: '{name}', type: EDS }}\n");
    let (one, two) = (cluster(CLUSTER_NAME), cluster(&other(CLUSTER_NAME)));
    let files = [("a.yaml", &one), ("b.yaml", &two)].map(|(path, text)| ConfigFile {
        path: path.into(),
        text: text.clone(),
    });
    let expected = format!(
        "b.yaml:2:3: resources[0]: resource `{}` of type {CLUSTER} is defined twice; first at a.yaml:2:3: resources[0]",
        other(CLUSTER_NAME)
    );
    let catalog = Catalog::read(&files).unwrap();
    let errors = crowfly_control::translate(&catalog).unwrap_err();
    assert_eq!(errors.to_string(), expected);

    let mut translator = Translator::new(false);
    let file = |path: &str, text: &str| Event::Upsert(path.into(), Document::Text(text.into()));
    translator.handle([file("a.yaml", &one), file("b.yaml", &two)]);
    assert_eq!(translator.translate().unwrap_err().to_string(), expected);
    translator.handle([Event::Delete("a.yaml".into())]);
    let snapshot = translator.translate().unwrap();
    assert!(snapshot.resource(CLUSTER, CLUSTER_NAME).is_some());
}
