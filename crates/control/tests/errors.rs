//! The errors that an operator reads when a file is wrong: each has the file, the place, and what
//! was expected there.

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
    a.yaml:6:3: services[1].endpoint: unknown field, expected one of name, localities, endpoints, fallback, fallback_as, policy, limits, drops, outlier_detection, session_affinity, load_reports, tls, routes, timeout, retry, fault, hash, cluster_ip, cluster_ips, ports, client_ip_affinity, internal_traffic_policy, traffic_distribution
    a.yaml:7:3: services[2].nam: unknown field, expected one of name, localities, endpoints, fallback, fallback_as, policy, limits, drops, outlier_detection, session_affinity, load_reports, tls, routes, timeout, retry, fault, hash, cluster_ip, cluster_ips, ports, client_ip_affinity, internal_traffic_policy, traffic_distribution
    b.yaml:3:37: services[0].localities[0].weight: expected a number from 0 to 4294967295, got string "many"
    b.yaml:4:59: services[1].endpoints[0].weight: expected a number from 1 to 4294967295, got integer `0`
    b.yaml:5:26: services[2].endpoints[0]: expected a field `address`
    b.yaml:6:26: services[3].endpoints[0]: expected an endpoint, such as {address: "10.0.0.1:80"}, got string "10.0.0.1:80"
    b.yaml:7:3: services[4]: expected a service, got integer `7`
    b.yaml:8:1: servces: unknown field, expected `services`, `resources` or `views`
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

/// gRPC would come out of a circle. A circle is refused all the same, because each service in it
/// would be the last resort of another.
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

/// gRFC A28: gRPC would leave such routes out, or refuse them.
#[test]
fn bad_routes() {
    let text = r#"
services:
- { name: a, routes: [7] }
- { name: b, routes: [{ mach: {} }] }
- { name: c, routes: [{ match: { path: pay.Pay/Charge } }] }
- { name: d, routes: [{ match: { prefix: /a/b/c } }] }
- { name: e, routes: [{ match: { path: /a.A/B, prefix: /a.A/ } }] }
- { name: f, routes: [{ match: { regex: "/a(.B" } }] }
- { name: g, routes: [{ match: { regex: "/a", ignore_case: true } }] }
- { name: h, routes: [{ match: { fraction: 10 } }] }
- { name: i, routes: [{ match: { fraction: 101% } }] }
- { name: j, routes: [{ match: { headers: [{ name: x-tier }] } }] }
- { name: k, routes: [{ match: { headers: [{ name: x-tier, exact: a, prefix: b }] } }] }
- { name: l, routes: [{ match: { headers: [{ name: x-bin, exact: a }] } }] }
- { name: m, routes: [{ match: { headers: [{ name: x-tier, exact: 1 }] } }] }
- { name: n, routes: [{ match: { headers: [{ name: x-age, range: { from: 2, below: 2 } }] } }] }
- { name: o, routes: [{ match: { headers: [{ name: x-tier, prefix: "" }] } }] }
- { name: p, routes: [{ to: a, split: { a: 1 } }] }
- { name: q, routes: [{ split: {} }] }
- { name: r, routes: [{ split: { a: 0, b: 0 } }] }
- { name: s, routes: [{ split: { a: 4294967295, b: 1 } }] }
- { name: t, routes: [{ split: { a: 10%, b: 80.5% } }] }
- { name: u, routes: [{ split: { a: 10%, b: 90 } }] }
- { name: v, routes: [{ split: { a: most } }] }
- { name: w, routes: [{ timeout: 5s }, { match: { path: /a.A/B } }] }
"#;
    insta::assert_snapshot!(errors(text), @r#"
    control.yaml:3:23: services[0].routes[0]: expected a route, such as {match: {path: /package.Service/Method}, to: reports}, got integer `7`
    control.yaml:4:25: services[1].routes[0].mach: unknown field, expected one of match, to, split, timeout, retry, fault, hash, session_affinity
    control.yaml:5:40: services[2].routes[0].match.path: expected a path, such as /package.Service/Method, got "pay.Pay/Charge"
    control.yaml:6:42: services[3].routes[0].match.prefix: expected a prefix, such as /package.Service/, got "/a/b/c"
    control.yaml:7:32: services[4].routes[0].match: expected one of path, prefix and regex, got several
    control.yaml:8:41: services[5].routes[0].match.regex: expected a regular expression of RE2, got "/a(.B": unclosed group
    control.yaml:9:32: services[6].routes[0].match: expected no `ignore_case` with `regex`; the expression can begin with (?i)
    control.yaml:10:44: services[7].routes[0].match.fraction: expected a percentage from 0% to 100% with at most 4 decimals, such as 12.5%, got integer `10`
    control.yaml:11:44: services[8].routes[0].match.fraction: expected a percentage from 0% to 100% with at most 4 decimals, such as 12.5%, got "101%"
    control.yaml:12:44: services[9].routes[0].match.headers[0]: expected exactly one of contains, exact, prefix, present, range, regex, suffix, got 0
    control.yaml:13:44: services[10].routes[0].match.headers[0]: expected exactly one of contains, exact, prefix, present, range, regex, suffix, got 2
    control.yaml:14:52: services[11].routes[0].match.headers[0].name: expected the name of a header, got "x-bin": gRPC does not match binary headers
    control.yaml:15:67: services[12].routes[0].match.headers[0].exact: expected a string, got integer `1`
    control.yaml:16:66: services[13].routes[0].match.headers[0].range: expected `from` below `below`, got 2 and 2
    control.yaml:17:68: services[14].routes[0].match.headers[0].prefix: expected a text that is not empty, got ""
    control.yaml:18:23: services[15].routes[0]: expected either `to` or `split`, got both
    control.yaml:19:32: services[16].routes[0].split: expected at least one service, got none
    control.yaml:20:32: services[17].routes[0].split: expected weights that add up to 1 to 4294967295, got 0
    control.yaml:21:32: services[18].routes[0].split: expected weights that add up to 1 to 4294967295, got 4294967296
    control.yaml:22:32: services[19].routes[0].split: expected percentages that add up to 100%, got 90.5%
    control.yaml:23:32: services[20].routes[0].split: expected either weights or percentages, got both
    control.yaml:24:37: services[21].routes[0].split.a: expected a weight from 0 to 4294967295, or a percentage such as 12.5%, got string "most"
    control.yaml:25:40: services[22].routes[1]: never used, because routes[0] is for all calls
    "#);
}

#[test]
fn routes_to_services_that_do_not_exist() {
    let a = r#"
services:
- name: a
  routes:
  - { match: { path: /a.A/B }, to: lost }
  - match: { path: /a.A/C }
    split:
      a: 1
      b: 1
      lost.too: 1
      bad: 1
- { name: bad, colour: red }
"#;
    let b = "services: [{ name: b, routes: [{ to: b }] }]";
    insta::assert_snapshot!(errors_of(&[("a.yaml", a), ("b.yaml", b)]), @r#"
    a.yaml:12:16: services[1].colour: unknown field, expected one of name, localities, endpoints, fallback, fallback_as, policy, limits, drops, outlier_detection, session_affinity, load_reports, tls, routes, timeout, retry, fault, hash, cluster_ip, cluster_ips, ports, client_ip_affinity, internal_traffic_policy, traffic_distribution
    a.yaml:5:36: services[0].routes[0].to: expected the name of a service, got "lost": there is none
    a.yaml:10:7: services[0].routes[1].split: expected the name of a service, got "lost.too": there is none
    "#);
}

#[test]
fn bad_timeouts_retries_faults_and_hashes() {
    let text = r#"
services:
- { name: a, timeout: 5 }
- { name: b, timeout: 0s }
- { name: c, routes: [{ timeout: fast }] }
- { name: d, retry: 3 }
- { name: e, retry: { attempts: 1 } }
- { name: f, retry: { attempts: 6 } }
- { name: g, retry: { attempts: 3, when: [] } }
- { name: h, retry: { attempts: 3, when: [not_found] } }
- { name: i, retry: { attempts: 3, backoff: { base: 2s, max: 1s } } }
- { name: i2, retry: { attempts: 3, backoff: { base: 1ms } } }
- { name: j, retry: { when: [unavailable] } }
- { name: k, fault: {} }
- { name: l, fault: { abort: { fraction: 1% } } }
- { name: m, fault: { abort: { status: ok } } }
- { name: n, fault: { delay: { fixed: 1s, by_header: true } } }
- { name: o, fault: { delay: { fixed: 1s, percent: 1% } } }
- { name: p, hash: x-user }
- { name: q, hash: [{ header: x-user, channel: true }] }
- { name: r, hash: [{ channel: true, rewrite: { regex: a, with: b } }] }
- { name: s, hash: [{ header: x-user, rewrite: { regex: "*", with: b } }] }
- name: t
  routes:
  - match:
      path: /a.A/B
    retry:
      attempts: 3
      when:
      - unavailable
      - sometimes
"#;
    insta::assert_snapshot!(errors(text), @r#"
    control.yaml:3:23: services[0].timeout: expected a time above zero with its unit, such as 250ms, 1.5s or 2m, got integer `5`
    control.yaml:4:23: services[1].timeout: expected a time above zero with its unit, such as 250ms, 1.5s or 2m, got "0s"
    control.yaml:5:34: services[2].routes[0].timeout: expected a time above zero with its unit, such as 250ms, 1.5s or 2m, got "fast"
    control.yaml:6:21: services[3].retry: expected retries, such as {attempts: 3, when: [unavailable]}, or none, got integer `3`
    control.yaml:7:33: services[4].retry.attempts: expected 2 to 5 attempts, the first included, because gRPC makes no more, got integer `1`
    control.yaml:8:33: services[5].retry.attempts: expected 2 to 5 attempts, the first included, because gRPC makes no more, got integer `6`
    control.yaml:9:42: services[6].retry.when: expected at least one status, got none
    control.yaml:10:43: services[7].retry.when[0]: expected one of cancelled, deadline_exceeded, internal, resource_exhausted, unavailable, got "not_found"
    control.yaml:11:45: services[8].retry.backoff: expected a `max` of at least `base`
    control.yaml:12:46: services[9].retry.backoff: expected a `base` of at least 2ms, because gRPC C-core loses calls otherwise
    control.yaml:13:21: services[10].retry: expected a field `attempts`
    control.yaml:14:21: services[11].fault: expected `delay`, `abort` or both, got neither
    control.yaml:15:30: services[12].fault.abort: expected a field `status`, or `by_header: true`
    control.yaml:16:40: services[13].fault.abort.status: expected one of cancelled, unknown, invalid_argument, deadline_exceeded, not_found, already_exists, permission_denied, resource_exhausted, failed_precondition, aborted, out_of_range, unimplemented, internal, unavailable, data_loss, unauthenticated, got "ok"
    control.yaml:17:30: services[14].fault.delay: expected either `fixed` or `by_header: true`, got both
    control.yaml:18:43: services[15].fault.delay.percent: unknown field, expected one of fixed, by_header, fraction
    control.yaml:19:20: services[16].hash: expected a list, got string "x-user"
    control.yaml:20:21: services[17].hash[0]: expected either `header` or `channel: true`
    control.yaml:21:21: services[18].hash[0]: expected `rewrite` with `header` only
    control.yaml:22:57: services[19].hash[0].rewrite.regex: expected a regular expression of RE2, got "*": repetition operator missing expression
    control.yaml:31:9: services[20].routes[0].retry.when[1]: expected one of cancelled, deadline_exceeded, internal, resource_exhausted, unavailable, got "sometimes"
    "#);
}

#[test]
fn bad_policies_limits_and_tls() {
    let text = r#"
services:
- { name: a, policy: random }
- { name: b, policy: [round_robin] }
- { name: c, policy: { ring_hash: {}, round_robin: {} } }
- { name: d, policy: { least_request: { choices: 1 } } }
- { name: e, policy: { ring_hash: { min_ring_size: 2, max_ring_size: 1 } } }
- { name: f, policy: { ring_hash: { max_ring_size: 8388609 } } }
- { name: g, policy: { round_robin: { choices: 1 } } }
- { name: h, limits: {} }
- { name: i, limits: { max_requests: 0 } }
- { name: j, tls: {} }
- { name: k, tls: { ca: mesh } }
- { name: l, tls: { ca: "", san: any } }
- { name: m, tls: { ca: mesh, san: [] } }
- { name: n, tls: { ca: mesh, san: all } }
- { name: o, tls: { ca: mesh, san: [{ prefix: a, suffix: b }] } }
- { name: p, tls: { ca: mesh, san: [{ regex: "(" }] } }
- { name: q, tls: { ca: mesh, san: any, sni: 10.0.0.1 } }
- { name: r, tls: { ca: mesh, san: any, identity: "" } }
"#;
    insta::assert_snapshot!(errors(text), @r#"
    control.yaml:3:22: services[0].policy: expected one of least_request, pick_first, ring_hash, round_robin, got "random"
    control.yaml:4:22: services[1].policy: expected a policy, such as least_request or {least_request: {choices: 3}}, got sequence
    control.yaml:5:22: services[2].policy: expected exactly one policy
    control.yaml:6:50: services[3].policy.least_request.choices: expected at least 2 choices, got 1
    control.yaml:7:35: services[4].policy.ring_hash: expected a `min_ring_size` of at most `max_ring_size`
    control.yaml:8:52: services[5].policy.ring_hash.max_ring_size: expected a number from 1 to 8388608, got 8388609
    control.yaml:9:39: services[6].policy.round_robin.choices: unknown field, expected none
    control.yaml:10:22: services[7].limits: expected at least one limit, got none
    control.yaml:11:38: services[8].limits.max_requests: expected a number from 1 to 4294967295, got integer `0`
    control.yaml:12:19: services[9].tls: expected a field `ca`
    control.yaml:13:19: services[10].tls: expected a field `san`
    control.yaml:14:25: services[11].tls.ca: expected the name of a certificate provider, or system, got ""
    control.yaml:15:36: services[12].tls.san: expected a list of names, got none; `any` accepts all names
    control.yaml:16:36: services[13].tls.san: expected a list of names, or any, got string "all"
    control.yaml:17:37: services[14].tls.san[0]: expected exactly one of contains, exact, prefix, regex, suffix, got 2
    control.yaml:18:46: services[15].tls.san[0].regex: expected a regular expression of RE2, got "(": unclosed group
    control.yaml:19:46: services[16].tls.sni: expected a host name, got "10.0.0.1"
    control.yaml:20:51: services[17].tls.identity: expected a text that is not empty, got ""
    "#);
}

#[test]
fn bad_yaml() {
    insta::assert_snapshot!(errors("services:\n- name: [payments\n"), @"control.yaml:2:9: unclosed bracket '['");
    insta::assert_snapshot!(errors("services:\n\t- name: payments\n"), @"control.yaml:2:2: tabs disallowed within this context (block indentation)");
    insta::assert_snapshot!(errors("services: []\nservices: []\n"), @"control.yaml:2:1: duplicate mapping key: services not allowed here");
    insta::assert_snapshot!(errors("- services\n"), @"control.yaml:1:1: expected a mapping with `services`, `resources` and `views`");
    insta::assert_snapshot!(errors("services: { name: payments }\n"), @"control.yaml:1:11: services: expected a list");
}

/// A secret that is not even YAML is not in the error.
#[test]
fn secrets_in_bad_yaml_are_not_told() {
    for secret in [
        "\"hidden",
        "'hidden",
        "a: hidden: b",
        "@hidden",
        "`hidden",
        "%hidden",
        "|hidden",
        "[hidden",
        "{ hidden",
        "hidden\\n  hidden: b",
        "!!int hidden",
        "!!bool hidden",
        "!!float hidden",
        "!!binary hidden!",
        "!!map hidden",
    ] {
        let text = format!(
            "resources:\n- '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  name: s\n  \
             generic_secret:\n    secret: {secret}\n"
        );
        let told = errors(&text);
        assert!(!told.contains("hidden"), "{secret}: {told}");
    }
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
    control.yaml:13:9: resources[4].type: unrecognized enum value
    control.yaml:16:20: resources[5].connect_timeout: expected a duration string, got a list
    control.yaml:23:22: resources[6].api_listener.api_listener.http_filters[0].is_optional: expected a boolean, got a number
    control.yaml:25:3: resources[7]: envoy.config.core.v3.RuntimeUInt32 has no name of its own, expected {name: ..., resource: {"@type": ...}}
    control.yaml:28:13: resources[8].resource: expected '@type' field
    control.yaml:29:3: resources[9].name: expected the name of the resource itself, `other`, got `wrapped`
    control.yaml:33:3: resources[10].nam: unknown field, expected name, ttl, force, resource
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

/// A file is empty for a moment while it is rewritten. If it were served then, everything would be
/// deleted.
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

/// A file that begins with `views` has nothing else while it is being written. Another file may have the services.
#[test]
fn views_alone_are_refused_unless_another_file_has_services() {
    let views = "views: [{ name: canary, match: { id: [a] }, hide: [b] }]";
    insta::assert_snapshot!(errors(views), @"control.yaml: expected `services` or `resources` in one of the files, got `views` alone; `services: []` or --allow-empty serves nothing on purpose");
    let file = |path: &str, text: &str| ConfigFile {
        path: path.into(),
        text: text.to_owned(),
    };
    Catalog::read_allowing_empty(&[file("views.yaml", views)]).unwrap();
    let services = file("services.yaml", "services: [{ name: b }]");
    Catalog::read(&[services, file("views.yaml", views)]).unwrap();
}

/// A template that loops over nothing writes a key and no value.
#[test]
fn a_list_that_is_not_written_out_is_refused() {
    insta::assert_snapshot!(errors("services:\n"), @"control.yaml:1:9: services: expected a list, got nothing; `[]` is a list without entries");
    insta::assert_snapshot!(errors("services: []\nresources:\n"), @"control.yaml:2:10: resources: expected a list, got nothing; `[]` is a list without entries");
    insta::assert_snapshot!(errors("services:\n- name: a\n  endpoints:\n"), @"control.yaml:3:12: services[0].endpoints: expected a list, got nothing");
}

/// gRFC A32, A50, A55 and A85: clients would refuse such values, or never use them.
#[test]
fn bad_limits_drops_outliers_sessions_and_load_reports() {
    let text = r#"
services:
- { name: a, limits: {} }
- { name: b, limits: { max_retries: 0 } }
- { name: c, drops: [throttle] }
- { name: d, drops: {} }
- { name: e, drops: { throttle: 10 } }
- { name: f, drops: { "": 10% } }
- { name: g, outlier_detection: true }
- { name: h, outlier_detection: { interval: 5s } }
- { name: i, outlier_detection: { interval: 5, success_rate: {} } }
- { name: j, outlier_detection: { success_rate: { stdev_factor: wide } } }
- { name: k, outlier_detection: { success_rate: { stdev_factor: 1.2345 } } }
- { name: l, outlier_detection: { success_rate: { enforce: 0% } } }
- { name: m, outlier_detection: { success_rate: { enforce: 12.5% } } }
- { name: n, outlier_detection: { failure_percentage: { threshold: 100% } } }
- { name: o, outlier_detection: { failure_percentage: { min_calls: 0 } } }
- { name: p, outlier_detection: { failure_percentage: {}, ejection: { max_percent: 0% } } }
- { name: q, outlier_detection: { failure_percentage: {}, ejection: { max: 10s } } }
- { name: r, outlier_detection: { failure_percentage: {} }, policy: pick_first }
- { name: s, session_affinity: {} }
- { name: t, session_affinity: { cookie: session } }
- { name: u, session_affinity: { cookie: { name: "a b" } } }
- { name: v, session_affinity: { cookie: { name: s, path: shop.Cart } } }
- { name: w, session_affinity: { cookie: { name: s, ttl: 1500ms } } }
- { name: x, session_affinity: { health: [] } }
- { name: y, session_affinity: { health: [unhealthy] } }
- { name: z, routes: [{ session_affinity: { health: [healthy] } }] }
- name: a1
  routes:
  - match: { prefix: /shop.Cart/ }
    session_affinity: { cookie: { name: s, path: /shop.Cart/Add } }
  - match: { prefix: /shop.Search/ }
    session_affinity:
      cookie:
        name: s
        path: /shop.Cart
- { name: b1, load_reports: sometimes }
- { name: c1, load_reports: { metrics: [cpu] } }
- { name: d1, load_reports: { every: 10s } }
- { name: e1, outlier_detection: { interval: 1ms, success_rate: {} } }
"#;
    insta::assert_snapshot!(errors(text), @r#"
    control.yaml:3:22: services[0].limits: expected at least one limit, got none
    control.yaml:4:37: services[1].limits.max_retries: expected a number from 1 to 4294967295, got integer `0`
    control.yaml:5:21: services[2].drops: expected categories with their shares, such as {throttle: 10%}, got sequence
    control.yaml:6:21: services[3].drops: expected at least one category, got none
    control.yaml:7:33: services[4].drops.throttle: expected a percentage from 0% to 100% with at most 4 decimals, such as 12.5%, got integer `10`
    control.yaml:8:23: services[5].drops.: expected the name of a category, got an empty string
    control.yaml:9:33: services[6].outlier_detection: expected outlier detection, such as {failure_percentage: {threshold: 85%}}, got boolean `true`
    control.yaml:10:33: services[7].outlier_detection: expected `success_rate`, `failure_percentage` or both, got neither
    control.yaml:11:45: services[8].outlier_detection.interval: expected a time above zero with its unit, such as 250ms, 1.5s or 2m, got integer `5`
    control.yaml:12:65: services[9].outlier_detection.success_rate.stdev_factor: expected a number, got string "wide"
    control.yaml:13:65: services[10].outlier_detection.success_rate.stdev_factor: expected a number from 0 to 1000 with at most 3 decimals, got 1.2345
    control.yaml:14:60: services[11].outlier_detection.success_rate.enforce: expected a whole percentage from 1% to 100%, got "0%"
    control.yaml:15:60: services[12].outlier_detection.success_rate.enforce: expected a whole percentage from 1% to 100%, got "12.5%"
    control.yaml:16:68: services[13].outlier_detection.failure_percentage.threshold: expected a whole percentage from 0% to 99%, above which an endpoint is ejected, got "100%"
    control.yaml:17:68: services[14].outlier_detection.failure_percentage.min_calls: expected a number from 1 to 4294967295, got integer `0`
    control.yaml:18:84: services[15].outlier_detection.ejection.max_percent: expected a whole percentage from 1% to 100%, got "0%"
    control.yaml:19:69: services[16].outlier_detection.ejection: expected a `max` of at least `base`, which is 30s if it is not given
    control.yaml:20:33: services[17].outlier_detection: expected another policy than pick_first, which ignores ejections
    control.yaml:21:32: services[18].session_affinity: expected `cookie`, `health` or `idle_timeout`, got none of them
    control.yaml:22:42: services[19].session_affinity.cookie: expected a cookie, such as {name: session, ttl: 2h}, got string "session"
    control.yaml:23:50: services[20].session_affinity.cookie.name: expected the name of a cookie, got "a b"
    control.yaml:24:59: services[21].session_affinity.cookie.path: expected the beginning of a path, such as /package.Service, got "shop.Cart"
    control.yaml:25:58: services[22].session_affinity.cookie.ttl: expected whole seconds, because a cookie has no parts of them
    control.yaml:26:42: services[23].session_affinity.health: expected at least one of draining, healthy, unknown, got none
    control.yaml:27:43: services[24].session_affinity.health[0]: expected one of draining, healthy, unknown, got "unhealthy"
    control.yaml:28:45: services[25].routes[0].session_affinity.health: unknown field, expected one of cookie
    control.yaml:37:15: services[26].routes[1].session_affinity.cookie.path: never used, because no call of this route has this path
    control.yaml:38:29: services[27].load_reports: expected true, false, or settings such as {metrics: [cpu_utilization]}, got string "sometimes"
    control.yaml:39:41: services[28].load_reports.metrics[0]: expected cpu_utilization, mem_utilization, application_utilization, named_metrics.NAME or named_metrics.*, got "cpu"
    control.yaml:40:31: services[29].load_reports.every: unknown field, expected one of metrics
    control.yaml:41:34: services[30].outlier_detection: expected an `interval` of at least 10ms
    "#);
}
