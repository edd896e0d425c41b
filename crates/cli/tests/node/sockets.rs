//! Sockets whose backend is gone are ended, and no others.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use aya::{EbpfLoader, include_bytes_aligned};

use crate::lab::{Lab, Probe};
use crate::web;

/// A service of UDP with backends at these addresses; those that end with `!` are not ready.
fn dns(backends: &[&str]) -> String {
    let endpoints = backends.iter().map(|backend| {
        let ready = !backend.ends_with('!');
        let address = backend.trim_end_matches('!');
        format!(
            "  - {{ addresses: [{address}], ports: [{{ port: 5353, protocol: UDP }}], ready: {ready} }}\n"
        )
    });
    let endpoints: String = endpoints.collect();
    let endpoints = match endpoints.as_str() {
        "" => "  endpoints: []\n".to_owned(),
        some => format!("  endpoints:\n{some}"),
    };
    format!(
        "services:\n- name: dns\n  cluster_ips: [10.96.0.53]\n  ports: [{{ port: 53, protocol: UDP }}]\n{endpoints}"
    )
}

/// A socket that is ended says so once, and has no peer from then on. A wait for an answer may have been told.
fn ended(answer: &str) -> String {
    let answer = answer.replace("ECONNABORTED", "ended");
    answer.replace("EDESTADDRREQ", "ended")
}

/// Waits until a probe answers otherwise than `before`.
fn changed(probe: &mut Probe, command: &str, before: &str) -> String {
    let begin = Instant::now();
    loop {
        let answer = probe.ask(command);
        if answer != before || begin.elapsed() > Duration::from_secs(20) {
            return answer;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// N-79: connected UDP sockets to a backend that goes are ended in every network namespace. Sockets to the
/// same address that were never routed, and those of a backend that is only not ready, go on.
#[test]
fn udp_sockets_end_with_their_backend() {
    let Some(lab) = Lab::new() else { return };
    let mut probes = [lab.probe(), lab.probe()];
    let agent = lab.agent(&dns(&["127.0.0.1"]), &[]);
    for probe in &mut probes {
        probe.ask("serve-udp 127.0.0.1:5353 a");
        probe.ask("serve-udp 127.0.0.2:5353 b");
        probe.ask("hold-udp 10.96.0.53:53");
        probe.ask("hold-udp 127.0.0.1:5353");
        assert_eq!(probe.ask("use-held-udp"), "a a");
    }
    agent.apply(&dns(&["127.0.0.1!", "127.0.0.2"]));
    thread::sleep(Duration::from_millis(500));
    assert_eq!(
        probes[0].ask("use-held-udp"),
        "a a",
        "not ready is not gone"
    );
    agent.apply(&dns(&["127.0.0.2"]));
    for probe in &mut probes {
        let answer = changed(probe, "use-held-udp", "a a");
        assert_eq!(ended(&answer), "ended a", "{}", agent.log());
        assert_eq!(probe.ask("udp-connected 10.96.0.53:53 1"), "b=1");
    }
}

/// N-79: a program takes the peer of a UDP socket away, and uses the socket for other addresses. The socket goes on when
/// the backend goes that it was connected to.
#[test]
fn a_socket_that_was_disconnected_goes_on() {
    let Some(lab) = Lab::new() else { return };
    let [mut freed, mut connected] = [lab.probe(), lab.probe()];
    let agent = lab.agent(&dns(&["127.0.0.1"]), &[]);
    for probe in [&mut freed, &mut connected] {
        probe.ask("serve-udp 127.0.0.1:5353 a");
        probe.ask("serve-udp 127.0.0.2:5353 b");
        probe.ask("hold-udp 10.96.0.53:53");
        assert_eq!(probe.ask("use-held-udp"), "a");
    }
    freed.ask("disconnect-held-udp");
    assert_eq!(freed.ask("send-by-held-udp 127.0.0.2:5353"), "b");
    agent.apply(&dns(&["127.0.0.2"]));
    let begin = Instant::now();
    while !agent.log().contains("sockets were ended") {
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", agent.log());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(
        agent.log().contains("1 sockets were ended"),
        "{}",
        agent.log()
    );
    assert_eq!(freed.ask("send-by-held-udp 127.0.0.2:5353"), "b");
    assert_eq!(ended(&connected.ask("use-held-udp")), "ended");
}

/// N-79: TCP connections to a backend that goes are ended if that is asked for; a direct one goes on.
#[test]
fn tcp_sockets_end_with_their_backend_if_asked_for() {
    let Some(lab) = Lab::new() else { return };
    let (mut routed, mut direct) = (lab.probe(), lab.probe());
    let agent = lab.agent(&web("10.96.0.10", "", &["127.0.0.1:8080"]), &["--end-tcp"]);
    for (probe, address) in [
        (&mut routed, "10.96.0.10:80"),
        (&mut direct, "127.0.0.1:8080"),
    ] {
        probe.ask("serve-tcp 127.0.0.1:8080 a");
        probe.ask(&format!("hold {address} 1"));
        assert_eq!(probe.ask("use-held"), "ok");
    }
    agent.apply(&web("10.96.0.10", "", &["127.0.0.2:8080"]));
    let answer = changed(&mut routed, "use-held", "ok");
    assert_eq!(answer, "ECONNABORTED", "{}", agent.log());
    assert_eq!(direct.ask("use-held"), "ok");
}

/// N-79: a TCP connection from the time of an agent with `--end-tcp` goes on if the agent without it finds the backend
/// gone. The UDP socket beside it is ended.
#[test]
fn tcp_sockets_of_an_agent_that_ended_them_go_on() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    let both = |address: &str| {
        let tcp = web("10.96.0.10", "", &[&format!("{address}:8080")]);
        tcp + dns(&[address]).trim_start_matches("services:\n")
    };
    let agent = lab.agent(&both("127.0.0.1"), &["--end-tcp"]);
    probe.ask("serve-tcp 127.0.0.1:8080 a");
    probe.ask("serve-udp 127.0.0.1:5353 a");
    probe.ask("hold 10.96.0.10:80 1");
    probe.ask("hold-udp 10.96.0.53:53");
    assert_eq!(probe.ask("use-held-udp"), "a");
    agent.stop();

    let agent = lab.agent(&both("127.0.0.2"), &[]);
    let begin = Instant::now();
    while !agent.log().contains("sockets were ended") {
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", agent.log());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(
        agent.log().contains("1 sockets were ended"),
        "{}",
        agent.log()
    );
    assert_eq!(ended(&probe.ask("use-held-udp")), "ended");
    assert_eq!(probe.ask("use-held"), "ok", "{}", agent.log());
}

/// N-79: a socket that the map of sockets has no room for is routed like any other. It is not ended with its backend,
/// and the log says so.
#[test]
fn a_socket_without_room_is_routed_and_not_ended() {
    let Some(lab) = Lab::new() else { return };
    // Maps keep the size that they were made with: here there is room for two.
    let pins = lab.pins().join("v2");
    fs::create_dir_all(&pins).unwrap();
    EbpfLoader::new()
        .default_map_pin_directory(&pins)
        .map_max_entries("routed", 2)
        .load(include_bytes_aligned!("../../../node/bpf/crowfly.bpf.o"))
        .unwrap();
    let mut probe = lab.probe();
    probe.ask("serve-udp 127.0.0.1:5353 a");
    let agent = lab.agent(&dns(&["127.0.0.1"]), &[]);
    for _ in 0..3 {
        probe.ask("hold-udp 10.96.0.53:53");
    }
    assert_eq!(probe.ask("use-held-udp"), "a a a");
    assert!(!agent.log().contains("is full"), "{}", agent.log());

    agent.apply(&dns(&["127.0.0.2"]));
    let begin = Instant::now();
    while ended(&probe.ask("use-held-udp")) != "ended ended a" {
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", agent.log());
        thread::sleep(Duration::from_millis(20));
    }
    let said = "the map routed is full: further sockets are routed, but are not ended when their backend is gone";
    assert_eq!(agent.log().matches(said).count(), 1, "{}", agent.log());
}

/// N-80: a UDP client survives that its server is replaced, also when the first is not ready at first, and
/// also when the agent was down meanwhile.
#[test]
fn a_udp_client_survives_the_replacement_of_its_server() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-udp 127.0.0.1:5353 a");
    probe.ask("serve-udp 127.0.0.2:5353 b");
    let agent = lab.agent(&dns(&["127.0.0.1!"]), &[]);
    assert_eq!(probe.ask("udp-connected 10.96.0.53:53 1"), "ECONNREFUSED=1");
    agent.apply(&dns(&["127.0.0.1"]));
    assert_eq!(probe.ask("udp-until 10.96.0.53:53 a"), "a");
    probe.ask("hold-udp 10.96.0.53:53");
    agent.apply(&dns(&["127.0.0.2!"]));
    agent.apply(&dns(&["127.0.0.2"]));
    let answer = changed(&mut probe, "use-held-udp", "a");
    assert_eq!(ended(&answer), "ended");
    assert_eq!(probe.ask("udp-until 10.96.0.53:53 b"), "b");

    probe.ask("hold-udp 10.96.0.53:53");
    agent.kill();
    let agent = lab.agent(&dns(&["127.0.0.1"]), &[]);
    let answer = changed(&mut probe, "use-held-udp", "EDESTADDRREQ b");
    assert_eq!(ended(&answer), "ended ended", "{}", agent.log());
}
