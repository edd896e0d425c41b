//! The agent's metrics for Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::lab::Lab;
use crate::loads::zoned;

/// The metrics, as a program asks for them.
pub(crate) fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
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
    let log = agent.log();
    let (_, rest) = log.split_once("metrics at http://").unwrap();
    let (address, _) = rest.split_once("/metrics").unwrap();
    probe.ask("hold 10.96.0.10:80 3");
    probe.ask("let-go 1");
    agent.wait(|view| view.frontends[0].backends[0].active == 2);
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
