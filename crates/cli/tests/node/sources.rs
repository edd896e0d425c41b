//! Two sources against the kernel: the file, and an xDS server that is `crowfly control`.

use crate::control::Control;
use crate::lab::Lab;
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
