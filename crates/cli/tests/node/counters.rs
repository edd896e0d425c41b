//! Connections are counted where they begin and end.

use crate::lab::{Lab, counters, leave_out};
use crate::web;

/// N-70, N-74: connections that were opened, are open and were refused, as the truth has it; the open
/// ones of a killed client end with it.
#[test]
fn counters_equal_the_truth() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    let mut client = lab.probe();
    for probe in [&mut probe, &mut client] {
        probe.ask("serve-tcp 127.0.0.1:8080 one");
    }
    let agent = lab.agent(&web("10.96.0.10", "", &["127.0.0.1:8080"]), &[]);
    probe.ask("tcp 10.96.0.10:80 20");
    probe.ask("hold 10.96.0.10:80 10");
    let settled = |opened, active, failed| {
        agent.wait(|view| counters(&view.frontends[0]) == (opened, active, failed));
    };
    settled(30, 10, 0);
    probe.ask("let-go 7");
    settled(30, 3, 0);
    client.ask("hold 10.96.0.10:80 5");
    settled(35, 8, 0);
    client.kill();
    settled(35, 3, 0);

    // Nobody listens at the second backend.
    agent.apply(&web("10.96.0.11", "", &["127.0.0.2:8080"]));
    assert_eq!(probe.ask("tcp 10.96.0.11:80 6"), "ECONNREFUSED=6");
    settled(6, 0, 6);
}

const TWO_NAMES: &str = "\
services:
- name: dns
  cluster_ips: [10.96.0.53]
  ports: [{ port: 53, protocol: UDP }]
  endpoints: [{ addresses: [127.0.0.1], ports: [{ port: 5353, protocol: UDP }] }]
- name: dns-of-before
  cluster_ips: [10.96.0.54]
  ports: [{ port: 53, protocol: UDP }]
  endpoints: [{ addresses: [127.0.0.1], ports: [{ port: 5353, protocol: UDP }] }]
";

/// N-02: a UDP socket that is not connected asks two ClusterIPs with one backend in turn. Each answer comes from the
/// ClusterIP that was asked, and each ClusterIP counts the socket once.
#[test]
fn a_socket_of_two_cluster_ips_with_one_backend_counts_once_for_each() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-udp 127.0.0.1:5353 one");
    let agent = lab.agent(TWO_NAMES, &[]);
    // A socket that was connected elsewhere, so that nothing is counted yet.
    probe.ask("hold-udp 127.0.0.1:5353");
    probe.ask("disconnect-held-udp");
    for _ in 0..3 {
        assert_eq!(probe.ask("send-by-held-udp 10.96.0.53:53"), "one");
        assert_eq!(probe.ask("send-by-held-udp 10.96.0.54:53"), "one");
    }
    agent.wait(|view| {
        let mut frontends = view.frontends.iter();
        frontends.all(|frontend| counters(frontend) == (1, 0, 0))
    });
}

/// N-75: MPTCP connections are spread over the backends, and are counted as they begin and end. None of them falls back to
/// TCP.
#[test]
fn mptcp_is_routed_and_counted() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    let backends = ["127.0.0.1:8080", "127.0.0.2:8080", "127.0.0.3:8080"];
    for (backend, name) in backends.iter().zip(["a", "b", "c"]) {
        let answer = probe.ask(&format!("serve-mptcp {backend} {name}"));
        if answer.starts_with("Protocol") {
            return leave_out("a kernel with MPTCP").unwrap_or_default();
        }
        assert_eq!(answer, *backend);
    }
    let agent = lab.agent(&web("10.96.0.10", "", &backends), &[]);
    let counts = probe.counts("mptcp 10.96.0.10:80 60");
    let names: Vec<_> = counts.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "{counts:?}");
    assert_eq!(counts.iter().map(|it| it.1).sum::<usize>(), 60);
    assert_eq!(probe.ask("hold-mptcp 10.96.0.10:80 7"), "ok");
    agent.wait(|view| counters(&view.frontends[0]) == (67, 7, 0));
    assert_eq!(probe.ask("use-held"), "ok");
    probe.ask("let-go 5");
    agent.wait(|view| counters(&view.frontends[0]) == (67, 2, 0));
    assert_eq!(probe.ask("mptcp-accepted"), "67");
}
