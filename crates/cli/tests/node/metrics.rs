//! The agent's metrics for Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crowfly_testkit::KubeApi;

use crate::control::Control;
use crate::kubernetes::service;
use crate::lab::{Agent, Lab};
use crate::loads::zoned;

/// The metrics, as a program asks for them.
pub(crate) fn scrape(address: &str) -> String {
    get(address, "/metrics")
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The address of an agent's metrics, from its log.
pub(crate) fn metrics_of(agent: &Agent<'_>) -> String {
    let log = agent.log();
    let (_, rest) = log.split_once("metrics at http://").unwrap();
    let (address, _) = rest.split_once("/metrics").unwrap();
    address.to_owned()
}

/// The value of a metric; 0 if there is none.
pub(crate) fn value_of(text: &str, metric: &str) -> u64 {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(metric));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

/// N-70: connections by service, backend and locality; sources, changes and the room in maps. A bad file is
/// counted.
#[test]
fn metrics_have_connections_sources_and_maps() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 a");
    let web = zoned("web", "10.96.0.10", &[("127.0.0.1:8080", "a")]);
    let agent = lab.agent(
        &format!("services:\n{web}"),
        &["--metrics-listen", "127.0.0.1:0"],
    );
    let address = &metrics_of(&agent);
    probe.ask("hold 10.96.0.10:80 3");
    probe.ask("let-go 1");
    agent.wait(|view| view.frontends[0].backends[0].active == 2);
    // The pages that the probes of the DaemonSet ask for.
    for path in ["/healthz", "/readyz"] {
        assert!(get(address, path).starts_with("HTTP/1.1 200 OK"));
    }
    let text = scrape(address);
    let labels = "service=\"default/web\",frontend=\"10.96.0.10:80/TCP\",source=\"file\",\
                  backend=\"127.0.0.1:8080\",locality=\"/a\"";
    for line in [
        format!("crowfly_node_connections_opened_total{{{labels}}} 3"),
        format!("crowfly_node_connections_closed_total{{{labels}}} 1"),
        format!("crowfly_node_connections_failed_total{{{labels}}} 0"),
        format!("crowfly_node_connections_active{{{labels}}} 2"),
        "crowfly_node_connections_left_out 0".to_owned(),
        "crowfly_node_source_state{source=\"file\",state=\"synced\"} 1".to_owned(),
        "crowfly_node_source_services{source=\"file\"} 1".to_owned(),
        "crowfly_node_frontends 1".to_owned(),
        "crowfly_node_frontends_failed 0".to_owned(),
        "crowfly_node_frontend_changes_total{result=\"switched\"} 1".to_owned(),
        "crowfly_node_map_entries{map=\"svc\"} 1".to_owned(),
        "crowfly_node_map_capacity{map=\"svc\"} 65536".to_owned(),
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    assert!(
        text.contains("crowfly_node_reconcile_seconds_count"),
        "{text}"
    );

    agent.write("services: [");
    agent.wait(|view| view.sources[0].status.starts_with("failed"));
    let text = scrape(address);
    for line in [
        "crowfly_node_source_failures_total{source=\"file\"} 1",
        "crowfly_node_source_state{source=\"file\",state=\"failed\"} 1",
        "crowfly_node_source_state{source=\"file\",state=\"synced\"} 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// N-82: an agent that was given a wrong address of a server is alive, but not ready, and says which source is missing. It
/// stays so after the start timeout. A source that fails after its listing leaves the agent ready.
#[test]
fn an_agent_is_ready_once_every_source_was_heard() {
    let Some(lab) = Lab::new() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut api = runtime.block_on(KubeApi::start());
    runtime.block_on(api.stop());
    let url = api.url();
    let flags = [
        "--kubernetes-server",
        &url,
        "--metrics-listen",
        "127.0.0.1:0",
        "--start-timeout",
        "100ms",
    ];
    let agent = lab.start("services: []\n", &flags);
    // It answers once it listens for metrics.
    agent.view();
    let address = &metrics_of(&agent);
    let until = |wanted: &str| {
        let begin = Instant::now();
        loop {
            let answer = get(address, "/readyz");
            if answer.contains(wanted) {
                return answer;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{answer}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    let answer = until("kubernetes (failed: ");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(!answer.contains("file ("), "{answer}");
    let begin = Instant::now();
    while !agent.log().contains("nothing waits for it any more") {
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", agent.log());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503 "));
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 OK"));

    let entered = runtime.enter();
    api.resume();
    drop(entered);
    until("HTTP/1.1 200 OK");
    agent.write("services: [");
    agent.wait(|view| {
        let mut sources = view.sources.iter();
        sources.any(|it| it.status.starts_with("failed"))
    });
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200 OK"));
}

/// N-61: inputs that a source refuses are counted by source: an object of Kubernetes, and a resource of xDS.
#[test]
fn refused_inputs_are_counted() {
    let Some(lab) = Lab::new() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let api = runtime.block_on(KubeApi::start());
    api.apply(&service("bad", "10.96.0.300"));
    api.apply(&service("good", "10.96.0.10"));
    let control = Control::start(
        &lab,
        r#"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: web
  filter_chains:
  - filter_chain_match:
      prefix_ranges: [{ address_prefix: 10.96.0.0, prefix_len: 24 }]
      destination_port: 80
    filters:
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: web
        cluster: web
"#,
    );
    let url = api.url();
    let flags = [
        "--kubernetes-server",
        &url,
        "--xds-server",
        &control.address,
        "--metrics-listen",
        "127.0.0.1:0",
    ];
    let agent = lab.start("services: []\n", &flags);
    agent.wait(|view| view.frontends.len() == 1);
    let address = metrics_of(&agent);
    let refused = |source: &str| {
        let metric = format!("crowfly_node_inputs_refused_total{{source=\"{source}\"}}");
        value_of(&scrape(&address), &metric)
    };
    let begin = Instant::now();
    while (refused("kubernetes"), refused("xds")) != (1, 1) {
        let text = scrape(&address);
        assert!(begin.elapsed() < Duration::from_secs(20), "{text}");
        thread::sleep(Duration::from_millis(20));
    }
}
