//! Connections reach the right backends, and programs see the addresses that they expect. Real sockets are used,
//! because only the kernel runs the eBPF program.

use crate::lab::Lab;
use crate::web;

/// N-01, N-04: a connection to a ClusterIP reaches a backend, and the program sees the ClusterIP.
#[test]
fn tcp_goes_to_a_backend_and_sees_the_cluster_ip() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 one");
    let _agent = lab.agent(&web("10.96.0.10", "", &["127.0.0.1:8080"]), &[]);
    assert_eq!(probe.ask("tcp 10.96.0.10:80 3"), "one=3");
    assert_eq!(probe.ask("peer 10.96.0.10:80"), "10.96.0.10:80");
    // A direct connection is what it was.
    assert_eq!(probe.ask("tcp 127.0.0.1:8080 1"), "one=1");
    assert_eq!(probe.ask("peer 127.0.0.1:8080"), "127.0.0.1:8080");
}

const DNS: &str = "\
services:
- name: dns
  cluster_ips: [10.96.0.53, \"fd96::53\"]
  ports: [{ name: udp, port: 53, protocol: UDP }, { name: tcp, port: 53 }]
  endpoints:
  - addresses: [127.0.0.1, \"::1\"]
    ports: [{ name: udp, port: 5353, protocol: UDP }, { name: tcp, port: 5354 }]
";

/// N-02, N-03, N-10: datagrams go to a backend, and answers come from the ClusterIP; a port of TCP and
/// UDP has backends of each.
#[test]
fn udp_goes_to_a_backend_and_answers_come_from_the_cluster_ip() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-udp 127.0.0.1:5353 udp4");
    probe.ask("serve-udp [::1]:5353 udp6");
    probe.ask("serve-tcp 127.0.0.1:5354 tcp4");
    let agent = lab.agent(DNS, &[]);
    for command in ["udp", "udp-connected"] {
        assert_eq!(probe.ask(&format!("{command} 10.96.0.53:53 3")), "udp4=3");
        assert_eq!(probe.ask(&format!("{command} [fd96::53]:53 3")), "udp6=3");
        // An IPv6 socket that speaks IPv4.
        assert_eq!(
            probe.ask(&format!("{command} [::ffff:10.96.0.53]:53 3")),
            "udp4=3"
        );
    }
    assert_eq!(probe.ask("tcp 10.96.0.53:53 1"), "tcp4=1");
    // Nobody holds a socket, so none is counted as open.
    agent.wait(|view| {
        let udp = view
            .frontends
            .iter()
            .filter(|frontend| frontend.protocol == "UDP");
        udp.flat_map(|frontend| &frontend.backends)
            .all(|it| it.opened > 0 && it.active == 0)
    });
}

/// N-05, N-06, N-07: IPv6, and IPv4 by an IPv6 socket; each family reaches its own backends.
#[test]
fn each_family_reaches_its_own_backends() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 four");
    probe.ask("serve-tcp [fd44::1]:8080 six");
    let both = web(
        "10.96.0.10, \"fd96::10\"",
        "",
        &["127.0.0.1:8080", "fd44::1:8080"],
    );
    let _agent = lab.agent(&both, &[]);
    assert_eq!(probe.ask("tcp 10.96.0.10:80 10"), "four=10");
    assert_eq!(probe.ask("tcp [fd96::10]:80 10"), "six=10");
    assert_eq!(probe.ask("tcp [::ffff:10.96.0.10]:80 10"), "four=10");
    assert_eq!(probe.ask("peer [fd96::10]:80"), "[fd96::10]:80");
    assert_eq!(
        probe.ask("peer [::ffff:10.96.0.10]:80"),
        "[::ffff:10.96.0.10]:80"
    );
}

/// N-08: connections are spread evenly, by a chi-square test; weights are obeyed.
#[test]
fn connections_are_spread_by_weight() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    let addresses = ["127.0.0.1:8080", "127.0.0.2:8080", "127.0.0.3:8080"];
    for (address, name) in addresses.iter().zip(["a", "b", "c"]) {
        probe.ask(&format!("serve-tcp {address} {name}"));
    }
    let even = web("10.96.0.10", "", &addresses);
    let agent = lab.agent(&even, &[]);
    let counts = probe.counts("tcp 10.96.0.10:80 3000");
    assert_eq!(counts.len(), 3, "{counts:?}");
    let off = counts
        .iter()
        .map(|(_, count)| (*count as f64 - 1000.0).powi(2) / 1000.0);
    // Two degrees of freedom: one run in a million is above 27.6.
    assert!(off.sum::<f64>() < 27.6, "{counts:?}");

    agent.apply(&even.replacen(
        "ports: [{ port: 8080 }]",
        "ports: [{ port: 8080 }], weight: 8",
        1,
    ));
    let counts = probe.counts("tcp 10.96.0.10:80 1000");
    let of_a = counts.iter().find(|(name, _)| name == "a").unwrap().1;
    // 800 of 1000, within five standard deviations of 12.6.
    assert!((737..=863).contains(&of_a), "{counts:?}");
}

const PORTS: &str = "\
services:
- name: web
  cluster_ips: [10.96.0.10]
  ports: [{ name: http, port: 80 }, { name: https, port: 443 }]
  endpoints:
  - { addresses: [127.0.0.1], ports: [{ name: http, port: 8080 }, { name: https, port: 8443 }] }
  - { addresses: [127.0.0.1], ports: [{ name: http, port: 9090 }] }
- name: unnamed
  cluster_ips: [10.96.0.11]
  ports: [{ port: 80 }]
  endpoints: [{ addresses: [127.0.0.1], ports: [{ port: 8443 }] }]
";

/// N-09, N-11, N-12: each port goes to its own, by name; the number may differ between backends.
#[test]
fn ports_go_to_their_own() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 http-8080");
    probe.ask("serve-tcp 127.0.0.1:9090 http-9090");
    probe.ask("serve-tcp 127.0.0.1:8443 https");
    let _agent = lab.agent(PORTS, &[]);
    let counts = probe.counts("tcp 10.96.0.10:80 100");
    let names: Vec<_> = counts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["http-8080", "http-9090"]);
    assert_eq!(probe.ask("tcp 10.96.0.10:443 20"), "https=20");
    assert_eq!(probe.ask("tcp 10.96.0.11:80 5"), "https=5");
}

const REFUSED: &str = "\
services:
- name: none
  cluster_ips: [10.96.0.1]
  ports: [{ name: t, port: 80 }, { name: u, port: 80, protocol: UDP }]
- name: elsewhere
  cluster_ips: [10.96.0.2]
  internal_traffic_policy: Local
  ports: [{ port: 80 }]
  endpoints: [{ addresses: [127.0.0.1], ports: [{ port: 8080 }], node: n2 }]
- name: here
  cluster_ips: [10.96.0.3]
  internal_traffic_policy: Local
  ports: [{ port: 80 }]
  endpoints:
  - { addresses: [127.0.0.1], ports: [{ port: 8080 }], node: n1 }
  - { addresses: [127.0.0.9], ports: [{ port: 8080 }], node: n2 }
";

/// N-19, N-22, N-51: without endpoints a connection is refused at once; without a local one, where that is
/// wanted, it is unreachable; an address that is nobody's is left alone.
#[test]
fn connections_without_a_backend_fail_at_once() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 here");
    let _agent = lab.agent(REFUSED, &[]);
    assert_eq!(probe.ask("tcp 10.96.0.1:80 3"), "ECONNREFUSED=3");
    assert_eq!(probe.ask("udp 10.96.0.1:80 3"), "ECONNREFUSED=3");
    assert_eq!(probe.ask("udp-connected 10.96.0.1:80 3"), "ECONNREFUSED=3");
    assert_eq!(probe.ask("tcp 10.96.0.2:80 3"), "EHOSTUNREACH=3");
    assert_eq!(probe.ask("tcp 10.96.0.3:80 9"), "here=9");
    // The namespace has no route to these.
    assert_eq!(
        probe.ask("tcp 10.96.0.1:81 1"),
        "ENETUNREACH=1",
        "another port"
    );
    assert_eq!(
        probe.ask("udp 10.96.0.2:80 1"),
        "ENETUNREACH=1",
        "another protocol"
    );
    assert_eq!(
        probe.ask("tcp 10.96.9.9:80 1"),
        "ENETUNREACH=1",
        "another address"
    );
}

/// N-20, N-21: a backend reaches itself by its ClusterIP; large requests arrive whole.
#[test]
fn hairpins_and_large_requests() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:5354 me");
    probe.ask("serve-udp 127.0.0.1:5353 me");
    let _agent = lab.agent(DNS, &[]);
    assert_eq!(probe.ask("tcp 10.96.0.53:53 1"), "me=1");
    assert_eq!(probe.ask("echo-tcp 10.96.0.53:53 65536"), "true");
    assert_eq!(probe.ask("echo-udp 10.96.0.53:53 65000"), "true");
}
