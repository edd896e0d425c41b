//! The sources against the kernel: Kubernetes, an etcd, the file, and an xDS server that is `crowfly control`.

use crowfly_e2e::etcd::Etcd;
use crowfly_e2e::peers;
use crowfly_testkit::KubeApi;

use crate::control::Control;
use crate::kubernetes::{service, slice};
use crate::lab::{Lab, leave_out};
use crate::web;

const OF_FILE: &str = "127.0.0.1:8080";
const OF_XDS: &str = "127.0.0.2:8080";

/// N-57: a ClusterIP goes from source to source and back, by precedence and by preference, under
/// connections that never stop: none of them fails.
#[test]
fn a_cluster_ip_changes_its_source_under_load() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {OF_FILE} of-file"));
    probe.ask(&format!("serve-tcp {OF_XDS} of-xds"));
    let control = Control::start(&lab, &resources(true));
    let plain = web("10.96.0.10", "", &[OF_FILE]);
    let yielding = web("10.96.0.10", "  preferred_source: xds\n", &[OF_FILE]);

    let agent = lab.agent(&plain, &["--xds-server", &control.address]);
    let from = |source: &'static str| agent.wait(|view| view.frontends[0].source == source);
    let view = from("xds");
    let shadowed = &view.frontends[0].shadowed[0];
    assert_eq!(shadowed.source, "file");
    probe.ask("storm 10.96.0.10:80");
    for _ in 0..5 {
        control.serve(&resources(false));
        from("file");
        control.serve(&resources(true));
        from("xds");
    }
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["of-file", "of-xds"], "{counts:?}");
    agent.stop();

    // The other order: the file has it, unless it prefers xDS.
    probe.ask("storm 10.96.0.10:80");
    let flags = ["--xds-server", &control.address, "--sources", "file,xds"];
    let agent = lab.agent(&yielding, &flags);
    let from = |source: &'static str| agent.wait(|view| view.frontends[0].source == source);
    from("xds");
    for _ in 0..3 {
        agent.write(&plain);
        from("file");
        agent.write(&yielding);
        from("xds");
        control.serve(&resources(false));
        from("file");
        control.serve(&resources(true));
        from("xds");
    }
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["of-file", "of-xds"], "{counts:?}");
}

/// N-57: Kubernetes, the etcd of a mesh, an xDS server and the file have a ClusterIP. The first three give it up, each in turn,
/// and take it back, under connections that never stop: none of them fails.
#[test]
fn a_cluster_ip_goes_through_all_sources_under_load() {
    let Some(lab) = Lab::new() else { return };
    let Some(etcd) = peers::etcd() else {
        return leave_out("an etcd").unwrap_or_default();
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let api = runtime.block_on(KubeApi::start());
    // The port of the etcd belongs to a runtime.
    let entered = runtime.enter();
    let etcd = Etcd::start(etcd);
    drop(entered);
    let key = "cilium/state/services/v1/east/ns/web";
    let shared = r#"{"cluster":"east","namespace":"ns","name":"web","clusterID":3,"shared":true,
        "includeExternal":true,"labels":{},"selector":null,
        "frontends":{"10.96.0.10":{"http":{"Protocol":"TCP","Port":80}}},
        "backends":{"198.51.100.2":{"http":{"Protocol":"TCP","Port":8080}}}}"#;
    etcd.put("cilium/cluster-config/east", r#"{"id":3}"#);
    etcd.put(key, shared);
    let own = service("web", "10.96.0.10");
    api.apply(&own);
    api.apply(&slice("web", &[("198.51.100.1", true)]));
    let control = Control::start(&lab, &resources(true));

    let mut probe = lab.probe();
    for (address, name) in [
        (OF_FILE, "of-file"),
        (OF_XDS, "of-xds"),
        ("198.51.100.1:8080", "of-kubernetes"),
        ("198.51.100.2:8080", "of-kvstore"),
    ] {
        probe.ask(&format!("serve-tcp {address} {name}"));
    }
    let (server, member) = (api.url(), format!("http://{}", etcd.address));
    let flags = [
        ["--kubernetes-server", &server],
        ["--kvstore-endpoints", &member],
        ["--xds-server", &control.address],
    ];
    let agent = lab.agent(&web("10.96.0.10", "", &[OF_FILE]), &flags.concat());
    let from = |source: &'static str| agent.wait(|view| view.frontends[0].source == source);
    let view = from("kubernetes");
    let shadowed = view.frontends[0].shadowed.iter();
    let shadowed: Vec<_> = shadowed.map(|it| it.source.as_str()).collect();
    assert_eq!(shadowed, ["kvstore", "xds", "file"]);
    probe.ask("storm 10.96.0.10:80");
    for _ in 0..3 {
        api.delete("services", "k8s", "web");
        from("kvstore");
        etcd.delete(key);
        from("xds");
        control.serve(&resources(false));
        from("file");
        control.serve(&resources(true));
        from("xds");
        etcd.put(key, shared);
        from("kvstore");
        api.apply(&own);
        from("kubernetes");
    }
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["of-file", "of-kubernetes", "of-kvstore", "of-xds"];
    assert_eq!(names, expected, "{counts:?}\n{}", agent.log());
}

/// N-63: the weights of two xDS endpoints are exchanged, and the shares of new connections with them. None of them fails.
#[test]
fn changed_weights_of_xds_shift_connections() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {OF_FILE} a"));
    probe.ask(&format!("serve-tcp {OF_XDS} b"));
    let weighted = |a: u32, b: u32| {
        format!(
            "services:\n- name: xds/web\n  cluster_ip: 10.96.0.10\n  ports: [{{ port: 80, target_port: 8080 }}]\n  \
             endpoints: [{{ address: '{OF_FILE}', weight: {a} }}, {{ address: '{OF_XDS}', weight: {b} }}]\n"
        )
    };
    let control = Control::start(&lab, &weighted(9, 1));
    let agent = lab.agent("services: []\n", &["--xds-server", &control.address]);
    let mut share_of_a = || {
        let counts = probe.counts("tcp 10.96.0.10:80 500");
        let names: Vec<_> = counts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "{counts:?}");
        counts[0].1
    };
    // 450 and 50 of 500, within five standard deviations of 6.7.
    let share = share_of_a();
    assert!((416..=484).contains(&share), "{share}");
    control.serve(&weighted(1, 9));
    agent.wait(|view| view.frontends[0].backends[0].share < 0.5);
    let share = share_of_a();
    assert!((16..=84).contains(&share), "{share}");
}

/// N-58: the xDS server is killed: its services serve on, the file goes on, and the status says since
/// when. An agent that starts without the server routes what the others have, and prunes nothing.
#[test]
fn a_server_that_is_gone_is_not_missed() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask(&format!("serve-tcp {OF_FILE} of-file"));
    probe.ask(&format!("serve-tcp {OF_XDS} of-xds"));
    let control = Control::start(&lab, &resources(true));
    let flags = ["--xds-server", &control.address.clone()];
    let agent = lab.agent("services: []\n", &flags);
    assert_eq!(probe.ask("tcp 10.96.0.10:80 20"), "of-xds=20");
    probe.ask("storm 10.96.0.10:80");
    drop(control);
    agent.wait(|view| view.sources[0].status.starts_with("failed"));
    agent.write(&web("10.96.0.11", "", &[OF_FILE]));
    agent.wait(|view| view.frontends.len() == 2);
    assert_eq!(probe.ask("tcp 10.96.0.11:80 5"), "of-file=5");
    let (ok, text) = lab.crowfly(&["services"]);
    assert!(ok && text.contains(" 1 services, since 20"), "{text}");
    agent.kill();

    // The readiness line would wait for the server.
    let agent = lab.start(&web("10.96.0.12", "", &[OF_FILE]), &flags);
    agent.wait(|view| view.frontends.len() == 1 && view.frontends[0].programmed);
    assert_eq!(probe.ask("tcp 10.96.0.12:80 5"), "of-file=5");
    assert_eq!(probe.ask("tcp 10.96.0.11:80 5"), "of-file=5", "not pruned");
    let counts = probe.counts("calm");
    assert_eq!(counts.len(), 1, "{counts:?}");
    assert_eq!(counts[0].0, "of-xds");
}

/// A setting that changes in a followed file is not in force, and the log says so.
#[test]
fn a_changed_setting_needs_a_restart() {
    let Some(lab) = Lab::new() else { return };
    let services = web("10.96.0.10", "", &[OF_FILE]);
    let agent = lab.agent(&services, &[]);
    let other = web("10.96.0.11", "", &[OF_FILE]);
    agent.write(&format!("machine: {{ max_backends: 7 }}\n{other}"));
    agent.wait(|view| view.frontends[0].address.to_string() == "10.96.0.11:80");
    let said = "`machine` changed; settings are read at the start, so restart the agent";
    assert!(agent.log().contains(said), "{}", agent.log());
    // A wrong setting makes the whole file wrong.
    agent.write(&format!("machine: {{ max_backend: 7 }}\n{services}"));
    let view = agent.wait(|view| view.sources[0].status.starts_with("failed"));
    assert_eq!(view.frontends[0].address.to_string(), "10.96.0.11:80");
    let error = view.sources[0].last_error.as_ref().unwrap();
    assert!(
        error
            .reason
            .contains("node.yaml:1:12: machine.max_backend: unknown field")
    );
}

/// The service as xDS resources, or one that is elsewhere.
fn resources(has_service: bool) -> String {
    let address = if has_service {
        "10.96.0.10"
    } else {
        "10.96.9.9"
    };
    let (ip, port) = OF_XDS.split_once(':').unwrap();
    format!(
        r#"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: web
  filter_chains:
  - filter_chain_match:
      prefix_ranges: [{{ address_prefix: {address}, prefix_len: 32 }}]
      destination_port: 80
    filters:
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: web
        cluster: web
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: web
  type: EDS
  eds_cluster_config: {{ eds_config: {{ ads: {{}} }} }}
  metadata: {{ filter_metadata: {{ io.cilium.service: {{ service_name: web }} }} }}
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: web
  endpoints:
  - lb_endpoints:
    - endpoint: {{ address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }} }}
"#
    )
}
