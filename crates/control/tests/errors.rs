//! What an operator reads when a file is wrong.

#![allow(clippy::unwrap_used, reason = "test code")]

use crowfly_control::{Catalog, ConfigFile};

fn errors(text: &str) -> String {
    errors_of(&[("control.yaml", text)])
}

fn errors_of(files: &[(&str, &str)]) -> String {
    let files: Vec<ConfigFile> = files
        .iter()
        .map(|(path, text)| ConfigFile {
            path: path.into(),
            text: (*text).to_owned(),
        })
        .collect();
    Catalog::read(&files).unwrap_err().to_string()
}

#[test]
fn a_bad_address_deep_in_a_service() {
    let text = r#"
services:
- name: payments
  localities:
  - zone: a
  - zone: b
    endpoints:
    - weight: 2
      address: foo
"#;
    insta::assert_snapshot!(errors(text), @"");
}

#[test]
fn every_error_of_every_file_is_reported() {
    let a = r#"
services:
- name: payments
  endpoints: [{ address: 10.0.0.1:80, health: great }]
- name: accounts
  endpoint: []
- nam: x
"#;
    let b = r#"
services:
- { name: a, localities: [{ weight: many }, { priority: -1 }] }
- { name: b, endpoints: [{ address: "1.2.3.4:80", weight: 0 }] }
- { name: c, endpoints: [{ weight: 1 }] }
- 7
servces: []
"#;
    insta::assert_snapshot!(errors_of(&[("a.yaml", a), ("b.yaml", b)]), @"");
}

#[test]
fn what_cannot_be_said_by_types_is_checked_with_positions_too() {
    let text = r#"
services:
- name: ""
- name: payments
  endpoints: [{ address: 10.0.0.1:80 }]
  localities:
  - zone: a
    endpoints:
    - address: 10.0.0.2:80
    - address: 10.0.0.2:80
  - zone: a
    priority: 0
  - zone: b
    priority: 900
- name: payments
"#;
    insta::assert_snapshot!(errors(text), @"");
}

#[test]
fn bad_yaml() {
    insta::assert_snapshot!(errors("services:\n- name: [payments\n"), @"");
    insta::assert_snapshot!(errors("services:\n\t- name: payments\n"), @"");
    insta::assert_snapshot!(errors("services: []\nservices: []\n"), @"");
    insta::assert_snapshot!(errors("- services\n"), @"");
    insta::assert_snapshot!(errors("services: { name: payments }\n"), @"");
}

#[test]
fn bad_resources() {
    let text = r#"
resources:
- name: no-type
- "@type": type.googleapis.com/envoy.config.cluster.v3.Clutter
  name: unknown-type
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: unknown-field
  eds_cluster_config:
    eds_confg: { ads: {} }
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: bad-enum
  type: EDSS
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: bad-type
  connect_timeout: [1s]
- name: deep
  "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  api_listener:
    api_listener:
      http_filters:
      - name: router
        is_optional: 3
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
- "@type": type.googleapis.com/envoy.config.core.v3.RuntimeUInt32
  default_value: 7
- name: wrapped
  resource: { default_value: 7 }
- name: wrapped
  resource:
    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: other
- nam: wrapped
  resource: { "@type": type.googleapis.com/envoy.config.core.v3.RuntimeUInt32 }
"#;
    insta::assert_snapshot!(errors(text), @"");
}

/// Nesting costs stack; the limit is an error, not a crash.
#[test]
fn endless_nesting_is_an_error() {
    let text = format!("resources: {}", "[".repeat(100_000));
    assert!(errors(&text).starts_with("control.yaml:"));
    let text = format!("resources: {}{}", "[".repeat(90), "]".repeat(90));
    insta::assert_snapshot!(errors(&text), @"");
}

#[test]
fn an_empty_file_says_nothing() {
    for text in ["", "# nothing\n", "---\n", "services:\nresources:\n", "{}"] {
        let file = ConfigFile {
            path: "control.yaml".into(),
            text: text.to_owned(),
        };
        Catalog::read(&[file]).unwrap();
    }
}
