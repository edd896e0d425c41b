//! The memory of an idle connection: the pages of a process that has many of them and does nothing
//! else.
//!
//! A process of its own is measured, because the allocator of a busy one keeps pages of other work.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use crowfly_cli::bench::{BenchError, warm_up};

use super::Speaker;
use super::over::Over;

/// The number of connections. The number is less than the file descriptors that a process has by
/// default.
pub(super) const CONNECTIONS: usize = 800;
/// The time to wait until the connections are idle, because no event reports that.
const SETTLE: Duration = Duration::from_secs(1);
const PAGE: f64 = 4_096.0;

/// Hold idle connections, and tell what one needs
#[derive(Args, Clone, Debug)]
pub(crate) struct IdleArgs {
    speaker: Speaker,
    address: SocketAddr,
}

/// Measures in a process of its own, whose memory nothing else has touched.
pub(super) fn in_a_process(speaker: Speaker, address: SocketAddr) -> Result<f64, BenchError> {
    let failed =
        |text: String| BenchError::Channel(format!("the process with idle connections: {text}"));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let speaker = speaker
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned());
    let output = Command::new(program)
        .args(["ab-idle", &speaker, &address.to_string()])
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .map_err(|_| failed(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Prints bytes per connection.
pub(crate) async fn run(args: IdleArgs) -> Result<(), BenchError> {
    let mut connections = vec![connect(&args).await?];
    let before = resident()?;
    while connections.len() <= CONNECTIONS {
        connections.push(connect(&args).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let after = resident()?;
    println!("{}", (after - before) * PAGE / CONNECTIONS as f64);
    Ok(())
}

/// A connection that has carried one call, because the first use makes its buffers.
async fn connect(args: &IdleArgs) -> Result<Over, BenchError> {
    let over = Over::connect(args.address, args.speaker).await?;
    warm_up(&over).await?;
    Ok(over)
}

/// Pages of this process in memory.
fn resident() -> Result<f64, BenchError> {
    let text = fs::read_to_string("/proc/self/statm").map_err(BenchError::Config)?;
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok());
    pages.ok_or_else(|| BenchError::Channel("/proc/self/statm is not as expected".to_owned()))
}
