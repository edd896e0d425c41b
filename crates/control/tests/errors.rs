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
    insta::assert_snapshot!(errors(text), @r#"control.yaml:9:16: services[0].localities[1].endpoints[0].address: expected "ip:port", got "foo""#);
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
- { name: d, endpoints: ["10.0.0.1:80"] }
- 7
servces: []
"#;
    insta::assert_snapshot!(errors_of(&[("a.yaml", a), ("b.yaml", b)]), @r#"
    a.yaml:4:47: services[0].endpoints[0].health: expected one of draining, healthy, unhealthy, unknown, got "great"
    a.yaml:6:3: services[1].endpoint: unknown field, expected one of name, localities, endpoints, fallback, fallback_as
    a.yaml:7:3: services[2].nam: unknown field, expected one of name, localities, endpoints, fallback, fallback_as
    b.yaml:3:37: services[0].localities[0].weight: expected a number from 0 to 4294967295, got string "many"
    b.yaml:4:59: services[1].endpoints[0].weight: expected a number from 1 to 4294967295, got integer `0`
    b.yaml:5:26: services[2].endpoints[0]: expected a field `address`
    b.yaml:6:26: services[3].endpoints[0]: expected an endpoint, such as {address: "10.0.0.1:80"}, got string "10.0.0.1:80"
    b.yaml:7:3: services[4]: expected a service, got integer `7`
    b.yaml:8:1: servces: unknown field, expected `services` or `resources`
    "#);
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
    insta::assert_snapshot!(errors(text), @r#"
    control.yaml:3:9: services[0].name: expected a name, got an empty string
    control.yaml:5:14: services[1].endpoints: expected either `endpoints` or `localities`, got both
    control.yaml:10:16: services[1].localities[0].endpoints[1].address: 10.0.0.2:80 is given twice in this service
    control.yaml:11:5: services[1].localities[1]: locality /a/ of priority 0 is given twice
    control.yaml:14:15: services[1].localities[2].priority: expected at most 128, got 900
    control.yaml:15:3: services[2]: service `payments` is defined twice; first at control.yaml:4:3: services[1]
    "#);
}

#[test]
fn bad_fallbacks() {
    let text = r#"
services:
- { name: a, fallback: b }
- { name: b, fallback: [7] }
- { name: c, fallback: [{ dns: example.com }] }
- { name: d, fallback: [e, { dns: 443 }] }
- { name: e, fallback: [{}] }
- { name: f, fallback: [{ dns: "example.com:443", port: 443 }] }
- { name: g, fallback_as: file }
- name: h
  fallback:
  - a
  - h
  - lost
  - dns: "example.com:443"
  - a
  - dns: "example.com:443"
"#;
    insta::assert_snapshot!(errors(text), @r#"
    control.yaml:3:24: services[0].fallback: expected a list, got string "b"
    control.yaml:4:25: services[1].fallback[0]: expected the name of a service or {dns: "host:port"}, got integer `7`
    control.yaml:5:32: services[2].fallback[0].dns: expected "host:port", got "example.com"
    control.yaml:6:35: services[3].fallback[1].dns: expected "host:port", got integer `443`
    control.yaml:7:25: services[4].fallback[0]: expected a field `dns`
    control.yaml:8:51: services[5].fallback[0].port: unknown field, expected one of dns
    control.yaml:9:27: services[6].fallback_as: expected one of inline, resource, got "file"
    control.yaml:16:5: services[7].fallback[4]: a is given twice in this list
    control.yaml:17:5: services[7].fallback[5]: example.com:443 is given twice in this list
    control.yaml:13:5: services[7].fallback[1]: expected another service, got `h` itself
    control.yaml:14:5: services[7].fallback[2]: expected the name of a service, got "lost": there is none
    "#);
}

/// gRPC would come out of a circle; but nobody means one, and each service has to be the last
/// resort of something else.
#[test]
fn circles_of_fallbacks() {
    let text = r#"
services:
- { name: outside, fallback: [b] }
- { name: a, fallback: [fine, b] }
- name: b
  fallback:
  - fine
  - c
- { name: c, fallback: [a] }
- { name: fine }
- { name: x, fallback: [y] }
"#;
    let other = "services: [{ name: y, fallback: [x] }]";
    insta::assert_snapshot!(errors_of(&[("a.yaml", text), ("b.yaml", other)]), @r"
    a.yaml:4:31: services[1].fallback[1]: expected no circle of fallbacks, got a -> b -> c -> a
    a.yaml:11:25: services[5].fallback[0]: expected no circle of fallbacks, got x -> y -> x
    ");
}

/// gRPC goes 16 levels deep (gRFC A37): 15 services that fall back, and one that does not. However
/// long a chain is, it is an error and not a crash.
#[test]
fn long_chains_of_fallbacks() {
    let chain = |length: usize| {
        let mut text = String::from("services:\n");
        for i in 1..length {
            text += &format!("- {{ name: s{i}, fallback: [s{}] }}\n", i + 1);
        }
        text + &format!("- {{ name: s{length} }}\n")
    };
    let read = |text: String| {
        let path = "control.yaml".into();
        Catalog::read(&[ConfigFile { path, text }])
    };
    read(chain(16)).unwrap();
    insta::assert_snapshot!(read(chain(17)).unwrap_err(), @"control.yaml:2:26: services[0].fallback[0]: expected at most 16 levels of clusters from `s1` down, got 17");
    insta::assert_snapshot!(read(chain(3_000)).unwrap_err(), @"control.yaml:2985:29: services[2983].fallback[0]: expected at most 16 levels of clusters from `s2984` down, got 17");
}

#[test]
fn bad_yaml() {
    insta::assert_snapshot!(errors("services:\n- name: [payments\n"), @"control.yaml:2:9: unclosed bracket '['");
    insta::assert_snapshot!(errors("services:\n\t- name: payments\n"), @"control.yaml:2:2: tabs disallowed within this context (block indentation)");
    insta::assert_snapshot!(errors("services: []\nservices: []\n"), @"control.yaml:2:1: duplicate mapping key: services not allowed here");
    insta::assert_snapshot!(errors("- services\n"), @"control.yaml:1:1: expected a mapping with `services` and `resources`");
    insta::assert_snapshot!(errors("services: { name: payments }\n"), @"control.yaml:1:11: services: expected a list");
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
    insta::assert_snapshot!(errors(text), @r#"
    control.yaml:3:3: resources[0]: expected a resource with `@type`, or `name` and `resource`
    control.yaml:4:3: resources[1].@type: message 'envoy.config.cluster.v3.Clutter' not found
    control.yaml:6:3: resources[2]: expected a field `name`
    control.yaml:10:5: resources[3].eds_cluster_config.eds_confg: unrecognized field name 'eds_confg'
    control.yaml:13:9: resources[4].type: unrecognized enum value 'EDSS'
    control.yaml:16:20: resources[5].connect_timeout: expected a duration string, got sequence
    control.yaml:23:22: resources[6].api_listener.api_listener.http_filters[0].is_optional: expected a boolean, got integer `3`
    control.yaml:25:3: resources[7]: envoy.config.core.v3.RuntimeUInt32 has no name of its own, expected {name: ..., resource: {"@type": ...}}
    control.yaml:28:13: resources[8].resource: expected '@type' field
    control.yaml:29:3: resources[9].name: expected the name of the resource itself, `other`, got `wrapped`
    control.yaml:33:3: resources[10].nam: unknown field, expected name, resource
    "#);
}

/// Nesting costs stack; the limit is an error, not a crash.
#[test]
fn endless_nesting_is_an_error() {
    let text = format!("resources: {}", "[".repeat(100_000));
    assert!(errors(&text).starts_with("control.yaml:"));
    let text = format!("resources: {}{}", "[".repeat(90), "]".repeat(90));
    insta::assert_snapshot!(errors(&text), @"control.yaml:1:13: resources[0]: expected a resource with `@type`, or `name` and `resource`");
}

/// A file is empty for a moment while it is written anew; what it says then deletes everything.
#[test]
fn an_empty_file_is_refused_unless_that_is_allowed() {
    let read = |text: &str| ConfigFile {
        path: "control.yaml".into(),
        text: text.to_owned(),
    };
    for text in ["", "# nothing\n", "---\n", "{}", "---\n---\n"] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(errors(text), @"control.yaml: expected `services` or `resources`, got an empty file; `services: []` or --allow-empty serves nothing on purpose");
        }
        Catalog::read_allowing_empty(&[read(text)]).unwrap();
    }
    // One file of many is enough: it had something to say before.
    let other = read("services: [{ name: a }]");
    assert!(Catalog::read(&[other, read("")]).is_err());
    for text in ["services: []", "resources: []", "---\n---\nservices: []\n"] {
        Catalog::read(&[read(text)]).unwrap();
    }
}

/// A template that loops over nothing writes a key and no value.
#[test]
fn a_list_that_is_not_written_out_is_refused() {
    insta::assert_snapshot!(errors("services:\n"), @"control.yaml:1:9: services: expected a list, got nothing; `[]` is a list without entries");
    insta::assert_snapshot!(errors("services: []\nresources:\n"), @"control.yaml:2:10: resources: expected a list, got nothing; `[]` is a list without entries");
    insta::assert_snapshot!(errors("services:\n- name: a\n  endpoints:\n"), @"control.yaml:3:12: services[0].endpoints: expected a list, got nothing");
}
