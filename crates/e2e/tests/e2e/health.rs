//! Client-side health checking (gRFC A17) against the health service of gRPC's own package on
//! C-core.
//!
//! The backends of our own tests send answers by hand, which could share a mistake with the
//! channel.

use std::net::SocketAddr;
use std::process::Command;

use crowfly::ConnectivityState::{Ready, TransientFailure};
use crowfly::{Channel, ConnectivityState};
use crowfly_e2e::echo::EchoClient;
use crowfly_e2e::peers;
use crowfly_e2e::process::{PATIENCE, Process};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::timeout;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/py/health_server.py");

/// gRFC A17: calls follow the health that the server reports, on one connection. A service that the server
/// does not know is unhealthy.
#[tokio::test(flavor = "multi_thread")]
async fn calls_follow_the_health_of_a_c_core_server() {
    let Some(python) = block_in_place(peers::python_with_health) else {
        return;
    };
    let mut command = Command::new(python);
    command.arg(SCRIPT);
    let mut process = Process::start("C-core health server", command);
    let port = block_in_place(|| {
        process.wait_for("its port", |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            u16::try_from(event["port"].as_u64()?).ok()
        })
    });
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let control = ResourceServer::start(&Resources::service("svc", [address]));

    let channel = checked(&control, "e2e.Echo");
    let echo = EchoClient::new(channel.clone());
    echo.unary("Unary", "hello").await.unwrap();
    for _ in 0..2 {
        process.send_line("NOT_SERVING");
        reaches(&channel, TransientFailure).await;
        let status = echo.unary("Unary", "hello").await.unwrap_err();
        let reason = format!("{address}: health check: service e2e.Echo is NOT_SERVING");
        assert!(status.message().contains(&reason), "{status}");
        process.send_line("SERVING");
        reaches(&channel, Ready).await;
        echo.unary("Unary", "hello").await.unwrap();
    }

    let unknown = checked(&control, "nobody");
    reaches(&unknown, TransientFailure).await;
    let status = EchoClient::new(unknown)
        .unary("Unary", "hello")
        .await
        .unwrap_err();
    assert!(status.message().contains("SERVICE_UNKNOWN"), "{status}");
}

fn checked(control: &ResourceServer, service: &str) -> Channel {
    Channel::builder("xds:///svc")
        .bootstrap(control.bootstrap())
        .health_check(service)
        .build()
        .unwrap()
}

async fn reaches(channel: &Channel, state: ConnectivityState) {
    let mut states = channel.watch_state();
    let reached = async {
        while states.state() != state {
            states.changed().await.expect("the channel lives");
        }
    };
    timeout(PATIENCE, reached).await.expect("the state changes");
}
