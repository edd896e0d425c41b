//! Files of services that are refused: every error names file, line and field.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use crowfly_node::file;

#[test]
fn every_mistake_is_named_with_its_place() {
    let text = "\
services:
- name: a
  cluster_ips: [10.96.0.1, 0.0.0.0, \"::ffff:10.96.0.2\", 127.0.0.1, \"fe80::1\"]
  ports: [{ port: 0 }, { port: 80, name: x }, { port: 80, name: y }]
  session_affinity_timeout_seconds: 90000
  endpoints:
  - { addresses: [], ports: [{ port: 70000 }] }
- name: a
  cluster_ips: [10.96.0.1]
- name: b/c
- name: d
  type: Headless
  cluster_ips: [10.96.0.4]
";
    insta::assert_snapshot!(errors(text), @r#"
    node.yaml:3:28: services[0].cluster_ips[1]: 0.0.0.0 cannot be a ClusterIP
    node.yaml:3:37: services[0].cluster_ips[2]: ::ffff:10.96.0.2 cannot be a ClusterIP
    node.yaml:3:57: services[0].cluster_ips[3]: 127.0.0.1 cannot be a ClusterIP
    node.yaml:3:68: services[0].cluster_ips[4]: fe80::1 cannot be a ClusterIP
    node.yaml:5:37: services[0].session_affinity_timeout_seconds: expected 1 to 86400, got 90000
    node.yaml:5:37: services[0].session_affinity_timeout_seconds: expected `session_affinity: ClientIP` with it
    node.yaml:4:19: services[0].ports[0].port: expected 1 to 65535, got 0
    node.yaml:4:55: services[0].ports[2].port: port 80 is given twice
    node.yaml:7:18: services[0].endpoints[0].addresses: expected an address
    node.yaml:7:38: services[0].endpoints[0].ports[0].port: expected 1 to 65535, got 70000
    node.yaml:8:9: services[1].name: default/a is defined twice
    node.yaml:9:17: services[1].cluster_ips[0]: 10.96.0.1 already belongs to default/a
    node.yaml:10:9: services[2].name: expected a name without `/`, got "b/c"
    node.yaml:10:3: services[2].cluster_ips: expected an address, or `type: Headless` or `type: ExternalName`
    node.yaml:13:16: services[3].cluster_ips: a headless service has none
    "#);
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    for (text, expected) in [
        (
            "",
            "node.yaml: expected `services`, got an empty file; `services: []` routes nothing on purpose",
        ),
        (
            "services:\n",
            "node.yaml:1:9: services: expected a list, got nothing; `[]` is a list without entries",
        ),
        ("services: 7\n", "node.yaml:1:11: services: expected a list"),
        ("[]\n", "node.yaml:1:1: expected a mapping with `services`"),
        (
            "service: []\n",
            "node.yaml:1:1: service: unknown field, expected `services`",
        ),
        (
            "services:\n- name: a\n  cluster_ips: [10.96.0]\n",
            "node.yaml:3:17: services[0].cluster_ips[0]: invalid IP address syntax",
        ),
        (
            "services:\n- name: a\n  cluster_ips: [10.96.0.1]\n  ports: [{ port: 80, protocol: SCTP }]\n",
            "node.yaml:4:33: services[0].ports[0].protocol: expected one of TCP, UDP, got \"SCTP\"",
        ),
        (
            "services:\n- name: a\n  endpoints: [nonsense]\n",
            "node.yaml:3:15: services[0].endpoints[0]: expected an endpoint, such as {addresses: [10.0.0.1], ports: [{port: 8080}]}, got string \"nonsense\"",
        ),
    ] {
        assert_eq!(errors(text), expected);
    }
    assert!(
        file::read("node.yaml".as_ref(), "services: []\n")
            .unwrap()
            .is_empty()
    );
}

fn errors(text: &str) -> String {
    file::read("node.yaml".as_ref(), text)
        .unwrap_err()
        .to_string()
}
