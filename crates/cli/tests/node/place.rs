//! The place of the node, as the API server knows it.

use crowfly_testkit::{Fault, KubeApi};
use serde_json::json;

use crate::control::Control;
use crate::lab::Lab;

/// N-76: an xDS service is for endpoints on this node alone, and they are on it by `podCIDRs` of the Node. The agent is
/// killed, and the API server does not tell the Node to the next one for a while. No connection fails.
#[test]
fn a_restart_waits_for_the_pods_of_the_node() {
    let Some(lab) = Lab::new() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let api = runtime.block_on(KubeApi::start());
    api.apply(&json!({
        "kind": "Node",
        "metadata": { "name": "n1" },
        "spec": { "podCIDRs": ["198.51.100.0/24"] },
    }));
    let control = Control::start(
        &lab,
        "services:\n- name: xds/web\n  cluster_ip: 10.96.0.10\n  internal_traffic_policy: Local\n  \
         ports: [{ port: 80, target_port: 8080 }]\n  endpoints: [{ address: '198.51.100.1:8080' }]\n",
    );
    let url = api.url();
    let flags = [
        "--kubernetes-server",
        &url,
        "--xds-server",
        &control.address,
    ];
    let mut probe = lab.probe();
    probe.ask("serve-tcp 198.51.100.1:8080 a");
    let agent = lab.start("services: []\n", &flags);
    agent.wait(|view| {
        let mut backends = view.frontends.iter().map(|it| it.backends.len());
        backends.next() == Some(1)
    });
    probe.ask("storm 10.96.0.10:80");
    agent.kill();
    for _ in 0..2 {
        api.fail("nodes", Fault::Status(500, None));
    }
    let agent = lab.adopt(&flags);
    agent.wait(|view| {
        let frontend = &view.frontends[0];
        frontend.waits_for.is_empty() && frontend.backends.len() == 1
    });
    let counts = probe.counts("calm");
    let names: Vec<_> = counts.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["a"], "{counts:?}\n{}", agent.log());
}
